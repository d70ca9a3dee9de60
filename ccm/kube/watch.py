"""One list and watch of a kind, for ever: what changes arrives as a stream of small events.

Four nested generators, each with one concern: pages of a list, lines of a response, one watch
request, and the endless cycle of list, watch and back-off around them.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from ccm.decide.backoff import Backoff
from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.model.node import Json, mapping, text

log = logging.getLogger(__name__)

PAGE = 500
SERVER_TIMEOUT = 300  # seconds after which the server ends a watch by itself
IDLE_LIMIT = 70.0  # bookmarks come once a minute: longer silence means a dead connection
SHORT = 1.0  # a watch that ends sooner is not asked for again at once
RETRY = Backoff(first=0.25, most=30.0, jitter=0.5)


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
    """An entry that is not a usable object; it was skipped."""

    why: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """The stream broke; it starts again after a delay."""

    why: str


WatchEvent = ListBegins | Put | Drop | ListEnds | Alive | Undecodable | Trouble


class _TooOld(Exception):
    """The version to watch from is no longer kept (410): list again."""


class _Position:
    """The version up to which everything was seen; empty before the first list."""

    def __init__(self) -> None:
        self.version = ""


async def follow(kube: Kube, path: str) -> AsyncIterator[WatchEvent]:
    """Every change of the objects under `path` (such as `/api/v1/nodes`), without end."""
    position, failures = _Position(), 0
    loop = asyncio.get_running_loop()
    while True:
        begun = loop.time()
        try:
            if not position.version:
                async for event in _list(kube, path, position):
                    yield event
            async for event in _watch(kube, path, position):
                failures = 0
                yield event
            if loop.time() - begun < SHORT:
                await asyncio.sleep(SHORT)
        except _TooOld:
            position.version = ""
        except (KubernetesError, Unreachable) as error:
            failures += 1
            yield Trouble(str(error))
            wait = getattr(error, "retry_after", None) or RETRY.delay(failures, random.random())
            await asyncio.sleep(wait)


async def _list(kube: Kube, path: str, position: _Position) -> AsyncIterator[WatchEvent]:
    yield ListBegins()
    params = {"limit": str(PAGE)}
    while True:
        try:
            page = await kube.get(path, params)
        except KubernetesError as error:
            if error.status == 410 and "continue" in params:
                raise _TooOld from error  # the rest of this list expired: begin again
            raise
        items = page.get("items")
        for item in items if isinstance(items, list) else ():
            yield _put(item)
        meta = mapping(page.get("metadata"))
        if not meta.get("continue"):
            break
        params = {"limit": str(PAGE), "continue": text(meta["continue"])}
    yield ListEnds()
    position.version = text(meta.get("resourceVersion"))


async def _watch(kube: Kube, path: str, position: _Position) -> AsyncIterator[WatchEvent]:
    """One watch request from `position` to its end, moving `position` along."""
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": position.version,
        "timeoutSeconds": str(round(SERVER_TIMEOUT * random.uniform(1.0, 1.5))),
    }
    try:
        async with kube.stream(path, params, IDLE_LIMIT) as content:
            yield Alive()
            async for line in _lines(content):
                event = _event(line)
                position.version = _version(event) or position.version
                yield event
    except KubernetesError as error:
        if error.status == 410:
            raise _TooOld from error
        raise


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _put(item: Any) -> Put | Undecodable:
    if isinstance(item, dict) and mapping(item.get("metadata")).get("name"):
        return Put(item)
    return Undecodable("an entry without metadata.name")


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
        return _TooOld(message)
    return KubernetesError(code if isinstance(code, int) else 500, reason, message, None)


def _version(event: WatchEvent) -> str:
    match event:
        case Put(raw) | Drop(raw):
            return text(mapping(raw.get("metadata")).get("resourceVersion"))
        case Alive(version):
            return version
    return ""
