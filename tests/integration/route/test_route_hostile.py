"""Nodes whose kubelets write pod CIDRs that are not theirs, and routes that stay behind."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count

import pytest

from ccm.cloud.interface import NOT_LOOKED
from ccm.errors import CloudError
from ccm.model.cloud import Instance, Route, Unknown
from ccm.model.objects import Json, Node
from tests.integration.route.cloud import FakeRoutes
from tests.integration.route.world import World, successor, world
from tests.support.cloud import Inventory, MarkedMachines, Named
from tests.support.nodes import (
    Tweak,
    changed,
    created,
    network_condition,
    routed,
    with_addresses,
    with_condition,
    with_pod_cidrs,
    with_provider_id,
)
from workers.machines import RECHECK
from workers.route.plan import CREATED
from workers.route.steps import CALL_PAUSE, CALLS

pytestmark = pytest.mark.virtual_time

A4, B4, C4 = "10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24"


def is_unavailable(w: World, name: str) -> bool:
    return network_condition(w.cluster.node(name)).get("status") == "True"


@pytest.mark.parametrize(
    "cidr", ["169.254.169.254/32", "0.0.0.0/0", "10.0.0.7/32", "10.240.0.0/12", "::/0"]
)
async def test_a_pod_cidr_outside_the_cluster_gets_no_route(cidr: str) -> None:
    async with world(routed("a", A4), routed("hostile", cidr, B4)) as w:
        await w.settle()
        assert w.cloud.routes == {A4: "a", B4: "hostile"}
        assert is_unavailable(w, "hostile")
        assert not is_unavailable(w, "a")
        ((name, reason, message),) = await w.reported()
        assert (name, reason) == ("hostile", "FailedToCreateRoute")
        assert f"{cidr} for node hostile: it is not inside --cluster-cidr" in message
        written = w.cloud.writes, w.cluster.writes
        await w.full_pass()
        assert (w.cloud.writes, w.cluster.writes) == written


async def test_a_marked_route_outside_the_cluster_goes_wherever_it_points() -> None:
    cloud = FakeRoutes()
    cloud.marks_routes = True
    for cidr, machine in (("10.9.0.0/24", "gone"), ("0.0.0.0/0", "b"), ("10.9.1.0/24", "dead")):
        cloud.put(cidr, machine)
    cloud.put("10.9.2.0/24", "gone", is_ours=False)
    cloud.dead = {"dead"}
    async with world(routed("a", A4), routed("b", "0.0.0.0/0"), cloud=cloud) as w:
        await w.settle()
        assert cloud.routes == {A4: "a"}
        assert len(cloud.entries) == 2, "a route of someone else is gone"


async def test_a_pod_cidr_wider_than_the_given_mask_gets_no_route_and_loses_the_one_it_has() -> (
    None
):
    async with world(routed("a", A4), routed("wide", "10.244.4.0/22")) as w:
        await w.settle()
        assert w.cloud.routes == {A4: "a", "10.244.4.0/22": "wide"}
        async with successor(w, node_cidr_mask_size_ipv4=24) as strict:
            await strict.settle()
            assert strict.cloud.routes == {A4: "a"}
            assert is_unavailable(strict, "wide")
            ((name, _, message),) = await strict.reported()
            assert name == "wide"
            assert "wider than --node-cidr-mask-size-ipv4, /24" in message
            strict.cluster.put(changed(strict.cluster.node("wide"), with_pod_cidrs(C4)))
            await strict.settle()
            assert strict.cloud.routes == {A4: "a", C4: "wide"}
            assert not is_unavailable(strict, "wide")


OLD, NEW, NEWER = (created(f"2026-01-0{day}T00:00:00Z") for day in (1, 2, 3))


@pytest.mark.parametrize("wide", ["10.244.0.0/16", "10.244.0.0/20", "10.240.0.0/12"])
async def test_a_wide_pod_cidr_holds_up_no_new_node(wide: str) -> None:
    async with world(routed("a", "10.244.200.0/24", tweaks=(OLD,))) as w:
        await w.settle()
        w.cluster.put(routed("wide", wide, tweaks=(NEW,)))
        await w.settle()
        for number in range(5):
            w.cluster.put(routed(f"n{number}", f"10.244.{number}.0/24", tweaks=(NEWER,)))
            await w.settle()
        new = {f"10.244.{number}.0/24": f"n{number}" for number in range(5)}
        assert w.cloud.routes == {"10.244.200.0/24": "a", **new}
        unavailable = [name for name in w.cluster.nodes if is_unavailable(w, name)]
        assert unavailable == ["wide"]
        assert {name for name, _, _ in await w.reported()} == {"wide"}


async def test_a_wide_pod_cidr_that_comes_and_goes_is_no_work_for_others() -> None:
    """Its kubelet may register it again and again; it takes no network from them."""
    nodes = [routed(f"n{at}", f"10.244.{at}.0/24", tweaks=(OLD,)) for at in range(5)]
    async with world(*nodes) as w:
        await w.settle()
        for change in (w.cluster.put, lambda it: w.cluster.remove("Node", it.name)):
            change(routed("wide", "10.244.0.0/16", tweaks=(NEW,)))
            assert w.feed() == ["wide"]
            await w.settle()
        assert "wide" not in w.cloud.routes.values()


async def test_nodes_of_one_pod_cidr_that_come_at_once_are_each_looked_at_once() -> None:
    """For each of thousands all were looked at, in the one turn of a start."""
    async with world(*(routed(f"n{number}", A4) for number in range(40))) as w:
        assert len(w.feed()) < 100
        await w.settle()
        assert w.cloud.routes == {A4: "n0"}


async def test_where_there_is_a_mask_a_newer_node_takes_no_part_of_one_wider_than_most() -> None:
    """Nodes that come have half of what those before had, say, or register for that."""
    small = [routed(f"n{at}", f"10.244.{at}.0/25", tweaks=(OLD,)) for at in (1, 2, 3)]
    victim, hostile = (
        routed("victim", A4, tweaks=(OLD,)),
        routed("0", "10.244.0.128/25", tweaks=(NEW,)),
    )
    async with world(victim, *small) as before, successor(before, node_cidr_mask_size_ipv4=24) as w:
        await w.settle()
        w.cluster.put(hostile)
        await w.settle()
        assert w.cloud.routes[A4] == "victim"
        assert "0" not in w.cloud.routes.values()


@pytest.mark.parametrize("claimed", [A4, "10.244.0.128/25", "10.244.0.7/32", "10.244.0.0/23"])
async def test_a_newer_node_takes_no_part_of_a_pod_cidr(claimed: str) -> None:
    """Whatever its name, in whichever order a new process hears of them, routed or not yet."""
    hostile = routed("0-hostile", claimed, tweaks=(NEW,))
    async with world(hostile, routed("victim", A4, tweaks=(OLD,))) as w:
        w.cloud.put("10.244.0.7/32", "0-hostile")
        await w.settle()
        assert w.cloud.routes == {A4: "victim"}
        assert [is_unavailable(w, name) for name in ("victim", "0-hostile")] == [False, True]
        reported = await w.reported()
        assert {name for name, _, _ in reported} == {"0-hostile"}
        assert all(
            "overlaps with a pod CIDR of node victim" in message for _, _, message in reported
        )
        w.cluster.remove("Node", "victim")
        await w.settle()
        assert list(w.cloud.routes.values()) == ["0-hostile"]


@pytest.mark.parametrize("claimed", [A4, "10.244.0.128/25", "10.244.0.0/23"])
async def test_a_node_of_the_same_second_takes_no_part_of_a_pod_cidr(claimed: str) -> None:
    """Times of the API server are whole seconds, and UIDs are random: who came later may be first.

    In a new process the route says who that was.
    """

    def with_uid(uid: str) -> Tweak:
        return lambda raw: raw["metadata"].update(uid=uid)

    async with world(routed("victim", A4, tweaks=(OLD, with_uid("b")))) as w:
        w.feed()
        w.cluster.put(routed("0-hostile", claimed, tweaks=(OLD, with_uid("a"))))
        await w.settle()
        assert w.cloud.routes == {A4: "victim"}
        async with successor(w) as after:
            await after.settle()
            await after.full_pass()
            assert after.cloud.routes == {A4: "victim"}
        assert w.cloud.calls["delete"] == 0


async def test_a_node_on_a_foreign_machine_gets_no_route_and_keeps_no_other_from_its_own() -> None:
    machines = MarkedMachines({"hostile": "machine 7 does not belong to this cluster"})
    hostile = routed("hostile", A4, tweaks=(with_condition("False", CREATED),))
    async with world(hostile, routed("own", B4), instances=machines) as w:
        w.cloud.put(A4, "hostile")  # from before machines had to have marks
        await w.settle()
        assert w.cloud.routes == {B4: "own"}
        w.cluster.put(routed("late", C4))
        await w.settle()
        assert w.cloud.routes == {B4: "own", C4: "late"}
        lists = w.cloud.calls["list"]
        await w.full_pass()
        assert w.cloud.calls["list"] == lists + 1, "no list is taken for incomplete"
        told = await w.reported()
        assert {(name, reason) for name, reason, _ in told} == {("hostile", "ForeignMachine")}


async def test_a_newer_node_on_the_machine_of_another_gets_no_route() -> None:
    """Nor does it become the target of a route that leads to this machine."""
    victim = routed("victim", A4, tweaks=(OLD,))
    hostile = routed("0-hostile", B4, tweaks=(NEW, with_provider_id("fake://victim")))
    async with world(victim, routed("c", C4)) as w:
        await w.settle()
        w.cluster.put(hostile)
        await w.settle()
        await w.full_pass()
        assert w.cloud.routes == {A4: "victim", C4: "c"}
        assert (w.cloud.calls["create"], w.cloud.calls["delete"]) == (2, 0)
        assert network_condition(w.cluster.node("0-hostile")) == {}
        ((name, reason, message),) = await w.reported()
        assert (name, reason) == ("0-hostile", "DuplicateProviderID")
        assert "Node victim has the same machine and is older" in message
        w.cluster.remove("Node", "victim")
        await w.settle()
        assert w.cloud.routes == {B4: "victim", C4: "c"}


async def test_a_new_process_takes_no_route_of_a_machine_that_an_older_node_claims() -> None:
    """Until the cloud has said whose it is, the older Node had it."""
    victim = routed("victim", A4, tweaks=(NEW,))
    hostile = routed("0-hostile", B4, tweaks=(OLD, with_provider_id("fake://victim")))
    machines = Inventory()
    for name in ("victim", "0-hostile"):
        machines.answers[name] = Instance(provider_id="fake://victim", names=("victim",))
    await keeps_its_route(victim, hostile, machines)


async def test_a_claim_about_which_the_cloud_cannot_be_asked_takes_no_route() -> None:
    victim = routed("victim", A4, tweaks=(NEW,))
    hostile = routed("z-hostile", B4, tweaks=(OLD, with_provider_id("fake://victim")))
    machines = Inventory()
    machines.answers["victim"] = Instance(provider_id="fake://victim", names=("victim",))
    machines.answers["z-hostile"] = Unknown("of another region")
    await keeps_its_route(victim, hostile, machines)


async def test_a_node_that_was_not_looked_at_yet_keeps_its_route() -> None:
    machines = MarkedMachines({"a": NOT_LOOKED})
    async with world(routed("a", A4), routed("b", B4), instances=machines) as w:
        w.cloud.put(A4, "a")
        await w.settle()
        await w.full_pass()
        assert w.cloud.routes == {A4: "a", B4: "b"}
        assert w.cloud.calls["delete"] == 0


async def keeps_its_route(victim: Node, hostile: Node, machines: Inventory) -> None:
    """In a new process, which finds the victim's route in the cloud."""
    async with world(victim, hostile, instances=machines) as w:
        w.cloud.put(A4, "victim")
        await w.settle()
        await w.full_pass()
        assert w.cloud.routes == {A4: "victim"}
        assert w.cloud.writes == 0


async def test_an_older_node_takes_no_route_while_the_cloud_cannot_be_asked() -> None:
    """Whose the machine is that it names now, as the machines' service is out of order."""
    idle = routed("0-hostile", B4, tweaks=(OLD, with_provider_id("")))
    victim, machines = routed("victim", A4, tweaks=(NEW,)), Inventory()
    async with world(victim, idle, instances=machines) as w:
        await w.settle()
        await asyncio.sleep(2 * RECHECK)
        machines.failures = [CloudError("boom")] * 1000
        w.cluster.put(changed(idle, with_provider_id("fake://victim")))
        await w.settle()
        await asyncio.sleep(RECHECK)
        await w.full_pass()
        assert w.cloud.routes == {A4: "victim"}
        assert w.cloud.calls["delete"] == 0


async def test_a_node_that_registers_while_no_machine_can_be_asked_about_holds_up_no_other() -> (
    None
):
    """And keeps the route that it had."""
    machines = MarkedMachines({})
    async with world(routed("a", A4), routed("b", B4), instances=machines) as w:
        await w.settle()
        machines.failures = [CloudError("boom")] * 1000
        w.cluster.put(changed(w.cluster.node("a"), as_object("again", "fake://a")))
        w.cluster.put(changed(w.cluster.node("b"), with_pod_cidrs(C4)))
        await w.settle()
        await w.full_pass()
        assert w.cloud.routes == {A4: "a", C4: "b"}


async def test_a_persons_way_to_another_clouds_pods_stays() -> None:
    """MC56: it was of no Node. What is beside it and of no Node goes."""
    abroad = routed("abroad", "10.244.130.0/24", tweaks=(with_provider_id("other://1"),))
    async with world(routed("a", A4), abroad) as w:
        w.cloud.put("10.244.128.0/17", "vpn")
        w.cloud.put(C4, "gone")
        await w.full_pass()
        assert w.cloud.routes == {A4: "a", "10.244.128.0/17": "vpn"}


async def test_a_wide_pod_cidr_of_a_node_without_machine_keeps_no_lost_route() -> None:
    """It may be another cloud's, and a person's way to it stays."""
    wide = routed("wide", "10.244.0.0/16", tweaks=(with_provider_id(""), NEW))
    async with world(routed("a", A4), routed("b", B4), wide) as w:
        w.cloud.put(C4, "gone")
        await w.full_pass()
        assert w.cloud.routes == {A4: "a", B4: "b"}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(lambda n: with_addresses(f"InternalIP 10.0.0.{n}"), id="addresses"),
        pytest.param(lambda n: with_condition("True" if n % 2 else "False", "Mine"), id="status"),
        pytest.param(lambda n: as_object(f"again-{n}"), id="registers-again"),
        pytest.param(
            lambda n: as_object(f"again-{n}", "fake://victim" if n % 2 else "fake://hostile"),
            id="registers-again-with-the-machine-of-the-other",
        ),
    ],
)
async def test_a_node_that_changes_for_ever_keeps_no_other_from_a_network_that_it_had(
    changes: Callable[[int], Tweak],
) -> None:
    """A route goes by a list that is newer than the Nodes: it must not have to wait for this one.

    Before its Node was deleted, the network of the other one was its own.
    """
    numbers = count(1)

    class Routes(FakeRoutes):
        async def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
            found = await super().list(nodes)
            number = next(numbers)
            if self.routes[A4] != "victim" and number < 50:
                w.cluster.put(changed(w.cluster.node("hostile"), changes(number)))
                w.feed()
            return found

    victim = routed("victim", A4, tweaks=(OLD,))
    cloud = Routes()
    cloud.put(A4, "hostile")
    async with world(victim, routed("hostile", B4, tweaks=(NEW,)), cloud=cloud) as w:
        await w.settle()
        assert cloud.routes[A4] == "victim"
        assert next(numbers) < 10, "the route waited for the end of the changes"


@pytest.mark.parametrize(
    ("turns", "odd", "registers"),
    [
        pytest.param(3, [], False, id="changes"),
        pytest.param(3, [], True, id="registers"),
        pytest.param(1, ["fd00:244::192.168.001.001/64"], False, id="unreadable"),
    ],
)
async def test_a_node_that_registers_again_with_other_pod_cidrs_gathers_no_routes(
    turns: int, odd: list[str], registers: bool
) -> None:
    """A route table has room for few; a Node that always changes, or states an odd CIDR, too."""
    numbers, most = count(1), list[int]()

    class Routes(FakeRoutes):
        async def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
            found = await super().list(nodes)
            number = next(numbers)
            if number < 9 * turns:
                most.append(len(self.routes))
                its = as_object(f"again-{number}" if registers else f"{number // turns}")
                own = with_pod_cidrs(f"10.244.{2 + number // turns}.0/24", *odd)
                says = with_addresses(f"InternalIP 10.0.0.{number}")
                w.cluster.put(changed(w.cluster.node("hostile"), its, own, says))
                w.feed()
            return found

    async with world(
        routed("victim", A4, tweaks=(OLD,)), routed("hostile", B4, tweaks=(NEW,)), cloud=Routes()
    ) as w:
        await w.settle()
        while next(numbers) < 9 * turns:
            await w.full_pass()
        assert w.cloud.routes[A4] == "victim"
        assert max(most) <= 4


async def test_a_node_that_registers_again_before_it_is_known_gathers_no_routes() -> None:
    """Where the cloud is asked whose its machine is, it has routes for a moment each time."""
    numbers, asked, most = count(1), count(1), list[int]()

    def register(cidr: str) -> None:
        its = as_object(f"again-{next(numbers)}"), with_pod_cidrs(cidr)
        w.cluster.put(changed(w.cluster.node("hostile"), *its))
        w.feed()

    class Routes(FakeRoutes):
        async def create(self, node: Node, cidr: str) -> None:
            await super().create(node, cidr)
            if node.name == "hostile":
                register(cidr)

    class Machines(MarkedMachines):
        async def foreign(self, nodes: Sequence[Named]) -> Mapping[str, str]:
            if "hostile" in {node.name for node in nodes} and next(asked) % 3:
                register(w.cluster.node("hostile").pod_cidrs[0])
            return await super().foreign(nodes)

    nodes = routed("victim", A4, tweaks=(OLD,)), routed("hostile", B4, tweaks=(NEW,))
    async with world(*nodes, cloud=Routes(), instances=Machines({})) as w:
        for turn in range(8):
            register(f"10.244.{2 + turn}.0/24")
            await w.settle()
            await asyncio.sleep(RECHECK)
            await w.full_pass()
            most.append(len(w.cloud.routes))
        assert w.cloud.routes[A4] == "victim"
        assert max(most) <= 4


async def test_a_list_from_before_a_node_got_its_machine_takes_no_route_of_it_away() -> None:
    """An older Node named the machine, and goes while the routes are listed."""

    class Routes(FakeRoutes):
        async def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
            found = await super().list(nodes)
            if "0-hostile" in w.cluster.nodes:
                w.cluster.remove("Node", "0-hostile")
                w.feed()
            return found

    hostile = routed("0-hostile", B4, tweaks=(OLD, with_provider_id("fake://victim")))
    cloud = Routes()
    cloud.put(A4, "victim")
    async with world(hostile, routed("victim", A4, tweaks=(NEW,)), cloud=cloud) as w:
        await w.settle()
        assert cloud.routes == {A4: "victim"}
        assert cloud.log == []


@pytest.mark.parametrize("cidr", ["10.244.0.128/25", B4], ids=["anothers", "refused"])
async def test_a_node_that_says_to_have_a_route_that_it_cannot_have_has_no_list_read_twice(
    cidr: str,
) -> None:
    """A part of another Node's pod CIDR, or one that the cloud refuses; its kubelet writes this."""
    hostile = routed("hostile", cidr, tweaks=(NEW,))
    async with world(routed("victim", A4, tweaks=(OLD,)), hostile) as w:
        w.cloud.dead = {"hostile"}
        await w.settle()
        lists = w.cloud.calls["list"]
        for _ in range(4):
            says_so = with_condition("False", CREATED)
            w.cluster.put(changed(w.cluster.node("hostile"), says_so))
            w.feed()
            await w.full_pass()
        assert w.cloud.routes == {A4: "victim"}
        assert w.cloud.calls["list"] <= lists + 4


def as_object(uid: str, provider_id: str = "fake://hostile") -> Tweak:
    """Another Node of its name."""

    def tweak(raw: Json) -> None:
        raw["metadata"]["uid"] = uid
        raw["spec"]["providerID"] = provider_id

    return tweak


async def test_a_node_that_changes_for_ever_while_its_route_is_refused_costs_few_calls() -> None:
    """A kubelet may have a pod CIDR for which the cloud has no route, and another address each."""
    async with world(routed("a", A4), routed("hostile", B4)) as w:
        w.cloud.dead = {"hostile"}
        await w.settle()
        for turn in range(600):
            address = with_addresses(f"InternalIP 10.0.{turn // 250}.{turn % 250}")
            w.cluster.put(changed(w.cluster.node("hostile"), address))
            w.feed()
            with suppress(CloudError):
                await w.reconcile("hostile")
            await asyncio.sleep(0.1)
        assert w.cloud.calls["create"] <= CALLS + 60 / CALL_PAUSE + 2
        w.cloud.dead = set()
        await asyncio.sleep(CALL_PAUSE)
        await w.reconcile("hostile")
        assert w.cloud.routes == {A4: "a", B4: "hostile"}
