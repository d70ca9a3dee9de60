"""What the route controller does about Nodes and routes (rows RT6 to RT18)."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from ipaddress import ip_network

import pytest

from ccm.bus.frames import CompareRoutes
from ccm.model.objects import Node
from tests.integration.route.cloud import FakeRoutes
from tests.integration.route.world import World, successor, world
from tests.support.nodes import (
    Tweak,
    changed,
    network_condition,
    node,
    routed,
    with_addresses,
    with_condition,
    with_pod_cidrs,
    with_provider_id,
)
from tests.support.rows import row
from workers.controller import NotNeeded
from workers.route import controller as worker

pytestmark = pytest.mark.virtual_time

A4, B4, C4 = "10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24"
A6, B6, C6 = "fd00:244::/64", "fd00:244:0:1::/64", "fd00:244:0:2::/64"

DUAL = {"a": (A4, A6), "b": (B4, B6)}
RIGHT = {A4: "a", A6: "a", B4: "b", B6: "b"}
CROSSED = {A4: "b", A6: "b", B4: "a", B6: "a"}
SINGLE = {"a": (A4,), "b": (B4,)}
RIGHT4 = {A4: "a", B4: "b"}

HEARTBEAT = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}


def nodes(networks: Mapping[str, tuple[str, ...]]) -> list[Node]:
    return [routed(name, *cidrs) for name, cidrs in networks.items()]


def cloud_with(routes: Mapping[str, str], dead: tuple[str, ...] = ()) -> FakeRoutes:
    cloud = FakeRoutes()
    cloud.dead = set(dead)
    for cidr, machine in routes.items():
        cloud.put(cidr, machine)
    return cloud


def is_available(w: World, name: str) -> bool | None:
    """What the condition says; None when there is none."""
    status = network_condition(w.cluster.node(name)).get("status")
    return None if status is None else status == "False"


@pytest.mark.parametrize(
    ("networks", "before", "expected", "writes"),
    [
        pytest.param(DUAL, {}, RIGHT, 4, id="RT7"),
        pytest.param(DUAL, RIGHT, RIGHT, 0, id="RT8"),
        pytest.param(DUAL, CROSSED, RIGHT, 8, id="RT9"),
        pytest.param(DUAL, {**RIGHT, C4: "x", C6: "y"}, RIGHT, 2, id="RT10"),
        pytest.param(SINGLE, RIGHT4, RIGHT4, 0, id="RT11"),
        pytest.param(SINGLE, {A4: "a"}, RIGHT4, 1, id="RT12"),
        pytest.param(SINGLE, {}, RIGHT4, 2, id="RT13"),
        pytest.param({"a": (A4,), "b": ()}, {}, {A4: "a"}, 1, id="RT14"),
        pytest.param(SINGLE, {**RIGHT4, C4: "dead"}, RIGHT4, 1, id="RT15"),
        pytest.param(
            SINGLE, {**RIGHT4, "10.1.2.0/24": "dead"}, {**RIGHT4, "10.1.2.0/24": "dead"}, 0,
            id="RT16",
        ),
        pytest.param(
            {"a": ("FD00:0244:0::/64",)}, {A6: "a"}, {A6: "a"}, 0, id="another-spelling"
        ),
        pytest.param({"a": (A4,)}, {A4: "a", C4: "a"}, {A4: "a"}, 1, id="a-stale-route-of-a-node"),
        pytest.param({"a": (A4,)}, {A4: "a", "10.9.0.0/24": "a"}, {A4: "a", "10.9.0.0/24": "a"}, 0,
                     id="a-stale-route-outside-the-cluster"),
        # Someone else may have made it: where routes carry no mark, as on AWS, none is deleted.
        pytest.param({"a": ("10.9.0.0/24",), "b": (B4,)}, {"10.9.0.0/24": "a"},
                     {"10.9.0.0/24": "a", B4: "b"}, 1, id="a-route-outside-that-its-node-claims"),
    ],
)  # fmt: skip
async def test_routes_become_what_the_nodes_claim(
    networks: Mapping[str, tuple[str, ...]],
    before: Mapping[str, str],
    expected: Mapping[str, str],
    writes: int,
) -> None:
    cloud = cloud_with(before, dead=("dead",))
    async with world(*nodes(networks), cloud=cloud) as w:
        await w.settle()
        assert cloud.routes == expected
        assert cloud.writes == writes
        assert w.failures == {}
        for name, cidrs in networks.items():
            assert is_available(w, name) is (True if cidrs else None)
        written = w.cluster.writes
        await w.full_pass()
        async with successor(w) as next_one:
            await next_one.settle()
        assert (cloud.writes, w.cluster.writes) == (writes, written)


@row("RT6")
async def test_a_route_with_other_addresses_than_its_node_is_replaced() -> None:
    cloud = cloud_with(RIGHT)
    cloud.tells_addresses = True
    there = [changed(each, with_addresses("InternalIP 10.0.0.1")) for each in nodes(DUAL)]
    async with world(*there, cloud=cloud) as w:
        await w.settle()
        assert cloud.routes == RIGHT
        assert cloud.writes == 8
        addresses = {address.address for e in cloud.entries.values() for address in e.addresses}
        assert addresses == {"10.0.0.1"}
        await w.full_pass()
        assert cloud.writes == 8


async def test_a_node_whose_addresses_are_missing_for_a_moment_keeps_its_routes() -> None:
    cloud = cloud_with({})
    cloud.tells_addresses = True
    async with world(routed("a", A4, tweaks=(with_addresses("InternalIP ::1"),)), cloud=cloud) as w:
        await w.settle()
        w.cluster.put(changed(w.cluster.node("a"), with_addresses()))
        await w.settle()
        await w.full_pass()
        assert (cloud.calls["create"], cloud.calls["delete"]) == (1, 0)


@pytest.mark.parametrize(
    ("tweak", "queued"),
    [
        pytest.param(with_addresses("InternalIP 10.0.0.9"), ["a"], id="RT17"),
        pytest.param(with_pod_cidrs(C4), ["a"], id="RT18"),
        pytest.param(with_provider_id("fake://another"), ["a"], id="another-provider-id"),
        pytest.param(with_condition("False", "CalicoIsUp"), ["a"], id="another-condition"),
        pytest.param(lambda raw: raw["status"]["conditions"].append(HEARTBEAT), [], id="heartbeat"),
    ],
)
async def test_a_change_of_a_node_queues_its_key_and_our_own_write_none(
    tweak: Tweak, queued: list[str]
) -> None:
    there = routed("a", A4, tweaks=(with_addresses("InternalIP 10.0.0.8"),))
    async with world(there, routed("b", B4)) as w:
        await w.settle()
        assert is_available(w, "a")
        assert w.feed() == []
        w.cluster.put(changed(w.cluster.node("a"), tweak))
        assert w.feed() == queued


async def test_a_new_node_gets_its_route_without_another_list() -> None:
    async with world(*nodes(SINGLE), cloud=cloud_with(RIGHT4)) as w:
        await w.settle()
        w.cluster.put(routed("c", C4))
        await w.settle()
        assert w.cloud.routes == {**RIGHT4, C4: "c"}
        assert w.cloud.calls == {"list": 1, "create": 1}
        assert is_available(w, "c")


@pytest.mark.parametrize("are_new", [True, False])
async def test_all_nodes_at_the_start_cost_a_list_and_all_that_are_deleted_another(
    are_new: bool,
) -> None:
    """New routes are created side by side."""
    there = [routed(f"n{n}", f"10.244.{n}.0/24") for n in range(60)]
    cloud = cloud_with({} if are_new else {f"10.244.{n}.0/24": f"n{n}" for n in range(60)})
    cloud.pause = 3
    async with world(*there, cloud=cloud) as w:
        await w.settle()
        assert (cloud.calls["list"], cloud.calls["create"]) == (1, 60 * are_new)
        assert cloud.most_busy == (60 if are_new else 1)
        for n in range(50):
            w.cluster.remove("Node", f"n{n}")
        await w.settle()
        assert len(w.cloud.routes) == 10
        assert w.cloud.calls["list"] == 2


async def test_without_any_node_no_route_is_deleted() -> None:
    async with world(routed("a", A4)) as w:
        await w.settle()
        w.cluster.remove("Node", "a")
        await w.settle()
        assert w.cloud.routes == {A4: "a"}
        w.cluster.put(routed("b", B4))
        await w.full_pass()
        assert w.cloud.routes == {B4: "b"}


async def test_a_route_that_was_never_listed_is_listed_before_it_is_deleted() -> None:
    async with world(routed("a", A4)) as w:
        await w.settle()
        w.cloud.put(C4, "x")
        w.controller._state.table.created("x", ip_network(C4))
        w.queue.add(f"route {C4}")
        await w.settle()
        assert w.cloud.routes == {A4: "a"}
        assert w.cloud.calls == {"list": 2, "create": 1, "delete": 1}


async def test_two_nodes_exchange_their_networks() -> None:
    async with world(*nodes(SINGLE)) as w:
        await w.settle()
        w.cluster.put(changed(w.cluster.node("a"), with_pod_cidrs(B4)))
        w.cluster.put(changed(w.cluster.node("b"), with_pod_cidrs(A4)))
        w.cloud.pause = 3
        await w.settle()
        assert w.cloud.routes == {A4: "b", B4: "a"}
        assert w.failures == {}
        assert w.cloud.calls == {"list": 2, "create": 4, "delete": 2}


async def test_a_route_that_two_nodes_find_wrong_is_deleted_once() -> None:
    async with world(*nodes(SINGLE)) as w:
        await w.settle()
        w.cluster.put(changed(w.cluster.node("a"), with_pod_cidrs()))
        w.cluster.put(changed(w.cluster.node("b"), with_pod_cidrs(A4)))
        w.cloud.pause = 3
        await w.settle()
        assert w.cloud.routes == {A4: "b"}
        assert w.cloud.log[2:] == [f"- {A4} a", f"+ {A4} b", f"- {B4} b"]
        assert w.cloud.calls == {"list": 2, "create": 3, "delete": 2}


async def test_a_node_that_lost_its_pod_network_is_unavailable_before_its_route_goes() -> None:
    async with world(routed("a", A4), routed("b", B4)) as w:
        await w.settle()
        seen = []
        w.cluster.put(changed(w.cluster.node("a"), with_pod_cidrs()))
        w.cloud.before_call = lambda: seen.append(is_available(w, "a"))
        await w.settle()
        assert seen == [False]
        assert w.cloud.routes == {B4: "b"}
        assert "no pod CIDR" in network_condition(w.cluster.node("a"))["message"]


async def test_a_node_without_network_and_routes_keeps_its_condition() -> None:
    there = routed("a", tweaks=(with_condition("True", "NoRouteCreated"),))
    async with world(there) as w:
        await w.settle()
        assert w.cluster.writes == 0


async def test_a_node_waits_for_its_provider_id_and_keeps_a_route_that_may_be_its_own() -> None:
    """A route to a machine may be that of the Node, which does not yet say which one it is on."""
    cloud = cloud_with({A4: "a", B4: "b", B6: "dead", C4: "x"}, dead=("dead",))
    fresh = node(with_pod_cidrs(B4, B6), name="b")
    async with world(routed("a", A4), fresh, cloud=cloud) as w:
        await w.settle()
        assert cloud.routes == {A4: "a", B4: "b"}
        assert is_available(w, "b") is None
        assert not w.results["b"].is_done
        w.cluster.put(changed(w.cluster.node("b"), with_provider_id("fake://b")))
        await w.settle()
        assert cloud.routes == {A4: "a", B4: "b", B6: "b"}
        assert (cloud.calls["create"], cloud.calls["delete"]) == (1, 2)
        assert is_available(w, "b")


async def test_a_node_of_another_cloud_is_left_alone() -> None:
    foreign = node(with_pod_cidrs(A4), with_provider_id("other://1"))
    async with world(foreign, routed("b", B4)) as w:
        await w.settle()
        assert w.cloud.routes == {B4: "b"}
        assert network_condition(w.cluster.node("node-1")) == {}


async def test_a_route_of_someone_else_is_never_touched() -> None:
    cloud = cloud_with(RIGHT4)
    cloud.put(C4, "theirs", is_ours=False)
    async with world(*nodes(SINGLE), routed("c", C4), cloud=cloud) as w:
        await w.settle()
        assert [e.machine for e in cloud.entries.values() if e.cidr == C4] == ["theirs"]
        assert is_available(w, "c") is False
        assert "leads to theirs" in network_condition(w.cluster.node("c"))["message"]


async def test_the_full_pass_finds_what_changed_in_the_cloud() -> None:
    async with world(*nodes(DUAL)) as w:
        await w.settle()
        w.cloud.entries = {
            key: entry for key, entry in w.cloud.entries.items() if entry.cidr not in (A4, B6)
        }
        w.cloud.put(B6, "x")
        w.cloud.put(C4, "y")
        await w.full_pass()
        assert w.cloud.routes == RIGHT
        w.cloud.dead = {"a"}
        w.controller.on_message(CompareRoutes())
        await w.settle()
        assert w.cloud.routes == {B4: "b", B6: "b"}
        assert (is_available(w, "a"), is_available(w, "b")) == (False, True)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"configure_cloud_routes": False}, "--configure-cloud-routes is false"),
        ({"cluster_cidr": ()}, "without --cluster-cidr"),
        ({}, ""),
    ],
)
async def test_the_controller_is_there_when_it_can_work(flags: dict[str, object], why: str) -> None:
    async with world() as w:
        context = replace(w.context, settings=replace(w.context.settings, **flags))  # type: ignore[arg-type]
        with pytest.raises(NotNeeded, match=why) if why else nullcontext():
            worker.new_controller(context)
        assert worker.concurrency(context.settings) == 200


async def test_what_status_shows() -> None:
    async with world(*nodes(SINGLE)) as w:
        assert w.controller.status()["list_age_seconds"] is None
        await w.settle()
        status = w.controller.status()
        assert (status["objects"], status["routes"], status["created"]) == (2, 2, 2)
        assert status["list_age_seconds"] < 5
        object_ref = w.controller.object_ref("a")
        assert object_ref
        assert (object_ref.kind, object_ref.name, object_ref.uid) == ("Node", "a", "uid-of-a")
        assert w.controller.object_ref(worker.FULL_PASS) is None
