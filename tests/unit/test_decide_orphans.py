"""What in the cloud belongs to nobody."""

import pytest

from ccm.decide.orphans import orphaned_balancers, orphaned_routes
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
        pytest.param([service("u1", "ClusterIP")], "lacks our finalizer", id="type-changed"),
        pytest.param([], "does not exist", id="no-service"),
        pytest.param([service("u2")], "does not exist", id="another-service-of-that-name"),
    ],
)
def test_a_balancer_is_an_orphan_when_no_worker_will_look_after_it(
    services: list[Service], why: str
) -> None:
    found = list(orphaned_balancers([OwnedBalancer("lb-1", "u1", "default/web")], services))
    assert [orphan.name for orphan in found] == (["lb-1"] if why else [])
    assert all(why in orphan.why for orphan in found)


@pytest.mark.parametrize(
    ("target", "cidr", "why"),
    [
        pytest.param("vm-1", "10.244.1.0/24", "", id="the-nodes-own"),
        pytest.param("vm-1", "fd00:0::/64", "", id="the-same-network-in-other-words"),
        pytest.param("vm-1", "10.244.9.0/24", "other pod networks", id="not-the-nodes"),
        pytest.param("", "10.244.1.0/24", "no Node", id="no-target"),
        pytest.param("vm-2", "10.244.1.0/24", "no Node", id="the-node-is-gone"),
        pytest.param("vm-1", "nonsense", "other pod networks", id="not-a-network"),
    ],
)
def test_a_route_is_an_orphan_when_no_node_wants_it(target: str, cidr: str, why: str) -> None:
    spec = {"podCIDRs": ["10.244.1.0/24", "fd00::/64"]}
    node = Node({"metadata": {"name": "vm-1"}, "spec": spec})
    found = list(orphaned_routes([Route(cidr, target, id="r-1")], [node]))
    assert len(found) == bool(why)
    assert all(why in orphan.why for orphan in found)
