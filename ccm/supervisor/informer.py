"""One list and watch per kind for all workers, and what of it each worker is told."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial

import orjson

from ccm.bus.frames import Hello
from ccm.kube.client import Kube
from ccm.kube.watch import (
    IDLE_LIMIT,
    Drop,
    ListBegins,
    ListEnds,
    Put,
    Trouble,
    Undecodable,
    WatchEvent,
    follow,
)
from ccm.model.objects import Json, mapping, text
from ccm.model.projection import Path, Projection, paths_from_json, project
from ccm.model.rbac import PolicyRule
from ccm.supervisor.delivery import DeliveryQueue, Owns, ProjectedStore

log = logging.getLogger(__name__)

PATHS = {
    "Node": "/api/v1/nodes",
    "Service": "/api/v1/services",
    "PersistentVolume": "/api/v1/persistentvolumes",
}
GATHER = 0.1  # seconds that a list waits for more workers that want something of its kind
GATHER_MOST = 2.0  # seconds that it waits for workers which have yet to say what they want
TOGETHER = 0.01  # seconds between two frames of changes
MANY, LONGER = 4, 0.05  # the same after a frame of so many changes: more are on their way
TRY_AGAIN = 1.0  # seconds until a frame that the socket did not take is sent again


def watch_rule(kind: str) -> PolicyRule:
    """What the one list and watch of this kind needs."""
    return PolicyRule(
        PATHS[kind].rpartition("/")[2], ("list", "watch"), "one watch for all workers"
    )


class SharedInformer:
    """Keeps, for each set of wanted fields, the projected objects, and fills the mailboxes.

    A view outlives its workers: a worker that comes back gets its snapshot from memory. `send`
    says whether the worker's socket took a frame, `more_to_come` whether a worker is about to join:
    a list waits for it, because all objects are read once more for what is wanted later.
    """

    def __init__(
        self,
        kube: Kube,
        send: Callable[[str, bytes], bool],
        idle_limit: float = IDLE_LIMIT,
        more_to_come: Callable[[], bool] = lambda: False,
    ) -> None:
        self._kube, self._send, self._idle_limit = kube, send, idle_limit
        self._more_to_come = more_to_come
        self._kinds: dict[str, Kind] = {}
        self._boxes: dict[str, DeliveryQueue] = {}
        self._flush_at: asyncio.TimerHandle | None = None
        self._told, self._next_flush = 0, 0.0

    def join(self, worker: str, hello: Hello, owns: Owns) -> None:
        """A worker said what it wants; its snapshot follows as soon as it can be told."""
        views = [
            self.view(Projection(str(want["kind"]), paths_from_json(want["paths"])))
            for want in hello.projections
        ]
        box = DeliveryQueue(views, owns, partial(self._deliver, worker))
        self._boxes[worker] = box
        box.begin()

    def view(self, want: Projection) -> ProjectedStore:
        """The objects of a kind with the wanted fields, kept from now on."""
        if want.kind not in self._kinds:
            changes = partial(follow, self._kube, PATHS[want.kind], self._idle_limit)
            kind = Kind(want.kind, changes, self._tell, self._begin, self._gather)
            self._kinds[want.kind] = kind
        return self._kinds[want.kind].view(want.paths)

    def leave(self, worker: str) -> None:
        """The worker is gone, or another start of it took its place."""
        self._boxes.pop(worker, None)

    def divide(self, worker: str, owns: Owns) -> None:
        """The worker owns other keys from now on."""
        if box := self._boxes.get(worker):
            box.own(owns)

    def is_caught_up(self, worker: str) -> bool:
        """Whether the worker was told everything and said so; a worker that is gone counts, too."""
        box = self._boxes.get(worker)
        return box is None or box.is_caught_up

    def acknowledge(self, worker: str, seq: int) -> None:
        if box := self._boxes.get(worker):
            box.acknowledge(seq)

    def begin_again(self, worker: str) -> None:
        """The worker missed something."""
        if box := self._boxes.get(worker):
            box.begin()

    def status(self, now: float) -> Json:
        """What `status` shows of the watches and of the way to each worker."""
        return {
            "kinds": {name: kind.status(now) for name, kind in self._kinds.items()},
            "undecodable": sum(kind.undecodable for kind in self._kinds.values()),
            "delivery_queues": {
                worker: {
                    "depth": box.depth,
                    "in_flight": box.in_flight,
                    "frames": box.frames_sent,
                }
                for worker, box in self._boxes.items()
            },
        }

    async def close(self) -> None:
        for kind in self._kinds.values():
            await kind.close()
        if self._flush_at:
            self._flush_at.cancel()

    async def _gather(self) -> None:
        """Return when those that want something have said so, or have had the time."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + GATHER_MOST
        await asyncio.sleep(GATHER)
        while self._more_to_come() and loop.time() < latest:  # noqa: ASYNC110 - states of children
            await asyncio.sleep(GATHER / 4)

    def _tell(self, view: ProjectedStore, key: str) -> None:
        for listen in view.listeners:
            listen(key)
        for box in self._boxes.values():
            if box.reads(view):
                box.mark(view.kind, key)
        self._told += 1
        self._flush_soon()

    def _flush_soon(self) -> None:
        """A change that comes alone leaves at once; of many, those of a moment share a frame."""
        if self._flush_at is None:
            loop = asyncio.get_running_loop()
            self._flush_at = loop.call_at(self._next_flush, self._flush)

    def _flush(self) -> None:
        pause = LONGER if self._told >= MANY else TOGETHER
        self._flush_at, self._told = None, 0
        self._next_flush = asyncio.get_running_loop().time() + pause
        for box in self._boxes.values():
            box.flush()

    def _begin(self) -> None:
        for box in self._boxes.values():
            if not box.has_begun:
                box.begin()

    def _deliver(self, worker: str, frame: bytes) -> bool:
        is_taken = self._send(worker, frame)
        if not is_taken:
            asyncio.get_running_loop().call_later(TRY_AGAIN, self._try_again, worker)
        return is_taken

    def _try_again(self, worker: str) -> None:
        if box := self._boxes.get(worker):
            box.try_again()


class Kind:
    """All objects of one kind, from one list and watch, as the views that workers want of them.

    A view gets its objects from a list. One that comes while a list is under way waits for that to
    end, so that nobody is held up by those who come later, and shares the next list with others.
    """

    def __init__(
        self,
        name: str,
        changes: Callable[[], AsyncGenerator[WatchEvent, None]],
        on_change: Callable[[ProjectedStore, str], None],
        on_listed: Callable[[], None],
        gather: Callable[[], Awaitable[None]],
    ) -> None:
        self._name, self._changes, self._gather = name, changes, gather
        self._on_change, self._on_listed = on_change, on_listed
        self._views: dict[tuple[Path, ...], ProjectedStore] = {}
        self._listing: list[ProjectedStore] = []  # the views that saw this list from its beginning
        self._listed: set[str] | None = None  # keys, while a list is under way
        self._watch: asyncio.Task[None] | None = None
        self._is_watching = False  # a list ended, and what changes is followed
        self._alive_at = self._moved_at = time.monotonic()
        self._trouble, self._trouble_at = "", 0.0
        self._lists = self.undecodable = 0

    def view(self, paths: tuple[Path, ...]) -> ProjectedStore:
        """The objects cut down to `paths`; they are there once a list ended."""
        if paths not in self._views:
            self._views[paths] = ProjectedStore(self._name)
            if self._watch is None or self._is_watching:
                self._list_anew()
        return self._views[paths]

    def status(self, now: float) -> Json:
        return {
            "objects": max(len(view.values) for view in self._views.values()),
            "silent_seconds": round(now - self._alive_at, 3),
            "standstill_seconds": round(now - self._moved_at, 3),
            "trouble": self._trouble,
            "lists": self._lists,
        }

    async def close(self) -> None:
        if self._watch:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    def _list_anew(self) -> None:
        if self._watch:
            self._watch.cancel()
        self._is_watching = False
        self._watch = asyncio.create_task(self._run(), name=f"watch {self._name}")

    async def _run(self) -> None:
        while True:
            await self._gather()
            try:
                await self._follow()
            except Exception:  # around one stream: a bug with one kind must not stop it for ever
                log.exception("watch failed and begins again", extra={"kind": self._name})
                await asyncio.sleep(TRY_AGAIN)

    async def _follow(self) -> None:
        """List and watch, until a list ended that a view missed the beginning of."""
        async with aclosing(self._changes()) as events:
            async for event in events:
                self._moved_at = time.monotonic()
                try:
                    self._take(event)
                except Exception:  # around one callback: one object must not end the watch
                    self.undecodable += 1
                    log.exception("watch event not taken in", extra={"kind": self._name})
                if isinstance(event, ListEnds):
                    self._is_watching = all(view.is_listed for view in self._views.values())
                    if not self._is_watching:
                        return

    def _take(self, event: WatchEvent) -> None:
        match event:
            case ListBegins():
                self._listed, self._listing = set(), list(self._views.values())
                self._lists += 1
                return  # we want to list; that is no sign of life
            case Trouble(why):
                self._note_trouble(why)
                return
            case Put(raw):
                self._absorb(raw)
            case Drop(raw):
                self._forget(_key(raw))
            case ListEnds():
                self._finish_list()
            case Undecodable(why):
                self._skip("", why)
        self._note_life()

    def _absorb(self, raw: Json) -> None:
        key, version = _key(raw), _version(raw)
        if self._listed is not None:
            self._listed.add(key)
        for paths, view in self._views.items():
            try:
                value = orjson.dumps(project(raw, paths))
            except orjson.JSONEncodeError as error:
                self._skip(key, str(error))
                continue
            if (old := view.values.get(key)) and old[1] == value:
                continue
            # What orjson returns keeps a buffer of 4 KiB and more; a copy has its own size.
            view.values[key] = (version, bytes(memoryview(value)))
            self._on_change(view, key)

    def _forget(self, key: str) -> None:
        for view in self._views.values():
            if view.values.pop(key, None):
                self._on_change(view, key)

    def _finish_list(self) -> None:
        listed = self._listed or set()
        for key in {key for view in self._views.values() for key in view.values} - listed:
            self._forget(key)
        self._listed = None
        for view in self._listing:
            view.is_listed = True
        self._on_listed()

    def _skip(self, key: str, why: str) -> None:
        self.undecodable += 1
        log.error("object skipped", extra={"kind": self._name, "key": key, "why": why})

    def _note_trouble(self, why: str) -> None:
        if not self._trouble:
            self._trouble_at = time.monotonic()
        if self._trouble != why:
            log.warning("watch interrupted", extra={"kind": self._name, "why": why})
        self._trouble = why

    def _note_life(self) -> None:
        self._alive_at = time.monotonic()
        if self._trouble:
            seconds = round(self._alive_at - self._trouble_at, 3)
            log.info("watch works again", extra={"kind": self._name, "seconds": seconds})
            self._trouble = ""


def _key(raw: Json) -> str:
    meta = mapping(raw.get("metadata"))
    namespace = text(meta.get("namespace"))
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


def _version(raw: Json) -> int:
    # Versions of one kind are numbers that grow with each write (Kubernetes 1.35 made it official).
    version = text(mapping(raw.get("metadata")).get("resourceVersion"))
    return int(version) if version.isdecimal() and len(version) < 19 else 0
