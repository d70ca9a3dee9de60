"""Slow writes of one namespace: the API server has few of them at a time, and no other waits."""

import asyncio
from collections import Counter
from collections.abc import Collection
from itertools import pairwise
from typing import Any

import pytest

from ccm.bus.frames import Heartbeat, Message
from ccm.errors import Refused
from ccm.model import service as model
from ccm.model.cloud import Network
from ccm.model.objects import Json
from ccm.model.service import Service
from tests.support.cluster import Cluster
from tests.support.waiting import until
from workers.executor import LARGE, REST, TURNS

from .cloud import Balancers, Record
from .objects import annotated, being_deleted, finalized, node, port, service, spec, typed
from .world import World, running, running_with

pytestmark = pytest.mark.virtual_time

HOSTILE = 100  # Services, more than are reconciled at the same time
FEW, WRITE = 20, 0.02  # Services; seconds


def hostile(number: int, annotation: str = "") -> Service:
    made = service(name=f"web-{number}")
    made.raw["metadata"] |= {"namespace": "hostile", "annotations": {"large": annotation}}
    return made


class SlowCluster(Cluster):
    """Patches in the namespace `hostile` wait until `opened`, and take so many seconds."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.opened, self.at_once, self.most = asyncio.Event(), 0, 0
        self.seconds = seconds

    async def patch(self, path: str, *what: Any, **how: Any) -> Json:
        if "/hostile/" in path:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await self.opened.wait()
            await asyncio.sleep(self.seconds)
            self.at_once -= 1
        return await super().patch(path, *what, **how)


async def test_source_ranges_are_read_once_for_all_steps_of_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of forty Services of 5,000 that changed for ever they were read at each step."""
    counts, read = Counter[str](), model._network

    def count(entry: str) -> Network:
        counts[entry] += 1
        return read(entry)

    monkeypatch.setattr(model, "_network", count)
    made = [*map(hostile, range(HOSTILE))]
    for number, item in enumerate(made):
        item.raw["spec"]["loadBalancerSourceRanges"] = [f"10.0.{number}.0/24"]
    cluster = SlowCluster(WRITE)
    cluster.opened.set()
    async with running(World(node("n1"), *made, cluster=cluster)):
        assert max(counts.values()) <= 2, "once more where it waited for others"


async def test_slow_writes_of_one_namespace_hold_up_no_other() -> None:
    cluster = SlowCluster()
    w = World(node("n1"), *map(hostile, range(HOSTILE)), cluster=cluster)
    async with running(w, until_rest=False):
        await until(lambda: cluster.at_once == TURNS, "some write")
        cluster.put(service())
        await until(lambda: w.service().ingress, "the other one's address")
        cluster.opened.set()
        await w.rest()
        assert cluster.most == TURNS
        assert all(w.service(f"hostile/web-{at}").ingress for at in range(HOSTILE))


@pytest.mark.parametrize(
    ("size", "writes"),
    [
        pytest.param(1, 2 / TURNS, id="several small ones at a time"),
        pytest.param(LARGE, 2 * (1 + REST), id="large ones, one at a time, with rests"),
    ],
)
async def test_large_writes_of_one_namespace_leave_the_api_server_time(
    size: int, writes: float
) -> None:
    """What a small write takes says more of the API server than of the Service."""
    cluster, now = SlowCluster(WRITE), asyncio.get_running_loop().time
    cluster.opened.set()
    services = [hostile(at, "x" * size) for at in range(FEW)]
    began, w = now(), World(node("n1"), *services, cluster=cluster)
    async with running(w, until_rest=False):
        await until(lambda: all(w.service(it.key).ingress for it in services), "all addresses")
    assert now() - began == pytest.approx(FEW * writes * WRITE, rel=0.1)


@pytest.mark.parametrize("is_shared", [False, True])
async def test_no_writes_of_its_namespace_keep_an_address_in_a_status(is_shared: bool) -> None:
    """It may be another's by then, to whose clients nodes would lead to the Service."""
    cluster, size, gives_up = SlowCluster(WRITE), LARGE, service(spec(ports=[port(81)]))
    gives_up.raw["metadata"]["namespace"] = "hostile"
    cluster.opened.set()
    w = World(node("n1"), service(), gives_up, cluster=cluster)
    w.balancers.records[w.balancers.name_for(gives_up)] = Record(gives_up.uid, "192.0.2.1")
    async with running(w):
        assert w.service(gives_up.key).ingress == w.service().ingress
        w.cluster.put(*(hostile(at, "x" * size) for at in range(FEW)))
        await until(lambda: cluster.at_once, "they write")
        began = asyncio.get_running_loop().time()
        asked = spec(ports=[port(80)]) if is_shared else typed("ClusterIP")
        w.cluster.put(w.changed(asked, key=gives_up.key))
        await until(lambda: not w.service(gives_up.key).ingress, "it has no address")
        assert asyncio.get_running_loop().time() - began < FEW * WRITE, "it waited for none of them"


async def test_calls_of_one_namespace_that_take_long_leave_slots_for_others() -> None:
    """Load balancers of fifty ports wait for hundreds of grants of the cloud's budget."""
    many = [hostile(number) for number in range(HOSTILE)]
    w = World(node("n1"), *many, concurrent_service_syncs=10)
    for one in many:
        w.balancers.holds[one.name] = asyncio.Event()
    async with running(w, until_rest=False):
        await until(lambda: len(w.balancers.calls) == 8, "eight of ten slots are theirs")
        w.cluster.put(service(name="other"))
        await until(lambda: w.service("default/other").ingress, "the other one's address")
        for hold in w.balancers.holds.values():
            hold.set()
        await w.rest()
        assert all(w.service(f"hostile/web-{at}").ingress for at in range(HOSTILE))


async def test_work_that_waits_for_a_node_port_of_another_is_the_next_of_its_namespace() -> None:
    """Until then the load balancer leads its clients to the other Service."""
    w = World(node("n1"), concurrent_service_syncs=10)
    many = [hostile(number) for number in range(12)]
    w.balancers.holds = {one.name: asyncio.Event() for one in many}
    async with running(w, until_rest=False):
        gives_up = service(spec(ports=[port(81)]))
        gives_up.raw["metadata"]["namespace"] = "hostile"
        w.cluster.put(gives_up)
        await until(lambda: w.service(gives_up.key).ingress, "its address")
        w.cluster.put(*many)
        await until(lambda: len(w.balancers.named("ensure")) == 9, "all places are taken")
        w.cluster.put(w.changed(typed("ClusterIP"), spec(ports=[]), key=gives_up.key))
        await until(lambda: len(w.queue) == 0, "it waits")
        w.cluster.put(service(typed("NodePort"), spec(ports=[port(81)]), name="other"))
        await until(lambda: len(w.queue) == 0, "it waits")
        assert w.balancers.of(gives_up)
        w.balancers.holds[many[0].name].set()
        await until(lambda: not w.balancers.of(gives_up), "the deletion")
        for hold in w.balancers.holds.values():
            hold.set()
        await w.rest()


async def test_looks_for_load_balancers_of_one_namespace_leave_slots_for_others() -> None:
    """A tenant sets a class and our finalizer, and we look for what never was there."""
    another = (spec(loadBalancerClass="theirs"), finalized, being_deleted)
    many = [service(*another, name=f"web-{number}") for number in range(20)]
    for one in many:
        one.raw["metadata"]["namespace"] = "hostile"
    w = World(node("n1"), *many, concurrent_service_syncs=10)
    w.balancers.holds = {one.name: asyncio.Event() for one in many}
    async with running(w, until_rest=False):
        await until(lambda: len(w.balancers.calls) >= 8, "their places are taken")
        w.cluster.put(service(name="other"))
        await until(lambda: w.service("default/other").ingress, "the other one's address")
        assert len(w.balancers.named("get")) == 8
        for hold in w.balancers.holds.values():
            hold.set()
        await w.rest()


class Elaborate(Balancers):
    """What a Service asks for takes a tenth of a second to read, and is refused."""

    def check_service(self, service: Service) -> None:
        loop: Any = asyncio.get_running_loop()
        loop._no_waiting.now += 0.1
        raise Refused("it asks for too much")


async def test_one_service_is_read_in_a_turn_of_the_loop() -> None:
    """Else those of one tenant, which are all due at a start, would end the worker."""
    w = World(node("n1"), *map(hostile, range(50)), balancers=Elaborate())
    beats, now = list[float](), asyncio.get_running_loop().time

    def on_message(message: Message) -> None:
        if isinstance(message, Heartbeat):
            beats.append(now())

    w.port.handler = on_message
    async with running(w):
        pass
    assert max(later - sooner for sooner, later in pairwise(beats)) < 2.0


async def test_who_rests_keeps_no_turn_from_others() -> None:
    async with running_with(service(), node("n1")) as w:
        w.controller._shares._count("default", False, 1000.0)
        assert w.controller._checks.take("default/web")
        assert w.controller._slots.take("default/web")
        result = await w.controller.reconcile("default/web")
        assert not result.is_done
        assert w.controller._checks.is_idle
        assert not w.controller._slots._by_namespace


class _Choosing(Balancers):
    """Whose Services choose Nodes by labels."""

    asked = 0

    def selector_labels(self, service: Service) -> Collection[str]:
        self.asked += 1
        return service.annotations


async def test_labels_by_which_a_service_chooses_nodes_are_read_in_its_turn() -> None:
    """All Nodes are compared by them, and many Services come with one frame."""
    balancers = _Choosing()
    async with running_with(service(), node("n1"), balancers=balancers) as w:
        before = balancers.asked
        w.cluster.put(w.changed(annotated({"pool": "fast"})))
        assert balancers.asked == before
        await w.rest()
        assert balancers.asked > before
