"""Who gets to a page: nobody without a right, and nobody at all when it cannot be told."""

import asyncio

import pytest

from ccm.model.objects import Json
from tests.https.reviewer import Reviewer
from tests.https.served import eventually, serving
from tests.unit.waiting import until


async def test_an_open_path_needs_no_word_of_the_api_server(reviewer: Reviewer) -> None:
    async with serving(reviewer) as site:
        answers = [await site.get("/healthz"), await site.get("/healthz", token="unknown")]
    assert [answer.status for answer in answers] == [200, 200]
    assert not reviewer.asked["TokenReview"] + reviewer.asked["SubjectAccessReview"]


async def test_without_credentials_one_is_anonymous_and_may_nothing(reviewer: Reviewer) -> None:
    async with serving(reviewer) as site:
        answer = await site.get("/page")
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
    assert reviewer.specs == [
        {
            "user": "system:anonymous",
            "uid": "",
            "groups": ["system:unauthenticated"],
            "extra": {},
            "nonResourceAttributes": {"path": "/page", "verb": "get"},
        }
    ]


async def test_an_anonymous_with_a_right_gets_in(reviewer: Reviewer) -> None:
    reviewer.allow("system:unauthenticated", "/page")
    async with serving(reviewer) as site:
        assert (await site.get("/page")).text == "page"


async def test_a_token_tells_who_asks_and_the_right_is_asked_for_all_of_it(
    reviewer: Reviewer,
) -> None:
    reviewer.know("good", "alice", "dev")
    reviewer.allow("dev", "/page")
    async with serving(reviewer) as site:
        assert (await site.get("/page", token="good")).status == 200
    assert reviewer.specs[0] == {"token": "good"}
    assert reviewer.specs[1] == {
        "user": "alice",
        "uid": "uid-alice",
        "groups": ["dev", "system:authenticated"],
        "extra": {"scopes": ["a", "b"]},
        "nonResourceAttributes": {"path": "/page", "verb": "get"},
    }


async def test_a_token_that_nobody_knows_is_401_and_not_anonymous(reviewer: Reviewer) -> None:
    reviewer.allow("system:unauthenticated", "/page")
    async with serving(reviewer) as site:
        answer = await site.get("/page", token="bad")
    assert (answer.status, answer.json()["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize("credentials", ["Basic YTpi", "Bearer", "Bearer  ", "nonsense"])
async def test_what_is_no_bearer_token_is_no_credential(
    reviewer: Reviewer, credentials: str
) -> None:
    async with serving(reviewer) as site:
        answer = await site.get("/page", headers=[("Authorization", credentials)])
    assert answer.status == 403
    assert "system:anonymous" in answer.text
    assert not reviewer.asked["TokenReview"]


async def test_a_user_without_a_name_is_nobody(reviewer: Reviewer) -> None:
    reviewer.tokens["odd"] = {"groups": ["system:masters"]}
    async with serving(reviewer) as site:
        assert (await site.get("/page", token="odd")).status == 401


@pytest.mark.parametrize("answer", [{}, {"allowed": "true"}, {"allowed": 1}, {"allowed": None}])
async def test_only_a_plain_yes_is_a_yes(
    reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch, answer: Json
) -> None:
    monkeypatch.setattr(Reviewer, "_may", lambda *_: answer)
    async with serving(reviewer) as site:
        assert (await site.get("/page")).status == 403


async def test_a_denial_is_none(reviewer: Reviewer) -> None:
    reviewer.allow("system:anonymous", "/page")
    reviewer.denials.add("system:anonymous")
    async with serving(reviewer) as site:
        assert (await site.get("/page")).status == 403


async def test_the_verb_is_the_method(reviewer: Reviewer) -> None:
    reviewer.allow("system:anonymous", "/page", "get")
    async with serving(reviewer) as site:
        assert (await site.get("/page")).status == 200
        assert (await site.ask("PUT", "/page")).status == 403
        reviewer.allow("system:anonymous", "/other", "get")
        assert (await site.get("/other")).status == 404


async def test_masters_need_no_right(reviewer: Reviewer) -> None:
    reviewer.know("root", "admin", "system:masters")
    async with serving(reviewer) as site:
        assert (await site.get("/page", token="root")).status == 200
    assert not reviewer.asked["SubjectAccessReview"]


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
    reviewer: Reviewer, paths: tuple[str, ...], path: str, is_open: bool
) -> None:
    async with serving(reviewer, authorization_always_allow_paths=paths) as site:
        assert (await site.get(path)).status == (200 if is_open else 403)


@pytest.mark.parametrize("path", ["/healthz/../page", "/%2e%2e/page", "//healthz", "/healthz%2F"])
async def test_no_spelling_of_an_open_path_opens_another(reviewer: Reviewer, path: str) -> None:
    async with serving(reviewer) as site:
        assert (await site.get(path)).text != "page"


async def test_answers_count_for_as_long_as_the_flags_say(reviewer: Reviewer) -> None:
    reviewer.know("good", "alice")
    reviewer.allow("alice", "/page")
    flags = {
        "authentication_token_webhook_cache_ttl": 60.0,
        "authorization_webhook_cache_authorized_ttl": 60.0,
        "authorization_webhook_cache_unauthorized_ttl": 0.0,
    }
    async with serving(reviewer, **flags) as site:
        for _ in range(2):
            await site.get("/page", token="good")
        for _ in range(3):
            await site.ask("PUT", "/page", token="good")
    assert reviewer.asked == {"TokenReview": 1, "SubjectAccessReview": 1 + 3, "ConfigMap": 1}


async def test_a_token_that_is_taken_back_is_refused_after_its_time(reviewer: Reviewer) -> None:
    reviewer.know("good", "admin", "system:masters")
    async with serving(reviewer, authentication_token_webhook_cache_ttl=0.05) as site:
        assert (await site.get("/page", token="good")).status == 200
        reviewer.tokens.clear()
        refused = await eventually(
            lambda: site.get("/page", token="good"), lambda answer: answer.status != 200
        )
    assert refused.status == 401


async def test_many_at_once_with_the_same_question_ask_once(reviewer: Reviewer) -> None:
    reviewer.know("good", "alice")
    reviewer.allow("alice", "/page")
    reviewer.hangs = asyncio.Event()
    async with serving(reviewer) as site:
        asking = [asyncio.create_task(site.get("/page", token="good")) for _ in range(20)]
        await until(lambda: reviewer.asked["TokenReview"])
        asking.pop().cancel()  # whoever leaves, the others get their answer
        reviewer.hangs.set()
        answers = await asyncio.gather(*asking)
    assert {answer.status for answer in answers} == {200}
    assert reviewer.asked == {"TokenReview": 1, "SubjectAccessReview": 1, "ConfigMap": 1}


async def test_a_review_that_fails_is_tried_again(
    reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm.supervisor.https.reviews.PAUSES", (0.01, 0.01, 0.01, 0.01))
    reviewer.know("good", "admin", "system:masters")
    reviewer.failures = [500, 503, 504, 500]
    async with serving(reviewer) as site:
        assert (await site.get("/page", token="good")).status == 200
    assert reviewer.asked["TokenReview"] == 5


@pytest.mark.parametrize("failures", [[500] * 5, [403]])
@pytest.mark.parametrize("kind", ["TokenReview", "SubjectAccessReview"])
async def test_a_review_that_keeps_failing_lets_nobody_in(
    reviewer: Reviewer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failures: list[int],
    kind: str,
) -> None:
    monkeypatch.setattr("ccm.supervisor.https.reviews.PAUSES", (0.01, 0.01, 0.01, 0.01))
    reviewer.know("good", "alice")
    reviewer.allow("system:anonymous", "/page")
    reviewer.allow("alice", "/page")
    reviewer.failures = [*failures]
    token = "good" if kind == "TokenReview" else ""
    async with serving(reviewer) as site:
        answer = await site.get("/page", token=token)
        again = await site.get("/page", token=token)
    assert (answer.status, answer.json()["reason"]) == (500, "InternalError")
    assert caplog.text.count("request turned away: no review") == 1
    assert reviewer.asked[kind] == len(failures) + 1
    assert again.status == 200, "a failure must not be remembered as an answer"


async def test_a_review_that_never_answers_holds_up_nobody_else(
    reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm.supervisor.https.reviews.DEADLINE", 2.0)
    reviewer.hangs = asyncio.Event()
    async with serving(reviewer) as site:
        waiting = asyncio.create_task(site.get("/page", token="good"))
        await until(lambda: reviewer.asked["TokenReview"])
        assert (await site.get("/healthz")).status == 200
        assert not waiting.done()
        async with asyncio.timeout(6):
            assert (await waiting).status == 500


async def test_an_api_server_that_is_away_turns_everybody_away(reviewer: Reviewer) -> None:
    reviewer.url = "http://127.0.0.1:1"
    async with serving(reviewer) as site:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ccm.supervisor.https.reviews.PAUSES", (0.01,))
            assert (await site.get("/page", token="good")).status == 500
        assert (await site.get("/healthz")).status == 200


async def test_requests_are_counted_by_page_and_status(reviewer: Reviewer) -> None:
    async with serving(reviewer) as site:
        await site.get("/healthz")
        await site.get("/page")
        for number in range(3):
            await site.get(f"/nowhere/{number}")
        counted = site.server.counters.export()["ccm_https_requests_total"]
    assert sorted(counted) == [
        [["/healthz", "200"], 1],
        [["/page", "403"], 1],
        [["other", "403"], 3],
    ]
