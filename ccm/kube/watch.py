"""One list and watch of a kind, for ever: what changes arrives as a stream of small events.

Four nested generators, each with one concern: pages of a list, lines of a response, one watch
request, and the endless cycle of list, watch and back-off around them.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

from ccm.decide.backoff import Backoff
from ccm.errors import KubernetesError, Unreachable
from ccm.http import HttpConnection
from ccm.kube.client import Kube
from ccm.model.objects import Json, mapping, text

PAGE = 100  # more at once would cost memory that stays: 40 MiB at 500, 24 at 100
SERVER_TIMEOUT = 300  # seconds after which the server ends a watch by itself
IDLE_LIMIT = 70.0  # bookmarks come once a minute: after longer silence a connection may be dead
HEADERS_LIMIT = 10.0  # seconds above that until an answer to a watch request must have begun
SHORT = 1.0  # a watch that ends sooner is not asked for again at once
STEADY = 30.0  # a round that lasted longer was no failure, whatever ended it
LONGEST_WAIT = 60.0  # more patience than this is not had, whatever the server asks for
LONGEST_LINE = 32 << 20  # bytes; the largest objects that etcd takes are a tenth of that
RETRY = Backoff(first=0.25, most=5.0, jitter=0.5)


@dataclass(frozen=True, slots=True)
class ListBegins:
    """What follows up to `ListEnds` is everything there is."""


@dataclass(frozen=True, slots=True)
class Put:
    """An object as it is now."""

    raw: Json


@dataclass(frozen=True, slots=True)
class Drop:
    """An object that is gone, as it was last."""

    raw: Json


@dataclass(frozen=True, slots=True)
class ListEnds:
    """The list is complete: what it did not contain does not exist."""


@dataclass(frozen=True, slots=True)
class Alive:
    """The API server gave a sign of life; nothing changed up to `version`."""

    version: str = ""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An entry that is not a usable object, however often it is asked for; it was skipped."""

    why: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """The stream broke; it starts again after a delay."""

    why: str


OPENED = Alive()  # a watch began; that alone is no progress
WatchEvent = ListBegins | Put | Drop | ListEnds | Alive | Undecodable | Trouble


class _ListAgain(Exception):
    """What was seen so far does not help: the version is no longer kept (410), or is doubtful."""


class _Position:
    """The version up to which everything was seen; empty before the first list."""

    def __init__(self) -> None:
        self.version = ""
        self._doubted: str | None = None
        self._has_odd_objects = False

    def move(self, version: str) -> None:
        self.version = version or self.version

    def lose(self) -> None:
        """List again."""
        self.version, self._doubted, self._has_odd_objects = "", None, False

    def doubt(self, why: str) -> None:
        """Return when an entry that cannot be read is to be skipped, else raise.

        It may have been spoilt on its way, so it is asked for once more; then a list says what is
        there. What cannot be read in two lists is an odd object: from then on they are expected.
        """
        is_again = self._doubted == self.version
        self._doubted = self.version
        if not (is_again or self._has_odd_objects):
            raise Unreachable(why)
        if self.version and not self._has_odd_objects:
            raise _ListAgain(why)
        self._has_odd_objects = True


async def follow(
    kube: Kube, path: str, idle_limit: float = IDLE_LIMIT
) -> AsyncGenerator[WatchEvent, None]:
    """Every change of the objects under `path` (such as `/api/v1/nodes`), without end.

    A watch that breaks goes on from the last version seen. An object that went away unseen is
    missing in the next list, and what was spoilt on its way is asked for once more.
    """
    position, failures = _Position(), 0
    loop = asyncio.get_running_loop()
    while True:
        begun, was_listed = loop.time(), not position.version
        trouble: Exception | None = None
        try:
            if not position.version:
                async for event in _list(kube, path, position):
                    yield event
            async for event in _watch(kube, path, position, idle_limit):
                if event != OPENED:
                    failures = 0
                yield event
            if loop.time() - begun < SHORT:
                await asyncio.sleep(SHORT)
        except _ListAgain as error:
            position.lose()
            trouble = error if was_listed else None  # again at once, but not again and again
        except (KubernetesError, Unreachable) as error:
            trouble = error
        if trouble:
            failures = 1 if loop.time() - begun > STEADY else failures + 1
            yield Trouble(str(trouble))
            await asyncio.sleep(_wait(trouble, failures))


async def list_once(kube: Kube, path: str) -> list[Json]:
    """All objects under `path` as they are now; raises rather than return a part of them."""
    try:
        events = [event async for event in _list(kube, path, _Position())]
    except _ListAgain as error:
        raise Unreachable(f"GET {path}: the list expired before its end") from error
    return [event.raw for event in events if isinstance(event, Put)]


def _wait(trouble: Exception, failures: int) -> float:
    """The server's word on when to come back, else longer with each failure in a row."""
    if isinstance(trouble, KubernetesError) and trouble.retry_after:
        return min(trouble.retry_after, LONGEST_WAIT)
    return RETRY.delay(failures, random.random())


async def _list(kube: Kube, path: str, position: _Position) -> AsyncIterator[WatchEvent]:
    yield ListBegins()
    params = {"limit": str(PAGE)}
    while True:
        page = await _page(kube, path, params)
        for item in page["items"] or ():
            event = _put(item)
            if isinstance(event, Undecodable):
                position.doubt(event.why)
            yield event
        meta = page["metadata"]
        if not meta.get("continue"):
            break
        params = {"limit": str(PAGE), "continue": text(meta["continue"])}
    position.move(meta["resourceVersion"])
    yield ListEnds()


async def _page(kube: Kube, path: str, params: dict[str, str]) -> Json:
    """One page of a list, and nothing that is not one: it would say that nothing is there."""
    try:
        page = await kube.get(path, params)
    except KubernetesError as error:
        if error.status == 410 and "continue" in params:
            raise _ListAgain(str(error)) from error  # the rest of this list expired: begin again
        raise
    version = mapping(page.get("metadata")).get("resourceVersion")
    if not text(version) or not isinstance(page.get("items", ""), list | None):
        raise Unreachable(f"GET {path}: the answer is not a list")
    return page


async def _watch(
    kube: Kube, path: str, position: _Position, idle_limit: float
) -> AsyncIterator[WatchEvent]:
    """One watch request from `position` to its end, moving `position` along."""
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": position.version,
        "timeoutSeconds": str(round(SERVER_TIMEOUT * random.uniform(1.0, 1.5))),
    }
    try:
        async with kube.stream(path, params, idle_limit + HEADERS_LIMIT) as content:
            yield OPENED
            async for line in _lines(content, idle_limit):
                event = _event(line)
                if isinstance(event, Undecodable):
                    position.doubt(event.why)
                position.move(_version(event))
                yield event
    except KubernetesError as error:
        if error.status == 410:
            raise _ListAgain(str(error)) from error
        raise


async def _lines(content: HttpConnection, idle_limit: float) -> AsyncIterator[bytes]:
    """Lines up to the end of the stream, or of our patience.

    Silence alone is no trouble: a server sends no bookmarks of a kind that never changed since it
    started. If the connection is dead, asking anew either works or tells why not.
    """
    rest = b""
    while True:
        try:
            async with asyncio.timeout(idle_limit):
                chunk = await content.read()
        except TimeoutError:
            return
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > LONGEST_LINE:
            raise Unreachable(f"a line of more than {LONGEST_LINE} bytes")


def _put(item: Any) -> Put | Undecodable:
    if not isinstance(item, dict):
        return Undecodable(f"an entry that is not an object but {type(item).__name__}")
    name = text(mapping(item.get("metadata")).get("name"))
    if not name or "/" in name or name in (".", ".."):  # it becomes part of a path
        return Undecodable(f"an entry whose metadata.name is {name!r}")
    return Put(item)


def _event(line: bytes) -> WatchEvent:
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError:
        return Undecodable(f"a line of {len(line)} bytes that is not JSON")
    raw = entry.get("object") if isinstance(entry, dict) else None
    kind = entry.get("type") if isinstance(entry, dict) else None
    match kind:
        case "ADDED" | "MODIFIED":
            return _put(raw)
        case "DELETED":
            put = _put(raw)
            return Drop(put.raw) if isinstance(put, Put) else put
        case "BOOKMARK":
            return Alive(text(mapping(mapping(raw).get("metadata")).get("resourceVersion")))
        case "ERROR":
            raise _error(mapping(raw))
    return Undecodable(f"an event of type {kind!r}")


def _error(status: Any) -> Exception:
    code = status.get("code")
    reason, message = text(status.get("reason")), text(status.get("message"))
    if code == 410:
        return _ListAgain(message)
    return KubernetesError(code if isinstance(code, int) else 500, reason, message, None)


def _version(event: WatchEvent) -> str:
    match event:
        case Put(raw) | Drop(raw):
            return text(mapping(raw.get("metadata")).get("resourceVersion"))
        case Alive(version):
            return version
    return ""
