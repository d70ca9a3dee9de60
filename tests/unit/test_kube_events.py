"""Kubernetes Events, sent in the background."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from ccm.errors import KubernetesError
from ccm.kube import events
from ccm.kube.events import (
    OBJECT_BURST,
    OBJECT_REFILL,
    REPEAT_INTERVAL,
    Event,
    EventRecorder,
    ObjectRef,
)
from ccm.model.objects import Json
from tests.support.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual_time

NODE = ObjectRef("v1", "Node", "n1", "uid-1")
SERVICE = ObjectRef("v1", "Service", "web", "uid-2", namespace="shop")


def an_event(message: str = "Node synced successfully", object_ref: ObjectRef = NODE) -> Event:
    return Event(object_ref, "Normal", "Synced", message)


class Flaky(Cluster):
    """A cluster that refuses its first events."""

    def __init__(self, refusals: int, status: int = 403) -> None:
        super().__init__()
        self._refusals, self._status = refusals, status

    async def post(self, path: str, body: Json, timeout: float = 30.0) -> Json:
        if self._refusals:
            self._refusals -= 1
            raise KubernetesError(self._status, "Forbidden", "no", None)
        return await super().post(path, body, timeout)


@asynccontextmanager
async def recording(
    cluster: Cluster,
    repeat_interval: float = REPEAT_INTERVAL,
    is_busy: Callable[[], bool] = lambda: False,
) -> AsyncIterator[EventRecorder]:
    name = "cloud-node-controller"
    recorder = EventRecorder(cluster.kube, name, "node-0", repeat_interval, is_busy)
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_an_event_says_what_about_whom_and_from_whom() -> None:
    cluster = Cluster()
    async with recording(cluster) as recorder:
        recorder.record(an_event())
        await recorder.drain(5.0)
    (event,) = cluster.events
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "uid-1",
    }
    assert (event["type"], event["reason"], event["message"]) == (
        "Normal",
        "Synced",
        "Node synced successfully",
    )
    assert event["source"] == {"component": "cloud-node-controller"}
    assert event["reportingComponent"] == "cloud-node-controller"
    assert event["metadata"]["namespace"] == "default"
    assert event["metadata"]["name"].startswith("n1.")


async def test_an_event_about_a_namespaced_object_is_in_its_namespace() -> None:
    cluster = Cluster()
    async with recording(cluster) as recorder:
        recorder.record(an_event(object_ref=SERVICE))
        await recorder.drain(5.0)
    assert cluster.events[0]["metadata"]["namespace"] == "shop"
    assert cluster.events[0]["involvedObject"]["namespace"] == "shop"


async def test_events_come_in_order_under_names_of_their_own() -> None:
    cluster = Cluster()
    async with recording(cluster) as recorder:
        for number in range(20):
            recorder.record(an_event(f"{number}"))
        await recorder.drain(5.0)
    assert [event["message"] for event in cluster.events] == [str(n) for n in range(20)]
    assert len({event["metadata"]["name"] for event in cluster.events}) == 20


@pytest.mark.parametrize(("interval", "sent"), [(REPEAT_INTERVAL, 1), (0.0, 3)])
async def test_an_equal_event_is_not_sent_again_for_a_while(interval: float, sent: int) -> None:
    cluster = Cluster()
    async with recording(cluster, interval) as recorder:
        for _ in range(3):
            recorder.record(an_event())
            recorder.record(an_event())
            await recorder.drain(5.0)
        assert len(cluster.events) == sent


@pytest.mark.parametrize(("status", "sent"), [(503, 1), (403, 0)])
async def test_what_was_not_sent_because_the_api_server_failed_is_sent_when_it_happens_again(
    status: int, sent: int
) -> None:
    cluster = Flaky(1, status)
    async with recording(cluster) as recorder:
        for _ in range(3):
            recorder.record(an_event())
            await recorder.drain(5.0)
    assert len(cluster.events) == sent


async def test_a_storm_of_events_costs_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "QUEUE_LIMIT", 10)
    cluster = Cluster()
    recorder = EventRecorder(cluster.kube, "cloud-node-controller", "node-0")
    for number in range(1000):
        recorder.record(an_event(str(number), replace(NODE, name=f"n{number}")))
    assert (recorder.waiting, recorder.lost) == (10, 990)
    task = asyncio.create_task(recorder.run())
    await until(lambda: len(cluster.events) == 10)
    assert cluster.events[-1]["message"] == "999"
    task.cancel()


async def test_an_object_that_always_has_another_message_holds_up_no_other() -> None:
    """A tenant changes a refused annotation ten times a second."""
    cluster = Cluster()
    async with recording(cluster) as recorder:
        for number in range(1000):
            recorder.record(an_event(f"annotation {number} is not valid", SERVICE))
        recorder.record(an_event())
        await recorder.drain(5.0)
        assert len(cluster.events) == OBJECT_BURST + 1
        assert recorder.lost == 1000 - OBJECT_BURST
        await asyncio.sleep(2 * OBJECT_REFILL)
        for number in range(5):
            recorder.record(an_event(f"annotation {number} is wrong", SERVICE))
        await recorder.drain(5.0)
    assert len(cluster.events) == OBJECT_BURST + 1 + 2


async def test_a_node_that_registers_again_and_again_is_one_object() -> None:
    """Its kubelet deletes it, and it comes back with another UID: others' Events would wait."""
    cluster = Cluster()
    async with recording(cluster) as recorder:
        for number in range(1000):
            recorder.record(an_event(object_ref=replace(NODE, uid=f"uid-{number}")))
        await recorder.drain(5.0)
    assert len(cluster.events) == OBJECT_BURST


@pytest.mark.parametrize(
    "name", ["n" * 253, "n" * 235 + "." + "n" * 17, "n" * 234 + "-." + "n" * 17]
)
async def test_an_event_about_an_object_of_the_longest_name_can_be_sent(name: str) -> None:
    cluster = Cluster()
    async with recording(cluster) as recorder:
        recorder.record(an_event(object_ref=replace(NODE, name=name)))
        await recorder.drain(5.0)
    (event,) = cluster.events
    assert len(event["metadata"]["name"]) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]+)+", event["metadata"]["name"])


async def test_an_event_that_is_refused_holds_up_no_other() -> None:
    cluster = Flaky(refusals=1)
    async with recording(cluster) as recorder:
        recorder.record(an_event("first"))
        recorder.record(an_event("second"))
        await recorder.drain(5.0)
        assert [event["message"] for event in cluster.events] == ["second"]
        assert recorder.lost == 1


async def test_a_stop_does_not_wait_for_events_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    recorder = EventRecorder(Cluster().kube, "cloud-node-controller", "node-0")
    recorder.record(an_event())
    await recorder.drain(0.01)
    assert "events not sent before the stop" in caplog.messages


async def test_normal_events_let_work_go_first_and_warnings_do_not() -> None:
    cluster, work = Cluster(), ["some"]
    async with recording(cluster, is_busy=lambda: bool(work)) as recorder:
        recorder.record(an_event("fine"))
        recorder.record(Event(NODE, "Warning", "Failed", "odd"))
        await until(lambda: cluster.events)
        assert [event["message"] for event in cluster.events] == ["odd"]
        work.clear()
        await until(lambda: len(cluster.events) == 2)


async def test_while_many_nodes_join_warnings_about_one_hold_up_none_about_another() -> None:
    """Its kubelet changes it for ever, each time with another message."""
    cluster = Cluster()
    recorder = EventRecorder(cluster.kube, "cloud-node-controller", "node-0", is_busy=lambda: True)
    for number in range(OBJECT_BURST):
        recorder.record(Event(NODE, "Warning", "Failed", f"odd {number}"))
    recorder.record(Event(replace(NODE, name="honest"), "Warning", "Failed", "odd"))
    task = asyncio.create_task(recorder.run())
    await until(lambda: len(cluster.events) > OBJECT_BURST)
    task.cancel()
    names = [event["involvedObject"]["name"] for event in cluster.events]
    assert names[:2] == ["n1", "honest"]


class Hashed(Event):
    """An Event that counts how often it is looked up, which is what thousands of them cost."""

    count = 0

    def __hash__(self) -> int:
        Hashed.count += 1
        return super().__hash__()


async def test_events_that_wait_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BUSY_INTERVAL", 0.0)
    looks: list[int] = []

    def is_busy() -> bool:
        looks.append(Hashed.count)
        return True

    async with recording(Cluster(), is_busy=is_busy) as recorder:
        for number in range(100):
            recorder.record(Hashed(NODE, "Normal", "Synced", str(number)))
        await until(lambda: len(looks) > 100)
    assert looks[-1] - looks[0] < 10 * len(looks), "each look goes through all that wait"


@pytest.mark.parametrize("ending", ["the time is over", "the stop"])
async def test_normal_events_do_not_wait_for_ever(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    if ending == "the time is over":
        monkeypatch.setattr(events, "NORMAL_DELAY", 0.0)
    async with recording(cluster, is_busy=lambda: True) as recorder:
        recorder.record(an_event())
        if ending == "the stop":
            await recorder.drain(5.0)
        await until(lambda: cluster.events)


def about(namespace: str, number: int) -> ObjectRef:
    return ObjectRef("v1", "Service", f"web-{number}", f"{namespace}-{number}", namespace)


async def test_events_of_one_namespace_neither_hold_up_nor_push_out_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant creates refused Services again and again, each an object of its own."""
    monkeypatch.setattr(events, "QUEUE_LIMIT", 100)
    cluster = Cluster()
    recorder = EventRecorder(cluster.kube, "service-controller", "service-0")
    for number in range(5):
        recorder.record(an_event("refused", about("honest", number)))
    for number in range(1000):
        recorder.record(an_event("refused", about("flood", number)))
    assert (recorder.waiting, recorder.lost) == (100, 905)
    task = asyncio.create_task(recorder.run())
    await until(lambda: len(cluster.events) == 100)
    task.cancel()
    namespaces = [event["metadata"]["namespace"] for event in cluster.events]
    assert namespaces[:10].count("honest") == 5
    assert cluster.events[-1]["involvedObject"]["name"] == "web-999"
