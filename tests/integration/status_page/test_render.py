"""From a status to HTML: each section, odd values, names that are code, and size."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.decide.deletion import Reason
from ccm.supervisor.https.status_html import duration, element
from ccm.supervisor.https.status_sections import MEANINGS
from tests.docs.pages import DOCS, leads_somewhere
from tests.support.properties import examples

from .statuses import (
    altered,
    balancer,
    news,
    paths,
    problems_of,
    read,
    rendered,
    status,
    troubled,
    with_named,
    worker,
)

PROBLEMS = "Problems"
CODE = """</td><script>alert('x')</script><img src=x onerror="alert(1)"> & &lt; "' """


def test_a_healthy_supervisor_has_no_problem() -> None:
    page = read(
        status(workers=[worker("node-0"), worker("service", services=[], load_balancers=0)])
    )
    assert page.title == "0 problems: blue, leader – ccm-supervisor"
    assert page.texts[PROBLEMS] == ["None is known."]


def test_problems_come_first_and_link_to_their_sections() -> None:
    page = read(troubled())
    assert page.title == "10 problems: blue, leader – ccm-supervisor"
    explain = "ccm-supervisor explain"
    critical = [
        "--cloud-config: is not there. Refused to start: node-1.",
        "The API server cannot be watched: refused. Kinds: Node.",
        f"the cloud knows no such machine. Failing for 1m30s: 1 Node (vm-77). {explain} node vm-77",
        "Deletions are stopped: the state file cannot be written",
        "Deletions have been on hold for 2m10s: 5 of 9 nodes vanished",
        "The cloud throttles: read calls pause (2.5 of 20 a second).",
        "No new token for node-controller: denied",
    ]
    warnings = [
        "rejected until it changes: no quota is left. Failing for 1m30s: 1 Service (default/web)."
        f" {explain} service default/web",
        "Deletions are frozen by alice since 2026-05-04T03:00:00+00:00: audit",
        f"1 object of volume-label in quarantine: pv-2. {explain} pv pv-2",
    ]
    symptoms = ["node-1: worker is failed.", "2 Nodes not initialized, one for 1m15s."]
    found = page.texts[PROBLEMS]
    assert [found.pop(1), found.pop(3)] == symptoms  # each after its cause
    assert found == [
        *(f"critical {sentence} what to do" for sentence in critical),
        *(f"warning {sentence} what to do" for sentence in warnings),
    ]
    anchors = {concern.anchor for concern in problems_of(troubled())}
    assert anchors <= page.headings.keys()
    everywhere = {*page.headings, "leadership"}
    checks = {"leaderElection": "late", "watches": "old", "freshness": "old", "progress": "stuck"}
    assert {it.anchor for it in problems_of({"failing_checks": checks})} <= everywhere


def test_every_problem_links_to_a_paragraph_that_is_there() -> None:
    pages = {problem.page for problem in problems_of(troubled())}
    assert [page for page in pages if not leads_somewhere(DOCS / "README.md", page)] == []


def test_without_an_address_there_is_no_link_to_the_documents() -> None:
    assert "wiki.local" not in rendered(troubled() | {"docs_url": ""})
    assert '<a href="https://wiki.local/ccm/deletion.md">' in rendered(troubled())


@pytest.mark.parametrize(("seconds", "is_reported"), [(59.0, False), (61.0, True)])
def test_an_uninitialized_node_is_a_problem_after_a_minute(
    seconds: float, is_reported: bool
) -> None:
    facts = status(uninitialized_nodes={"count": 1, "first": {"vm-1": seconds}})
    assert bool(list(problems_of(facts))) is is_reported


def test_each_worker_is_a_row() -> None:
    leaving = {"successor_pid": 4712, "restarts": 3, "queue": {"ready": 1200}}
    page = read(status(workers=[worker("node-0", failing=2, pending=5, **leaving)]))
    titles, row = page.rows["Workers"]
    assert dict(zip(titles, row, strict=True)) == {
        "Worker": "node-0",
        "State": "running",
        "For": "5m20s",
        "Process": "4711, 4712",
        "Restarts": "3",
        "Objects": "7",
        "Queue": "1,200",
        "Pending": "5",
        "Failing": "2",
        "Memory": "64 MiB",
        "Last heartbeat": "500ms ago",
    }


def test_a_worker_without_a_process_has_only_what_the_supervisor_knows() -> None:
    bare = {"name": "node-0", "state": "backoff", "state_seconds": 2.0, "restarts": 1}
    (_, row) = read(status(workers=[bare])).rows["Workers"]
    assert row == ["node-0", "backoff", "2s", "–", "1", *"–" * 5, "0s ago"]


def test_pending_nodes_have_reasons_and_the_longest_wait_is_first() -> None:
    ours = worker("node-0", reasons={"vm-1": "throttled", "vm-2": "denied"})
    facts = status(
        workers=[ours, worker("route", reasons={"vm-1": "waits for its provider ID"})],
        uninitialized_nodes={
            "count": 3,
            "first": {"vm-3": 30.0, "vm-2": 80.0, "vm-1": 9.0},
            "initialized_not_ready": 2,
        },
    )
    page = read(facts)
    assert page.texts["Pending nodes"] == [
        "Not initialized (tainted until the cloud knows them): 3 nodes.",
        "Not ready (initialized; their kubelets or network plugins report the reason): 2 nodes.",
    ]
    assert page.rows["Pending nodes"][1:] == [
        ["vm-2", "1m20s", "node-0", "denied"],
        ["vm-3", "30s", "–", "not reported yet"],
        ["vm-1", "9s", "node-0", "throttled"],
        ["vm-1", "9s", "route", "waits for its provider ID"],
    ]


def test_load_balancers_have_reasons_and_failing_ones_are_first() -> None:
    refusal = "rejected until it changes: no session affinity"
    facts = worker(
        "service",
        backends=9,
        load_balancers=3,
        reasons={"default/new": refusal, "default/api": "cannot update backends: 503"},
        services=[
            balancer("default/web", "refused", why="no quota", addresses=[], seconds_ago=None),
            balancer("default/api", addresses=["192.0.2.7", "lb.example"]),
        ],
    )
    page = read(status(workers=[facts, worker("route", reasons={"vm-1": "not a Service"})]))
    assert page.captions["Load balancers"].startswith("3 Services, failing first; 9 eligible nodes")
    assert page.rows["Load balancers"][1:] == [
        ["default/new", "pending", "–", "–", "–", refusal],
        ["default/web", "refused", "–", "–", "3", "no quota"],
        [
            "default/api",
            "ensured",
            "1m1s ago",
            "192.0.2.7, lb.example",
            "3",
            "cannot update backends: 503",
        ],
    ]


def test_a_candidate_for_deletion_has_the_reason_why_it_is_not_deleted() -> None:
    page = read(troubled())
    assert page.texts["Deletions of nodes"][-1] == (
        "Budget: 8 of 10 left in 10m. Since the start: 3 proposed, 2 permitted."
    )
    (_, row, foot) = page.rows["Deletions of nodes"]
    assert row[:4] == ["vm-2", "not yet", "1m30s", "budget"]
    assert row[4].endswith("Wait, or raise the limit.")
    assert foot == ["and 4 more"]
    assert {*map(str, Reason)} == MEANINGS.keys()


def test_a_class_of_calls_has_what_waits_for_it() -> None:
    (_, row) = read(troubled()).rows["Cloud budget"]
    assert row == ["read", "open", "2.5", "20", "39", "1,234", "3", "12", "4.4s"]


def test_decisions_of_all_workers_are_newest_first() -> None:
    first = worker("node-0", silent_seconds=10.0, recent=[news("vm-1", "denied", 1.0)])
    later = news("default/web", "it was: denied", 5.0, "recovered")
    facts = status(workers=[first, worker("service", silent_seconds=0.0, recent=[later])])
    assert read(facts).rows["Recent decisions"][1:] == [
        ["default/web", "5s ago", "service", "recovered", "it was: denied"],
        ["vm-1", "11s ago", "node-0", "failed", "denied"],
    ]


def test_quarantine_watches_volumes_and_identities_have_their_rows() -> None:
    page = read(troubled())
    assert page.rows["Quarantine"][1:] == [["pv-2", "volume-label", "in 10m40s"]]
    assert page.rows["Watches"][1:] == [["Node", "5,000", "1.3s ago", "1", "refused"]]
    assert page.texts["Watches"] == ["2 objects skipped: see the log."]
    assert page.rows["Pending volumes"][1:] == [["pv-1", "waits for the cloud"]]
    assert page.rows["Identities"][1:] == [["node-controller", "in 50m", "denied"]]


def test_leader_and_standby_are_distinguished() -> None:
    leads = rendered(troubled())
    assert "leader (8.2s left, renewed while it holds the lease)" in leads
    assert "<dd>migration: not held</dd>" in leads
    facts = status(
        leader={"is_leader": False, "decision": "backend-b leads", "identity": "backend-a"}
    )
    assert "standby</dd><dt>Decision</dt><dd>backend-b leads" in rendered(facts)


ODD_VALUES: list[Any] = [None, [], {}, "x", -1, 1e308, float("inf"), [7]]


@pytest.mark.parametrize("odd", [(), *zip(ODD_VALUES, strict=True)], ids=repr)
def test_an_odd_or_missing_value_anywhere_costs_no_one_the_page(odd: tuple[Any, ...]) -> None:
    status = troubled()
    for path in paths(status):
        assert rendered(altered(status, path, *odd)).endswith("</html>\n")
    read({})


def test_a_name_that_is_html_is_text() -> None:
    plain, hostile = read(with_named(troubled(), "x")), read(with_named(troubled(), CODE))
    assert hostile.tags == plain.tags
    assert {name for name, _ in hostile.attributes} == {name for name, _ in plain.attributes}
    assert {"script", "img"} & {*hostile.tags} == set()
    assert f"vm-77{CODE}" in {row[0] for row in hostile.rows["Pending nodes"]}
    assert f"default/api{CODE}" in {row[0] for row in hostile.rows["Load balancers"]}


@examples(50)
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
        worker(f"node-{number}", reasons=reasons, pending=2500, news=many) for number in range(2)
    ]
    services = [balancer(f"default/web-{number}", "refused", why=why) for number in range(20)]
    facts = status(
        workers=[*nodes, worker("service", services=services, load_balancers=500, backends=5000)],
        uninitialized_nodes={"count": 5000, "first": {f"vm-{number}": 9.0 for number in range(20)}},
        quarantined={"node": {f"vm-{number}": 9.0 for number in range(5000)}},
    )
    page = read(facts)
    assert len(rendered(facts)) < 100_000
    assert page.rows["Pending nodes"][-1] == ["and 4,960 more"]
    assert page.rows["Load balancers"][-1] == ["and 480 more"]
    assert page.rows["Quarantine"][-1] == ["and 4,950 more"]


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
def test_a_duration_has_a_useful_precision(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
