"""The story of a sandbox: what differs between two looks, as lines for people."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ccm.model.objects import SHUTDOWN_TAINT, Node
from ccm.sandbox.cloud.records import Power
from ccm.sandbox.kubelets import registration
from ccm.sandbox.story import Scene, changes
from ccm.sandbox.workload import WorkloadStatus

NAMES = ("vm-1", "vm-2")


def node(name: str, *taints: str) -> Node:
    """One that lacks nothing but what these taints say."""
    raw = registration(name, "10.244.1.0/24", node_ip="10.0.0.1")
    zone, kind = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
    raw["metadata"]["labels"] |= {zone: "zone-a", kind: "standard-2"}
    spec = {"providerID": f"simulated://{name}", "taints": [{"key": taint} for taint in taints]}
    return Node({**raw, "spec": spec})


def nodes(*names: str) -> Mapping[str, Node]:
    return {name: node(name) for name in names}


CALM = Scene(
    nodes(*NAMES),
    WorkloadStatus(
        "192.0.2.7",
        frozenset(NAMES),
        "zone-b",
        frozenset(NAMES),
        {"default/web": "192.0.2.7"},
        dict.fromkeys(NAMES, Power.RUNNING),
    ),
    {"node-0": 11, "service": 12},
    {"read": (50.0, 50.0)},
)


def powered(power: Power) -> Scene:
    seen = replace(CALM.workload, power=dict.fromkeys(NAMES, Power.RUNNING) | {"vm-2": power})
    return replace(CALM, workload=seen)


OFF = replace(CALM, nodes={**CALM.nodes, "vm-2": node("vm-2", SHUTDOWN_TAINT)})
GONE = replace(
    CALM,
    nodes=nodes("vm-1"),
    workload=replace(
        CALM.workload, service_backends=frozenset(["vm-1"]), routed=frozenset(["vm-1"])
    ),
)
MANY = tuple(f"vm-{number}" for number in range(3, 23))
MORE = replace(CALM, nodes=nodes(*NAMES, *MANY))
BARE = replace(CALM, nodes={name: Node(registration(name)) for name in (*NAMES, *MANY)})
ASKED = replace(CALM, workload=replace(CALM.workload, services={"default/web": "", "x/my": ""}))
GIVEN = replace(CALM, workload=replace(CALM.workload, services={"x/my": "192.0.2.9"}))
FAILING = replace(CALM, workload=replace(CALM.workload, faults=frozenset(["throttle of *"])))
SLOW = replace(CALM, rates={"read": (25.0, 50.0)}, problems={"a.md": "critical: No read succeeds."})


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (CALM, CALM, []),
        (CALM, powered(Power.STOPPED), ["vm-2: the machine stopped, so the kubelet falls silent"]),
        (powered(Power.STOPPED), CALM, ["vm-2: the machine started again"]),
        (
            CALM,
            powered(Power.TERMINATED),
            ["vm-2: the machine is terminated: it is gone for good"],
        ),
        (
            CALM,
            OFF,
            [
                "node worker: put the shutdown taint on vm-2",
                "service and route worker: keep vm-2: a machine that is off may come back",
            ],
        ),
        (OFF, CALM, ["node worker: took the shutdown taint from vm-2"]),
        (
            CALM,
            GONE,
            [
                "node worker: deleted Node vm-2",
                "service worker: took vm-2 from the load balancer",
                "route worker: removed the routes to Node vm-2",
            ],
        ),
        (
            CALM,
            MORE,
            [
                "20 Nodes (vm-3, vm-4, vm-5, …) registered",
                "node worker: initialized 20 Nodes (vm-3, vm-4, vm-5, …)",
            ],
        ),
        (BARE, MORE, ["node worker: initialized 22 Nodes (vm-1, vm-2, vm-3, …)"]),
        (
            GONE,
            CALM,
            [
                "Node vm-2 registered",
                "node worker: initialized Node vm-2",
                "service worker: put Node vm-2 behind the load balancer",
                "route worker: made the routes to Node vm-2",
            ],
        ),
        (CALM, ASKED, ["Service x/my asks for a load balancer"]),
        (
            ASKED,
            GIVEN,
            [
                "service worker: gave Service x/my the address 192.0.2.9",
                "service worker: removed the load balancer of Service default/web",
            ],
        ),
        (CALM, FAILING, ["the cloud has a fault: throttle of *"]),
        (FAILING, CALM, ["this fault of the cloud ended: throttle of *"]),
        (
            CALM,
            SLOW,
            [
                "supervisor: slows read calls below 50/s",
                "supervisor: reports critical: No read succeeds.",
            ],
        ),
        (
            SLOW,
            CALM,
            [
                "supervisor: raises read calls to 50/s again",
                "supervisor: reports no problem",
            ],
        ),
        (CALM, replace(CALM, workers={"node-0": 11}), ["process 12 of service ended"]),
        (
            CALM,
            replace(CALM, workers={"node-0": 13, "service": 12, "node-1": 14}),
            [
                "supervisor: runs node-0 in process 13 instead of 11",
                "supervisor: runs node-1 in process 14",
            ],
        ),
    ],
)
def test_a_change_is_a_line_with_who_did_it(before: Scene, after: Scene, lines: list[str]) -> None:
    told = changes(before, after)
    assert [f"{one.who}: {one.what}" if one.who else one.what for one in told] == lines
