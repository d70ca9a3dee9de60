"""One list and watch for ever, against servers that behave and servers that do not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import orjson
import pytest

from ccm.decide.backoff import Backoff
from ccm.kube import watch
from ccm.kube.client import Kube
from ccm.kube.watch import (
    Alive,
    Drop,
    ListBegins,
    ListEnds,
    Put,
    Trouble,
    Undecodable,
    WatchEvent,
    follow,
)
from ccm.model.node import Json

from .api_server import ApiServer, Handler, failure, json_answer, reset, serving, silence, stream
from .waiting import PATIENCE


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "IDLE_LIMIT", 0.15)
    monkeypatch.setattr(watch, "SHORT", 0.01)
    monkeypatch.setattr(watch, "RETRY", Backoff(first=0.01, most=0.05))


def obj(name: str, version: int) -> Json:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def listing(version: int, *items: object, more: str = "") -> Handler:
    meta = {"resourceVersion": str(version), "continue": more}
    return json_answer({"items": list(items), "metadata": meta})


def line(kind: str, body: object) -> bytes:
    return orjson.dumps({"type": kind, "object": body}) + b"\n"


GONE = line("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})


async def events(kube: Kube, count: int | None) -> list[WatchEvent]:
    """The first `count` events, or those up to the end of a list."""
    found: list[WatchEvent] = []
    async with asyncio.timeout(PATIENCE), _closing(follow(kube, "/api/v1/nodes")) as coming:
        async for event in coming:
            found.append(event)
            if len(found) == count or (count is None and event == ListEnds()):
                return found
    raise AssertionError("a watch has no end")


def _closing(coming: AsyncIterator[WatchEvent]) -> "aclosing[Any]":
    return aclosing(cast(Any, coming))


def asked(server: ApiServer) -> list[str]:
    """What each request was: a list, or a watch from a version."""
    return [
        f"watch {request.query['resourceVersion']}" if "watch" in request.query else "list"
        for request in server.requests
    ]


async def test_a_list_is_followed_by_what_changes() -> None:
    changes = [
        line("MODIFIED", obj("a", 6)),
        line("ADDED", obj("b", 7)),
        line("DELETED", obj("a", 8)),
    ]
    answers = (listing(5, obj("a", 1)), stream(*changes, then="silence"))
    async with serving(*answers) as (server, kube):
        assert await events(kube, 7) == [
            ListBegins(),
            Put(obj("a", 1)),
            ListEnds(),
            Alive(),
            Put(obj("a", 6)),
            Put(obj("b", 7)),
            Drop(obj("a", 8)),
        ]
        assert asked(server) == ["list", "watch 5"]
        assert server.requests[1].query["allowWatchBookmarks"] == "true"
        assert int(server.requests[1].query["timeoutSeconds"]) >= watch.SERVER_TIMEOUT


async def test_a_long_list_comes_in_pages() -> None:
    pages = (listing(5, obj("a", 1), more="next"), listing(5, obj("b", 2)), stream(then="silence"))
    async with serving(*pages) as (server, kube):
        assert await events(kube, 5) == [
            ListBegins(),
            Put(obj("a", 1)),
            Put(obj("b", 2)),
            ListEnds(),
            Alive(),
        ]
        assert [request.query.get("continue") for request in server.requests] == [
            None,
            "next",
            None,
        ]


async def test_a_list_whose_rest_expired_begins_again() -> None:
    expired = failure(410, "Expired")
    answers = (listing(5, obj("a", 1), more="next"), expired, listing(6), stream(then="silence"))
    async with serving(*answers) as (server, kube):
        assert await events(kube, 5) == [
            ListBegins(),
            Put(obj("a", 1)),
            ListBegins(),
            ListEnds(),
            Alive(),
        ]
        assert asked(server) == ["list", "list", "list", "watch 6"]


@pytest.mark.parametrize("gone", [stream(GONE), failure(410, "Expired")], ids=["event", "answer"])
async def test_a_version_that_is_too_old_is_listed_again(gone: Handler) -> None:
    answers = (listing(5), gone, listing(9, obj("a", 8)), stream(then="silence"))
    async with serving(*answers) as (server, kube):
        found = [event for event in await events(kube, 7) if event != Alive()]
        assert found[:5] == [ListBegins(), ListEnds(), ListBegins(), Put(obj("a", 8)), ListEnds()]
        assert asked(server)[:3] == ["list", "watch 5", "list"]


async def test_a_watch_that_ends_goes_on_from_where_it_was() -> None:
    answers = (listing(5), stream(line("ADDED", obj("a", 7))), stream(then="silence"))
    async with serving(*answers) as (server, kube):
        await events(kube, 5)
        assert asked(server) == ["list", "watch 5", "watch 7"]


async def test_a_bookmark_moves_the_position() -> None:
    bookmark = line("BOOKMARK", {"metadata": {"resourceVersion": "99"}})
    async with serving(listing(5), stream(bookmark), stream(then="silence")) as (server, kube):
        assert (await events(kube, 5))[3] == Alive("99")
        assert asked(server)[-1] == "watch 99"


async def test_a_watch_that_ends_at_once_is_not_asked_for_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "SHORT", 0.1)
    async with serving(listing(5), stream()) as (_, kube):
        loop = asyncio.get_running_loop()
        began = loop.time()
        await events(kube, 5)
        assert loop.time() - began >= 0.2


async def test_a_connection_reset_in_the_middle_of_an_object_loses_nothing() -> None:
    whole, half = line("ADDED", obj("a", 6)), line("ADDED", obj("b", 7))[:20]
    answers = (
        listing(5),
        stream(whole, half, then="reset"),
        stream(line("ADDED", obj("b", 7)), then="silence"),
    )
    async with serving(*answers) as (server, kube):
        found = await events(kube, 7)
        assert [type(event) for event in found[2:]] == [Alive, Put, Trouble, Alive, Put]
        assert found[-1] == Put(obj("b", 7))
        assert asked(server) == ["list", "watch 5", "watch 6"]


async def test_an_object_that_comes_in_pieces_is_put_together() -> None:
    text = line("ADDED", obj("a", 6)) + line("ADDED", obj("b", 7))
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    async with serving(listing(5), stream(*pieces, then="silence")) as (_, kube):
        assert (await events(kube, 5))[3:] == [Put(obj("a", 6)), Put(obj("b", 7))]


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(b"this is not JSON\n", id="text"),
        pytest.param(b"\xff\xfe\n", id="bytes"),
        pytest.param(b"[]\n", id="list"),
        pytest.param(b"{}\n", id="no-type"),
        pytest.param(line("STRANGE", obj("x", 9)), id="unknown-type"),
        pytest.param(line("ADDED", None), id="no-object"),
        pytest.param(line("ADDED", []), id="the-object-is-a-list"),
        pytest.param(line("ADDED", {"metadata": None}), id="no-metadata"),
        pytest.param(line("DELETED", {"metadata": {}}), id="no-name"),
    ],
)
async def test_an_odd_line_is_skipped_and_the_stream_goes_on(odd: bytes) -> None:
    after = line("ADDED", obj("a", 6))
    async with serving(listing(5), stream(odd, after, then="silence")) as (server, kube):
        found = await events(kube, 5)
        assert isinstance(found[3], Undecodable)
        assert found[4] == Put(obj("a", 6))
        assert len(server.requests) == 2


async def test_empty_lines_are_nothing() -> None:
    text = b"\n\n" + line("ADDED", obj("a", 6)) + b"\n"
    async with serving(listing(5), stream(text, then="silence")) as (_, kube):
        assert (await events(kube, 4))[3] == Put(obj("a", 6))


async def test_an_odd_item_of_a_list_is_skipped() -> None:
    items = (listing(5, obj("a", 1), None, {"metadata": {}}, obj("b", 2)), stream(then="silence"))
    async with serving(*items) as (_, kube):
        kinds = [type(event) for event in await events(kube, 6)]
        assert kinds == [ListBegins, Put, Undecodable, Undecodable, Put, ListEnds]


async def test_a_silent_connection_is_given_up_and_asked_for_anew() -> None:
    quiet = stream(line("ADDED", obj("a", 6)), then="silence")
    async with serving(listing(5), quiet, stream(then="silence")) as (server, kube):
        found = await events(kube, 6)
        assert isinstance(found[4], Trouble)
        assert "silent for 0.15 s" in found[4].why
        assert asked(server) == ["list", "watch 5", "watch 6"]


async def test_signs_of_life_keep_a_connection() -> None:
    bookmark = line("BOOKMARK", {"metadata": {"resourceVersion": "6"}})

    async def beats(request: Any) -> Any:
        response = await stream(bookmark)(request)
        for _ in range(5):
            await asyncio.sleep(0.06)  # the server's own pace, shorter than the idle limit
            await cast(Any, response).write(bookmark)
        return response

    async with serving(listing(5), beats) as (server, kube):
        found = await events(kube, 9)
        assert not [event for event in found if isinstance(event, Trouble)]
        assert asked(server) == ["list", "watch 5"]


@pytest.mark.parametrize(
    "trouble",
    [failure(500, "InternalError"), failure(403, "Forbidden"), reset],
    ids=["500", "403", "reset"],
)
async def test_a_list_that_fails_is_tried_again_from_its_beginning(trouble: Handler) -> None:
    answers = (trouble, trouble, listing(5, obj("a", 1)), stream(then="silence"))
    async with serving(*answers) as (_, kube):
        found = await events(kube, None)
        assert [type(event) for event in found[:2]] == [ListBegins, Trouble]
        assert found[-3:] == [ListBegins(), Put(obj("a", 1)), ListEnds()]


async def test_failures_in_a_row_wait_longer_and_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "RETRY", Backoff(first=0.02, most=0.08, jitter=0.0))
    async with serving(failure(500, "InternalError")) as (_, kube):
        loop = asyncio.get_running_loop()
        began = loop.time()
        await events(kube, 8)
        assert loop.time() - began >= 0.02 + 0.04 + 0.08


async def test_the_servers_word_on_when_to_come_back_is_kept() -> None:
    busy = failure(503, "ServiceUnavailable", Retry_After="1")
    async with serving(busy, listing(5), stream(then="silence")) as (_, kube):
        loop = asyncio.get_running_loop()
        began = loop.time()
        await events(kube, 3)
        assert loop.time() - began >= 1.0


async def test_another_error_event_is_trouble_and_no_new_list() -> None:
    error = line("ERROR", {"code": 500, "reason": "InternalError", "message": "etcd"})
    async with serving(listing(5), stream(error), stream(then="silence")) as (server, kube):
        found = await events(kube, 5)
        assert found[3:] == [Trouble("500 InternalError: etcd"), Alive()]
        assert asked(server) == ["list", "watch 5", "watch 5"]


async def test_a_follower_that_stops_closes_its_connection() -> None:
    async with serving(listing(5), silence) as (server, kube):
        await events(kube, 2)
        assert server.busy == 0
