"""The controllers by name, and the syntax of `--controllers` (upstream's)."""

from collections.abc import Sequence

NODE = "cloud-node-controller"
LIFECYCLE = "cloud-node-lifecycle-controller"
SERVICE = "service-lb-controller"
ROUTE = "node-route-controller"
VOLUME = "volume-label-controller"

ALIASES = {
    "cloud-node": NODE,
    "cloud-node-lifecycle": LIFECYCLE,
    "service": SERVICE,
    "route": ROUTE,
    "volume-label": VOLUME,
}
KNOWN = tuple(ALIASES.values())


def canonical(items: Sequence[str]) -> tuple[str, ...]:
    """Names with aliases replaced, order and `-` kept; ValueError names an unknown one."""
    result = []
    for item in items:
        name = item.removeprefix("-")
        full = ALIASES.get(name, name)
        if full not in KNOWN and item != "*":
            raise ValueError(name)
        result.append(f"-{full}" if item.startswith("-") else full)
    return tuple(result)


def is_enabled(controller: str, items: Sequence[str]) -> bool:
    """Whether the list turns this controller on: the first item that names it wins, then `*`."""
    for item in items:
        if item.removeprefix("-") == controller:
            return not item.startswith("-")
    return "*" in items
