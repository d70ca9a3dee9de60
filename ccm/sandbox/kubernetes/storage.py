"""Objects in memory under one resourceVersion counter, and a watch cache per resource.

It knows no rules and no HTTP.
"""

import asyncio
import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

import orjson

from ccm.sandbox.kubernetes.kinds import ResourceKind
from ccm.sandbox.kubernetes.objects import Object

_by_revision = attrgetter("revision")


@dataclass(eq=False, slots=True)
class StoredObject:
    """One version of one object: never changed, encoded at most once."""

    kind: ResourceKind
    key: str
    obj: Object
    revision: int
    _item: bytes | None = None

    @property
    def item(self) -> bytes:
        if self._item is None:
            fields = {k: v for k, v in self.obj.items() if k not in ("kind", "apiVersion")}
            self._item = orjson.dumps(fields)
        return self._item

    @property
    def encoded(self) -> bytes:
        head = b'{"kind":"%b","apiVersion":"%b",'
        return head % (self.kind.name.encode(), self.kind.api_version.encode()) + self.item[1:]

    def at(self, revision: int) -> "StoredObject":
        meta = {**self.obj["metadata"], "resourceVersion": str(revision)}
        return StoredObject(self.kind, self.key, {**self.obj, "metadata": meta}, revision)


@dataclass(frozen=True, slots=True)
class StorageEvent:
    """One write: what was there before and what is there now."""

    revision: int
    key: str
    previous: StoredObject | None
    current: StoredObject | None


class VersionTooOld(Exception):
    """The events since that revision are compacted."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")


class WatchCache:
    """A bounded list of events; a reader that falls behind its end gets `VersionTooOld`."""

    def __init__(self, limit: int, compacted: int) -> None:
        self.compacted = compacted
        self.changed = asyncio.Event()
        self._limit = limit
        self._dropped = 0
        self._events: list[StorageEvent] = []

    @property
    def latest(self) -> int:
        return self._events[-1].revision if self._events else self.compacted

    def append(self, event: StorageEvent) -> None:
        self._events.append(event)
        if len(self._events) > self._limit * 2:
            self._drop(len(self._events) - self._limit)
        self.changed.set()
        self.changed = asyncio.Event()

    def compact(self, revision: int) -> None:
        self._drop(bisect.bisect_right(self._events, revision, key=_by_revision))
        self.compacted = max(self.compacted, revision)

    def position(self, revision: int) -> int:
        """Return where the events after `revision` begin."""
        if revision < self.compacted:
            raise VersionTooOld(revision, self.compacted)
        return self._dropped + bisect.bisect_right(self._events, revision, key=_by_revision)

    def read(self, position: int) -> list[StorageEvent]:
        if position < self._dropped:
            raise VersionTooOld(position, self.compacted)
        return self._events[position - self._dropped :]

    def _drop(self, count: int) -> None:
        if count:
            self.compacted = self._events[count - 1].revision
            self._dropped += count
            del self._events[:count]


class Storage:
    """The current objects of every kind and a watch cache of each kind."""

    def __init__(self, kinds: Iterable[ResourceKind], cache_size: int) -> None:
        self.revision = 1
        self._objects: dict[str, dict[str, StoredObject]] = {}
        self._caches: dict[str, WatchCache] = {}
        for kind in kinds:
            self._objects[kind.qualified_plural] = {}
            self._caches[kind.qualified_plural] = WatchCache(cache_size, self.revision)

    def get(self, kind: ResourceKind, key: str) -> StoredObject | None:
        return self._objects[kind.qualified_plural].get(key)

    def current(self, kind: ResourceKind) -> dict[str, StoredObject]:
        return self._objects[kind.qualified_plural]

    def cache(self, kind: ResourceKind) -> WatchCache:
        return self._caches[kind.qualified_plural]

    def write(self, kind: ResourceKind, key: str, obj: Object) -> StoredObject:
        """Store `obj`, which the storage now owns, as the next version."""
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        objects = self.current(kind)
        previous, stored = objects.get(key), StoredObject(kind, key, obj, self.revision)
        objects[key] = stored
        self.cache(kind).append(StorageEvent(self.revision, key, previous, stored))
        return stored

    def remove(self, kind: ResourceKind, key: str) -> StoredObject:
        """Remove an object and return its last state under the version of its removal."""
        self.revision += 1
        previous = self.current(kind).pop(key)
        self.cache(kind).append(StorageEvent(self.revision, key, previous, None))
        return previous.at(self.revision)

    def compact(self) -> None:
        """Drop all history: every watch from before now is too old."""
        for cache in self._caches.values():
            cache.compact(self.revision)
