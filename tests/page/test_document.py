"""From what the supervisor says to HTML: each section, odd facts, names that are code, and size."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.decide.deletion import Reason
from ccm.model.objects import Json
from ccm.supervisor.https.page.attention import concerns
from ccm.supervisor.https.page.document import document, sections
from ccm.supervisor.https.page.markup import element
from ccm.supervisor.https.page.parts import MEANINGS
from ccm.supervisor.https.page.words import duration

from .facts import (
    NOW,
    altered,
    balancer,
    news,
    places,
    read,
    status,
    troubled,
    without,
    worker,
)

ATTENTION = "Needs attention"
CODE = """</td><script>alert('x')</script><img src=x onerror="alert(1)"> & &lt; "' """


def test_who_is_well_has_no_concern() -> None:
    page = read(status(workers=[worker("node-0"), worker("service", services=[], balancers=0)]))
    assert page.title == "ccm-supervisor: 0 concerns"
    assert page.said[ATTENTION] == ["Nothing that is known here."]


def test_what_is_wrong_comes_first_and_leads_to_its_section() -> None:
    page = read(troubled())
    assert page.title == "ccm-supervisor: 12 concerns"
    assert page.said[ATTENTION] == [
        "node-1: worker is failed",
        "node-0 cannot settle 1 object.",
        "node-1 refused to start: --cloud-config: is not there",
        "service cannot settle 1 object.",
        "2 nodes not initialised, one for 1m15s.",
        "Deletions are frozen by alice since 2026-05-04T03:00:00+00:00: audit",
        "Deletions are stopped: the state file cannot be written",
        "Deletions are held for 2m10s: 5 of 9 nodes vanished",
        "Cloud calls of class read: shut, 2.5 of 20 a second.",
        "The watch of Node is interrupted: refused",
        "1 object of volume-label in quarantine.",
        "No new token for node-controller: denied",
    ]
    anchors = {concern.anchor for concern in concerns(troubled())}
    assert anchors <= page.headings.keys()
    everywhere = {*page.headings, "leadership"}
    checks = {"leaderElection": "late", "watches": "old", "freshness": "old", "progress": "stuck"}
    assert {it.anchor for it in concerns({"failing_checks": checks})} <= everywhere


@pytest.mark.parametrize(("seconds", "is_told"), [(59.0, False), (61.0, True)])
def test_a_node_that_waits_is_a_concern_after_a_minute(seconds: float, is_told: bool) -> None:
    facts = status(newcomers={"count": 1, "first": {"vm-1": seconds}})
    assert bool(list(concerns(facts))) is is_told


def test_each_worker_is_a_row() -> None:
    leaving = {"successor_pid": 4712, "restarts": 3, "queue": {"ready": 1200}}
    page = read(status(workers=[worker("node-0", failing=2, unsettled=5, **leaving)]))
    titles, row = page.rows["Workers"]
    assert dict(zip(titles, row, strict=True)) == {
        "Worker": "node-0",
        "State": "running",
        "For": "5m20s",
        "Process": "4711, 4712",
        "Restarts": "3",
        "Objects": "7",
        "Queue": "1,200",
        "Not settled": "5",
        "Failing": "2",
        "Memory": "64 MiB",
        "Last heard": "500ms ago",
    }


def test_a_worker_without_a_process_tells_only_what_the_supervisor_knows() -> None:
    bare = {"name": "node-0", "state": "backoff", "state_seconds": 2.0, "restarts": 1}
    (_, row) = read(status(workers=[bare])).rows["Workers"]
    assert row == ["node-0", "backoff", "2s", "–", "1", *"–" * 6]


def test_a_node_that_waits_is_told_with_its_reason_and_the_longest_first() -> None:
    ours = worker("node-0", reasons={"vm-1": "throttled", "vm-2": "denied"})
    facts = status(
        workers=[ours, worker("route", reasons={"vm-1": "waits for its provider ID"})],
        newcomers={"count": 3, "first": {"vm-3": 30.0, "vm-2": 80.0, "vm-1": 9.0}},
    )
    page = read(facts)
    assert page.captions["Nodes not ready yet"].startswith("3 nodes not initialised;")
    assert page.rows["Nodes not ready yet"][1:] == [
        ["vm-2", "1m20s", "node-0", "denied"],
        ["vm-3", "30s", "–", "nobody has said why yet"],
        ["vm-1", "9s", "node-0", "throttled"],
        ["vm-1", "9s", "route", "waits for its provider ID"],
    ]


def test_a_node_is_told_although_its_worker_is_dead() -> None:
    facts = status(workers=[], newcomers={"count": 1, "first": {"vm-1": 4.0}})
    row = ["vm-1", "4s", "–", "nobody has said why yet"]
    assert read(facts).rows["Nodes not ready yet"][1:] == [row]


def test_a_balancer_is_told_with_what_is_wrong_with_it() -> None:
    refusal = "refused until it changes: no session affinity"
    facts = worker(
        "service",
        hosts=9,
        balancers=3,
        reasons={"default/new": refusal, "default/api": "cannot update hosts: 503"},
        services=[
            balancer("default/web", "refused", why="no quota", ways_in=[], seconds_ago=None),
            balancer("default/api", ways_in=["192.0.2.7", "lb.example"]),
        ],
    )
    page = read(status(workers=[facts, worker("route", reasons={"vm-1": "not a Service"})]))
    assert page.captions["Load balancers"].startswith("3 Services, trouble first; 9 nodes")
    assert page.rows["Load balancers"][1:] == [
        ["default/new", "unsettled", "–", "–", "–", refusal],
        ["default/web", "refused", "–", "–", "3", "no quota"],
        [
            "default/api",
            "made",
            "1m1s ago",
            "192.0.2.7, lb.example",
            "3",
            "cannot update hosts: 503",
        ],
    ]


def test_a_candidate_for_deletion_is_told_with_what_stands_in_its_way() -> None:
    page = read(troubled())
    assert page.said["Deletions of nodes"][-1] == (
        "Budget: 8 of 10 left in 10m. Since the start: 3 proposed, 2 permitted."
    )
    (_, row, foot) = page.rows["Deletions of nodes"]
    assert row[:4] == ["vm-2", "not yet", "1m30s", "budget"]
    assert row[4].endswith("Wait, or raise the limit.")
    assert foot == ["and 4 more"]
    assert {*map(str, Reason)} == MEANINGS.keys()


def test_a_class_of_calls_is_told_with_what_waits_for_it() -> None:
    (_, row) = read(troubled()).rows["Cloud budget"]
    assert row == ["read", "shut", "2.5", "20", "39", "1,234", "3", "12", "4.4s"]


def test_decisions_of_all_workers_are_told_newest_first() -> None:
    first = worker("node-0", silent_seconds=10.0, news=[news("vm-1", "denied", 1.0)])
    later = news("default/web", "it was: denied", 5.0, "settled again")
    facts = status(workers=[first, worker("service", silent_seconds=0.0, news=[later])])
    assert read(facts).rows["Recent decisions"][1:] == [
        ["default/web", "5s ago", "service", "settled again", "it was: denied"],
        ["vm-1", "11s ago", "node-0", "cannot settle", "denied"],
    ]


def test_quarantine_watches_volumes_and_identities_have_their_rows() -> None:
    page = read(troubled())
    assert page.rows["Quarantine"][1:] == [["pv-2", "volume-label", "in 10m40s"]]
    assert page.rows["Watches"][1:] == [["Node", "5,000", "1.3s ago", "1", "refused"]]
    assert page.said["Watches"] == ["2 objects skipped: see the log."]
    assert page.rows["Volumes not labelled yet"][1:] == [["pv-1", "waits for the cloud"]]
    assert page.rows["Identities"][1:] == [["node-controller", "50m", "denied"]]


def test_leadership_is_told_and_who_stands_by_says_so() -> None:
    leads = document(troubled(), NOW)
    assert "may act (8.2s left, renewed while it leads)" in leads
    assert "<dd>migration: not held</dd>" in leads
    facts = status(leader={"may_act": False, "decision": "host-b leads", "identity": "host-a"})
    assert "stands by: may not act</dd><dt>Decision</dt><dd>host-b leads" in document(facts, NOW)


@pytest.mark.parametrize("odd", [None, [], {}, "x", -1, 1e308, float("inf"), [7]], ids=repr)
def test_an_odd_fact_anywhere_costs_nobody_the_page(odd: Any) -> None:
    facts = troubled()
    for way in places(facts):
        assert document(altered(facts, way, odd), NOW).endswith("</html>\n")


def test_a_missing_fact_anywhere_costs_nobody_the_page() -> None:
    facts = troubled()
    for way in places(facts):
        assert document(without(facts, way), NOW).endswith("</html>\n")
    read({})


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
    said["newcomers"]["first"] = {f"{key}{name}": 9.0 for key in said["newcomers"]["first"]}
    for duty, keys in said["quarantined"].items():
        said["quarantined"][duty] = {f"{key}{name}": 1.0 for key in keys}
    for part in ("budget", "identities", "failing_checks"):
        said[part] = {f"{key}{name}": value for key, value in said[part].items()}
    return said


def test_a_name_that_is_html_is_text() -> None:
    plain, hostile = read(with_named(troubled(), "x")), read(with_named(troubled(), CODE))
    assert hostile.tags == plain.tags
    assert {name for name, _ in hostile.attributes} == {name for name, _ in plain.attributes}
    assert {"script", "img"} & {*hostile.tags} == set()
    assert f"vm-77{CODE}" in {row[0] for row in hostile.rows["Nodes not ready yet"]}
    assert f"default/api{CODE}" in {row[0] for row in hostile.rows["Load balancers"]}


@settings(max_examples=50, deadline=None)
@given(st.text(min_size=1, max_size=20))
def test_no_text_changes_the_structure(text: str) -> None:
    assert read(with_named(troubled(), text)).tags == read(with_named(troubled(), "x")).tags


def test_only_markup_is_markup_also_in_attributes() -> None:
    inner = element("b", "<i>")
    assert element("p", inner, "&", http_equiv='"><') == (
        '<p http-equiv="&quot;&gt;&lt;"><b>&lt;i&gt;</b>&amp;</p>'
    )


def test_a_huge_cluster_makes_a_small_page() -> None:
    """As much as the parts ever tell at once, and reasons that are as long as an exception."""
    why = "the cloud is away " * 100
    reasons = {f"vm-{number}": why for number in range(20)}
    many = [news(f"vm-{number}", why, number) for number in range(10)]
    nodes = [
        worker(f"node-{number}", reasons=reasons, unsettled=2500, news=many) for number in range(2)
    ]
    services = [balancer(f"default/web-{number}", "refused", why=why) for number in range(20)]
    facts = status(
        workers=[*nodes, worker("service", services=services, balancers=500, hosts=5000)],
        newcomers={"count": 5000, "first": {f"vm-{number}": 9.0 for number in range(20)}},
        quarantined={"node": {f"vm-{number}": 9.0 for number in range(5000)}},
    )
    page = read(facts)
    assert len(document(facts, NOW)) < 100_000
    assert page.rows["Nodes not ready yet"][-1] == ["and 4,960 more"]
    assert page.rows["Load balancers"][-1] == ["and 480 more"]
    assert page.rows["Quarantine"][-1] == ["and 4,950 more"]


def test_every_table_says_what_its_cells_belong_to() -> None:
    page = read(troubled())
    titled = {section.title for section in sections(troubled())}
    assert page.rows.keys() == page.captions.keys() == titled
    scopes = [value for name, value in page.attributes if name == "scope"]
    assert len(scopes) == page.tags.count("th")
    assert {*scopes} == {"col", "row"}
    labels = [value for name, value in page.attributes if name == "aria-labelledby"]
    assert labels == [*page.headings]
    assert ("lang", "en") in page.attributes


def test_nothing_comes_from_elsewhere() -> None:
    page = read(troubled())
    assert {"script", "link", "img", "iframe", "form"} & {*page.tags} == set()
    targets = {value for name, value in page.attributes if name in ("href", "src")}
    assert not any("//" in str(target) for target in targets)


def test_it_asks_again_by_itself_only_when_told() -> None:
    assert ("http-equiv", "refresh") not in read(status()).attributes
    again = read(status(), refresh=5)
    assert ("content", "5") in again.attributes
    assert ("href", "?") in again.attributes


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0s"),
        (0.449, "400ms"),
        (3.21, "3.2s"),
        (45.4, "45s"),
        (320.4, "5m20s"),
        (3599.7, "1h"),
        (93_784, "26h3m"),
        (-5, "0s"),
        (float("nan"), "0s"),
    ],
)
def test_a_duration_is_as_exact_as_is_of_use(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_rendering_changes_no_fact() -> None:
    facts = troubled()
    before = deepcopy(facts)
    document(facts, NOW)
    assert facts == before
