"""The status page at `/`: the status as HTML, problems first; no script, no other resource."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from aiohttp import web

from ccm.model.status import MigrationStatus, PageStatus
from ccm.supervisor.https.shared import SharedDocuments
from ccm.supervisor.https.status_html import (
    CONTENT_SECURITY_POLICY,
    STYLE,
    Markup,
    duration,
    element,
    join,
    plain,
    plural,
    state,
)
from ccm.supervisor.https.status_sections import sections
from ccm.supervisor.problems import StatusProblem, find_problems

HEADERS = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Referrer-Policy": "no-referrer"}
MIN_REFRESH, MAX_REFRESH = 2, 3600  # seconds
REFRESH_CHOICES = (5, 30)  # seconds
META, CHOICES = Markup("<!--meta-->"), Markup("<!--choices-->")
"""Marks in a page; what others wrote has no `<`."""
OTHER_PATHS = ("metrics", "readyz?verbose", "statusz", "configz", "flagz")


def routes(
    read_status: Callable[[], PageStatus], documents: SharedDocuments
) -> Iterator[web.RouteDef]:
    """`/`, rendered for those who ask at a time."""

    async def show(request: web.Request) -> web.Response:
        refresh = _refresh(request.query.get("refresh", ""))
        page = await documents.get("page", lambda: _render(read_status(), datetime.now(UTC)))
        page = _refreshing(page, refresh)
        return web.Response(
            body=page.encode(errors="replace"),
            content_type="text/html",
            charset="utf-8",
            headers=HEADERS,
        )

    yield web.get("/", show)


def _refresh(query: str) -> int:
    """Seconds; 0 for an invalid value."""
    if not (query.isascii() and query.isdecimal() and len(query) < 5):
        return 0
    return min(max(int(query), MIN_REFRESH), MAX_REFRESH)


def render(status: PageStatus, at: datetime, refresh: int = 0) -> str:
    """HTML of the supervisor's status.

    `refresh` is the interval in seconds at which the browser reloads; 0 for never.
    """
    return _refreshing(_render(status, at), refresh)


def _refreshing(page: str, refresh: int) -> str:
    """The page, whose one costly part does not depend on this."""
    meta = element("meta", http_equiv="refresh", content=str(refresh)) if refresh else ""
    return page.replace(META, meta).replace(CHOICES, _choices(refresh))


def _render(status: PageStatus, at: datetime) -> str:
    """With marks for what depends on how often it is reloaded."""
    problems = find_problems(status, status["failing_checks"])
    where = f"{plain(status['cluster'])}, {_role(status)}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        META,
        element("title", f"{plural(len(problems), 'problem')}: {where} – ccm-supervisor"),
        element("style", Markup(STYLE)),
    )
    tables = (section.markup() for section in sections(status))
    header = element("header", element("h1", f"{plain(status['cluster'])}: {_role(status)}"))
    main = element("main", _problems(problems, status["docs_url"]), _replica(status), *tables)
    body = element("body", header, main, _footer(at))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _role(status: PageStatus) -> str:
    return "leader" if status["leader"]["is_leader"] else "standby"


def _replica(status: PageStatus) -> Markup:
    """Who this is; below the problems, so that an outage's cause is the first line."""
    leader = status["leader"]
    left = f"leader ({duration(leader['seconds_left'])} left, renewed while it holds the lease)"
    lines = {
        "Cluster": plain(status["cluster"]),
        "Leadership": left if leader["is_leader"] else "standby",
        "Decision": plain(leader["decision"]),
        "Identity": plain(leader["identity"]),
        **_migration(leader.get("migration")),
        "Cloud": plain(status["provider"]),
        "Version": plain(status["version"]),
        "Up": duration(status["up_seconds"]),
    }
    terms = (join(element("dt", term), element("dd", value)) for term, value in lines.items())
    return element("dl", *terms, id="leadership")


def _migration(migration: MigrationStatus | None) -> dict[str, str]:
    if not migration:
        return {}
    held = "held" if migration["is_leader"] else "not held"
    return {"Migration": f"{plain(migration['lease'])}: {held}"}


def _footer(at: datetime) -> Markup:
    stamp = element("time", f"{at:%Y-%m-%d %H:%M:%S} UTC", datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}")
    others = (join(" ", element("a", f"/{path}", href=path)) for path in OTHER_PATHS)
    return element(
        "footer",
        element("p", "As of ", stamp, CHOICES),
        element("p", "Also here:", *others),
    )


def _choices(refresh: int) -> Markup:
    """How often it is reloaded, and what else there is."""
    choices = (
        join(" ", element("a", f"every {seconds} s", href=f"?refresh={seconds}"))
        for seconds in REFRESH_CHOICES
        if seconds != refresh
    )
    stop = join(" ", element("a", "never", href="?")) if refresh else ""
    now = f" (every {refresh} s)" if refresh else ""
    return join(f"{now}. Refresh:", *choices, stop)


def _problems(problems: list[StatusProblem], docs_url: str) -> Markup:
    items = (element("li", *_problem(problem, docs_url)) for problem in problems)
    content = element("ul", *items) if problems else element("p", "None is known.")
    head = element("h2", "Problems", id="problems")
    return element("section", head, content, aria_labelledby="problems")


def _problem(problem: StatusProblem, docs_url: str) -> Iterator[object]:
    """How bad, what, and where to read on; commands are for the terminal."""
    yield state(problem.severity)
    yield " "
    yield element("a", plain(problem.sentence), href=f"#{problem.anchor}")
    for command in problem.commands():
        yield join(" ", element("code", command))
    if docs_url:
        address = f"{docs_url.rstrip('/')}/{problem.page}"
        yield join(" ", element("a", "what to do", href=address))
    if problem.symptoms:
        yield element("ul", *(element("li", plain(it)) for it in problem.symptoms))
