"""What is changed about a load balancer and what belongs to it: plans without a cloud."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ccm.cloud.testkit.harness import port, service
from ccm.errors import Refused
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.config import BalancerSection
from ccm.providers.openstack.ids import Cluster
from ccm.providers.openstack.lb.annotations import PREFIX
from ccm.providers.openstack.lb.backends import NodeBackends
from ccm.providers.openstack.lb.names import Names, Role
from ccm.providers.openstack.lb.plan import (
    ROOT,
    ObservedBalancer,
    changed_members,
    creation,
    is_deletable,
    members_update,
    plan,
    plan_deletion,
    read_members,
)
from ccm.providers.openstack.lb.request import Listener, Member, read_request
from tests.support.waiting import turns_during

CLUSTER = Cluster("kubernetes")
NAMES = Names.of(service(), CLUSTER)
LOCAL: dict[str, Any] = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
KINDS = ("listener", "pool", "healthmonitor")


class FakeOctavia:
    """Records as Octavia keeps them, changed by calls; it is at work on nothing."""

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        self.record: Json = {}
        self.parts: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
        self.members: dict[str, list[Json]] = {}

    def observed(self, role: Role = Role.OWNER) -> ObservedBalancer:
        monitors = {one["pool_id"]: one for one in self.parts["healthmonitor"].values()}
        return ObservedBalancer(
            self.record,
            role,
            list(self.parts["listener"].values()),
            self.parts["pool"],
            {key: read_members(some) for key, some in self.members.items()},
            monitors,
        )

    def make(self, call: ApiCall) -> None:
        """Do what Octavia does."""
        kind, *rest = call.path.removeprefix(f"{ROOT}/").partition("?")[0].split("/")
        body: Any = next(iter((call.body or {}).values()), {})
        match call.method, kind.removesuffix("s"), rest:
            case "POST", "loadbalancer", []:
                self._create_all(dict(body))
            case "PUT", "loadbalancer", [_]:
                self.record |= body
            case "PUT", "pool", [pool_id, "members"]:
                self.members[pool_id] = body
            case "POST", part, []:
                self._create(part, dict(body))
            case "PUT", part, [part_id]:
                self.parts[part][part_id] |= body
            case "DELETE", part, [part_id]:
                self._delete(part, part_id)
            case unknown:
                raise AssertionError(unknown)

    def _create_all(self, body: Json) -> None:
        for listener in body.pop("listeners", ()):
            pool = listener.pop("default_pool")
            listener_id = self._create("listener", listener)
            members, monitor = pool.pop("members"), pool.pop("healthmonitor", None)
            pool_id = self._create("pool", pool | {"listener_id": listener_id})
            self.members[pool_id] = members
            if monitor:
                self._create("healthmonitor", monitor | {"pool_id": pool_id})
        self.record = {"id": "lb", **body}

    def _create(self, kind: str, body: Json) -> str:
        part_id = f"{kind}-{next(self.ids)}"
        if kind == "pool":
            self.parts["listener"][body.pop("listener_id")]["default_pool_id"] = part_id
        self.parts[kind][part_id] = {"id": part_id, **body}
        return part_id

    def _delete(self, kind: str, part_id: str) -> None:
        del self.parts[kind][part_id]
        if kind == "pool":
            self.members.pop(part_id, None)
            of_it = [k for k, m in self.parts["healthmonitor"].items() if m["pool_id"] == part_id]
            for monitor_id in of_it:
                del self.parts["healthmonitor"][monitor_id]


def desired(asked: Service, nodes: Sequence[str] = ("a", "b")) -> list[Listener]:
    request = read_request(asked, BalancerSection(create_monitor="M" in asked.name), {}, CLUSTER)
    check = request.health_check.port if request.health_check else 0
    members = {
        port.node_port: frozenset(
            Member(node, f"10.0.0.{ord(node)}", port.node_port, check) for node in nodes
        )
        for _, port in request.ports
    }
    return list(request.listeners(members))


def made(asked: Service, nodes: Sequence[str] = ("a", "b")) -> FakeOctavia:
    octavia = FakeOctavia()
    octavia.make(creation(NAMES, desired(asked, nodes), {}, True))
    return octavia


def annotated(**annotations: str) -> Service:
    return service("web", {PREFIX + key.replace("_", "-"): v for key, v in annotations.items()})


TWO = [port(80), port(443, node_port=30443)]
SHAPES: dict[str, Service] = {
    "one port": service(),
    "two ports": service(ports=TWO),
    "another order": service(ports=TWO[::-1]),
    "another node port": service(ports=[port(80, node_port=30099)]),
    "SCTP": service(ports=[port(80, "SCTP")]),
    "UDP and TCP": service(ports=[port(53, "UDP", 30053), port(53, "TCP", 30053)]),
    "Local": service(ports=TWO, **LOCAL),
    "affinity": service(sessionAffinity="ClientIP"),
    "ranges": service(loadBalancerSourceRanges=["192.0.2.0/24"]),
    "PROXY": annotated(proxy_protocol="v1"),
    "HTTP": annotated(x_forwarded_for="true"),
    "monitored": annotated(enable_health_monitor="true"),
    "monitored otherwise": annotated(enable_health_monitor="true", health_monitor_delay="9"),
    "options": annotated(connection_limit="5", timeout_client_data="1", lb_method="SOURCE_IP"),
}


def until_done(
    octavia: FakeOctavia, next_call: Callable[[], Iterator[ApiCall]], most: int = 30
) -> list[str]:
    """Make the first call of each plan and plan again, as the product does."""
    calls = []
    while call := next(next_call(), None):
        octavia.make(call)
        calls.append(call.operation)
        assert len(calls) <= most, calls
    return calls


@pytest.mark.parametrize("before", SHAPES)
@pytest.mark.parametrize("after", SHAPES)
def test_any_load_balancer_becomes_any_other_call_by_call(before: str, after: str) -> None:
    """OS51, OS52, OS53, OS54; interrupted after each call, as it is planned again."""
    octavia = made(SHAPES[before])
    wanted = desired(SHAPES[after])
    until_done(octavia, lambda: plan(NAMES, wanted, octavia.observed()))
    observed = octavia.observed()
    listeners = {(one["protocol"], one["protocol_port"]) for one in observed.listeners}
    assert listeners == {one.key for one in wanted}
    assert len(octavia.parts["pool"]) == len(wanted)
    types = sorted(one["type"] for one in observed.monitors.values())
    assert types == sorted(one.pool.monitor.type for one in wanted if one.pool.monitor)


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ("two ports", "another order", []),
        ("one port", "two ports", ["CreateListener", "CreatePool", "UpdateMembers"]),
        ("two ports", "one port", ["DeletePool", "DeleteListener"]),
        ("one port", "another node port", ["UpdateMembers"]),
        ("one port", "PROXY", ["DeletePool", "CreatePool", "UpdateMembers"]),
        ("one port", "ranges", ["UpdateListener"]),
        ("one port", "affinity", ["UpdatePool"]),
        ("one port", "monitored", ["CreateHealthMonitor"]),
        ("monitored", "monitored otherwise", ["UpdateHealthMonitor"]),
        ("monitored", "one port", ["DeleteHealthMonitor"]),
    ],
)
def test_only_what_differs_is_changed(before: str, after: str, operations: list[str]) -> None:
    """OS45, OS46."""
    octavia = made(SHAPES[before])
    wanted = desired(SHAPES[after])
    assert until_done(octavia, lambda: plan(NAMES, wanted, octavia.observed())) == operations


def test_one_made_piece_by_piece_ends_as_one_made_at_once() -> None:
    octavia = FakeOctavia()
    wanted = desired(SHAPES["Local"])
    octavia.make(creation(NAMES, wanted, {}, False))
    assert not octavia.parts["listener"]
    until_done(octavia, lambda: plan(NAMES, wanted, octavia.observed()))
    whole = made(SHAPES["Local"]).observed().members.values()
    assert set(octavia.observed().members.values()) == set(whole)


def without_marks(octavia: FakeOctavia) -> FakeOctavia:
    """As upstream makes it."""
    octavia.record["tags"] = [NAMES.balancer]
    for listener in octavia.parts["listener"].values():
        listener["tags"] = [NAMES.balancer]
    return octavia


def test_upstreams_is_right_as_it_is() -> None:
    octavia = without_marks(made(SHAPES["two ports"]))
    assert not list(plan(NAMES, desired(SHAPES["two ports"]), octavia.observed()))


def test_a_load_balancer_follows_the_name_of_its_cluster() -> None:
    """OS76."""
    octavia = made(service())
    renamed = replace(NAMES, cluster="other")
    wanted = desired(service())
    calls = until_done(octavia, lambda: plan(renamed, wanted, octavia.observed()))
    assert calls == ["UpdateListener", "UpdateLoadBalancer"]
    assert octavia.record["name"] == "kube_service_other_default_web"
    assert NAMES.balancer not in octavia.record["tags"]


SECOND = Names.of(service("second"), CLUSTER)


def shared() -> FakeOctavia:
    """One of the Service web that the Service second is on as well."""
    octavia = made(service())
    wanted = desired(service("second", ports=[port(81)]))
    until_done(octavia, lambda: plan(SECOND, wanted, octavia.observed(Role.SHARER)))
    return octavia


def test_a_port_of_another_service_is_refused() -> None:
    for there in (service(), SHAPES["HTTP"]):
        with pytest.raises(Refused, match="used by another listener"):
            list(plan(SECOND, desired(service("second")), made(there).observed(Role.SHARER)))


def test_who_shares_leaves_only_what_is_its_own() -> None:
    octavia = shared()
    assert not is_deletable(NAMES, octavia.observed())
    assert not is_deletable(SECOND, octavia.observed(Role.SHARER))
    until_done(octavia, lambda: plan_deletion(SECOND, octavia.observed(Role.SHARER), True))
    assert [one["protocol_port"] for one in octavia.parts["listener"].values()] == [80]
    assert is_deletable(NAMES, octavia.observed())
    assert not list(plan(NAMES, desired(service()), octavia.observed()))


@pytest.mark.parametrize("is_upstreams", [False, True])
def test_the_last_to_leave_deletes_what_this_cluster_made(is_upstreams: bool) -> None:
    octavia = shared()
    if is_upstreams:
        octavia.record["tags"] = [NAMES.balancer, SECOND.balancer, SECOND.sharer_tag]
    until_done(octavia, lambda: plan_deletion(NAMES, octavia.observed(), True))
    (call,) = plan_deletion(SECOND, octavia.observed(Role.SHARER), True)
    assert (call.operation, call.path) == (
        "DeleteLoadBalancer",
        f"{ROOT}/loadbalancers/lb?cascade=true",
    )


def test_without_cascade_the_parts_go_first() -> None:
    octavia = made(service())
    calls = [one.operation for one in plan_deletion(NAMES, octavia.observed(), False)]
    assert calls == ["DeletePool", "DeleteListener", "DeleteLoadBalancer"]


def test_members_are_changed_by_one_call_a_pool_and_only_if_they_differ() -> None:
    one, other = (frozenset({Member("a", "10.0.0.1", port, 32000)}) for port in (1, 2))
    there = {"x": frozenset({Member("a", "10.0.0.1", 1)}), "y": other | one}
    ((pool_id, members),) = changed_members({"x": one, "y": other}, there)
    call = members_update(pool_id, members)
    assert call.path == f"{ROOT}/pools/y/members"
    body = [{"name": "a", "address": "10.0.0.1", "protocol_port": 2, "monitor_port": 32000}]
    assert call.body == {"members": body}


async def test_many_ports_on_many_nodes_leave_turns_to_others() -> None:
    """Each port has members of its own, which took a turn of the loop together."""
    ports = [port(number, node_port=30000 + number) for number in range(1, 101)]
    asked = read_request(service(ports=ports), BalancerSection(), {}, CLUSTER)
    at = {f"n-{number}": f"10.0.{number // 250}.{number % 250}" for number in range(500)}
    backends = NodeBackends(at, dict(zip(at, at, strict=True)), dict.fromkeys(at, "s"), "s")
    assert await turns_during(backends.by_port(asked)) > 10
