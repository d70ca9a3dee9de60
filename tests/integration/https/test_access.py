"""Who gets access: nobody without permission, and nobody at all when a review fails."""

import asyncio
from collections import Counter
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from ccm.model.objects import Json
from ccm.supervisor.https.reviews import STRANGERS_IN_FLIGHT
from tests.integration.https.review_api import ReviewApi
from tests.integration.https.served import (
    QUICK,
    LocalServer,
    eventually,
    serving,
    serving_routes,
    who,
)
from tests.integration.https.test_listener import greeted
from tests.support.pki import trusting_anybody
from tests.support.waiting import until


@pytest.fixture
def long_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is spent of a budget stays spent."""
    monkeypatch.setattr("ccm.supervisor.https.access.ANONYMOUS_WINDOW", 1e9)
    monkeypatch.setattr("ccm.supervisor.https.access.WINDOW_OF_A_USER", 1e9)
    monkeypatch.setattr("ccm.supervisor.https.authentication.INVALID_WINDOW", 1e9)


async def test_an_open_path_needs_no_review(server: LocalServer, reviews: ReviewApi) -> None:
    answers = [await server.get("/healthz"), await server.get("/healthz", token="unknown")]
    assert [answer.status for answer in answers] == [200, 200]
    assert not reviews.counts["TokenReview"] + reviews.counts["SubjectAccessReview"]


async def test_anonymous_requests_are_denied(server: LocalServer, reviews: ReviewApi) -> None:
    answer = await server.get("/page")
    assert answer.status == 403
    assert answer.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'forbidden: User "system:anonymous" cannot get path "/page": no rule',
        "reason": "Forbidden",
        "code": 403,
    }
    assert reviews.specs == [
        {
            "user": "system:anonymous",
            "uid": "",
            "groups": ["system:unauthenticated"],
            "extra": {},
            "nonResourceAttributes": {"path": "/page", "verb": "get"},
        }
    ]


@pytest.mark.usefixtures("long_windows")
async def test_anonymous_requests_do_not_cost_one_review_a_path(
    server: LocalServer, reviews: ReviewApi
) -> None:
    reviews.add_token("good", "alice", "dev")
    reviews.allow("dev", "/page")
    answers = [(await server.get(f"/page/{number}")).status for number in range(60)]
    assert answers == [403] * 20 + [429] * 40
    assert reviews.counts["SubjectAccessReview"] == 20
    assert (await server.get("/page", token="good")).status == 200


@pytest.mark.usefixtures("long_windows")
async def test_made_up_tokens_of_one_address_do_not_cost_one_review_each(
    server: LocalServer, reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviews.add_token("good", "alice", "dev")
    reviews.allow("dev", "/page")
    assert (await server.get("/page", token="good")).status == 200
    asked = (server.get("/page", token=f"made-up-{number}") for number in range(60))
    answers = Counter(answer.status for answer in await asyncio.gather(*asked))
    assert answers == {401: 20, 429: 40}
    assert reviews.counts["TokenReview"] == 21
    # One whose token is known is served; so are those of another address.
    assert (await server.get("/page", token="good")).status == 200
    reviews.add_token("new", "bob", "dev")
    assert (await server.get("/page", token="new")).status == 429
    assert (await server.get("/page", token="new", source="127.0.0.2")).status == 429
    monkeypatch.setattr("ccm.supervisor.https.authentication.LOOPBACK", "127.0.0.1")
    assert (await server.get("/page", token="new", source="127.0.0.2")).status == 200


@pytest.mark.usefixtures("long_windows")
@pytest.mark.parametrize(("status", "most"), [(200, 120), (403, 20)])
async def test_valid_tokens_of_one_user_do_not_cost_one_review_each(
    reviews: ReviewApi, status: int, most: int
) -> None:
    """A Pod has any number made for its account, and all of them are valid for an hour."""
    if status == 200:
        reviews.allow("alice", "/page")
    for number in range(200):
        reviews.add_token(f"valid-{number}", "alice")
    async with serving(reviews, authentication_token_webhook_cache_ttl=3600.0) as server:
        codes = Counter(
            [(await server.get("/page", token=f"valid-{number}")).status for number in range(200)]
        )
        assert codes == {status: most, 429: 200 - most}
        assert (await server.get("/page", token="valid-0")).status == status
    assert reviews.counts["TokenReview"] == most


@pytest.mark.usefixtures("long_windows")
async def test_a_user_of_this_host_has_one_address_for_made_up_tokens(
    server: LocalServer, reviews: ReviewApi
) -> None:
    for number in range(40):
        source = f"127.{number}.{number}.1"
        answer = await server.get("/page", token=f"made-up-{number}", source=source)
        assert answer.status == (401 if number < 20 else 429)
    assert reviews.counts["TokenReview"] == 20


@pytest.mark.usefixtures("long_windows")
async def test_made_up_tokens_cost_no_more_while_reviews_fail(
    server: LocalServer, reviews: ReviewApi
) -> None:
    """As where the supervisor may create none, or the API server has too much to do."""
    reviews.failures = [403] * 100
    tokens = (f"made-up-{number}" for number in range(40))
    codes = [(await server.get("/page", token=token)).status for token in tokens]
    assert codes == [500] * 20 + [429] * 20
    assert reviews.counts["TokenReview"] == 20


@pytest.mark.usefixtures("long_windows")
async def test_made_up_tokens_keep_no_valid_one_of_their_address_out(reviews: ReviewApi) -> None:
    """A scraper behind the same address comes less often than results are cached."""
    reviews.add_token("good", "alice", "dev")
    reviews.allow("dev", "/page")
    async with serving(reviews, authentication_token_webhook_cache_ttl=0.0) as server:
        assert (await server.get("/page", token="good")).status == 200
        for number in range(30):
            made_up = (await server.get("/page", token=f"made-up-{number}")).status
        assert made_up == 429
        assert (await server.get("/page", token="good")).status == 200
        reviews.tokens.clear()
        assert (await server.get("/page", token="good")).status == 401
        assert (await server.get("/page", token="good")).status == 429


@pytest.mark.usefixtures("long_windows")
async def test_made_up_tokens_keep_no_new_one_of_a_known_connection_out(reviews: ReviewApi) -> None:
    """A scraper's token is another one each hour, and its node's Pods have its address."""
    for token in ("good", "next"):
        reviews.add_token(token, "alice", "dev")
    reviews.allow("dev", "/page")
    connector = aiohttp.TCPConnector(ssl=trusting_anybody())
    async with serving(reviews) as server, aiohttp.ClientSession(connector=connector) as scraper:

        async def scrape(token: str) -> int:
            url = f"https://127.0.0.1:{server.port}/page"
            async with scraper.get(url, headers={"Authorization": f"Bearer {token}"}) as answer:
                await answer.read()
                return answer.status

        assert await scrape("good") == 200
        for number in range(30):
            made_up = (await server.get("/page", token=f"made-up-{number}")).status
        assert made_up == 429
        assert await scrape("next") == 200


@pytest.mark.usefixtures("long_windows")
@pytest.mark.parametrize(
    ("path", "is_new"), [("/page", True), ("/livez/one", False)], ids=["first", "again"]
)
async def test_what_no_one_is_permitted_keeps_no_permitted_request_out(
    reviews: ReviewApi, path: str, is_new: bool
) -> None:
    reviews.allow("system:unauthenticated", path)
    routes = web.get("/page", who), web.get("/livez/{check}", who)
    flags = {"master": reviews.url, "authorization_webhook_cache_authorized_ttl": 0.0}
    async with serving_routes(routes, **flags) as server:
        assert is_new or (await server.get(path)).status == 200
        for number in range(30):
            other = (await server.get(f"{path}/{number}")).status
        assert other == 429
        assert (await server.get(path)).status == 200


@pytest.mark.usefixtures("long_windows")
async def test_a_valid_token_does_not_cost_one_review_a_path(reviews: ReviewApi) -> None:
    """Each Pod has one, and each user may read what is below /api."""
    reviews.add_token("good", "alice", "dev")
    reviews.add_token("other", "bob", "dev")
    reviews.allow("dev", "/page")
    for number in range(100):
        reviews.allow("dev", f"/api/{number}")
    async with serving(reviews) as server:
        assert (await server.get("/page", token="good")).status == 200
        paths = (f"/api/{number}" for number in range(200))
        codes = Counter([(await server.get(path, token="good")).status for path in paths])
        assert codes == {404: 100, 429: 100}
        assert (await server.get("/page", token="good")).status == 200
        assert (await server.get("/page", token="other")).status == 200


@pytest.mark.usefixtures("long_windows")
async def test_who_may_read_any_check_costs_no_review_for_each_made_up_one(
    reviews: ReviewApi,
) -> None:
    """A scraper may read /livez/*; what it makes up there is permitted, and is not there."""
    reviews.add_token("good", "alice", "dev")
    paths = [f"/livez/{number}" for number in range(150)]
    for path in paths:
        reviews.allow("dev", path)
    async with serving_routes([web.get("/livez/{check}", who)], master=reviews.url) as server:
        codes = Counter([(await server.get(path, token="good")).status for path in paths])
        assert codes == {200: 100, 429: 50}


@pytest.mark.parametrize(
    ("flag", "tokens"),
    [
        ("authentication_token_webhook_cache_ttl", [f"made-up-{number}" for number in range(20)]),
        ("authentication_token_webhook_cache_ttl", [f"valid-{number}" for number in range(20)]),
        ("authorization_webhook_cache_authorized_ttl", ["bob"] * 20),
    ],
)
async def test_reviews_of_strangers_leave_room_for_those_of_who_was_permitted(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch, flag: str, tokens: list[str]
) -> None:
    """A client of many addresses has as many of them wait at the API server as there may."""
    monkeypatch.setattr("ccm.supervisor.https.authentication.LOOPBACK", "none")
    for name in ("alice", "bob"):
        reviews.add_token(name, name, "dev")
    reviews.allow("dev", "/page")
    async with serving(reviews, **{flag: 0.0}) as server:
        for name in ("alice", "bob"):
            assert (await server.get("/page", token=name)).status == 200
        for token in tokens if "valid-0" in tokens else ():
            reviews.add_token(token, "eve")
            assert (await server.get("/page", token=token)).status == 403
        strangers = [await greeted(server, f"127.0.2.{number + 1}") for number in range(20)]
        before, reviews.hangs = len(reviews.specs), asyncio.Event()
        for number, (token, (_, writer)) in enumerate(zip(tokens, strangers, strict=True)):
            asked = f"GET /{number} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
            writer.write(asked.encode())
        assert (await server.get("/healthz")).status == 200, "those before are in turn before it"
        known = asyncio.create_task(server.get("/page", token="alice"))
        await until(lambda: any("alice" in spec.values() for spec in reviews.specs[before:]))
        reviews.hangs.set()
        assert (await known).status == 200
        for _, writer in strangers:
            writer.close()


async def test_reviews_of_what_all_may_read_push_out_none_of_who_was_permitted(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each token of a tenant's accounts may read /healthz, and is another user's to us."""
    monkeypatch.setattr("ccm.supervisor.https.reviews.MAX_CACHED_REVIEWS", 10)
    reviews.add_token("good", "alice", "dev")
    for number in range(15):
        reviews.add_token(f"eve-{number}", f"eve-{number}", "tenants")
    reviews.allow("dev", "/page")
    reviews.allow("tenants", "/healthz")
    flags = {"authorization_webhook_cache_authorized_ttl": 0.0}
    async with serving(reviews, authorization_always_allow_paths=(), **flags) as server:
        assert (await server.get("/page", token="good")).status == 200
        for number in range(15):
            assert (await server.get("/healthz", token=f"eve-{number}")).status == 200
        assert (await server.get("/0", token="good")).status == 403  # its token is known again
        before, reviews.hangs = len(reviews.specs), asyncio.Event()
        made_up = [
            asyncio.create_task(server.get(f"/{number}", token="eve-14")) for number in range(9)
        ]
        await until(lambda: len(reviews.specs) >= before + STRANGERS_IN_FLIGHT)
        known = asyncio.create_task(server.get("/page", token="good"))
        await until(lambda: any("alice" in spec.values() for spec in reviews.specs[before:]))
        reviews.hangs.set()
        assert (await known).status == 200
        assert {(await each).status for each in made_up} == {403}


@pytest.mark.usefixtures("long_windows")
async def test_valid_tokens_of_others_push_out_no_known_one(
    server: LocalServer, reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tenant has accounts and tokens without number, and behind the address of a scraper."""
    monkeypatch.setattr("ccm.supervisor.https.reviews.MAX_CACHED_REVIEWS", 20)
    for token, name in [("good", "alice"), *((f"valid-{it}", f"bob-{it % 3}") for it in range(60))]:
        reviews.add_token(token, name, *["dev"] * (name == "alice"))
    reviews.allow("dev", "/page")
    assert (await server.get("/page", token="good")).status == 200
    for number in range(60):
        await server.get("/page", token=f"valid-{number}")
    for number in range(30):
        made_up = (await server.get("/page", token=f"made-up-{number}")).status
    assert made_up == 429
    assert (await server.get("/page", token="good")).status == 200


async def test_access_is_reviewed_for_the_user_of_the_token(
    server: LocalServer,
    reviews: ReviewApi,
) -> None:
    reviews.add_token("good", "alice", "dev")
    reviews.allow("dev", "/page")
    assert (await server.get("/page", token="good")).status == 200
    assert reviews.specs[0] == {"token": "good"}
    assert reviews.specs[1] == {
        "user": "alice",
        "uid": "uid-alice",
        "groups": ["dev", "system:authenticated"],
        "extra": {"scopes": ["a", "b"]},
        "nonResourceAttributes": {"path": "/page", "verb": "get"},
    }


@pytest.mark.parametrize("token", ["unknown", "nameless"])
async def test_an_invalid_token_is_401(server: LocalServer, reviews: ReviewApi, token: str) -> None:
    reviews.tokens["nameless"] = {"groups": ["system:masters"]}
    reviews.allow("system:unauthenticated", "/page")
    answer = await server.get("/page", token=token)
    assert (answer.status, answer.json()["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize("token", [b"\xff", "\xfc".encode(), b"good\xff"])
async def test_a_token_that_no_review_can_have_is_401(
    server: LocalServer, reviews: ReviewApi, caplog: pytest.LogCaptureFixture, token: bytes
) -> None:
    """Anybody may send one, and each would be a traceback in the log."""
    request = b"GET /page HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting_anybody())
    writer.write(request)
    assert b" 401 " in await reader.readline()
    writer.close()
    assert not reviews.counts["TokenReview"]
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


@pytest.mark.parametrize("credentials", ["Basic YTpi", "Bearer", "Bearer  ", "nonsense"])
async def test_other_credentials_are_ignored(
    server: LocalServer, reviews: ReviewApi, credentials: str
) -> None:
    answer = await server.get("/page", headers=[("Authorization", credentials)])
    assert answer.status == 403
    assert "system:anonymous" in answer.text
    assert not reviews.counts["TokenReview"]


@pytest.mark.parametrize(
    "status",
    [
        {},
        *({"allowed": value} for value in ("true", 1, None)),
        {"allowed": True, "denied": True},  # no API server says both; a proxy might
    ],
)
async def test_only_a_plain_yes_allows(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, status: Json
) -> None:
    monkeypatch.setattr(ReviewApi, "_access", lambda *_: status)
    assert (await server.get("/page")).status == 403


@pytest.mark.parametrize(
    ("paths", "path", "is_open"),
    [
        pytest.param((), "/healthz", False, id="OP2"),
        pytest.param(("/page",), "/page", True, id="exact"),
        pytest.param(("/pag",), "/page", False, id="no-prefix"),
        pytest.param(("/pa*",), "/page", True, id="prefix"),
        pytest.param(("/page/*",), "/page", False, id="longer-prefix"),
        pytest.param(("*",), "/page", True, id="everything"),
    ],
)
async def test_open_paths_are_exact_or_end_in_a_star(
    reviews: ReviewApi, paths: tuple[str, ...], path: str, is_open: bool
) -> None:
    async with serving(reviews, authorization_always_allow_paths=paths) as server:
        assert (await server.get(path)).status == (200 if is_open else 403)


async def test_open_paths_are_open_for_reading_alone(reviews: ReviewApi) -> None:
    """Else everyone may have all processes log another amount, which lasts."""
    async with serving(reviews, authorization_always_allow_paths=("/*",)) as server:
        codes = [(await server.request(verb, "/page")).status for verb in ("GET", "HEAD", "PUT")]
    assert codes == [200, 200, 403]


@pytest.mark.parametrize("path", ["/healthz/../page", "/%2e%2e/page", "//healthz", "/healthz%2F"])
async def test_no_spelling_of_an_open_path_opens_another(server: LocalServer, path: str) -> None:
    assert (await server.get(path)).text != "page"


async def test_results_are_cached_for_the_ttl_of_the_flags(reviews: ReviewApi) -> None:
    reviews.add_token("good", "alice")
    reviews.allow("alice", "/page")
    flags = {
        "authentication_token_webhook_cache_ttl": 3600.0,
        "authorization_webhook_cache_authorized_ttl": 3600.0,
        "authorization_webhook_cache_unauthorized_ttl": 0.0,
    }
    async with serving(reviews, **flags) as server:
        for _ in range(2):
            await server.get("/page", token="good")
        for _ in range(3):
            await server.request("PUT", "/page", token="good")
    assert reviews.counts == {"TokenReview": 1, "SubjectAccessReview": 1 + 3, "ConfigMap": 1}


async def test_a_revoked_token_is_refused_after_the_ttl(reviews: ReviewApi) -> None:
    reviews.add_token("good", "admin", "system:masters")
    async with serving(reviews, authentication_token_webhook_cache_ttl=0.05) as server:
        assert (await server.get("/page", token="good")).status == 200
        reviews.tokens.clear()
        refused = await eventually(
            lambda: server.get("/page", token="good"), lambda answer: answer.status != 200
        )
    assert refused.status == 401


async def test_concurrent_requests_share_one_review(
    server: LocalServer, reviews: ReviewApi
) -> None:
    reviews.add_token("good", "alice")
    reviews.allow("alice", "/page")
    reviews.hangs = asyncio.Event()
    asking = [asyncio.create_task(server.get("/page", token="good")) for _ in range(20)]
    await until(lambda: reviews.counts["TokenReview"])
    asking.pop(0).cancel()  # whoever leaves, the others get their answer
    reviews.hangs.set()
    answers = await asyncio.gather(*asking)
    assert {answer.status for answer in answers} == {200}
    assert reviews.counts == {"TokenReview": 1, "SubjectAccessReview": 1, "ConfigMap": 1}


BACKOFF = (0.01, 0.01, 0.01, 0.01)
quick_retries = pytest.mark.timings(review_backoff=BACKOFF)


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        ("TokenReview", {"token": "good"}),
        ("SubjectAccessReview", {"user": "alice", "groups": ["dev"]}),
    ],
)
async def test_the_answer_to_the_review_of_another_permits_nothing(
    server: LocalServer, reviews: ReviewApi, kind: str, other: Json
) -> None:
    """A proxy before the API server may mix up whose answer is whose."""
    reviews.add_token("good", "alice", "dev")
    reviews.add_token("low", "bob")
    reviews.allow("dev", "/page")
    reviews.mixed_up[kind] = other
    assert (await server.get("/page", token="low")).status == 500
    reviews.mixed_up.clear()
    assert (await server.get("/page", token="low")).status == 403
    assert (await server.get("/page", token="good")).status == 200


@quick_retries
async def test_a_failed_review_is_retried(server: LocalServer, reviews: ReviewApi) -> None:
    reviews.add_token("good", "admin", "system:masters")
    reviews.failures = [500, 503, 504, 500]
    assert (await server.get("/page", token="good")).status == 200
    assert reviews.counts["TokenReview"] == 5


@quick_retries
@pytest.mark.parametrize("failures", [[500] * 5, [403]])
@pytest.mark.parametrize("kind", ["TokenReview", "SubjectAccessReview"])
async def test_a_review_that_keeps_failing_refuses_the_request(
    server: LocalServer,
    reviews: ReviewApi,
    caplog: pytest.LogCaptureFixture,
    failures: list[int],
    kind: str,
) -> None:
    reviews.add_token("good", "alice")
    reviews.allow("system:anonymous", "/page")
    reviews.allow("alice", "/page")
    reviews.failures = [*failures]
    token = "good" if kind == "TokenReview" else ""
    answer = await server.get("/page", token=token)
    again = await server.get("/page", token=token)
    assert (answer.status, answer.json()["reason"]) == (500, "InternalError")
    assert caplog.text.count("request refused: review failed") == 1
    assert reviews.counts[kind] == len(failures) + 1
    assert again.status == 200, "a failure must not be remembered as an answer"


async def test_a_review_that_hangs_blocks_no_other_request(
    server: LocalServer, reviews: ReviewApi
) -> None:
    reviews.hangs = asyncio.Event()
    waiting = asyncio.create_task(server.get("/page", token="good"))
    await until(lambda: reviews.counts["TokenReview"])
    assert (await server.get("/healthz")).status == 200
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.timings(review_timeout=0.05)
async def test_a_review_that_hangs_is_given_up(server: LocalServer, reviews: ReviewApi) -> None:
    reviews.hangs = asyncio.Event()
    assert (await server.get("/page", token="good")).status == 500


async def test_without_an_api_server_only_open_paths_are_served(reviews: ReviewApi) -> None:
    reviews.url = "http://127.0.0.1:1"
    async with serving(reviews, replace(QUICK, review_backoff=BACKOFF)) as server:
        assert (await server.get("/page", token="good")).status == 500
        assert (await server.get("/healthz")).status == 200


async def test_requests_are_counted_by_path_and_status(server: LocalServer) -> None:
    await server.get("/healthz")
    await server.get("/page")
    for number in range(3):
        await server.get(f"/nowhere/{number}")
    counted = server.https.counters.export()["ccm_https_requests_total"]
    assert sorted(counted) == [
        [["/healthz", "200"], 1],
        [["/page", "403"], 1],
        [["other", "403"], 3],
    ]
