"""What in the cloud belongs to nobody."""

import pytest

from ccm.decide.orphans import Orphan, orphaned_balancers, orphaned_routes
from ccm.model.cloud import OwnedBalancer, Route
from ccm.model.objects import Node
from ccm.model.service import FINALIZER, Service


def service(uid: str, kind: str = "LoadBalancer", *finalizers: str) -> Service:
    meta = {"name": "web", "namespace": "default", "uid": uid, "finalizers": [*finalizers]}
    return Service({"metadata": meta, "spec": {"type": kind}})


@pytest.mark.parametrize(
    ("services", "why"),
    [
        pytest.param([service("u1")], "", id="its-service-wants-it"),
        pytest.param([service("u1", "ClusterIP", FINALIZER)], "", id="a-worker-will-take-it"),
        pytest.param(
            [service("u1", "ClusterIP")],
            "Service default/web is of type ClusterIP and lacks our finalizer",
            id="type-changed",
        ),
        pytest.param([], "default/web (u1) does not exist", id="no-service"),
        pytest.param(
            [service("u2")], "default/web (u1) does not exist", id="another-service-of-that-name"
        ),
    ],
)
def test_a_balancer_is_an_orphan_when_no_worker_will_look_after_it(
    services: list[Service], why: str
) -> None:
    found = list(orphaned_balancers([OwnedBalancer("lb-1", "u1", "default/web")], services))
    assert found == ([Orphan("load balancer", "lb-1", why)] if why else [])


def test_each_orphan_is_found_also_one_that_does_not_say_whose_it_was() -> None:
    balancers = [OwnedBalancer(f"lb-{uid}", uid, "") for uid in ("u1", "u2", "u3")]
    assert list(orphaned_balancers(balancers, [service("u2")])) == [
        Orphan("load balancer", f"lb-{uid}", f"its Service ({uid}) does not exist")
        for uid in ("u1", "u3")
    ]


@pytest.mark.parametrize(
    ("target", "cidr", "why"),
    [
        pytest.param("vm-1", "10.244.1.0/24", "", id="the-nodes-own"),
        pytest.param("vm-1", "fd00:0::/64", "", id="the-same-network-in-other-words"),
        pytest.param(
            "vm-1", "10.244.9.0/24", "Node vm-1 has other pod networks", id="not-the-nodes"
        ),
        pytest.param("", "10.244.1.0/24", "no Node has the machine it leads to", id="no-target"),
        pytest.param("vm-2", "10.244.1.0/24", "no Node has the machine it leads to", id="gone"),
        pytest.param("vm-1", "nonsense", "Node vm-1 has other pod networks", id="not-a-network"),
    ],
)
def test_a_route_is_an_orphan_when_no_node_wants_it(target: str, cidr: str, why: str) -> None:
    spec = {"podCIDRs": ["10.244.1.0/24", "fd00::/64"]}
    node = Node({"metadata": {"name": "vm-1"}, "spec": spec})
    found = list(orphaned_routes([Route(cidr, target, id="r-1")], [node]))
    assert found == ([Orphan("route", f"{cidr} (r-1)", why)] if why else [])
