"""Zones of new volumes for provider authors: upstream's rules, so that replicas spread alike."""

import random
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ccm.model.node import Node
from ccm.model.objects import Json, objects, text
from ccm.model.volume import LEGACY_ZONE, ZONE

_UINT32 = 0xFFFFFFFF
_OF_SET = re.compile(r"(?P<base>.*)-(?P<index>[0-9]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Placement:
    """What says where a new volume is to be.

    `node` is the one chosen for the first Pod, `topologies` the StorageClass's `allowedTopologies`,
    `zone` and `zones` its parameters, and `zones_with_nodes` those where Pods could run at all.
    """

    claim: str  # the name of the PersistentVolumeClaim
    replicas: int = 1
    node: Node | None = None
    topologies: tuple[Json, ...] = ()
    zone: str | None = None
    zones: frozenset[str] | None = None
    zones_with_nodes: frozenset[str] = frozenset()


def fnv1_32(data: str) -> int:
    """The FNV-1 hash in 32 bits."""
    value = 2166136261
    for byte in data.encode():
        value = (value * 16777619 & _UINT32) ^ byte
    return value


def choose_zones(zones: Collection[str], claim: str, count: int = 1) -> frozenset[str]:
    """`count` zones for the volume of this claim, always the same ones; fewer if there are fewer.

    Claims of a StatefulSet (`<claim>-<set>-<index>`) go round the zones by index, all claims of one
    Pod to the same zones. A claim without a name goes anywhere.
    """
    if not zones:
        return frozenset()
    order = sorted(set(zones))
    start, index = _start_and_index(claim)
    first = start + index * count
    return frozenset(order[((first + step) & _UINT32) % len(order)] for step in range(count))


def _start_and_index(claim: str) -> tuple[int, int]:
    if not claim:
        return random.getrandbits(32), 0
    match = _OF_SET.fullmatch(claim)
    if not match or int(match["index"]) > _UINT32:
        return fnv1_32(claim), 0
    return fnv1_32(match["base"].rpartition("-")[2]), int(match["index"])


def select_zones(placement: Placement) -> frozenset[str]:
    """The zones for a new volume; ValueError when what was asked for fights itself."""
    has_parameter = placement.zone is not None or placement.zones is not None
    if placement.zone is not None and placement.zones is not None:
        raise ValueError("the StorageClass has both of the parameters zone and zones")
    if placement.node and has_parameter:
        raise ValueError(
            "the StorageClass has a parameter zone or zones, but waits for the first consumer; "
            "use allowedTopologies instead"
        )
    near = _zone_of(placement.node) if placement.node else ""
    if near and placement.replicas == 1:
        return frozenset({near})
    allowed = allowed_zones(placement.topologies)
    if placement.topologies and not allowed:
        raise ValueError("allowedTopologies name no zone")
    if allowed and has_parameter:
        raise ValueError("the StorageClass has a parameter zone or zones beside allowedTopologies")
    if allowed:
        return _choose_with(allowed, placement, near)
    if has_parameter:
        return _from_parameter(placement)
    if placement.zones_with_nodes:
        return _choose_with(placement.zones_with_nodes, placement, near)
    raise ValueError("nothing says in which zone the volume is to be")


def allowed_zones(topologies: Iterable[Json]) -> frozenset[str]:
    """The zones in a StorageClass's `allowedTopologies`; ValueError for any other key."""
    zones: set[str] = set()
    for term in topologies:
        for expression in objects(term.get("matchLabelExpressions")):
            if expression.get("key") not in (ZONE, LEGACY_ZONE):
                raise ValueError(f"allowedTopologies have a key {expression.get('key')!r}")
            zones.update(text(value) for value in expression.get("values") or ())
    return frozenset(zones - {""})


def _zone_of(node: Node) -> str:
    zone = node.labels.get(ZONE) or node.labels.get(LEGACY_ZONE)
    if not zone:
        raise ValueError(f"node {node.name} has neither label {ZONE} nor {LEGACY_ZONE}")
    return zone


def _from_parameter(placement: Placement) -> frozenset[str]:
    if placement.zone is not None:
        if placement.replicas > 1:
            raise ValueError(f"one zone is given for {placement.replicas} replicas; give zones")
        return frozenset({placement.zone})
    zones = placement.zones or frozenset()
    _check_enough(zones, placement.replicas)
    return choose_zones(zones, placement.claim, placement.replicas)


def _choose_with(zones: frozenset[str], placement: Placement, near: str) -> frozenset[str]:
    """As many of the zones as there are replicas, the node's zone among them."""
    if placement.replicas < 1:
        raise ValueError(f"{placement.replicas} replicas are not a number of replicas")
    _check_enough(zones, placement.replicas)
    if near and near not in zones:
        raise ValueError(f"zone {near} of the node is not among {', '.join(sorted(zones))}")
    if len(zones) == placement.replicas:
        return zones
    if not near:
        return choose_zones(zones, placement.claim, placement.replicas)
    return choose_zones(zones - {near}, placement.claim, placement.replicas - 1) | {near}


def _check_enough(zones: frozenset[str], replicas: int) -> None:
    if len(zones) < replicas:
        raise ValueError(f"{replicas} replicas need as many zones, there are {len(zones)}")
