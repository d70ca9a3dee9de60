"""The shared informer: one list and watch a kind for all workers, and what each of them is sent."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import orjson

from ccm.background import call_later
from ccm.bus.frames import Hello
from ccm.decide.budget import Allowances
from ccm.kube.client import Kube
from ccm.kube.watch import (
    Deleted,
    ListCompleted,
    ListStarted,
    Malformed,
    Position,
    Updated,
    WatchEvent,
    WatchFailed,
    WatchTimings,
    list_and_watch,
)
from ccm.model.objects import (
    MAX_VALUE,
    FieldPath,
    Json,
    Projection,
    carried,
    object_key,
    paths_from_json,
    resource_version,
    watched_kind,
)
from ccm.model.rbac import PolicyRule
from ccm.model.status import InformerStatus, WatchStatus
from ccm.supervisor.delivery import DeliveryQueue, Owns, ProjectedStore

log = logging.getLogger(__name__)

RESOURCES = {
    "Node": "/api/v1/nodes",
    "Service": "/api/v1/services",
    "PersistentVolume": "/api/v1/persistentvolumes",
}
"""Kind → path of its collection."""

SUMMARY_INTERVAL = 60.0  # seconds between two records of a watch that stays interrupted
MAX_NODE = 128 << 10  # of a Node, ten times what any honest one has; each is read for each Service
SKIPPED, SKIPPED_REFILL, SKIPPED_KEPT = 3, 60.0, 1000  # records of one object
BURST_SIZE = 4  # changes of a moment that are a burst


@dataclass(frozen=True, slots=True)
class InformerTimings:
    """Seconds between what an informer reads and what it sends."""

    list_debounce: float = 0.01
    """A list waits for more workers that want something of its kind."""
    list_debounce_limit: float = 2.0
    """It waits for workers which have yet to say what they want."""
    flush_interval: float = 0.01
    """Between two frames of changes."""
    burst_flush_interval: float = 0.02
    """The same after a frame of a burst."""
    retry_delay: float = 1.0
    """Until a refused frame is sent again, or a failed reflector restarts."""
    watch: WatchTimings = WatchTimings()


def watch_rule(kind: str) -> PolicyRule:
    """What the one list and watch of this kind needs."""
    resource = RESOURCES[kind].rpartition("/")[2]
    return PolicyRule(resource, ("list", "watch"), "one watch for all workers")


class SharedInformer:
    """Keeps, for each set of wanted fields, a projected store, and fills the delivery queues.

    A store outlives its workers: a worker that restarts gets its snapshot from memory. `send` says
    whether the worker's socket took a frame, `is_anybody_starting` whether a worker is about to
    subscribe: a list waits for it, because what is wanted later costs another list.
    """

    def __init__(
        self,
        kube: Kube,
        send: Callable[[str, bytes], bool],
        timings: InformerTimings = InformerTimings(),
        is_anybody_starting: Callable[[], bool] = lambda: False,
    ) -> None:
        self._kube, self._send, self._timings = kube, send, timings
        self._is_anybody_starting = is_anybody_starting
        self._reflectors: dict[str, Reflector] = {}
        self._queues: dict[str, DeliveryQueue] = {}
        self._flush_timer: asyncio.TimerHandle | None = None
        self._changes, self._next_flush = 0, 0.0

    def subscribe(self, worker: str, hello: Hello, owns: Owns) -> None:
        """A worker said what it wants; its snapshot follows as soon as the stores have synced."""
        stores = [
            self.store(Projection(str(wanted["kind"]), paths_from_json(wanted["paths"])))
            for wanted in hello.projections
        ]
        queue = DeliveryQueue(stores, owns, partial(self._deliver, worker))
        self._queues[worker] = queue
        queue.send_snapshot()

    def store(self, projection: Projection) -> ProjectedStore:
        """The objects of a kind with the wanted fields, kept from now on."""
        kind = watched_kind(projection.kind)
        if kind not in self._reflectors:
            path, timings, position = RESOURCES[kind], self._timings.watch, Position()
            events = partial(list_and_watch, self._kube, path, timings, position)
            self._reflectors[kind] = Reflector(
                kind,
                events,
                self._on_change,
                self._on_synced,
                self._on_restored,
                self._debounce_list,
                self._timings.retry_delay,
            )
        return self._reflectors[kind].store(projection.kind, projection.paths)

    def unsubscribe(self, worker: str) -> None:
        """The worker's process is gone."""
        self._queues.pop(worker, None)

    def reassign(self, worker: str, owns: Owns) -> None:
        """The worker owns other keys from now on."""
        if queue := self._queues.get(worker):
            queue.reassign(owns)

    def is_caught_up(self, worker: str) -> bool:
        """Whether the worker acknowledged everything; one that is gone counts, too."""
        queue = self._queues.get(worker)
        return queue is None or queue.is_caught_up

    def acknowledge(self, worker: str, epoch: int, seq: int) -> None:
        """The worker has taken in every frame of the snapshot `epoch` up to `seq`."""
        if queue := self._queues.get(worker):
            queue.acknowledge(epoch, seq)

    def resync(self, worker: str) -> None:
        """Send a new snapshot: the worker missed a frame."""
        if queue := self._queues.get(worker):
            queue.send_snapshot()

    def status(self, now: float) -> InformerStatus:
        """The part `informer` of `status`: the watches, and the delivery queue of each worker."""
        return {
            "kinds": {kind: reflector.status(now) for kind, reflector in self._reflectors.items()},
            "undecodable": sum(reflector.malformed for reflector in self._reflectors.values()),
            "delivery_queues": {
                worker: {
                    "depth": queue.depth,
                    "in_flight": queue.in_flight,
                    "frames": queue.frames_sent,
                }
                for worker, queue in self._queues.items()
            },
        }

    async def close(self) -> None:
        """End all watches."""
        for reflector in self._reflectors.values():
            await reflector.close()
        if self._flush_timer:
            self._flush_timer.cancel()

    async def _debounce_list(self) -> None:
        """Return when every starting worker has said what it wants, or has had the time."""
        loop, debounce = asyncio.get_running_loop(), self._timings.list_debounce
        deadline = loop.time() + self._timings.list_debounce_limit
        await asyncio.sleep(debounce)
        while self._is_anybody_starting() and loop.time() < deadline:  # noqa: ASYNC110 - states
            await asyncio.sleep(debounce)

    def _on_change(self, store: ProjectedStore, key: str) -> None:
        for handler in store.handlers:
            handler(key)
        for queue in self._queues.values():
            if queue.reads(store):
                queue.add(store.kind, key)
        self._changes += 1
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        """A change that comes alone leaves at once; of many, those of a moment share a frame."""
        if self._flush_timer is None:
            delay = max(self._next_flush - time.monotonic(), 0.0)
            self._flush_timer = call_later(delay, self._flush)

    def _flush(self) -> None:
        is_burst = self._changes >= BURST_SIZE
        self._flush_timer, self._changes = None, 0
        timings = self._timings
        interval = timings.burst_flush_interval if is_burst else timings.flush_interval
        self._next_flush = time.monotonic() + interval
        for queue in self._queues.values():
            queue.flush()

    def _on_synced(self) -> None:
        for queue in self._queues.values():
            if not queue.has_begun:
                queue.send_snapshot()

    def _on_restored(self) -> None:
        for queue in self._queues.values():
            queue.on_restored()

    def _deliver(self, worker: str, frame: bytes) -> bool:
        is_taken = self._send(worker, frame)
        if not is_taken:
            call_later(self._timings.retry_delay, self._retry, worker)
        return is_taken

    def _retry(self, worker: str) -> None:
        if queue := self._queues.get(worker):
            queue.retry()


class Reflector:
    """Fills the stores of one kind from one list and watch.

    A store is filled by a list. One that is added while a list is under way waits for its end, so
    that those who come later delay no one, and shares the next list with others.
    """

    def __init__(
        self,
        kind: str,
        events: Callable[[], AsyncGenerator[WatchEvent, None]],
        on_change: Callable[[ProjectedStore, str], None],
        on_synced: Callable[[], None],
        on_restored: Callable[[], None],
        debounce_list: Callable[[], Awaitable[None]],
        retry_delay: float,
    ) -> None:
        self._retry_delay = retry_delay
        self._kind, self._events, self._debounce_list = kind, events, debounce_list
        self._skipped = Allowances[str](SKIPPED, SKIPPED_REFILL, SKIPPED_KEPT)
        self._on_change, self._on_synced = on_change, on_synced
        self._on_restored = on_restored
        self._stores: dict[tuple[str, tuple[FieldPath, ...]], ProjectedStore] = {}
        self._listing: list[ProjectedStore] = []  # the stores that see this list from its start
        self._listed: set[str] | None = None  # keys, while a list is under way
        self._is_restored = False  # the list has an object in an older version than was seen
        self._task: asyncio.Task[None] | None = None
        self._is_watching = False  # a list is complete, and its watch is followed
        self._alive_at = self._moved_at = time.monotonic()
        self._failure, self._failed_at, self._reported_at = "", 0.0, 0.0
        self._lists = self.malformed = 0

    def store(self, kind: str, paths: tuple[FieldPath, ...]) -> ProjectedStore:
        """The objects cut down to `paths`; they are there once a list is complete."""
        if (kind, paths) not in self._stores:
            self._stores[kind, paths] = ProjectedStore(kind)
            if self._task is None or self._is_watching:
                self._relist()
        return self._stores[kind, paths]

    def status(self, now: float) -> WatchStatus:
        """Objects, and seconds since a sign of life and since any event, failures included."""
        return {
            "objects": max(len(store.values) for store in self._stores.values()),
            "silent_seconds": round(now - self._alive_at, 3),
            "seconds_since_event": round(now - self._moved_at, 3),
            "last_error": self._failure,
            "lists": self._lists,
        }

    async def close(self) -> None:
        """End the watch."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _relist(self) -> None:
        if self._task:
            self._task.cancel()
        self._is_watching = False
        self._task = asyncio.create_task(self._run(), name=f"watch {self._kind}")

    async def _run(self) -> None:
        while True:
            try:
                await self._debounce_list()
                await self._list_and_watch()
            except Exception:  # around one stream: a bug with one kind must not stop it for ever
                log.exception("watch failed and begins again", extra={"kind": self._kind})
                await asyncio.sleep(self._retry_delay)

    async def _list_and_watch(self) -> None:
        """Until a list is complete whose beginning a store missed."""
        async with aclosing(self._events()) as events:
            async for event in events:
                self._moved_at = time.monotonic()
                try:
                    self._handle(event)
                except Exception:  # around one callback: one object must not end the watch
                    self.malformed += 1
                    log.exception("watch event not taken in", extra={"kind": self._kind})
                if isinstance(event, ListCompleted):
                    self._is_watching = all(store.has_synced for store in self._stores.values())
                    if not self._is_watching:
                        return

    def _handle(self, event: WatchEvent) -> None:
        match event:
            case ListStarted():
                self._listed, self._listing = set(), list(self._stores.values())
                self._lists += 1
                return  # we want to list; that is no sign of life
            case WatchFailed(why):
                self._on_failed(why)
                return
            case Updated(raw):
                self._update(raw)
            case Deleted(raw):
                self._delete(object_key(raw))
            case ListCompleted():
                self._complete_list()
            case Malformed(why):
                self._skip("", why)
        self._on_alive()

    def _update(self, raw: Json) -> None:
        key, version = object_key(raw), resource_version(raw)
        if self._listed is not None:
            self._listed.add(key)
        for (_, paths), store in self._stores.items():
            try:
                value = carried(self._kind, raw, paths)
            except orjson.JSONEncodeError as error:
                self._skip(key, str(error))
                continue
            if len(value) > (most := MAX_NODE if self._kind == "Node" else MAX_VALUE):
                self._skip(key, f"{len(value)} bytes of it are wanted, of {most} at the most")
                continue
            if old := store.values.get(key):
                self._is_restored |= version < old[0]
                # Of a list, a worker may know a write of its own that was taken back unseen.
                if old[1] == value and (self._listed is None or old[0] == version):
                    continue
            store.values[key] = (version, value)
            self._on_change(store, key)

    def _delete(self, key: str) -> None:
        for store in self._stores.values():
            if store.values.pop(key, None):
                self._on_change(store, key)

    def _complete_list(self) -> None:
        listed = self._listed or set()
        for key in {key for store in self._stores.values() for key in store.values} - listed:
            self._delete(key)
        self._listed = None
        for store in self._listing:
            store.has_synced = True
        self._on_synced()
        if self._is_restored:
            self._is_restored = False
            log.warning("the API server went back to an older state", extra={"kind": self._kind})
            self._on_restored()

    def _skip(self, key: str, why: str) -> None:
        self.malformed += 1
        if not self._skipped.take(key, time.monotonic()):
            log.error("object skipped", extra={"kind": self._kind, "key": key, "why": why})

    def _on_failed(self, why: str) -> None:
        if not self._failure:
            self._failed_at = time.monotonic()
        now = time.monotonic()
        if self._failure != why:
            log.warning("watch interrupted", extra={"kind": self._kind, "why": why})
            self._reported_at = now
        elif now - self._reported_at >= SUMMARY_INTERVAL:
            seconds = round(now - self._failed_at)
            fields = {"kind": self._kind, "why": why, "seconds": seconds}
            log.warning("watch still interrupted", extra=fields)
            self._reported_at = now
        self._failure = why

    def _on_alive(self) -> None:
        self._alive_at = time.monotonic()
        if self._failure:
            seconds = round(self._alive_at - self._failed_at, 3)
            log.info("watch works again", extra={"kind": self._kind, "seconds": seconds})
            self._failure = ""
