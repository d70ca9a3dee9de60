"""`/` of the HTTPS server: authorization, headers and refresh."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256

import pytest

from ccm.model.conform import conform
from ccm.model.objects import Json
from ccm.model.status import PageStatus
from ccm.supervisor.https.shared import SharedDocuments
from ccm.supervisor.https.status_page import routes
from tests.integration.https.review_api import serving_reviews
from tests.integration.https.served import LocalServer, serving_routes

from .statuses import PageReader, troubled


@asynccontextmanager
async def showing(facts: Json) -> AsyncIterator[LocalServer]:
    """A server with this page, which the group `viewers` may see and nobody else."""
    async with serving_reviews() as reviews:
        reviews.add_token("alice", "alice", "viewers")
        reviews.allow("viewers", "/")
        page = routes(lambda: conform(PageStatus, facts), SharedDocuments())
        async with serving_routes(page, master=reviews.url) as server:
            yield server


async def test_the_policy_allows_its_own_style_only() -> None:
    async with showing(troubled()) as server:
        answer = await server.get("/", token="alice")
        assert (await server.get("/")).status == 403
    style = answer.text.partition("<style>")[2].partition("</style>")[0]
    known = b64encode(sha256(style.encode()).digest()).decode()
    assert answer.headers["Content-Security-Policy"] == (
        f"default-src 'none'; style-src 'sha256-{known}';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("", None),
        ("?refresh=5", "5"),
        ("?refresh=0", "2"),
        ("?refresh=9999", "3600"),
        ("?refresh=99999", None),
        ("?refresh=-5", None),
        ("?refresh=%D9%A5", None),
        ("?refresh=5;url=//elsewhere", None),
    ],
)
async def test_the_refresh_interval_is_bounded(asked: str, seconds: str | None) -> None:
    async with showing(troubled()) as server:
        page = PageReader((await server.get(f"/{asked}", token="alice")).text)
    reported = [value for name, value in page.attributes if name == "content"]
    assert reported[1:] == ([seconds] if seconds else [])


async def test_what_cannot_be_encoded_is_a_question_mark() -> None:
    async with showing(troubled() | {"provider": "a\udcffb"}) as server:
        answer = await server.get("/", token="alice")
    assert "<dd>a?b</dd>" in answer.text
