"""`/` of the HTTPS server: who may see it, and what a browser that does is told."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest

from ccm.model.objects import Json
from ccm.settings import Settings
from ccm.supervisor.https.page.route import routes
from ccm.supervisor.https.server import HttpsServer
from tests.https.reviewer import reviewing
from tests.https.served import Site, served_by

from .facts import Read, troubled


@asynccontextmanager
async def showing(facts: Json, **flags: Any) -> AsyncIterator[Site]:
    """A server with this page, which the group `viewers` may see."""

    def make(settings: Settings) -> HttpsServer:
        server = HttpsServer(settings)
        server.add(routes(lambda: facts))
        return server

    async with reviewing() as reviewer:
        reviewer.know("alice", "alice", "viewers")
        reviewer.know("bob", "bob", "others")
        reviewer.allow("viewers", "/")
        async with served_by(make, master=reviewer.url, **flags) as site:
            yield site


async def test_only_who_may_get_it_sees_it() -> None:
    async with showing(troubled()) as site:
        codes = [(await site.get("/", token=who)).status for who in ("", "bob", "alice", "x")]
    assert codes == [403, 403, 200, 401]


async def test_it_alone_can_be_opened_to_everybody() -> None:
    async with showing(troubled(), authorization_always_allow_paths=("/healthz", "/")) as site:
        assert [(await site.get(path)).status for path in ("/", "/metrics")] == [200, 403]


async def test_a_browser_may_use_the_style_in_it_and_nothing_else() -> None:
    async with showing(troubled()) as site:
        answer = await site.get("/", token="alice")
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
async def test_it_asks_again_as_often_as_is_of_use(asked: str, seconds: str | None) -> None:
    async with showing(troubled()) as site:
        page = Read((await site.get(f"/{asked}", token="alice")).text)
    told = [value for name, value in page.attributes if name == "content"]
    assert told[1:] == ([seconds] if seconds else [])


async def test_what_no_encoding_knows_is_shown_as_a_question_mark() -> None:
    async with showing(troubled() | {"provider": "a\udcffb"}) as site:
        answer = await site.get("/", token="alice")
    assert "<dd>a?b</dd>" in answer.text
