"""Statuses to render, and what a reader finds on the page."""

from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

from ccm.model.conform import conform
from ccm.model.objects import Json
from ccm.model.status import PageStatus
from ccm.supervisor.https.status_page import render
from ccm.supervisor.problems import StatusProblem, find_problems

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)

HEALTHY: Json = {
    "version": "1.2.3",
    "provider": "simulated",
    "cluster": "blue",
    "docs_url": "https://wiki.local/ccm/",
    "up_seconds": 3723.4,
    "leader": {
        "identity": "backend-a_1",
        "is_leader": True,
        "seconds_left": 8.2,
        "decision": "holds the lease",
        "history": [],
    },
    "workers": [],
    "quarantined": {},
    "deletions": {
        "frozen": None,
        "last_error": "",
        "held": "",
        "held_seconds": 0.0,
        "counts": {"proposed": 3, "held": 0, "permitted": 2, "not_understood": 0},
        "budget": {"limit": 10, "left": 8, "window_seconds": 600.0, "spent": []},
        "vanished": 0,
        "candidates": [],
        "more_candidates": 0,
    },
    "informer": {
        "kinds": {
            "Node": {"objects": 5000, "silent_seconds": 1.26, "last_error": "", "lists": 1},
        },
        "undecodable": 0,
    },
    "budget": {
        "read": {
            "state": "closed",
            "per_second": 20.0,
            "full_per_second": 20.0,
            "tokens": 38.6,
            "granted": 1234,
            "throttled": 0,
            "waiting": {},
            "queue": [],
        },
    },
    "identities": {},
    "uninitialized_nodes": {"count": 0, "first": {}, "initialized_not_ready": 0},
    "failing_checks": {},
}


def worker(name: str, **changes: Any) -> Json:
    """A running one, with these changes."""
    return {
        "name": name,
        "state": "running",
        "state_seconds": 320.4,
        "pid": 4711,
        "restarts": 0,
        "deaths_in_a_row": 0,
        "successor_pid": None,
        "silent_seconds": 0.5,
        "faults": [],
        "grew": "",
        "queue": {"ready": 0, "later": 0},
        "done": 10,
        "pending": len(changes.get("reasons", ())),
        "failing": 0,
        "reasons": {},
        "recent": [],
        "rss_bytes": 64 << 20,
        "objects": 7,
    } | changes


def news(key: str, why: str, ago: float, what: str = "failed") -> Json:
    return {"key": key, "what": what, "why": why, "seconds_ago": ago}


def group(why: str, *names: str, seconds: float = 90.0, is_failure: bool = True) -> Json:
    """Objects of a worker that are pending for one reason."""
    return {
        "why": why,
        "is_failure": is_failure,
        "seconds": seconds,
        "count": len(names),
        "names": [*names],
    }


def with_problems(facts: Json) -> Json:
    """As the supervisor answers `status`."""
    return {"problems": [one.describe() for one in problems_of(facts)], **facts}


def balancer(key: str, state: str = "ensured", **changes: Any) -> Json:
    common = {"service": key, "state": state, "seconds_ago": 61.0, "backends": 3}
    return common | {"addresses": ["192.0.2.7"], "why": ""} | changes


def status(**parts: Any) -> Json:
    """The status of a healthy leader, but for these parts."""
    return deepcopy(HEALTHY) | parts


def troubled() -> Json:
    """Every section has a row, and every problem is there."""
    refused = "no quota is left"
    candidates = [{"node": "vm-2", "verdict": "not yet", "reason": "budget", "seconds": 90.0}]
    circuit = {"state": "open", "per_second": 2.5, "waiting": {"node-0": 12}}
    asks = [{"worker": "node-0", "priority": "node-init", "calls": 12, "seconds": 4.4}]
    return status(
        leader=HEALTHY["leader"] | {"migration": {"lease": "migration", "is_leader": False}},
        workers=[
            worker(
                "node-0",
                failing=1,
                reasons={"vm-77": "the cloud knows no such machine"},
                pending_groups=[group("the cloud knows no such machine", "vm-77")],
                recent=[news("vm-77", "the cloud knows no such machine", 3.0)],
            ),
            worker("node-1", state="failed", pid=None, faults=["--cloud-config: is not there"]),
            worker("route", reasons={"vm-78": "waits for its provider ID"}),
            worker(
                "service",
                backends=9,
                load_balancers=2,
                failing=1,
                reasons={"default/web": f"rejected until it changes: {refused}"},
                pending_groups=[group(f"rejected until it changes: {refused}", "default/web")],
                services=[
                    balancer("default/web", "refused", why=refused, addresses=[]),
                    balancer("default/api"),
                ],
            ),
            worker("volume-label", reasons={"pv-1": "waits for the cloud"}),
        ],
        uninitialized_nodes={"count": 2, "first": {"vm-77": 75.0, "vm-79": 2.0}},
        failing_checks={"node-1": "worker is failed"},
        deletions=HEALTHY["deletions"]
        | {
            "frozen": {"why": "audit", "by": "alice", "at": "2026-05-04T03:00:00+00:00"},
            "last_error": "the state file cannot be written",
            "held": "5 of 9 nodes vanished",
            "held_seconds": 130.0,
            "candidates": candidates,
            "more_candidates": 4,
        },
        budget={"read": HEALTHY["budget"]["read"] | circuit | {"throttled": 3, "queue": asks}},
        quarantined={"volume_label": {"pv-2": 640.0}},
        informer={
            "kinds": {"Node": HEALTHY["informer"]["kinds"]["Node"] | {"last_error": "refused"}},
            "undecodable": 2,
        },
        identities={"node-controller": {"seconds_left": 3000.0, "last_error": "denied"}},
    )


def disguised(facts: Any, name: str) -> Any:
    """The same facts where every text and every name of an object is `name`, too."""
    match facts:
        case dict():
            return {key: disguised(value, name) for key, value in facts.items()}
        case list():
            return [disguised(value, name) for value in facts]
        case str():
            return f"{facts}{name}"
    return facts


def with_named(facts: Json, name: str) -> Json:
    """Names that are keys of the status are from outside, too."""
    said: Json = disguised(facts, name)
    for facts_of in said["workers"]:
        facts_of["name"] = facts_of["name"].removesuffix(name)  # what the supervisor gave it
        facts_of["reasons"] = {f"{key}{name}": why for key, why in facts_of["reasons"].items()}
    said["uninitialized_nodes"]["first"] = {
        f"{key}{name}": 9.0 for key in said["uninitialized_nodes"]["first"]
    }
    for controller, keys in said["quarantined"].items():
        said["quarantined"][controller] = {f"{key}{name}": 1.0 for key in keys}
    for part in ("budget", "identities", "failing_checks"):
        said[part] = {f"{key}{name}": value for key, value in said[part].items()}
    return said


class PageReader(HTMLParser):
    """A page, parsed. Fails when an element is not closed where it should be."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.headings: dict[str, str] = {}  # by anchor
        self.captions: dict[str, str] = {}  # by heading
        self.rows: dict[str, list[list[str]]] = {}  # of each table, titles and foot too
        self.texts: dict[str, list[str]] = {}  # outside of tables: paragraphs and list items
        self.title = self._heading = ""
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == [], f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self._open.append(tag)
        if tag == "h2":
            self._anchor = dict(attrs)["id"] or ""
        if tag == "tr":
            self.rows.setdefault(self._heading, []).append([])
        if tag in ("td", "th"):
            self.rows[self._heading][-1].append("")
        if tag in ("p", "li"):
            self.texts.setdefault(self._heading, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if not self._open:
            return
        if self._open[-1] == "title":
            self.title += data
        elif self._open[-1] == "h2":
            self._heading = self.headings[self._anchor] = data
        elif self._open[-1] == "caption":
            self.captions[self._heading] = data
        elif {"td", "th"} & {*self._open}:
            self.rows[self._heading][-1][-1] += data
        elif {"p", "li"} & {*self._open}:
            self.texts[self._heading][-1] += data


def problems_of(facts: Json) -> list[StatusProblem]:
    """With the health checks that fail, as on the page."""
    status = conform(PageStatus, facts)
    return find_problems(status, status["failing_checks"])


def rendered(facts: Json, refresh: int = 0) -> str:
    return render(conform(PageStatus, facts), NOW, refresh)


def read(facts: Json, refresh: int = 0) -> PageReader:
    return PageReader(rendered(facts, refresh))


def paths(status: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to everything in there, by keys and indexes."""
    if path:
        yield path
    if isinstance(status, dict | list):
        items = status.items() if isinstance(status, dict) else enumerate(status)
        for key, value in items:
            yield from paths(value, (*path, key))


def altered(status: Json, path: tuple[Any, ...], *values: Any) -> Json:
    """A copy with another value at this path, or with nothing there."""
    changed = inner = deepcopy(status)
    for key in path[:-1]:
        inner = inner[key]
    if values:
        (inner[path[-1]],) = values
    else:
        del inner[path[-1]]
    return changed
