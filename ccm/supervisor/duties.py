"""Which workers there are: a duty is the name of a package under `workers`."""

from ccm.controllers import LIFECYCLE, NODE, ROUTE, SERVICE, VOLUME, is_enabled
from ccm.settings import Settings
from ccm.supervisor.shards import names

SINGLE = {
    "route": ("route", ROUTE),
    "service": ("service", SERVICE),
    "volume-label": ("volume_label", VOLUME),
}
"""Workers that are one process each: name → duty, controller."""


def controllers(duty: str) -> tuple[str, ...]:
    """What workers of this duty do."""
    if duty == "node":
        return (NODE, LIFECYCLE)
    return tuple(controller for name, controller in SINGLE.values() if name == duty)


def duties(settings: Settings) -> dict[str, str]:
    """Worker name → duty; node workers do both the node and the lifecycle controller."""
    wanted: dict[str, str] = {}
    if any(is_enabled(controller, settings.controllers) for controller in controllers("node")):
        wanted |= dict.fromkeys(names(settings.node_workers), "node")  # first: nodes wait for them
    for name, (duty, controller) in SINGLE.items():
        if is_enabled(controller, settings.controllers):
            wanted[name] = duty
    return wanted
