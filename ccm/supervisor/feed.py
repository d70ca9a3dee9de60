"""One list and watch per kind for all workers, and what of it each worker is told."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import orjson

from ccm.bus.frames import Hello
from ccm.kube.client import Kube
from ccm.kube.watch import (
    Drop,
    ListBegins,
    ListEnds,
    Put,
    Trouble,
    Undecodable,
    WatchEvent,
    follow,
)
from ccm.model.node import Json, mapping, text
from ccm.model.projection import Path, Want, paths_from_json, project
from ccm.supervisor.mailbox import Mailbox, Owns, View

log = logging.getLogger(__name__)

PATHS = {
    "Node": "/api/v1/nodes",
    "Service": "/api/v1/services",
    "PersistentVolume": "/api/v1/persistentvolumes",
}


class Feed:
    """Keeps, for each set of wanted fields, the projected objects, and fills the mailboxes.

    A view outlives its workers: a worker that comes back gets its snapshot from memory.
    """

    def __init__(self, kube: Kube, send: Callable[[str, bytes], bool]) -> None:
        self._kube, self._send = kube, send
        self._views: dict[tuple[str, tuple[Path, ...]], View] = {}
        self._boxes: dict[str, Mailbox] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, set[str]] = {}
        self._alive_at: dict[str, float] = {}
        self._troubles: dict[str, str] = {}
        self.undecodable = 0

    def join(self, worker: str, hello: Hello, owns: Owns) -> None:
        """A worker said what it wants; its snapshot follows as soon as it can be told."""
        views = [
            self.view(Want(str(want["kind"]), paths_from_json(want["paths"])))
            for want in hello.wants
        ]
        box = Mailbox(views, owns, lambda frame: self._send(worker, frame))
        self._boxes[worker] = box
        box.begin()

    def view(self, want: Want) -> View:
        """The objects of a kind with the wanted fields, kept from now on."""
        name = (want.kind, want.paths)
        if name not in self._views:
            self._views[name] = View(want.kind)
            self._watch_again(want.kind)
        return self._views[name]

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

    def facts(self, now: float) -> Json:
        """What `status` shows: objects, age of the last sign of life, frames sent."""
        return {
            "kinds": {
                kind: {
                    "objects": max(
                        (len(v.values) for (k, _), v in self._views.items() if k == kind), default=0
                    ),
                    "silent_seconds": round(now - self._alive_at.get(kind, now), 3),
                    "trouble": self._troubles.get(kind, ""),
                }
                for kind in self._watches
            },
            "undecodable": self.undecodable,
            "mailboxes": {
                worker: {
                    "depth": box.depth,
                    "in_flight": box.in_flight,
                    "frames": box.frames_sent,
                }
                for worker, box in self._boxes.items()
            },
        }

    async def close(self) -> None:
        for task in self._watches.values():
            task.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)

    def _watch_again(self, kind: str) -> None:
        """List and watch from the start, because a view is new; the others see no change."""
        if task := self._watches.get(kind):
            task.cancel()
        self._watches[kind] = asyncio.create_task(self._watch(kind), name=f"watch {kind}")

    async def _watch(self, kind: str) -> None:
        async for event in follow(self._kube, PATHS[kind]):
            try:
                self._take(kind, event)
            except Exception:  # around one callback: one odd object must not end the watch
                self.undecodable += 1
                log.exception("watch event not taken in", extra={"kind": kind})

    def _take(self, kind: str, event: WatchEvent) -> None:
        match event:
            case ListBegins():
                self._seen[kind] = set()
            case Put(raw):
                self._seen[kind].add(_key(raw))
                self._absorb(kind, raw)
            case Drop(raw):
                self._forget(kind, _key(raw))
            case ListEnds():
                self._finish_list(kind)
            case Undecodable(why):
                self.undecodable += 1
                log.error("object skipped", extra={"kind": kind, "why": why})
            case Trouble(why):
                if self._troubles.get(kind) != why:
                    log.warning("watch interrupted", extra={"kind": kind, "why": why})
                self._troubles[kind] = why
                return
        self._troubles.pop(kind, None)
        self._alive_at[kind] = time.monotonic()

    def _absorb(self, kind: str, raw: Json) -> None:
        key, version = _key(raw), _version(raw)
        for (view_kind, paths), view in self._views.items():
            if view_kind != kind:
                continue
            value = orjson.dumps(project(raw, paths))
            if (old := view.values.get(key)) and old[1] == value:
                continue
            view.values[key] = (version, value)
            self._tell(view, key)

    def _forget(self, kind: str, key: str) -> None:
        for view in self._views_of(kind):
            if view.values.pop(key, None):
                self._tell(view, key)

    def _finish_list(self, kind: str) -> None:
        seen = self._seen[kind]
        for view in self._views_of(kind):
            for key in [key for key in view.values if key not in seen]:
                self._forget(kind, key)
            view.is_listed = True
        for box in self._boxes.values():
            if not box.has_begun:
                box.begin()

    def _views_of(self, kind: str) -> list[View]:
        return [view for (view_kind, _), view in self._views.items() if view_kind == kind]

    def _tell(self, view: View, key: str) -> None:
        for box in self._boxes.values():
            if box.reads(view):
                box.mark(view.kind, key)


def _key(raw: Json) -> str:
    meta: Any = mapping(raw.get("metadata"))
    namespace = text(meta.get("namespace"))
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


def _version(raw: Json) -> int:
    # Versions of one kind are numbers that grow with each write (Kubernetes 1.35 made it official).
    version = text(mapping(raw.get("metadata")).get("resourceVersion"))
    return int(version) if version.isdigit() else 0
