"""The stream of a watch: changes as lines of JSON, bookmarks, and the ways it ends."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import orjson

from ccm.sandbox.kubernetes import failures
from ccm.sandbox.kubernetes.call import Call
from ccm.sandbox.kubernetes.history import Change, Stored, TooOld
from ccm.sandbox.kubernetes.kinds import Kind
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.reads import MATCH, NOT_OLDER_THAN, OPTIONS
from ccm.sandbox.kubernetes.selectors import Matcher, matcher
from ccm.sandbox.kubernetes.store import Store

SHORTEST_DEFAULT_TIMEOUT = 1800.0
BOOKMARK_INTERVAL = 60.0
# The real server sends its last bookmark this long before a watch times out.
LAST_BOOKMARK_LEAD = 2.0
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}

Render = Callable[[Stored], bytes]


@dataclass(frozen=True, slots=True)
class Interest:
    """What a watch wants to see and how."""

    kind: Kind
    prefix: str
    name: str
    matches: Matcher | None
    render: Render

    def wants(self, stored: Stored | None) -> bool:
        if stored is None:
            return False
        if self.name and stored.obj["metadata"]["name"] != self.name:
            return False
        return stored.key.startswith(self.prefix) and (
            self.matches is None or self.matches(stored.obj)
        )

    def line(self, change: Change) -> bytes | None:
        """Return a change as the watch sees it: entering and leaving a selector count."""
        was, is_now = self.wants(change.before), self.wants(change.after)
        if is_now and change.after is not None:
            return event(b"MODIFIED" if was else b"ADDED", self.render(change.after))
        if was and change.before is not None:
            return event(b"DELETED", self.render(change.before.at(change.revision)))
        return None


def interest_of(call: Call, render: Render) -> Interest:
    """Return what a watch request asks for."""
    kind = call.place.kind
    fields, labels = call.query.get("fieldSelector", ""), call.query.get("labelSelector", "")
    prefix = kind.prefix(call.place.namespace)
    return Interest(kind, prefix, call.place.name, matcher(kind, labels, fields), render)


async def stream(store: Store, call: Call, interest: Interest, start: int) -> AsyncIterator[bytes]:
    """Yield lines from the version `start` on (0 is from what is there now).

    Ends when the watch times out or its place in history is forgotten.
    """
    kind, history = interest.kind, store.history(interest.kind)
    bookmarks = call.truth("allowWatchBookmarks")
    try:
        position = history.position(start or store.revision)
    except TooOld as fault:
        yield gone(str(fault))
        return
    if start == 0 or call.truth("sendInitialEvents"):
        position = history.position(store.revision)
        for line in _present(store, interest):
            yield line
        if call.truth("sendInitialEvents") and bookmarks:
            yield bookmark(kind, store.revision, INITIAL_EVENTS_END)
    known = max(start, history.latest)
    clock = _Clock.of(call.number("timeoutSeconds"), bookmarks=bookmarks)
    while True:
        grown = history.grown
        try:
            changes = history.read(position)
        except TooOld as fault:
            yield gone(str(fault))
            return
        position += len(changes)
        for change in changes:
            # A watch from a version that is yet to come waits for it.
            if change.revision > start and (seen := interest.line(change)):
                yield seen
        # As the real server does: no bookmark that tells the client nothing new.
        if clock.bookmark_is_due() and store.revision > known:
            yield bookmark(kind, store.revision)
        if clock.is_over():
            return
        await _wait(grown, clock.pause())


def start_of(call: Call) -> int:
    """Return the version that a watch starts from; refuse options that contradict each other."""
    match = call.query.get("resourceVersionMatch", "")
    initial = "sendInitialEvents" in call.query
    why = ""
    if initial and match != NOT_OLDER_THAN:
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif match and not initial:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    if why:
        raise failures.forbidden_option(OPTIONS, MATCH, why)
    text = call.query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise failures.raw_error(f'resourceVersion: Invalid value: "{text}": invalid syntax')
    return int(text)


def event(name: bytes, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (name, obj)


def gone(message: str) -> bytes:
    """Return the event that ends a watch whose version is forgotten."""
    return event(b"ERROR", orjson.dumps(failures.expired(message).status()))


def bookmark(kind: Kind, revision: int, annotations: Object | None = None) -> bytes:
    meta: Object = {"resourceVersion": str(revision)}
    if annotations:
        meta["annotations"] = annotations
    body = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": meta}
    return event(b"BOOKMARK", orjson.dumps(body))


def _present(store: Store, interest: Interest) -> Iterator[bytes]:
    for _, stored in sorted(store.current(interest.kind).items()):
        if interest.wants(stored):
            yield event(b"ADDED", interest.render(stored))


async def _wait(grown: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await grown.wait()
    except TimeoutError:
        return


@dataclass(slots=True)
class _Clock:
    """When a watch sends its next bookmark and when it ends."""

    deadline: float
    next_bookmark: float

    @staticmethod
    def of(timeout: int, *, bookmarks: bool) -> _Clock:
        now = time.monotonic()
        seconds = timeout or SHORTEST_DEFAULT_TIMEOUT * (1 + random.random())
        clock = _Clock(now + seconds, float("inf"))
        if bookmarks:
            clock.plan_bookmark(now)
        return clock

    def plan_bookmark(self, now: float) -> None:
        last = self.deadline - LAST_BOOKMARK_LEAD
        due = now + BOOKMARK_INTERVAL
        self.next_bookmark = min(due, last) if now < last else float("inf")

    def bookmark_is_due(self) -> bool:
        now = time.monotonic()
        if now < self.next_bookmark:
            return False
        self.plan_bookmark(now)
        return True

    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    def pause(self) -> float:
        return max(0.0, min(self.deadline, self.next_bookmark) - time.monotonic())
