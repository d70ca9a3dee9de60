"""List and watch of one kind, for ever, as a stream of small events.

Four nested generators, each with one concern: pages of a list, lines of a response, one watch
request, and the endless cycle of list, watch and back-off around them.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ccm.decide.backoff import Backoff
from ccm.errors import AnswerTooLarge, KubernetesError, Unreachable
from ccm.http import BODY_LIMIT, HttpConnection
from ccm.kube.client import METADATA, Kube, decode, is_one_of
from ccm.model.objects import Json, mapping, text

PAGE_SIZE = 100  # more at once would cost memory that stays: 40 MiB at 500, 24 at 100
MAX_PAGE = 4 << 20
"""Bytes, but for one object alone: a page of small values takes thirty times as much memory. Of
kubelets, 100 Nodes have half of it."""
SERVER_TIMEOUT = 300  # seconds after which the server ends a watch by itself
MOST_DIGITS = 18  # of a version; more is not one
MAX_LINE_SIZE = 32 << 20  # bytes; the largest objects that etcd takes are a tenth of that


@dataclass(frozen=True, slots=True)
class WatchTimings:
    """Seconds that bound a list and watch."""

    idle_limit: float = 70.0
    """Bookmarks come once a minute: after longer silence a connection may be dead."""
    response_timeout: float = 10.0
    """Above that until the answer to a watch request must begin."""
    min_watch_duration: float = 1.0
    """A watch that ends sooner is not reopened at once."""
    stable_duration: float = 30.0
    """What lasted longer was no failure, whatever ended it."""
    max_retry_after: float = 60.0
    """A longer wait that the server asks for is cut to this."""
    retry: Backoff = Backoff(first=0.25, most=5.0, jitter=0.5)


@dataclass(frozen=True, slots=True)
class ListStarted:
    """A list begins: what follows up to `ListCompleted` is everything there is."""


@dataclass(frozen=True, slots=True)
class Updated:
    """An object as it is now: of a list, added, or modified."""

    raw: Json


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object that was deleted, as it was last."""

    raw: Json


@dataclass(frozen=True, slots=True)
class ListCompleted:
    """The list is complete: what it did not contain does not exist."""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The API server gave a sign of life; nothing changed up to `version`."""

    version: str = ""


@dataclass(frozen=True, slots=True)
class Malformed:
    """An entry that is not a usable object, even when requested again; it was skipped."""

    why: str


@dataclass(frozen=True, slots=True)
class WatchFailed:
    """The list or watch failed; it is retried after a delay."""

    why: str


OLDER_LISTS = 4  # in a row that may be those of an API server that lags behind; some seconds
FIRST_SILENCES, MOST_SILENCES = 2, 8  # silent watches until a list, and from one to the next
OPENED = Bookmark()  # a watch request was answered; that alone is no progress
WatchEvent = ListStarted | Updated | Deleted | ListCompleted | Bookmark | Malformed | WatchFailed


class _RelistNeeded(Exception):
    """The version seen last is no longer kept (410), or is doubtful."""


class Position:
    """The resourceVersion up to which everything was seen; empty before the first list."""

    def __init__(self) -> None:
        self.version = ""
        self._newest, self._older_lists, self._first_older = "", 0, ""
        self._doubted: str | None = None
        self._has_odd_objects = False

    def move(self, version: str) -> None:
        self.version = self._newest = version or self.version

    def advance(self, version: str) -> None:
        """The same for an event of a watch; raise for one that is older than those before."""
        if _is_older(version, self.version):
            raise _RelistNeeded(f"an event of version {version} after version {self.version}")
        self.move(version)

    def check(self, version: str) -> None:
        """Raise for a list that is older than what was seen, unless several in a row are.

        One of several API servers may lag behind: objects that its list lacks are not gone. After a
        restore of etcd all lists are older, and their versions grow; a proxy keeps one list.
        """
        if not _is_older(version, self._newest):
            self._older_lists = 0
        elif self._older_lists < OLDER_LISTS or version == self._first_older:
            self._first_older = self._first_older if self._older_lists else version
            self._older_lists += 1
            why = (
                f"a list of version {version} is older than version {self._newest}, which was seen"
            )
            raise Unreachable(why)

    def reset(self) -> None:
        """Start over with a list."""
        self.version, self._doubted, self._has_odd_objects = "", None, False

    def doubt(self, why: str) -> None:
        """Return when an entry that cannot be read is to be skipped, else raise.

        It may have been spoilt on its way, so it is requested once more; then a list says what is
        there. What cannot be read in two lists is an odd object: from then on they are expected.
        """
        is_again = self._doubted == self.version
        self._doubted = self.version
        if not (is_again or self._has_odd_objects):
            raise Unreachable(why)
        if self.version and not self._has_odd_objects:
            raise _RelistNeeded(why)
        self._has_odd_objects = True


async def list_and_watch(
    kube: Kube,
    path: str,
    timings: WatchTimings = WatchTimings(),
    position: Position | None = None,
) -> AsyncGenerator[WatchEvent, None]:
    """List and watch the objects under `path` (such as `/api/v1/nodes`), without end.

    A watch that breaks is resumed at the last version seen. An object that went away unseen is
    missing in the next list, and what was spoilt on its way is requested once more. Watches that
    bring not even a bookmark may be kept back by a proxy: after some, the objects are listed again.
    Who begins again with the same `position` gets no list from before what it has seen.
    """
    position, failures = position or Position(), 0
    position.reset()
    silences, next_list = 0, FIRST_SILENCES
    loop = asyncio.get_running_loop()
    while True:
        begun, was_listed = loop.time(), not position.version
        failure: Exception | None = None
        try:
            if not position.version:
                async for event in _list(kube, path, position):
                    yield event
            else:
                await _check_past(kube, path, position)
            is_silent = True
            async for event in _watch(kube, path, position, timings):
                if event != OPENED:
                    failures, is_silent = 0, False
                yield event
            lasted = loop.time() - begun
            silences = silences + (lasted >= timings.idle_limit) if is_silent else 0
            if silences >= next_list:
                position.reset()
                next_list = min(2 * next_list, silences + MOST_SILENCES)
            if not silences:
                next_list = FIRST_SILENCES
            if lasted < timings.min_watch_duration:
                await asyncio.sleep(timings.min_watch_duration)
        except _RelistNeeded as error:
            position.reset()
            failure = error if was_listed else None  # relist at once, but not again and again
        except (KubernetesError, Unreachable) as error:
            failure = error
        if failure:
            failures = 1 if loop.time() - begun > timings.stable_duration else failures + 1
            yield WatchFailed(str(failure))
            await asyncio.sleep(_delay(failure, failures, timings))


async def list_once(kube: Kube, path: str) -> list[Json]:
    """All objects under `path` as they are now; raises rather than return a part of them."""
    try:
        events = [event async for event in _list(kube, path, Position())]
    except _RelistNeeded as error:
        raise Unreachable(f"GET {path}: the list expired before its end") from error
    return [event.raw for event in events if isinstance(event, Updated)]


def _delay(failure: Exception, failures: int, timings: WatchTimings) -> float:
    """Seconds to wait: what the server asks for, else longer with each failure in a row."""
    if isinstance(failure, KubernetesError) and failure.retry_after:
        return min(failure.retry_after, timings.max_retry_after)
    return timings.retry.delay(failures, random.random())


async def _list(kube: Kube, path: str, position: Position) -> AsyncIterator[WatchEvent]:
    """A page that is too large is asked for again with half as many objects, down to one.

    Behind one that is half full at most, the next has twice as many again: what few objects need
    costs the others no page each.
    """
    yield ListStarted()
    size, more, first = PAGE_SIZE, dict[str, str](), ""
    several, alone = kube.up_to(MAX_PAGE), kube.up_to(BODY_LIMIT)
    while True:
        try:
            asked = several if size > 1 else alone
            page = await _page(asked, path, {"limit": str(size), **more})
        except AnswerTooLarge:
            if size == 1:
                raise
            size //= 2
            continue
        version = text(page["metadata"]["resourceVersion"])
        if not more:
            position.check(version)
            first = version
        elif _is_older(version, first):
            raise Unreachable(f"GET {path}: a page of version {version} after one of {first}")
        for item in page["items"] or ():
            event = _updated(item)
            if isinstance(event, Malformed):
                position.doubt(event.why)
            yield event
        meta = page["metadata"]
        if not meta.get("continue"):
            break
        if more == (more := {"continue": text(meta["continue"])}):
            raise Unreachable(f"GET {path}: a page came again instead of the next one")
        if 2 * asked.body_size <= MAX_PAGE:
            size = min(2 * size, PAGE_SIZE)
    position.move(first)
    yield ListCompleted()


async def _page(kube: Kube, path: str, params: dict[str, str]) -> Json:
    """One page of a list; an invalid answer would read as an empty list."""
    # Without meaning to a list: a proxy that keeps answers has none from before of this request.
    unique = {"timeoutSeconds": str(random.randrange(SERVER_TIMEOUT, 10**9))}
    try:
        page = await kube.get(path, params | unique)
    except KubernetesError as error:
        if error.status == 410 and "continue" in params:
            raise _RelistNeeded(str(error)) from error  # the continue token expired
        raise
    version = mapping(page.get("metadata")).get("resourceVersion")
    if not text(version) or not isinstance(page.get("items", ""), list | None):
        raise Unreachable(f"GET {path}: the answer is not a list")
    if _is_of_another(path, page, "List"):
        raise Unreachable(f"GET {path}: the answer is about another kind or group")
    return page


def _is_of_another(path: str, answer: Mapping[str, Any], suffix: str = "") -> bool:
    """Whether it says that it is of another kind or group, as others have Nodes and Services, too.

    A proxy may mix up whose answer is whose.
    """
    kind, version = text(answer.get("kind")).removesuffix(suffix), text(answer.get("apiVersion"))
    is_of_group = not version or path.startswith((f"/api/{version}/", f"/apis/{version}/"))
    return not is_of_group or kind == METADATA or not is_one_of(path.rpartition("/")[2], kind)


async def _check_past(kube: Kube, path: str, position: Position) -> None:
    """Raise `_RelistNeeded` when the API server never was at `position`.

    After a restore of etcd its versions begin again below ours, and a watch from a version that is
    yet to come is silent until then.
    """
    page = await _page(kube, path, {"limit": "1"})
    newest = text(page["metadata"]["resourceVersion"])
    if _is_older(newest, position.version):
        raise _RelistNeeded(f"the newest version is {newest}, and {position.version} was seen")


async def _watch(
    kube: Kube, path: str, position: Position, timings: WatchTimings
) -> AsyncIterator[WatchEvent]:
    """One watch request from `position` to its end, which moves `position` along."""
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": position.version,
        "timeoutSeconds": str(round(SERVER_TIMEOUT * random.uniform(1.0, 1.5))),
    }
    response_timeout = timings.idle_limit + timings.response_timeout
    try:
        async with kube.stream(path, params, response_timeout) as content:
            yield OPENED
            async for line in _lines(content, timings.idle_limit):
                event = _event(line, path)
                if isinstance(event, Malformed):
                    position.doubt(event.why)
                position.advance(_version(event))
                yield event
    except KubernetesError as error:
        if error.status in (400, 410):  # 400: no API server takes what was sent as a version
            raise _RelistNeeded(str(error)) from error
        raise


async def _lines(content: HttpConnection, idle_limit: float) -> AsyncIterator[bytes]:
    """Lines up to the end of the stream, or until it is idle for too long.

    Silence alone is no failure: a server sends no bookmarks of a kind that never changed since it
    started. If the connection is dead, the next request either works or shows why not.
    """
    rest = bytearray()
    while True:
        try:
            async with asyncio.timeout(idle_limit):
                chunk = await content.read()
        except TimeoutError:
            return
        if not chunk:
            return
        rest += chunk
        if b"\n" in chunk:  # else a long line would be searched again with each part of it
            *lines, rest = rest.split(b"\n")
            for line in filter(None, lines):
                yield bytes(line)
        if len(rest) > MAX_LINE_SIZE:
            raise Unreachable(f"a line of more than {MAX_LINE_SIZE} bytes")


def _is_older(version: str, than: str) -> bool:
    """Whether it is; of versions that are not numbers this is not known."""
    are_numbers = all(it.isdecimal() and len(it) <= MOST_DIGITS for it in (version, than))
    return are_numbers and int(version) < int(than)


def _updated(item: Any) -> Updated | Malformed:
    if not isinstance(item, dict):
        return Malformed(f"an entry that is not an object but {type(item).__name__}")
    name = text(mapping(item.get("metadata")).get("name"))
    if not name or "/" in name or name in (".", ".."):  # it becomes part of a path
        return Malformed(f"an entry whose metadata.name is {name!r}")
    return Updated(item)


def _event(line: bytes, path: str) -> WatchEvent:
    try:
        entry = decode(line)
    except orjson.JSONDecodeError:
        return Malformed(f"a line of {len(line)} bytes that is not JSON")
    raw = entry.get("object") if isinstance(entry, dict) else None
    kind = entry.get("type") if isinstance(entry, dict) else None
    if kind != "ERROR" and _is_of_another(path, mapping(raw)):
        return Malformed("an event about another kind or group")
    match kind:
        case "ADDED" | "MODIFIED":
            return _updated(raw)
        case "DELETED":
            updated = _updated(raw)
            return Deleted(updated.raw) if isinstance(updated, Updated) else updated
        case "BOOKMARK":
            return Bookmark(text(mapping(mapping(raw).get("metadata")).get("resourceVersion")))
        case "ERROR":
            raise _error(mapping(raw))
    return Malformed(f"an event of type {kind!r}")


def _error(status: Any) -> Exception:
    code = status.get("code")
    reason, message = text(status.get("reason")), text(status.get("message"))
    if code == 410:
        return _RelistNeeded(message or reason or "the version is no longer kept")
    return KubernetesError(code if isinstance(code, int) else 500, reason, message, None)


def _version(event: WatchEvent) -> str:
    match event:
        case Updated(raw) | Deleted(raw):
            return text(mapping(raw.get("metadata")).get("resourceVersion"))
        case Bookmark(version):
            return version
    return ""
