"""The recent changes of one kind, which watches read and old snapshots are rebuilt from."""

from __future__ import annotations

import asyncio
import bisect
from dataclasses import dataclass
from operator import attrgetter

import orjson

from ccm.sandbox.kubernetes.kinds import Kind
from ccm.sandbox.kubernetes.objects import Object

_by_revision = attrgetter("revision")


class Stored:
    """One version of one object: never changed, encoded at most once."""

    __slots__ = ("_fields", "key", "kind", "obj", "revision")

    def __init__(self, kind: Kind, key: str, obj: Object, revision: int) -> None:
        self.kind = kind
        self.key = key
        self.obj = obj
        self.revision = revision
        self._fields: bytes | None = None

    @property
    def item(self) -> bytes:
        """The object as a member of a list, where the real server leaves its type out."""
        if self._fields is None:
            fields = {k: v for k, v in self.obj.items() if k not in ("kind", "apiVersion")}
            self._fields = orjson.dumps(fields)
        return self._fields

    @property
    def encoded(self) -> bytes:
        """The object as it stands alone."""
        head = b'{"kind":"%b","apiVersion":"%b",'
        return head % (self.kind.name.encode(), self.kind.api_version.encode()) + self.item[1:]

    def at(self, revision: int) -> Stored:
        """Return the same object under another resourceVersion."""
        meta = {**self.obj["metadata"], "resourceVersion": str(revision)}
        return Stored(self.kind, self.key, {**self.obj, "metadata": meta}, revision)


@dataclass(frozen=True, slots=True)
class Change:
    """One write: what was there before and what is there now."""

    revision: int
    key: str
    before: Stored | None
    after: Stored | None


class TooOld(Exception):
    """The changes since that revision are forgotten."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")


class History:
    """A bounded list of changes; a reader that falls behind its end gets `TooOld`."""

    def __init__(self, limit: int, compacted: int) -> None:
        self.compacted = compacted
        self.grown = asyncio.Event()
        self._limit = limit
        self._forgotten = 0
        self._changes: list[Change] = []

    @property
    def latest(self) -> int:
        """The version of the last change."""
        return self._changes[-1].revision if self._changes else self.compacted

    def append(self, change: Change) -> None:
        """Add a change and wake every reader."""
        self._changes.append(change)
        if len(self._changes) > self._limit * 2:
            self._forget(len(self._changes) - self._limit)
        self.grown.set()
        self.grown = asyncio.Event()

    def compact(self, revision: int) -> None:
        """Forget every change up to `revision`."""
        self._forget(bisect.bisect_right(self._changes, revision, key=_by_revision))
        self.compacted = max(self.compacted, revision)

    def position(self, revision: int) -> int:
        """Return where the changes after `revision` begin."""
        if revision < self.compacted:
            raise TooOld(revision, self.compacted)
        return self._forgotten + bisect.bisect_right(self._changes, revision, key=_by_revision)

    def read(self, position: int) -> list[Change]:
        """Return the changes from a position on."""
        if position < self._forgotten:
            raise TooOld(position, self.compacted)
        return self._changes[position - self._forgotten :]

    def _forget(self, count: int) -> None:
        if count:
            self.compacted = self._changes[count - 1].revision
            self._forgotten += count
            del self._changes[:count]
