"""Passes over many nodes: which they are about, and that they hold up nobody."""

import asyncio
import tracemalloc
from itertools import pairwise

import pytest

from ccm.bus.frames import Objects, ProposeDeletions
from ccm.cloud import lookup
from ccm.controllers import LIFECYCLE
from ccm.model.cloud import Gone
from ccm.model.objects import Node
from tests.support.cloud import ProvingMachines
from tests.support.nodes import created, machine, node, ready, with_provider_id
from tests.support.waiting import until
from workers.cloud_changes import HINTED_INTERVAL
from workers.node.controller import PROJECTIONS
from workers.node.passes import LEAST_PROVEN, nodes_where
from workers.store import Store

from .world import World, world

pytestmark = pytest.mark.virtual_time

NUMBER = 50


def filled(number: int) -> Store:
    """A store with this many nodes, the last name first."""
    store = Store(PROJECTIONS)
    names = [f"n{index:04}" for index in reversed(range(number))]
    entries = [["Node", name, 1, {"metadata": {"name": name}}] for name in names]
    store.apply(Objects.of(1, 1, True, entries))
    return store


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One Node takes the time of a turn, as one with thousands of labels and taints does."""
    monkeypatch.setattr(lookup, "LONGEST_TURN", 0.0)


@pytest.mark.usefixtures("short_turns")
async def test_others_have_their_turn_meanwhile() -> None:
    store = filled(NUMBER)
    seen: list[int] = []
    looked_at = 0

    def look(node: Node) -> bool:
        nonlocal looked_at
        looked_at += 1
        return True

    looking = asyncio.create_task(nodes_where(store, store.keys(Node.KIND), look))
    while not looking.done():
        await asyncio.sleep(0)
        seen.append(looked_at)
    assert max(after - before for before, after in pairwise(seen)) == 1
    assert len(await looking) == NUMBER


@pytest.mark.usefixtures("short_turns")
async def test_others_have_their_turn_while_those_that_are_gone_are_looked_at_again() -> None:
    async with world() as w:
        nodes = [node(name=f"n{at}") for at in range(NUMBER)]
        w.cluster.put(*nodes)
        w.feed()
        answers = {item.name: (0.0, Gone("it has ended")) for item in nodes}
        looking = asyncio.create_task(w.controller._monitor_pass._still_about(nodes, {**answers}))
        turns = 0
        while not looking.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > NUMBER
        assert await looking == answers


@pytest.mark.usefixtures("short_turns")
async def test_a_node_that_goes_meanwhile_is_left_out() -> None:
    store = filled(NUMBER)
    names = store.keys(Node.KIND)
    looking = asyncio.create_task(nodes_where(store, names, lambda node: True))
    await asyncio.sleep(0)
    store.apply(Objects.of(1, 2, False, [["Node", max(names), 0, None]]))
    assert len(await looking) == NUMBER - 1


PERIOD = 1000.0


async def test_a_node_that_ceases_to_be_ready_is_asked_about_at_once_and_once_a_period() -> None:
    async with world(controllers=(LIFECYCLE,), node_monitor_period=PERIOD) as w:
        await turn(w, "was-1", is_ready=True)
        await turn(w, "was-2", is_ready=True)
        await turn(w, "never", is_ready=False)
        await asyncio.sleep(PERIOD / 2)
        assert w.machines.reads == [], "one that never was Ready waits for its turn"
        await turn(w, "was-1", is_ready=False)
        await asyncio.sleep(HINTED_INTERVAL)
        assert w.machines.reads == [["never", "was-1"]]
        for _ in range(5):  # a Node that flaps would cause reads without end
            await turn(w, "was-1", is_ready=True)
            await turn(w, "was-1", is_ready=False)
            await turn(w, "was-2", is_ready=False)
            await asyncio.sleep(2 * HINTED_INTERVAL)
        assert len(w.machines.reads) == 1
        await asyncio.sleep(PERIOD)
        assert w.machines.reads[1:] == [["never", "was-1", "was-2"]]


async def turn(w: World, name: str, is_ready: bool) -> None:
    """Let the Node be Ready or not, and the controller see it."""
    w.cluster.put(node(with_provider_id(f"fake://{name}"), *[ready] * is_ready, name=name))
    for key in w.feed():
        await w.reconcile(key)


async def test_a_pass_proves_few_of_those_that_it_called_gone() -> None:
    """Each takes a call: beside 60 made-up machines DigitalOcean's rate had no proof be new enough
    for a deletion, and a machine that stopped was known a minute later.
    """
    machines = ProvingMachines()
    proven = machines.proven
    old, new = created("2025-01-01T00:00:00Z"), created("2026-01-01T00:00:00Z")
    async with world(LIFECYCLE, machines=machines) as w:
        for at in range(2 * LEAST_PROVEN):
            made = node(with_provider_id(f"fake://{at}"), new, name=f"made-up-{at}")
            w.put(made, answer=Gone("404"))
        held = [node(old, name=f"held-{at}") for at in range(LEAST_PROVEN)]
        w.put(*held, node(with_provider_id("fake://e"), old, name="z"), answer=Gone("404"))
        w.feed()
        await until(lambda: len(proven) > 3)
        first, *later = proven
        assert len(first) == 3 * LEAST_PROVEN + 1
        assert {len(some) for some in later} == {LEAST_PROVEN}
        assert all("z" in some and {*some}.isdisjoint(it.name for it in held) for some in later)
        reports = [item for item in w.sent if isinstance(item, ProposeDeletions) and item.gone]
        assert {len(report.gone) for report in reports} == {len(first)}
        times = [{name: at for name, _, _, at, _ in report.gone} for report in reports[:2]]
        new_ones = {name for name, at in times[1].items() if at > times[0][name]}
        assert new_ones == {*later[0]}
        w.inventory.answers |= {item.name: machine("fake://1") for item in held}
        count = len(w.sent)
        await until(
            lambda: any(
                isinstance(item, ProposeDeletions) and "held-0" in item.not_gone
                for item in w.sent[count:]
            )
        )


async def test_old_nodes_that_are_never_deleted_keep_no_later_one_from_being_proven_gone() -> None:
    """A kubelet may write so much into its Node that workers have it not Ready for ever."""
    machines = ProvingMachines()
    proven = machines.proven
    old, new = created("2025-01-01T00:00:00Z"), created("2026-01-01T00:00:00Z")
    async with world(LIFECYCLE, machines=machines) as w:
        for at in range(2 * LEAST_PROVEN):
            w.put(node(with_provider_id(f"fake://{at}"), old, name=f"old-{at}"), answer=Gone("404"))
        w.feed()
        await until(lambda: len(proven) > 3)
        w.put(node(with_provider_id("fake://e"), new, name="z"), answer=Gone("404"))
        w.feed()
        await until(lambda: any("z" in some for some in proven))
        count = len(proven)
        await until(lambda: len(proven) > count + 3)
        assert all("z" in some for some in proven[count : count + 3])


async def test_of_those_that_are_gone_little_is_kept_from_pass_to_pass() -> None:
    """A kubelet may have any number, and what it wrote takes eight times as much once read."""
    async with world(LIFECYCLE, machines=ProvingMachines()) as w:
        for at in range(20):
            made = node(with_provider_id(f"fake://{at}"), name=f"made-up-{at}")
            addresses = [{"type": "", "address": f"{number}"} for number in range(4000)]
            made.raw["status"]["addresses"] = addresses
            w.put(made, answer=Gone("404"))
        w.feed()
        tracemalloc.start()
        try:
            await until(lambda: sum(isinstance(item, ProposeDeletions) for item in w.sent) > 2)
            await until(lambda: tracemalloc.get_traced_memory()[0] < 3_000_000)
        finally:
            tracemalloc.stop()
