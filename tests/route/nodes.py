"""Nodes with pod networks, and the tweaks of them that matter to routes."""

from collections.abc import Callable
from copy import deepcopy

from ccm.model.objects import Json, Node
from tests.unit.nodes import Tweak, node, with_provider_id

SCHEME = "fake"


def routed(name: str, *cidrs: str, tweaks: tuple[Tweak, ...] = ()) -> Node:
    """A Node of our cloud on machine `fake://<name>`, with these pod CIDRs."""
    return node(with_provider_id(f"{SCHEME}://{name}"), with_pod_cidrs(*cidrs), *tweaks, name=name)


def with_pod_cidrs(*cidrs: str) -> Tweak:
    def tweak(raw: Json) -> None:
        for key in ("podCIDR", "podCIDRs"):
            raw["spec"].pop(key, None)
        if cidrs:
            raw["spec"].update(podCIDR=cidrs[0], podCIDRs=list(cidrs))

    return tweak


def with_condition(status: str, reason: str, message: str = "") -> Tweak:
    """Its `NetworkUnavailable`, as it became long ago."""
    return lambda raw: raw["status"].update(
        conditions=[
            {"type": "Ready", "status": "True", "reason": "KubeletReady"},
            {
                "type": "NetworkUnavailable",
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": OLD,
                "lastTransitionTime": OLD,
            },
        ]
    )


OLD = "2020-01-01T00:00:00Z"


def changed(before: Node, *tweaks: Callable[[Json], object]) -> Node:
    raw = deepcopy(before.raw)
    for tweak in tweaks:
        tweak(raw)
    return Node(raw)


def network_condition(of: Node) -> Json:
    """`NetworkUnavailable`; empty when there is none."""
    conditions: list[Json] = of.raw["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "NetworkUnavailable"), {})
