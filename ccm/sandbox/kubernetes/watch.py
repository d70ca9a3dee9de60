"""Watches: events as lines of JSON, bookmarks, the ways a stream ends."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress

import orjson
from aiohttp import web

from ccm.sandbox.kubernetes import errors
from ccm.sandbox.kubernetes.kinds import ResourceKind
from ccm.sandbox.kubernetes.printers import render
from ccm.sandbox.kubernetes.reads import selector_of
from ccm.sandbox.kubernetes.request import TRUE, ApiRequest
from ccm.sandbox.kubernetes.storage import Storage, StorageEvent, StoredObject, VersionTooOld

# As --min-request-timeout: a watch that names no timeout lasts one to two times as long.
MIN_REQUEST_TIMEOUT = 1800.0
BOOKMARK_INTERVAL = 60.0
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}
# The real server sends its last bookmark this long before a watch times out.
LAST_BOOKMARK_LEAD = 2.0


class WatchStream:
    """What one watch selects, and its events as lines."""

    def __init__(self, storage: Storage, request: ApiRequest) -> None:
        self._storage = storage
        self._request = request
        self._start = request.number("resourceVersion")
        self._info = request.target
        self._cache = storage.cache(self._info.kind)
        # As kubectl does that waits for a deletion.
        self._sends_initial_events = request.query.get("sendInitialEvents") in TRUE
        self._bookmarks = request.query.get("allowWatchBookmarks") in TRUE
        self._prefix = self._info.kind.prefix(self._info.namespace)
        self._selects_content = selector_of(request)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield lines from the start version on (0 is from what is there now).

        Ends when the watch times out or its place in the watch cache is compacted.
        """
        cache, storage = self._cache, self._storage
        try:
            position = cache.position(self._start or storage.revision)
            if self._start == 0 or self._sends_initial_events:
                position = cache.position(storage.revision)
                for line in self._initial_lines():
                    yield line
            async for line in self._changes(position):
                yield line
        except VersionTooOld as error:
            yield expired_line(str(error))

    def _initial_lines(self) -> Iterator[bytes]:
        for _, stored in sorted(self._storage.current(self._info.kind).items()):
            if self._selects(stored):
                yield event_line(b"ADDED", render(self._request, stored))
        if self._sends_initial_events:
            yield bookmark(self._info.kind, self._storage.revision, INITIAL_EVENTS_END)

    async def _changes(self, position: int) -> AsyncIterator[bytes]:
        known = max(self._start, self._cache.latest)
        seconds = self._request.number("timeoutSeconds")
        deadline = time.monotonic() + (seconds or MIN_REQUEST_TIMEOUT * (1 + random.random()))
        bookmark_times = _bookmark_times(deadline if self._bookmarks else 0.0)
        bookmark_at = next(bookmark_times)
        while True:
            changed = self._cache.changed
            events = self._cache.read(position)
            position += len(events)
            for event in events:
                # A watch from a version that is yet to come waits for it.
                if event.revision > self._start and (line := self._line(event)):
                    yield line
            now = time.monotonic()
            if now >= bookmark_at:
                bookmark_at = next(bookmark_times)
                # As the real server does: no bookmark without news for the client.
                if self._storage.revision > known:
                    yield bookmark(self._info.kind, self._storage.revision)
            if now >= deadline:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), min(deadline, bookmark_at) - now)

    def _selects(self, stored: StoredObject | None) -> bool:
        if stored is None or not stored.key.startswith(self._prefix):
            return False
        if self._info.name and stored.obj["metadata"]["name"] != self._info.name:
            return False
        return self._selects_content(stored.obj)

    def _line(self, event: StorageEvent) -> bytes | None:
        """Return a change as the watch sees it: entering and leaving a selector count."""
        was, is_now = self._selects(event.previous), self._selects(event.current)
        if is_now and event.current is not None:
            body = render(self._request, event.current)
            return event_line(b"MODIFIED" if was else b"ADDED", body)
        if was and event.previous is not None:
            return event_line(b"DELETED", render(self._request, event.previous.at(event.revision)))
        return None


def event_line(name: bytes, obj: bytes) -> bytes:
    """Return one event of a watch."""
    return b'{"type":"%b","object":%b}\n' % (name, obj)


def expired_line(message: str) -> bytes:
    """Return the event that ends a watch whose version is compacted."""
    return event_line(b"ERROR", orjson.dumps(errors.StatusError(410, message).status()))


def bookmark(
    kind: ResourceKind, revision: int, annotations: Mapping[str, str] | None = None
) -> bytes:
    """Return the event that shows a watch how far it has come."""
    meta = {"resourceVersion": str(revision), "annotations": annotations or {}}
    body = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": meta}
    return event_line(b"BOOKMARK", orjson.dumps(body))


def _bookmark_times(deadline: float) -> Iterator[float]:
    """Yield when bookmarks are due: every so often, shortly before the end, and never again."""
    last, due = deadline - LAST_BOOKMARK_LEAD, time.monotonic()
    while due < last:
        due = min(due + BOOKMARK_INTERVAL, last)
        yield due
    yield float("inf")


async def serve_watch(storage: Storage, request: ApiRequest) -> web.StreamResponse:
    """Stream until the watch ends."""
    stream = WatchStream(storage, request)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request.http)
    async for line in stream.lines():
        await response.write(line)
    return response
