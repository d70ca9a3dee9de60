"""The page as a route: rendered anew for each request, for whoever may see it."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from aiohttp import web

from ccm.supervisor.https.page.document import document
from ccm.supervisor.https.page.section import Facts
from ccm.supervisor.https.page.style import POLICY

HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
SHORTEST, LONGEST = 2, 3600  # seconds between two looks


def routes(look: Callable[[], Facts]) -> Iterator[web.RouteDef]:
    """`/`, which shows what `look` finds."""

    async def show(request: web.Request) -> web.Response:
        page = document(look(), datetime.now(UTC), _refresh(request.query.get("refresh", "")))
        return web.Response(
            body=page.encode(errors="replace"),
            content_type="text/html",
            charset="utf-8",
            headers=HEADERS,
        )

    yield web.get("/", show)


def _refresh(asked: str) -> int:
    """Seconds; 0 when nothing of use was asked for."""
    if not (asked.isascii() and asked.isdecimal() and len(asked) < 5):
        return 0
    return min(max(int(asked), SHORTEST), LONGEST)
