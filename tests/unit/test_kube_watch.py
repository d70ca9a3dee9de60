"""One list and watch for ever, against servers that behave and servers that do not."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self, cast

import orjson
import pytest
from aiohttp import web

from ccm.decide.backoff import Backoff
from ccm.errors import AnswerTooLarge
from ccm.kube import watch
from ccm.kube.client import Kube
from ccm.kube.watch import (
    Bookmark,
    Deleted,
    ListCompleted,
    ListStarted,
    Malformed,
    Updated,
    WatchEvent,
    WatchFailed,
    WatchTimings,
    list_and_watch,
    list_once,
)
from ccm.model.objects import Json
from tests.support.deadlines import timeout, within
from tests.support.pki import Authority

from .api_server import (
    ApiServer,
    Handler,
    failure,
    json_answer,
    reset,
    serving,
    silence,
    stream,
    text_answer,
)

QUICK = WatchTimings(
    idle_limit=timeout(), min_watch_duration=0.01, retry=Backoff(first=0.01, most=0.05)
)
ODD_FIELDS = [
    pytest.param(b'{"f:a":' * 1100 + b"{}" + b"}" * 1100, id="deep"),
    pytest.param(b'{"f:\xff":{}}', id="not-utf-8"),
    pytest.param(b'{"f:\\ud800":{"f:\\"{":{}}}', id="half-a-character"),
]


def obj(name: str, version: int) -> Json:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def listing(version: int, *items: object, more: str = "") -> Handler:
    meta = {"resourceVersion": str(version), "continue": more}
    return json_answer({"items": list(items), "metadata": meta})


SIGNS: dict[str, WatchEvent] = {"[": ListStarted(), "]": ListCompleted(), "open": Bookmark()}
KINDS = {"[": ListStarted, "]": ListCompleted, "open": Bookmark, "put": Updated, "bad": Malformed}


def story(text: str) -> list[WatchEvent]:
    """Events such as `[ a1 ] open -a2`: a list, then a watch; name and version of objects."""
    return [
        SIGNS.get(word)
        or (Deleted if word[0] == "-" else Updated)(obj(word.strip("-")[0], int(word[-1])))
        for word in text.split()
    ]


def kinds(found: list[WatchEvent]) -> str:
    """The same without objects: `put`, `bad`, and `failed` for a failure."""
    names = {kind: word for word, kind in KINDS.items()}
    return " ".join(names.get(type(event), "failed") for event in found)


def line(kind: str, body: object) -> bytes:
    return orjson.dumps({"type": kind, "object": body}) + b"\n"


GONE = line("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})


async def events(
    kube: Kube, end: int | WatchEvent, timings: WatchTimings = QUICK
) -> list[WatchEvent]:
    """The first ones, up to this number or to one like this."""
    found: list[WatchEvent] = []
    async with within(), aclosing(list_and_watch(kube, "/api/v1/nodes", timings)) as coming:
        async for event in coming:
            found.append(event)
            if end in (event, len(found)):
                return found
    raise AssertionError("a watch has no end")


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
        assert await events(kube, 7) == story("[ a1 ] open a6 b7 -a8")
        assert asked(server) == ["list", "watch 5"]
        assert server.requests[1].query["allowWatchBookmarks"] == "true"
        assert int(server.requests[1].query["timeoutSeconds"]) >= watch.SERVER_TIMEOUT


async def test_a_long_list_comes_in_pages() -> None:
    pages = (listing(5, obj("a", 1), more="next"), listing(5, obj("b", 2)), stream(then="silence"))
    async with serving(*pages) as (server, kube):
        assert await events(kube, 5) == story("[ a1 b2 ] open")
        continued = [request.query.get("continue") for request in server.requests]
        assert continued == [None, "next", None]


@pytest.mark.parametrize(
    ("limit", "last", "rest"),
    [
        pytest.param("http.BODY_LIMIT", 4_000, [6], id="bytes"),
        pytest.param("kube.watch.MAX_PAGE", 4_000, [3], id="values"),
        pytest.param("kube.watch.MAX_PAGE", 16_000, [3, 1, 1, 1], id="alone"),
    ],
)
async def test_a_page_that_is_too_large_is_halved_until_it_fits(
    monkeypatch: pytest.MonkeyPatch, limit: str, last: int, rest: list[int]
) -> None:
    monkeypatch.setattr(f"ccm.{limit}", 15_000)
    sizes = zip("abcdef", [4_000] * 3 + [last] * 3, strict=True)
    large = [obj(name, 1) | {"x": "x" * size} for name, size in sizes]

    async def page(request: web.Request) -> web.StreamResponse:
        begin, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        more = str(begin + limit) if begin + limit < len(large) else ""
        return await listing(5, *large[begin : begin + limit], more=more)(request)

    async with serving(page) as (server, kube):
        listed = [each["metadata"]["name"] for each in await list_once(kube, "/api/v1/nodes")]
    assert listed == list("abcdef")
    limits = [int(request.query["limit"]) for request in server.requests]
    assert limits == [100, 50, 25, 12, 6, 3, *rest]


async def test_many_large_objects_are_not_asked_for_by_twice_as_many_as_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page that is refused costs the API server more than the one that follows."""
    monkeypatch.setattr("ccm.kube.watch.MAX_PAGE", 15_000)
    found = [obj(f"n{at}", 1) | {"x": "x" * 4_000} for at in range(60)]

    async def page(request: web.Request) -> web.StreamResponse:
        begin, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        more = str(begin + limit) if begin + limit < len(found) else ""
        return await listing(5, *found[begin : begin + limit], more=more)(request)

    async with serving(page) as (server, kube):
        await list_once(kube, "/api/v1/nodes")
    assert len(server.requests) == len([100, 50, 25, 12, 6]) + 60 / 3


async def test_a_few_large_objects_make_no_pages_small_but_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else three Services of one tenant had all others listed two by two."""
    monkeypatch.setattr("ccm.kube.watch.MAX_PAGE", 15_000)
    sizes = [10] * 100 + [10_000] * 3 + [10] * 400
    found = [obj(f"n{at}", 1) | {"x": "x" * size} for at, size in enumerate(sizes)]

    async def page(request: web.Request) -> web.StreamResponse:
        begin, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        more = str(begin + limit) if begin + limit < len(found) else ""
        return await listing(5, *found[begin : begin + limit], more=more)(request)

    async with serving(page) as (server, kube):
        listed = [each["metadata"]["name"] for each in await list_once(kube, "/api/v1/nodes")]
    assert listed == [each["metadata"]["name"] for each in found]
    assert len(server.requests) < 30


async def test_one_object_that_is_too_large_is_a_failure_and_no_circle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ccm.http.BODY_LIMIT", 10)
    async with serving(listing(5, obj("a", 1))) as (_, kube):
        with pytest.raises(AnswerTooLarge, match="a body of more than 10 bytes"):
            await list_once(kube, "/api/v1/nodes")


@pytest.mark.parametrize("fields", ODD_FIELDS)
async def test_managed_fields_that_cannot_be_read_hide_no_object(fields: bytes) -> None:
    """A client that may write an object may write those; an API server keeps them."""
    managed = b'[{"fieldsV1":%b,"manager":"x"},{"fieldsV1":{"f:a":{"v:\\"}":{}}}}]' % fields

    def odd(version: int) -> bytes:
        raw = obj("b", version)
        raw["metadata"] |= {"annotations": {"a": '"fieldsV1":{'}, "managedFields": "FIELDS"}
        return orjson.dumps(raw).replace(b'"FIELDS"', managed)

    first = orjson.dumps(obj("a", 1))
    page = b'{"items":[%b,%b],"metadata":{"resourceVersion":"5"}}' % (first, odd(2))
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(page)
    change = b'{"type":"MODIFIED","object":%b}\n' % odd(6)
    async with serving(text_answer(page), stream(change, then="silence")) as (server, kube):
        found = await events(kube, 6)
        assert kinds(found) == "[ put put ] open put"
        assert asked(server) == ["list", "watch 5"]
        odd_ones = [event.raw["metadata"] for event in found if isinstance(event, Updated)][1:]
        assert [(meta["name"], meta["resourceVersion"]) for meta in odd_ones] == [
            ("b", "2"),
            ("b", "6"),
        ]
        assert all(meta["annotations"] == {"a": '"fieldsV1":{'} for meta in odd_ones)


async def test_a_list_whose_rest_expired_begins_again() -> None:
    expired = failure(410, "Expired")
    answers = (listing(5, obj("a", 1), more="next"), expired, listing(6), stream(then="silence"))
    async with serving(*answers) as (server, kube):
        found = await events(kube, 6)
        assert found.pop(2) == WatchFailed("the API server answered 410 Expired: no")
        assert found == story("[ a1 [ ] open")
        assert asked(server) == ["list", "list", "list", "watch 6"]


async def test_a_list_that_is_older_than_what_was_seen_takes_no_object_away() -> None:
    """Of several API servers, one lags behind."""
    stale, fresh = listing(4, obj("a", 1)), listing(6, obj("a", 1), obj("b", 5))
    answers = (fresh, stream(GONE), stale, stale, fresh, stream(then="silence"))
    async with serving(*answers) as (_, kube):
        found = await events(kube, 14)
        reasons = [event.why for event in found if isinstance(event, WatchFailed)]
        assert kinds(found) == "[ put put ] open failed [ failed [ failed [ put put ]"
        assert reasons[1:] == ["a list of version 4 is older than version 6, which was seen"] * 2


async def test_a_list_that_stays_older_is_the_truth_after_a_restore() -> None:
    restored = listing(4, obj("a", 1))
    lists = [listing(3, obj("a", 1)), *[restored] * (watch.OLDER_LISTS - 1)]
    answers = (listing(6, obj("b", 5)), stream(GONE), *lists, restored, stream(then="silence"))
    async with serving(*answers) as (server, kube):
        found = await events(kube, 2 * watch.OLDER_LISTS + 9)
        assert found[-4:] == story("[ a1 ] open")
        assert asked(server)[-1] == "watch 4"


async def test_an_older_list_that_comes_again_and_again_is_one_that_a_proxy_kept() -> None:
    """After a restore versions grow: each leader election writes every other second."""
    before, now = listing(4, obj("a", 1)), listing(7, obj("a", 1), obj("b", 5))
    kept = [before] * (2 * watch.OLDER_LISTS)
    first = listing(6, obj("a", 1), obj("b", 5))
    async with serving(first, stream(GONE), *kept, now, stream(then="silence")) as (_, kube):
        found = await events(kube, 2 * len(kept) + 11)
        assert found[-5:] == story("[ a1 b5 ] open")
        assert kinds(found).count("]") == 2


async def test_no_list_is_asked_for_as_one_before_whose_answer_a_proxy_may_have_kept() -> None:
    """Where a process starts, none was seen that would show how old it is."""
    async with serving(listing(4, obj("a", 1)), listing(6, obj("b", 5))) as (server, kube):
        for _ in range(2):
            await list_once(kube, "/api/v1/nodes")
        assert len({request.path_qs for request in server.requests}) == 2


async def test_a_version_of_thousands_of_digits_is_older_than_none() -> None:
    meta = {"resourceVersion": "9" * 5000}
    odd, fresh = json_answer({"items": [obj("a", 1)], "metadata": meta}), listing(6, obj("a", 1))
    async with serving(fresh, stream(GONE), odd, stream(then="silence")) as (_, kube):
        found = await events(kube, 9)
        assert kinds(found) == "[ put ] open failed [ put ] open"


async def test_a_watch_that_ends_goes_on_from_where_it_was() -> None:
    answers = (listing(5), stream(line("ADDED", obj("a", 7))), stream(then="silence"))
    async with serving(*answers) as (server, kube):
        await events(kube, 5)
        assert asked(server) == ["list", "watch 5", "watch 7"]


async def test_a_bookmark_moves_the_position() -> None:
    bookmark = line("BOOKMARK", {"metadata": {"resourceVersion": "99"}})
    async with serving(listing(5), stream(bookmark), stream(then="silence")) as (server, kube):
        assert (await events(kube, 5))[3] == Bookmark("99")
        assert asked(server)[-1] == "watch 99"


async def test_an_object_that_comes_in_pieces_is_put_together() -> None:
    text = line("ADDED", obj("a", 6)) + line("ADDED", obj("b", 7))
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    async with serving(listing(5), stream(*pieces, then="silence")) as (_, kube):
        assert (await events(kube, 5))[3:] == story("a6 b7")


async def test_a_burst_in_small_records_is_read_as_fast_as_it_comes(tmp_path: Path) -> None:
    """An API server's are; and a Node's second write waits for the first to come back."""
    authority, tls = Authority("ours"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.server("localhost").write(tmp_path, "server"))
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(authority.pem)
    text = b"".join(line("ADDED", obj(f"node-{at}", at)) for at in range(6, 8006))
    records = [text[at : at + 100] for at in range(0, len(text), 100)]
    answers = (listing(5), stream(*records, then="silence"))
    async with serving(*answers, tls=tls, ca_file=str(ca_file)) as (_, kube), within(5.0):
        await events(kube, 8003)  # it takes a thirtieth of that


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
        *(
            pytest.param(line(kind, {"metadata": {}}), id=f"{kind.lower()}-without-a-name")
            for kind in ("ADDED", "MODIFIED", "DELETED")
        ),
    ],
)
async def test_an_odd_line_is_asked_for_once_more_and_then_a_list_says_what_is_there(
    odd: bytes,
) -> None:
    spoilt = stream(odd, line("ADDED", obj("a", 6)), then="silence")
    answers = (listing(5), spoilt, spoilt, listing(7, obj("a", 6)), stream(then="silence"))
    async with serving(*answers) as (server, kube):
        found = await events(kube, 9)
        assert kinds(found[3:]) == "failed open [ put ] open"
        assert asked(server) == ["list", "watch 5", "watch 5", "list", "watch 7"]


async def test_odd_lines_are_skipped_when_the_list_has_odd_objects_too() -> None:
    page = listing(5, obj("a", 1), {"metadata": {}})
    changes = stream(line("MODIFIED", {"metadata": {}}), line("ADDED", obj("b", 6)), then="silence")
    async with serving(page, page, changes) as (server, kube):
        found = await events(kube, 10)
        assert kinds(found[3:]) == "[ put bad ] open bad put"
        assert asked(server) == ["list", "list", "watch 5"]


async def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_LINE_SIZE", 100)
    endless = stream(*[b"x" * 30] * 5, then="silence")
    async with serving(listing(5), endless, stream(then="silence")) as (_, kube):
        found = await events(kube, 5)
        assert found[3:] == [WatchFailed("a line of more than 100 bytes"), Bookmark()]


async def test_a_long_line_costs_no_more_than_as_much_in_short_ones() -> None:
    async def seconds(lines: int) -> float:
        part, size = 4 << 10, (8 << 20) // lines
        whole = b"".join(line("ADDED", obj("x" * size, 6)) for _ in range(lines))
        parts = [whole[at : at + part] for at in range(0, len(whole), part)]
        async with serving(listing(5), stream(*parts, then="silence")) as (_, kube):
            began = time.thread_time()
            await events(kube, 3 + lines)
            return time.thread_time() - began

    assert await seconds(1) < 2 * await seconds(64)


@pytest.mark.parametrize(
    "odd",
    [None, [], "x", {"metadata": {}}, {"metadata": {"name": 5}}, {"metadata": {"name": "a/b"}}],
)
async def test_an_odd_item_of_a_list_is_asked_for_once_more_and_then_skipped(odd: object) -> None:
    page = listing(5, obj("a", 1), odd, obj("b", 2))
    async with serving(page, page, stream(then="silence")) as (_, kube):
        assert kinds(await events(kube, 8)) == "[ put failed [ put bad put ]"


async def test_a_list_of_null_is_empty() -> None:
    page = json_answer({"items": None, "metadata": {"resourceVersion": "5"}})
    async with serving(page, stream(then="silence")) as (_, kube):
        assert await events(kube, 3) == story("[ ] open")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"kind": "Status", "metadata": {}, "status": "Success"}, id="status"),
        pytest.param({"items": [], "metadata": {}}, id="no-version"),
        pytest.param({"items": "none", "metadata": {"resourceVersion": "5"}}, id="text"),
        pytest.param({"metadata": {"resourceVersion": "5"}}, id="no-items"),
    ],
)
async def test_an_answer_that_is_no_list_does_not_mean_that_nothing_is_there(answer: Json) -> None:
    answers = (json_answer(answer), listing(5, obj("a", 1)), stream(then="silence"))
    async with serving(*answers) as (_, kube):
        assert kinds(await events(kube, ListCompleted())) == "[ failed [ put ]"


async def test_a_watch_request_without_an_answer_is_a_failure() -> None:
    timings = replace(QUICK, idle_limit=0.0, response_timeout=0.05)
    async with serving(listing(5), silence, stream(then="silence")) as (server, kube):
        found = await events(kube, Bookmark(), timings)
        failures = len(found) - 3  # a slow server answers the second one too late as well
        assert kinds(found[2:]) == "failed " * failures + "open"
        assert asked(server) == ["list", "watch 5", *["watch 5"] * failures]
        assert failures


class Beats:
    """In place of a client: an empty list, and streams with a bookmark again and again, or that
    end then."""

    body_size = 0

    def __init__(self, interval: float, *, are_ends: bool = False) -> None:
        self.interval, self.are_ends, self.streams = interval, are_ends, 0

    def up_to(self, _: int) -> Self:
        return self

    async def get(self, *_: object) -> Json:
        return {"items": [], "metadata": {"resourceVersion": "5"}}

    @asynccontextmanager
    async def stream(self, *_: object) -> AsyncIterator[Self]:
        self.streams += 1
        yield self

    async def read(self) -> bytes:
        await asyncio.sleep(self.interval)
        return b"" if self.are_ends else line("BOOKMARK", {"metadata": {"resourceVersion": "5"}})


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("interval", "streams", "seen"),
    [
        pytest.param(0.9, 1, "[ ] open open open open open open", id="bookmarks"),
        pytest.param(1.1, 4, "[ ] open open [ ] open open", id="silence"),
    ],
)
async def test_signs_of_life_keep_a_connection_and_silence_is_followed_by_a_list(
    interval: float, streams: int, seen: str
) -> None:
    beats = Beats(interval)
    found = await events(cast(Kube, beats), 8, replace(QUICK, idle_limit=1.0))
    assert kinds(found) == seen
    assert beats.streams == streams


@pytest.mark.virtual_time
@pytest.mark.parametrize(("lasts", "pause"), [(0.0, 1.0), (0.75, 1.0), (1.25, 0.0)])
async def test_a_watch_that_ends_as_soon_as_it_began_is_not_reopened_at_once(
    lasts: float, pause: float
) -> None:
    loop = asyncio.get_running_loop()
    began, ends = loop.time(), Beats(lasts, are_ends=True)
    found = await events(cast(Kube, ends), 8, replace(QUICK, min_watch_duration=1.0))
    assert kinds(found) == "[ ]" + " open" * 6
    assert loop.time() - began == pytest.approx(5 * (lasts + pause), abs=0.01)


@pytest.mark.parametrize(
    "broken",
    [failure(500, "InternalError"), failure(403, "Forbidden"), reset],
    ids=["500", "403", "reset"],
)
async def test_a_list_that_fails_is_tried_again_from_its_beginning(broken: Handler) -> None:
    answers = (broken, broken, listing(5, obj("a", 1)), stream(then="silence"))
    async with serving(*answers) as (_, kube):
        found = await events(kube, ListCompleted())
        assert kinds(found[:2]) == "[ failed"
        assert found[-3:] == story("[ a1 ]")


ERROR = line("ERROR", {"code": 500, "reason": "InternalError", "message": "etcd"})


def busy(seconds: int) -> Handler:
    return failure(503, "ServiceUnavailable", Retry_After=str(seconds))


def growing(most: float) -> WatchTimings:
    return replace(QUICK, retry=Backoff(first=0.02, most=most, jitter=0.0))


SILENT = stream(then="silence")
BREAKING = [stream(line("ADDED", obj("a", version)), then="reset") for version in range(6, 22)]


@pytest.mark.parametrize(
    ("answers", "timings", "count", "least"),
    [
        pytest.param([failure(500, "X")], growing(0.08), 8, 0.14, id="lists-fail"),
        pytest.param([listing(5), stream(ERROR)], growing(0.08), 9, 0.14, id="streams-fail"),
        pytest.param([listing(5), stream(GONE)] * 4, growing(0.08), 15, 0.14, id="always-too-old"),
        pytest.param([listing(5), *BREAKING, SILENT], growing(60.0), 51, 0.0, id="changes-come"),
        pytest.param([busy(1), listing(5), SILENT], QUICK, 3, 1.0, id="the-servers-word"),
        pytest.param(
            [busy(86400), listing(5), SILENT],
            replace(QUICK, max_retry_after=0.05),
            3,
            0.05,
            id="the-server-asks-for-too-much",
        ),
    ],
)
async def test_failures_in_a_row_wait_longer_and_longer_until_a_change_comes_through(
    answers: list[Handler], timings: WatchTimings, count: int, least: float
) -> None:
    async with serving(*answers) as (_, kube):
        loop = asyncio.get_running_loop()
        began = loop.time()
        await events(kube, count, timings)
        assert loop.time() - began >= least


async def test_another_error_event_is_a_failure_and_no_relist() -> None:
    async with serving(listing(5), stream(ERROR), stream(then="silence")) as (server, kube):
        found = await events(kube, 5)
        assert found[3:] == [
            WatchFailed("the API server answered 500 InternalError: etcd"),
            Bookmark(),
        ]
        assert asked(server) == ["list", "watch 5", "watch 5"]


async def test_a_follower_that_stops_closes_its_connection() -> None:
    async with serving(listing(5), silence) as (server, kube):
        await events(kube, 2)
        assert server.busy == 0


def of_kind(kind: str, name: str, version: int) -> Json:
    return obj(name, version) | {"kind": kind}


@pytest.mark.parametrize("kind", ["PartialObjectMetadataList", "Table"])
async def test_a_list_in_the_form_that_another_client_asked_for_is_none(kind: str) -> None:
    """Of metadata alone, each Service would be one without a type, and lose its load balancer."""
    bare = {"kind": kind, "items": [obj("a", 7)], "metadata": {"resourceVersion": "7"}}
    answers = (listing(5, obj("a", 1)), stream(GONE), json_answer(bare), listing(8, obj("a", 8)))
    async with serving(*answers, stream(then="silence")) as (_, kube):
        found = await events(kube, 10)
        assert kinds(found) == "[ put ] open failed [ failed [ put ]"


async def test_a_list_of_the_same_kind_in_another_group_takes_no_object_away() -> None:
    """As that of Longhorn's Nodes, which are called like the cluster's."""
    meta = {"resourceVersion": "7"}
    group = {"kind": "NodeList", "apiVersion": "longhorn.io/v1beta2", "metadata": meta}
    own = group | {"apiVersion": "v1", "items": [obj("a", 7) | {"apiVersion": "v1"}]}
    answers = (listing(5, obj("a", 1)), stream(GONE), json_answer(group | {"items": []}))
    async with serving(*answers, json_answer(own), stream(then="silence")) as (_, kube):
        found = await events(kube, 10)
        assert kinds(found) == "[ put ] open failed [ failed [ put ]"


async def test_an_event_of_the_same_kind_in_another_group_is_none_of_ours() -> None:
    other = obj("a", 6) | {"kind": "Node", "apiVersion": "longhorn.io/v1beta2"}
    streams = stream(line("DELETED", other)), stream(line("MODIFIED", obj("a", 6)), then="silence")
    async with serving(listing(5, obj("a", 1)), *streams) as (_, kube):
        assert kinds(await events(kube, 7)) == "[ put ] open failed open put"


async def test_an_event_in_the_form_that_another_client_asked_for_is_none() -> None:
    bare = obj("a", 6) | {"kind": "PartialObjectMetadata"}
    streams = stream(line("MODIFIED", bare)), stream(line("MODIFIED", obj("a", 6)), then="silence")
    async with serving(listing(5, obj("a", 1)), *streams) as (_, kube):
        assert kinds(await events(kube, 7)) == "[ put ] open failed open put"


async def test_a_list_of_another_kind_takes_no_object_away() -> None:
    """A proxy mixes up whose answer is whose."""
    meta = {"resourceVersion": "7"}
    mixed = json_answer({"kind": "ServiceList", "items": [obj("s", 7)], "metadata": meta})
    answers = (listing(5, obj("a", 1)), stream(GONE), mixed, listing(6, obj("a", 1)))
    async with serving(*answers, stream(then="silence")) as (_, kube):
        found = await events(kube, 10)
        assert kinds(found) == "[ put ] open failed [ failed [ put ]"


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
async def test_an_event_of_another_kind_is_none_of_ours(kind: str) -> None:
    mixed = stream(line(kind, of_kind("Service", "a", 900)))
    answers = (listing(5, obj("a", 1)), mixed, stream(then="silence"))
    async with serving(*answers) as (server, kube):
        assert kinds(await events(kube, 6)) == "[ put ] open failed open"
        assert asked(server) == ["list", "watch 5", "watch 5"]


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
async def test_what_comes_out_of_order_is_not_taken_in(kind: str) -> None:
    changes = stream(line("ADDED", obj("b", 9)), line(kind, obj("b", 7)))
    answers = (listing(5, obj("a", 1)), changes, listing(9, obj("b", 9)), stream())
    async with serving(*answers) as (server, kube):
        found = await events(kube, 10)
        assert kinds(found) == "[ put ] open put failed [ put ] open"
        assert asked(server)[:4] == ["list", "watch 5", "list", "watch 9"]


@pytest.mark.parametrize("version", ["x", "9" * 30, "-1"])
async def test_a_version_that_no_api_server_takes_stops_no_watch(version: str) -> None:
    odd = line("BOOKMARK", {"metadata": {"resourceVersion": version}})
    refused = failure(400, "BadRequest", "invalid resource version")
    answers = (listing(5), stream(odd), refused, listing(6), stream(then="silence"))
    async with serving(*answers) as (server, kube):
        assert kinds(await events(kube, 7)) == "[ ] open open [ ] open"
        assert asked(server) == ["list", "watch 5", f"watch {version}", "list", "watch 6"]


async def test_a_list_that_comes_again_instead_of_its_rest_is_given_up() -> None:
    """A proxy keeps an answer, whatever the query says."""
    kept = listing(5, obj("a", 1), more="next")
    answers = (kept, kept, listing(6, obj("a", 1)), stream())
    async with serving(*answers) as (server, kube):
        found = await events(kube, 8)
        assert kinds(found) == "[ put put failed [ put ] open"
        assert asked(server)[:4] == ["list", "list", "list", "watch 6"]


async def test_an_old_page_behind_a_new_one_takes_no_object_away() -> None:
    """A proxy keeps answers: the object that came since would count as gone."""
    new, rest = listing(5, obj("a", 1), more="next"), listing(5, obj("b", 5))
    answers = (new, rest, stream(GONE), new, listing(4), new, rest, stream())
    async with serving(*answers) as (server, kube):
        found = await events(kube, 14)
        assert kinds(found) == "[ put put ] open failed [ put failed [ put put ] open"
        assert asked(server)[-1] == "watch 5"
