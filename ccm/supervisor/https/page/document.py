"""The whole page: head, what to look at first, all sections, and how fresh it is."""

from collections.abc import Iterator
from datetime import datetime

from ccm.model.objects import mapping, objects
from ccm.supervisor.https.page import parts, work
from ccm.supervisor.https.page.attention import Concern, concerns
from ccm.supervisor.https.page.markup import Markup, element, join
from ccm.supervisor.https.page.section import Facts, Section
from ccm.supervisor.https.page.style import STYLE
from ccm.supervisor.https.page.words import duration, plain, some

PACES = (5, 30)  # seconds between two looks, to choose from
OTHERS = ("metrics", "readyz?verbose", "statusz", "configz", "flagz")


def document(status: Facts, at: datetime, refresh: int = 0) -> str:
    """HTML of `status`, which is what the supervisor says, with `newcomers` and `failing_checks`.

    `refresh` is how often the browser is to ask again, in seconds; 0 for never.
    """
    found = list(concerns(status))
    title = f"ccm-supervisor: {some(len(found), 'concern')}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="refresh", content=str(refresh)) if refresh else "",
        element("title", title),
        element("style", Markup(STYLE)),
    )
    main = element("main", _attention(found), *(section.markup() for section in sections(status)))
    body = element("body", _header(status), main, _footer(at, refresh))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def sections(status: Facts) -> Iterator[Section]:
    """All tables, in the order in which people need them."""
    workers = objects(status.get("workers"))
    yield parts.workers(workers)
    yield work.nodes(workers, mapping(status.get("newcomers")))
    yield work.balancers(workers)
    yield parts.deletions(mapping(status.get("deletions")))
    yield parts.budget(mapping(status.get("budget")))
    yield work.news(workers)
    yield work.quarantine(mapping(status.get("quarantined")))
    yield work.volumes(workers)
    yield parts.watches(mapping(status.get("feed")))
    yield parts.identities(mapping(status.get("identities")))


def _header(status: Facts) -> Markup:
    leader = mapping(status.get("leader"))
    may_act = leader.get("may_act") is True
    left = f"may act ({duration(leader.get('seconds_left'))} left, renewed while it leads)"
    lines = {
        "Leadership": left if may_act else "stands by: may not act",
        "Decision": plain(leader.get("decision")),
        "Identity": plain(leader.get("identity")),
        **_migration(mapping(leader.get("migration"))),
        "Cloud": plain(status.get("provider")),
        "Version": plain(status.get("version")),
        "Up": duration(status.get("up_seconds")),
    }
    terms = (join(element("dt", term), element("dd", said)) for term, said in lines.items())
    return element(
        "header", element("h1", "ccm-supervisor"), element("dl", *terms, id="leadership")
    )


def _migration(facts: Facts) -> dict[str, str]:
    if not facts:
        return {}
    lease = plain(facts.get("lease"))
    return {"Migration": f"{lease}: {'held' if facts.get('may_act') is True else 'not held'}"}


def _attention(found: list[Concern]) -> Markup:
    items = (
        element("li", element("a", plain(concern.sentence), href=f"#{concern.anchor}"))
        for concern in found
    )
    said = element("ul", *items) if found else element("p", "Nothing that is known here.")
    head = element("h2", "Needs attention", id="attention")
    return element("section", head, said, aria_labelledby="attention")


def _footer(at: datetime, refresh: int) -> Markup:
    stamp = element("time", f"{at:%Y-%m-%d %H:%M:%S} UTC", datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}")
    paces = (
        join(" ", element("a", f"every {seconds} s", href=f"?refresh={seconds}"))
        for seconds in PACES
        if seconds != refresh
    )
    stop = join(" ", element("a", "not any more", href="?")) if refresh else ""
    now = f" (every {refresh} s)" if refresh else ""
    others = (join(" ", element("a", f"/{path}", href=path)) for path in OTHERS)
    return element(
        "footer",
        element("p", "As of ", stamp, f"{now}. Look again:", *paces, stop),
        element("p", "Also here:", *others),
    )
