"""Which workers there are, and what they and their controllers are called."""

from ccm.controllers import (
    LIFECYCLE,
    NODE,
    ROUTE,
    SERVICE,
    VOLUME,
    enabled_provided,
    is_enabled,
)
from ccm.settings import Settings

SINGLE_WORKERS = {
    "route": ("route", ROUTE),
    "service": ("service", SERVICE),
    "volume-label": ("volume_label", VOLUME),
}
"""Workers that are one process each: name → package under `workers`, name in `--controllers`."""


def shard_names(count: int) -> tuple[str, ...]:
    """The names of so many node workers."""
    return tuple(f"node-{number}" for number in range(count))


def controller_names(controller: str) -> tuple[str, ...]:
    """What `--controllers` calls the work of this package, or of the provider's controller."""
    if controller == "node":
        return (NODE, LIFECYCLE)
    packages = dict(SINGLE_WORKERS.values())
    return (packages.get(controller, controller),)


def process_name(controller: str) -> str:
    """What people call the processes of this controller."""
    return f"the {controller.replace('_', '-')} worker"


def wanted_workers(settings: Settings) -> dict[str, str]:
    """Worker name → its controller (see `load_controller`), of all that are enabled."""
    wanted: dict[str, str] = {}
    if any(is_enabled(name, settings.controllers) for name in controller_names("node")):
        # First, because nodes wait for them.
        wanted |= dict.fromkeys(shard_names(settings.node_workers), "node")
    for worker, (package, name) in SINGLE_WORKERS.items():
        if is_enabled(name, settings.controllers):
            wanted[worker] = package
    return wanted | {name: name for name in enabled_provided(settings.controllers)}
