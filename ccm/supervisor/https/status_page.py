"""The status page at `/`: the status as HTML, problems first; no script, no other resource."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from aiohttp import web

from ccm.model.objects import Json, mapping, number, objects, text
from ccm.supervisor.deletion_state import why_blocked
from ccm.supervisor.https.status_html import (
    CONTENT_SECURITY_POLICY,
    STYLE,
    Markup,
    StatusPart,
    duration,
    element,
    join,
    plain,
    plural,
    rate,
)
from ccm.supervisor.https.status_sections import sections
from ccm.supervisor.status_metrics import controller_of_worker

HEADERS = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Referrer-Policy": "no-referrer"}
MIN_REFRESH, MAX_REFRESH = 2, 3600  # seconds
REFRESH_CHOICES = (5, 30)  # seconds
OTHER_PATHS = ("metrics", "readyz?verbose", "statusz", "configz", "flagz")
INITIALIZATION_THRESHOLD = 60.0  # seconds a node may be uninitialized before it is a problem

SECTION_OF_CHECK = {"leaderElection": "leadership", "watches": "watches", "freshness": "watches"}
"""By health check; the others are about workers."""

SECTION_OF_CONTROLLER = {
    "node": "nodes",
    "route": "nodes",
    "service": "balancers",
    "volume-label": "volumes",
}


def routes(read_status: Callable[[], StatusPart]) -> Iterator[web.RouteDef]:
    """`/`, rendered for each request."""

    async def show(request: web.Request) -> web.Response:
        refresh = _refresh(request.query.get("refresh", ""))
        page = render(read_status(), datetime.now(UTC), refresh)
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


def render(status: StatusPart, at: datetime, refresh: int = 0) -> str:
    """HTML of the supervisor's status, with `uninitialized_nodes` and `failing_checks` in it.

    `refresh` is the interval in seconds at which the browser reloads; 0 for never.
    """
    problems = list(find_problems(status))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="refresh", content=str(refresh)) if refresh else "",
        element("title", f"ccm-supervisor: {plural(len(problems), 'problem')}"),
        element("style", Markup(STYLE)),
    )
    tables = (section.markup() for section in sections(status))
    main = element("main", _problems(problems), *tables)
    body = element("body", _header(status), main, _footer(at, refresh))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _header(status: StatusPart) -> Markup:
    leader = mapping(status.get("leader"))
    left = f"leader ({duration(leader.get('seconds_left'))} left, renewed while it holds the lease)"
    lines = {
        "Leadership": left if leader.get("is_leader") is True else "standby",
        "Decision": plain(leader.get("decision")),
        "Identity": plain(leader.get("identity")),
        **_migration(mapping(leader.get("migration"))),
        "Cloud": plain(status.get("provider")),
        "Version": plain(status.get("version")),
        "Up": duration(status.get("up_seconds")),
    }
    terms = (join(element("dt", term), element("dd", value)) for term, value in lines.items())
    return element(
        "header", element("h1", "ccm-supervisor"), element("dl", *terms, id="leadership")
    )


def _migration(migration: StatusPart) -> dict[str, str]:
    if not migration:
        return {}
    held = "held" if migration.get("is_leader") is True else "not held"
    return {"Migration": f"{plain(migration.get('lease'))}: {held}"}


def _footer(at: datetime, refresh: int) -> Markup:
    stamp = element("time", f"{at:%Y-%m-%d %H:%M:%S} UTC", datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}")
    choices = (
        join(" ", element("a", f"every {seconds} s", href=f"?refresh={seconds}"))
        for seconds in REFRESH_CHOICES
        if seconds != refresh
    )
    stop = join(" ", element("a", "never", href="?")) if refresh else ""
    now = f" (every {refresh} s)" if refresh else ""
    others = (join(" ", element("a", f"/{path}", href=path)) for path in OTHER_PATHS)
    return element(
        "footer",
        element("p", "As of ", stamp, f"{now}. Refresh:", *choices, stop),
        element("p", "Also here:", *others),
    )


@dataclass(frozen=True, slots=True)
class StatusProblem:
    """One sentence; `anchor` is the section that says more."""

    anchor: str
    sentence: str


def _problems(problems: list[StatusProblem]) -> Markup:
    items = (
        element("li", element("a", plain(problem.sentence), href=f"#{problem.anchor}"))
        for problem in problems
    )
    content = element("ul", *items) if problems else element("p", "None is known.")
    head = element("h2", "Problems", id="problems")
    return element("section", head, content, aria_labelledby="problems")


def find_problems(status: StatusPart) -> Iterator[StatusProblem]:
    """What a person should look at first; nothing when all is well."""
    for check, why in mapping(status.get("failing_checks")).items():
        yield StatusProblem(SECTION_OF_CHECK.get(check, "workers"), f"{check}: {why}")
    yield from _of_workers(objects(status.get("workers")))
    yield from _of_nodes(mapping(status.get("uninitialized_nodes")))
    for why in why_blocked(mapping(status.get("deletions"))):
        yield StatusProblem("deletions", why)
    yield from _of_budget(mapping(status.get("budget")))
    for kind, watch in mapping(mapping(status.get("informer")).get("kinds")).items():
        if error := mapping(watch).get("trouble"):
            yield StatusProblem("watches", f"The watch of {kind} is broken: {error}")
    for controller, keys in mapping(status.get("quarantined")).items():
        many = plural(len(mapping(keys)), "object")
        yield StatusProblem(
            "quarantine", f"{many} of {controller.replace('_', '-')} in quarantine."
        )
    for account, identity in mapping(status.get("identities")).items():
        if error := mapping(identity).get("trouble"):
            yield StatusProblem("identities", f"No new token for {account}: {error}")


def _of_workers(workers: list[Json]) -> Iterator[StatusProblem]:
    for worker in workers:
        name, faults = text(worker.get("name")), worker.get("faults")
        for fault in faults if isinstance(faults, list) else ():
            yield StatusProblem("workers", f"{name} refused to start: {fault}")
        if failing := number(worker.get("failing")):
            anchor = SECTION_OF_CONTROLLER.get(controller_of_worker(name), "workers")
            yield StatusProblem(anchor, f"{name} fails to reconcile {plural(failing, 'object')}.")


def _of_nodes(uninitialized: StatusPart) -> Iterator[StatusProblem]:
    longest = max(map(number, mapping(uninitialized.get("first")).values()), default=0.0)
    if longest > INITIALIZATION_THRESHOLD:
        many = plural(uninitialized.get("count"), "node")
        yield StatusProblem("nodes", f"{many} not initialized, one for {duration(longest)}.")


def _of_budget(classes: StatusPart) -> Iterator[StatusProblem]:
    for name, limit in classes.items():
        if (state := mapping(limit).get("state")) and state != "closed":
            now, full = (rate(mapping(limit).get(f"{it}per_second")) for it in ("", "full_"))
            sentence = f"Cloud calls of class {name}: {state}, {now} of {full} a second."
            yield StatusProblem("budget", sentence)
