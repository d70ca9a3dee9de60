"""The refresh pass: whom it asks about, how often, and what becomes of the answers."""

import asyncio
from dataclasses import replace

import pytest

from ccm.bus.frames import CompareRoutes
from ccm.controllers import NODE
from ccm.errors import KubernetesError, Throttled
from ccm.model.cloud import Gone, PowerState, Unknown
from ccm.model.objects import Node
from tests.support.cloud import Inventory
from tests.support.context import TIMINGS
from tests.support.nodes import (
    machine,
    node,
    provided_ip,
    ready,
    recreated,
    tainted,
    with_addresses,
    with_provider_id,
)
from tests.support.waiting import until

from .world import World, world

pytestmark = pytest.mark.virtual_time

PERIOD = 0.02  # seconds of a pass


def put(w: World, name: str, address: str = "10.0.0.1") -> None:
    """A node that is initialized, and its machine, which has another address by now."""
    w.cluster.put(
        node(
            ready,
            with_provider_id(f"fake://{name}"),
            with_addresses("InternalIP 1.1.1.1"),
            name=name,
        )
    )
    w.machines.answers[name] = machine(f"fake://{name}", f"InternalIP {address}")


def address(w: World, name: str) -> str:
    return str(w.cluster.node(name).addresses[0]["address"])


async def due(w: World) -> None:
    """Feed, and return once a pass has found that the node is to be reconciled."""
    w.feed()
    async with asyncio.timeout(99 * PERIOD):
        assert await w.queue.get() == "node-1"


async def passes(w: World, count: int = 1) -> None:
    """Let `count` more passes go by."""
    end = w.controller.status()["refresh_passes"] + count
    await until(lambda: w.controller.status()["refresh_passes"] >= end, "a pass")


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=f"CP10-page-{page}") for page in (1, 5, 10, 30, 1000)]
)
async def test_a_pass_asks_once_about_each_node_in_as_few_reads_as_there_are_pages(
    page: int,
) -> None:
    async with world(NODE, machines=Inventory(page), node_status_update_frequency=PERIOD) as w:
        names = [f"node-{number:03}" for number in range(100)]
        for name in names:
            put(w, name, address="1.1.1.1")
        w.feed()
        await passes(w, 2)  # the first one may have begun without nodes
        reads = -(-100 // page)
        assert [name for read in w.machines.reads[:reads] for name in read] == names
        assert (len(w.queue), w.cluster.writes) == (0, 0)


async def test_a_node_that_differs_from_its_machine_is_brought_up_to_date() -> None:
    async with world(node_status_update_frequency=PERIOD) as w:
        put(w, "node-1")
        await due(w)
        assert (await w.reconcile()).is_done
        assert (address(w, "node-1"), w.cluster.writes) == ("10.0.0.1", 1)
        w.machines.failures = [Throttled("never again", 1.0)] * 1000
        put(w, "node-1")  # someone changes it back: only a new answer may say what is right
        w.feed()
        await w.reconcile()
        assert w.cluster.writes == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(node(tainted, with_provider_id("fake://2"), name="other"), id="CP6-tainted"),
        pytest.param(node(with_provider_id("else://2"), name="other"), id="of-another-cloud"),
        pytest.param(node(name="other"), id="without-provider-ID"),
    ],
)
async def test_nodes_that_are_not_ours_to_refresh_are_not_asked_about(other: Node) -> None:
    async with world(node_status_update_frequency=PERIOD) as w:
        put(w, "node-1", address="1.1.1.1")
        w.cluster.put(other)
        w.feed()
        await passes(w, 2)
        assert {name for read in w.machines.reads for name in read} == {"node-1"}


async def test_an_answer_that_says_nothing_changes_nothing() -> None:
    async with world(node_status_update_frequency=PERIOD) as w:
        put(w, "node-1")
        w.machines.answers["node-1"] = Unknown("denied")
        w.feed()
        await passes(w, 2)
        assert (len(w.queue), w.cluster.writes, w.sent) == (0, 0, [])


async def test_a_ready_node_whose_machine_is_gone_is_reported_and_stays() -> None:
    async with world(node_status_update_frequency=PERIOD) as w:
        put(w, "node-1", address="1.1.1.1")
        found, w.machines.answers["node-1"] = w.machines.answers["node-1"], Gone("404")
        await due(w)
        result = await w.reconcile()
        assert not result.is_done
        assert "404" in result.message
        assert w.controller.details("node-1")["cloud"] == "the machine is gone: 404"
        assert [(kind, reason) for kind, reason, _ in await w.events()] == [
            ("Warning", "CloudMachineNotFound")
        ]
        await passes(w, 2)
        assert w.sent == [CompareRoutes()]  # once, as its routes may be gone, too
        w.machines.answers["node-1"] = found
        await passes(w, 2)
        assert (await w.reconcile()).is_done
        assert "cloud" not in w.controller.details("node-1")
        assert (w.cluster.writes, w.sent) == (0, [CompareRoutes()])


async def test_nodes_that_join_are_refreshed_within_one_period() -> None:
    """Also those that join while a pause of few nodes, or of none, goes on."""
    period = 300.0
    async with world(machines=Inventory(10), node_status_update_frequency=period) as w:
        loop = asyncio.get_running_loop()
        for first, count in ((0, 1), (1, 100)):
            await asyncio.sleep(0.4 * period)
            joined = loop.time()
            names = {f"node-{first + number:03}" for number in range(count)}
            for name in names:
                put(w, name, address="1.1.1.1")
            w.feed()
            reads = len(w.machines.reads)
            asked = set[str]()
            while not names <= asked:
                assert loop.time() - joined <= 1.1 * period
                await asyncio.sleep(1.0)
                asked = {name for read in w.machines.reads[reads:] for name in read}


async def test_a_throttled_batch_is_asked_for_again_and_not_left_out() -> None:
    timings = replace(TIMINGS, throttled_refresh_retry=0.001)
    async with world(timings=timings, node_status_update_frequency=PERIOD) as w:
        w.machines.failures = [Throttled("slow down", 1.0), Throttled("slow down", 1.0)]
        put(w, "node-1")
        await due(w)
        assert (len(w.machines.reads), w.controller.status()["refresh_passes"]) == (3, 1)


async def test_without_permission_no_one_is_asked() -> None:
    async with world(node_status_update_frequency=PERIOD) as w:
        w.permission.renew(0.0)
        put(w, "node-1")
        w.feed()
        await asyncio.sleep(3 * PERIOD)  # periods in which nothing may happen
        assert w.machines.reads == []
        w.permission.renew(float("inf"))
        assert await w.queue.get() == "node-1"


async def test_the_answer_outlives_a_write_that_failed() -> None:
    async with world(node_status_update_frequency=PERIOD) as w:
        put(w, "node-1")
        await due(w)
        w.cluster.writes_until_cut_off = 0
        with pytest.raises(KubernetesError):
            await w.reconcile()
        w.cluster.writes_until_cut_off = 10
        w.machines.failures = [Throttled("never again", 1.0)] * 1000
        await w.reconcile()
        assert address(w, "node-1") == "10.0.0.1"


async def test_the_answer_about_a_node_is_not_used_for_its_successor() -> None:
    async with world(node_status_update_frequency=PERIOD) as w:
        put(w, "node-1")
        await due(w)
        w.machines.failures = [Throttled("not now", 1.0)] * 1000
        w.cluster.put(node(ready, recreated, with_addresses("InternalIP 1.1.1.1")))
        w.feed()
        await w.reconcile()
        assert address(w, "node-1") == "1.1.1.1"


async def test_an_event_is_recorded_when_the_cloud_lacks_the_nodes_own_address() -> None:
    async with world(node_status_update_frequency=PERIOD) as w:
        raw = node(ready, with_provider_id("fake://1"), provided_ip("10.9.9.9"))
        w.put(raw, answer=machine("fake://1", "InternalIP 10.0.0.1"))
        await due(w)
        result = await w.reconcile()
        assert not result.is_done
        ((kind, reason, message),) = await w.events()
        assert (kind, reason) == ("Warning", "AddressesNotUpdated")
        assert "10.9.9.9" in message


async def test_a_machine_that_came_back_elsewhere_is_followed_by_the_monitor_passes() -> None:
    """A node that is not Ready is asked about every few seconds; its new address need not wait."""
    async with world(node_monitor_period=PERIOD) as w:
        put(w, "node-1")
        raw = w.cluster.node()
        raw.raw["status"]["conditions"] = []
        w.cluster.put(raw)
        await due(w)
        await w.reconcile()
        assert address(w, "node-1") == "10.0.0.1"


async def test_a_failed_question_becomes_an_event_when_it_fails_again_and_again() -> None:
    async with world() as w:
        w.put(node(tainted), answer=Unknown("403 UnauthorizedOperation"))
        for reported in (0, 0, 1):
            with pytest.raises(Exception, match="403"):
                await w.sync()
            assert len(await w.events()) == reported
            w.queue.add_failed("node-1")


async def test_what_a_pass_said_of_a_node_does_not_count_for_its_successor() -> None:
    """A node that was not Ready is replaced by one of its name before the next pass."""
    async with world(node_monitor_period=3600.0) as w:
        old = machine("fake://old", "InternalIP 1.1.1.1")
        w.machines.answers["node-1"] = replace(old, power=PowerState.STOPPED)
        w.cluster.put(node(with_provider_id("fake://old")))
        w.feed()
        await w.controller._monitor_pass._pass()
        successor = node(
            recreated, with_provider_id("fake://new"), with_addresses("InternalIP 2.2.2.2")
        )
        w.cluster.put(successor)
        await w.sync()
        assert address(w, "node-1") == "2.2.2.2"
        assert w.cluster.writes == 0
