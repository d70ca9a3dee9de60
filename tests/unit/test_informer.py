"""From an API server to workers: what they are sent, and what `status` says meanwhile."""

import asyncio
import json
import logging
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from ccm.bus.frames import Hello, Objects, decode, encode
from ccm.decide.backoff import Backoff
from ccm.kube import watch
from ccm.kube.client import Kube
from ccm.kube.watch import WatchTimings
from ccm.model.objects import Json, Projection
from ccm.model.status import DeliveryStatus, WatchStatus
from ccm.supervisor import informer
from ccm.supervisor.informer import MAX_NODE, SKIPPED, InformerTimings, SharedInformer
from tests.support.deadlines import timeout
from tests.support.waiting import until
from workers.store import Store

from .api_server import ApiServer, failure, serving, stream

LABELS = Projection("Node", (("metadata", "labels"),))
TAINTS = Projection("Node", (("spec", "taints"),))


QUICK = InformerTimings(
    list_debounce=0.02,
    retry_delay=0.01,
    watch=WatchTimings(min_watch_duration=0.01, retry=Backoff(first=0.01, most=0.02)),
)


def node(name: str, version: object = 1, **labels: Any) -> Json:
    meta = {"name": name, "resourceVersion": str(version), "labels": labels}
    return {"metadata": meta, "spec": {"taints": [{"key": name}]}}


class Nodes:
    """An API server with Nodes: lists those there are, and streams what a test says."""

    def __init__(self, *nodes: Json) -> None:
        self.nodes, self.version = list(nodes), 100
        self.coming: asyncio.Queue[Json] = asyncio.Queue()
        self.is_up = True
        self.slow: asyncio.Event | None = None  # a list waits for it
        self.lists, self.watches = 0, 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if not self.is_up:
            return await failure(500, "InternalError")(request)
        if "watch" in request.query:
            return await self._stream(request)
        self.lists += 1
        page = {"items": list(self.nodes), "metadata": {"resourceVersion": str(self.version)}}
        if self.slow:
            await self.slow.wait()
        return web.json_response(page)  # the standard library writes what orjson refuses to

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = await stream()(request)
        assert isinstance(response, web.StreamResponse)
        self.watches += 1
        while True:
            await response.write(json.dumps(await self.coming.get()).encode() + b"\n")

    def say(self, kind: str, body: object) -> None:
        self.coming.put_nowait({"type": kind, "object": body})


class Worker:
    """A worker that applies and acknowledges its frames, unless it is away."""

    def __init__(self, shared: SharedInformer, name: str, *projections: Projection) -> None:
        self.store = Store(projections)
        self._informer, self.name = shared, name
        self.is_synced, self.is_taking = False, True

    def subscribe(self) -> None:
        projections = [{"kind": want.kind, "paths": want.paths} for want in self.store.projections]
        hello = decode(encode(Hello(projections, {})))  # as it arrives: tuples are lists then
        assert isinstance(hello, Hello)
        self._informer.subscribe(self.name, hello, lambda kind, key: True)

    def take(self, frame: bytes) -> bool:
        if not self.is_taking:
            return False
        message = decode(frame)
        assert isinstance(message, Objects)
        self.is_synced |= self.store.apply(message).completed
        loop = asyncio.get_running_loop()
        loop.call_soon(self._informer.acknowledge, self.name, message.epoch, message.seq)
        return True

    def labels(self) -> Json:
        """The label `is` of each Node it knows."""
        known = {key: self.store.get(kind, key) or {} for kind, key in self.store.names()}
        return {key: value["metadata"]["labels"].get("is") for key, value in known.items()}


class World:
    """An informer between an API server and workers."""

    def __init__(self, kube: Kube, timings: InformerTimings) -> None:
        self.workers: dict[str, Worker] = {}
        self.starting = self.asked = 0  # workers that have yet to say what they want
        self.informer = SharedInformer(
            kube,
            lambda name, frame: self.workers[name].take(frame),
            timings,
            self._is_anybody_starting,
        )

    def _is_anybody_starting(self) -> bool:
        self.asked += 1
        return self.starting > 0

    def worker(self, name: str, *projections: Projection) -> Worker:
        self.workers[name] = worker = Worker(self.informer, name, *projections)
        worker.subscribe()
        return worker

    def queue(self, worker: str) -> DeliveryStatus:
        return self.informer.status(0.0)["delivery_queues"][worker]

    @property
    def nodes(self) -> WatchStatus:
        return self.informer.status(time.monotonic())["kinds"]["Node"]


@asynccontextmanager
async def world(
    server: Callable[[web.Request], Any], timings: InformerTimings = QUICK
) -> AsyncIterator[tuple[World, ApiServer]]:
    async with serving(server) as (api, kube):
        made = World(kube, timings)
        yield made, api
        await made.informer.close()


async def test_what_no_worker_wants_is_sent_to_no_one() -> None:
    nodes = Nodes(node("a", **{"is": 1}))
    async with world(nodes) as (here, _):
        worker = here.worker("w", LABELS)
        await until(lambda: worker.is_synced)
        before = here.queue("w")["frames"]
        nodes.say("MODIFIED", {**node("a", 101, **{"is": 1}), "status": {"heartbeat": 5}})
        nodes.say("ADDED", node("b", 102, **{"is": 1}))
        await until(lambda: "b" in worker.labels())
        assert here.queue("w")["frames"] == before + 1


async def test_what_a_worker_wrote_and_another_took_back_unseen_is_known_after_a_list() -> None:
    """Both came while the watch brought nothing: what is listed is what was known before."""
    nodes = Nodes(node("a", **{"is": "before"}))
    async with world(nodes) as (here, _):
        worker = here.worker("w", LABELS)
        await until(lambda: worker.is_synced)
        worker.store.wrote("Node", "a", node("a", 101, **{"is": "ours"}))
        nodes.nodes = [node("a", 102, **{"is": "before"})]
        nodes.say("ERROR", {"code": 410, "reason": "Expired"})
        await until(lambda: worker.labels() == {"a": "before"})


async def test_a_list_waits_for_workers_that_have_yet_to_say_what_they_want() -> None:
    nodes = Nodes(node("a"))
    async with world(nodes) as (here, _):
        here.starting = 1
        first = here.worker("w1", LABELS)
        await until(lambda: here.asked > 5)
        assert nodes.lists == 0
        second, here.starting = here.worker("w2", TAINTS), 0
        await until(lambda: first.is_synced and second.is_synced)
        assert nodes.lists == 1


async def test_a_list_does_not_wait_for_ever() -> None:
    timings = replace(QUICK, list_debounce_limit=0.05)
    async with world(Nodes(node("a")), timings) as (here, _):
        here.starting = 1
        worker = here.worker("w", LABELS)
        await until(lambda: worker.is_synced)


async def test_changes_of_a_moment_share_a_frame() -> None:
    nodes = Nodes(node("a"))
    async with world(nodes, replace(QUICK, flush_interval=timeout(0.5))) as (here, _):
        worker = here.worker("w", LABELS)
        await until(lambda: worker.is_synced)
        before = here.queue("w")["frames"]
        for number in range(6):
            nodes.say("ADDED", node(f"n{number}", 101 + number))
        await until(lambda: len(worker.labels()) == 7)
        assert here.queue("w")["frames"] - before <= 3


async def test_a_worker_that_comes_during_a_list_waits_for_the_next_and_holds_up_no_one() -> None:
    nodes = Nodes(node("a"))
    nodes.slow = asyncio.Event()
    async with world(nodes) as (here, _):
        first = here.worker("w1", LABELS)
        await until(lambda: nodes.lists == 1)
        late = [here.worker(f"late-{n}", Projection("Node", (("spec", str(n)),))) for n in range(3)]
        nodes.slow.set()
        await until(lambda: first.is_synced)
        await until(lambda: all(worker.is_synced for worker in late))
        assert nodes.lists == 2
        assert here.nodes["lists"] == 2


async def test_a_list_for_a_worker_that_comes_later_takes_away_nothing_that_was_seen() -> None:
    """A proxy may have kept one from before."""
    nodes = Nodes(node("a", 1), node("b", 99))
    kept, now = [node("a", 1)], nodes.nodes
    async with world(nodes) as (here, _):
        first = here.worker("w1", LABELS)
        await until(lambda: first.is_synced)
        nodes.nodes, nodes.version = kept, 98
        second = here.worker("w2", TAINTS)
        await until(lambda: nodes.lists > 3)
        assert first.labels().keys() == {"a", "b"}
        nodes.nodes, nodes.version = now, 101
        await until(lambda: second.is_synced)
        assert first.store.names() == second.store.names()


async def test_a_worker_with_known_wants_costs_the_api_server_nothing() -> None:
    nodes = Nodes(node("a"))
    async with world(nodes) as (here, _):
        first = here.worker("w1", LABELS)
        await until(lambda: first.is_synced)
        here.informer.unsubscribe("w1")
        second = here.worker("w2", LABELS)
        assert second.is_synced
        assert nodes.lists == 1


async def test_a_worker_that_comes_while_the_api_server_is_down_gets_its_snapshot_later() -> None:
    nodes = Nodes(node("a"))
    nodes.is_up = False
    async with world(nodes) as (here, api):
        early = here.worker("w1", LABELS)
        await until(lambda: len(api.requests) > 2)
        later = here.worker("w2", TAINTS)
        here.informer.reassign("w1", lambda kind, key: True)
        here.informer.acknowledge("w2", 0, 1)
        assert not here.informer.is_caught_up("w1")
        nodes.is_up = True
        await until(lambda: early.is_synced and later.is_synced)
        assert nodes.lists == 1
        assert early.store.names() == later.store.names() == [("Node", "a")]


async def test_an_object_that_cannot_be_passed_on_is_skipped_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    nodes = Nodes(node("a", **{"is": 1}), node("b", **{"is": 1}), node("odd", **{"is": deep}))
    async with world(nodes) as (here, _):
        worker, other = here.worker("w", LABELS), here.worker("o", TAINTS)
        await until(lambda: worker.is_synced and other.is_synced)
        assert worker.labels() == {"a": 1, "b": 1}
        assert ("Node", "odd") in other.store.names()  # its projection has nothing odd
        nodes.say("MODIFIED", node("a", 101, **{"is": deep}))
        nodes.say("MODIFIED", node("b", "9" * 5000, **{"is": 2}))
        nodes.say("ADDED", node("c", "²", **{"is": 3}))
        await until(lambda: worker.labels() == {"a": 1, "b": 2, "c": 3})
        assert here.informer.status(0.0)["undecodable"] == 2
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == [
        "object skipped"
    ] * 2


async def test_an_object_that_is_too_large_for_a_frame_stays_what_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    large = "x" * MAX_NODE
    nodes = Nodes(node("a", **{"is": 1}), node("b", **{"is": large}))
    async with world(nodes) as (here, api):
        api.newest = 100  # the list is read object by object, and all of it is of one version
        worker = here.worker("w", LABELS)
        await until(lambda: worker.is_synced)
        assert worker.labels() == {"a": 1}
        nodes.say("MODIFIED", node("a", 101, **{"is": large}))
        nodes.say("ADDED", node("c", 102, **{"is": 3}))
        await until(lambda: worker.labels() == {"a": 1, "c": 3})
        for version in range(103, 120):
            nodes.say("MODIFIED", node("a", version, **{"is": large}))
        nodes.say("MODIFIED", node("c", 120, **{"is": 4}))
        await until(lambda: worker.labels() == {"a": 1, "c": 4})
    reported = [record for record in caplog.records if record.message == "object skipped"]
    assert [vars(record)["key"] for record in reported] == ["b", *["a"] * SKIPPED]


async def test_status_tells_how_long_the_api_server_has_been_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    nodes = Nodes(node("a"))
    async with world(nodes) as (here, api):
        worker = here.worker("w", LABELS)
        await until(lambda: worker.is_synced and nodes.watches == 1)
        nodes.is_up = False
        nodes.say("ERROR", {"code": 410})
        before = len(api.requests)
        await until(lambda: len(api.requests) > before + 10)
        assert here.nodes["silent_seconds"] > 0.05
        assert here.nodes["last_error"] == "the API server answered 500 InternalError: no"
        assert here.nodes["objects"] == 1
        up_again, nodes.is_up = time.monotonic(), True
        await until(lambda: not here.nodes["last_error"])
        assert here.nodes["silent_seconds"] <= time.monotonic() - up_again
    ours = [record for record in caplog.records if record.name == "ccm.supervisor.informer"]
    assert [(record.message, getattr(record, "why", None)) for record in ours] == [
        ("watch interrupted", "the version is no longer kept"),
        ("watch interrupted", "the API server answered 500 InternalError: no"),
        ("watch works again", None),
    ]


async def test_a_watch_that_stays_interrupted_is_reported_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm.supervisor.informer.SUMMARY_INTERVAL", 0.02)
    nodes = Nodes()
    nodes.is_up = False
    async with world(nodes) as (here, _):
        here.worker("w", LABELS)
        await until(lambda: caplog.messages.count("watch still interrupted") > 2)
    reported = next(vars(one) for one in caplog.records if one.message == "watch still interrupted")
    assert (reported["kind"], reported["why"]) == (
        "Node",
        "the API server answered 500 InternalError: no",
    )


async def test_silence_from_the_beginning_counts() -> None:
    nodes = Nodes()
    nodes.is_up = False
    async with world(nodes) as (here, _):
        here.worker("w", LABELS)
        await until(lambda: here.nodes["silent_seconds"] > 0.05)


async def test_a_watch_that_fails_in_a_way_no_one_thought_of_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes, list_and_watch, rounds = Nodes(node("a")), watch.list_and_watch, 0

    async def broken(*arguments: Any) -> Any:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise ValueError("a bug")
        async for event in list_and_watch(*arguments):
            yield event

    monkeypatch.setattr(informer, "list_and_watch", broken)
    async with world(nodes) as (here, _):
        worker = here.worker("w", LABELS)
        await until(lambda: worker.is_synced)


async def test_nodes_that_come_and_go_leave_nothing_behind() -> None:
    nodes = Nodes()
    async with world(nodes) as (here, _):
        worker = here.worker("w", LABELS)
        await until(lambda: worker.is_synced)
        tracemalloc.start()
        for batch in range(15):
            for number in range(batch * 200, batch * 200 + 200):
                nodes.say("ADDED", node(f"node-{number}", 101 + number))
                nodes.say("DELETED", node(f"node-{number}", 101 + number))
            nodes.say("ADDED", node("last", 301 + batch * 200, **{"is": batch}))
            await until(lambda: worker.labels() == {"last": batch})  # noqa: B023
        ours = tracemalloc.Filter(True, "*/ccm/supervisor/*")
        kept = tracemalloc.take_snapshot().filter_traces([ours]).statistics("filename")
        tracemalloc.stop()
    assert sum(file.size for file in kept) < 100_000  # a set of the names alone would be more
