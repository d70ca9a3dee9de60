"""The deletion governor: what it permits over time, what survives a restart, what people see."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ccm.bus.control import ControlServer
from ccm.bus.frames import ProposeDeletions
from ccm.cli.deletions import deletions
from ccm.decide.deletion import NodeFacts, Policy
from ccm.settings import parse
from ccm.supervisor.deletion_state import read_state
from ccm.supervisor.deletions import Governor, Views, policy_of

POLICY = Policy(period=5.0, limit=10, limit_percent=10.0, window=600.0, vanish_share=0.3)
NOT_READY = NodeFacts("", is_ready=False, is_foreign=False, has_provider_id=True)


@dataclass
class Site:
    """A cluster as the supervisor sees it, its clock, and the governor with its state file."""

    path: Path
    policy: Policy = POLICY
    now: float = 1000.0
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    warnings: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        views = Views(self.nodes.get, lambda: len(self.nodes))
        self.governor = Governor(
            self.policy,
            self.path,
            views,
            lambda reason, message: self.warnings.append((reason, message)),
            lambda: self.now,
        )

    def fill(self, count: int) -> "Site":
        for number in range(count):
            self.nodes[f"n{number}"] = replace(NOT_READY, uid=f"u{number}", is_ready=True)
        return self

    def change(self, name: str, **facts: Any) -> None:
        self.nodes[name] = replace(self.nodes[name], **facts)

    def round(
        self, gone: Iterable[str] = (), not_gone: Iterable[str] = (), worker: str = "node-0.1"
    ) -> list[str]:
        """The names permitted after a round in which the cloud answers right now."""
        entries = [[name, self.nodes[name].uid, "no such machine", self.now] for name in gone]
        names = list(not_gone)
        message = ProposeDeletions(len(entries) + len(names), entries, names)
        return [entry[0] for entry in self.governor.hear(worker, message).nodes]

    def later(self, seconds: float = 5.0) -> "Site":
        self.now += seconds
        return self

    def kill(self, *names: str) -> "Site":
        for name in names:
            self.change(name, is_ready=False)
        return self

    def why(self, name: str) -> str:
        found = [c for c in self.facts()["candidates"] if c["node"] == name]
        return str(found[0]["reason"]) if found else ""

    def facts(self) -> dict[str, Any]:
        """What a person gets: it must be JSON at any time."""
        facts: dict[str, Any] = orjson.loads(orjson.dumps(self.governor.facts(self.now)))
        return facts


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "deletions.json")


def names(count: int, first: int = 0) -> list[str]:
    return [f"n{number}" for number in range(first, first + count)]


# A machine that is gone.


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_terminated_machine_goes_with_the_second_round(site: Site, size: int) -> None:
    site.fill(size).kill("n0")
    assert site.round(["n0"]) == []
    assert site.later().round(["n0"]) == ["n0"]


def test_a_permit_names_the_uid_and_the_evidence(site: Site) -> None:
    site.fill(3).kill("n0").round(["n0"])
    message = ProposeDeletions(1, [["n0", "u0", "no such machine", site.later().now]], [])
    assert site.governor.hear("node-0.1", message).nodes == [["n0", "u0", "no such machine"]]


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(lambda site: site.round(not_gone=["n0"]), id="the-cloud-said-otherwise"),
        pytest.param(
            lambda site: (
                site.round(not_gone=["n0"], worker="node-1.1"),
                site.governor.forget("node-1.1"),
            ),
            id="to-another-worker",
        ),
        pytest.param(lambda site: site.round(), id="a-round-without-a-word-of-it"),
        pytest.param(lambda site: site.governor.forget("node-0.1"), id="the-worker-ended"),
        pytest.param(lambda site: site.restart(), id="the-supervisor-restarted"),
        pytest.param(lambda site: site.change("n0", uid="new"), id="it-was-created-anew"),
        pytest.param(lambda site: site.later(60.0), id="silence"),
        pytest.param(
            lambda site: site.governor.hear("node-0.1", ProposeDeletions(1, [["n0"]], [])),
            id="the-worker-talked-nonsense",
        ),
    ],
)
def test_whatever_breaks_the_evidence_starts_it_over(
    site: Site, between: Callable[[Site], object]
) -> None:
    site.fill(9).kill("n0").round(["n0"])
    between(site.later(2.5))
    assert site.later(2.5).round(["n0"]) == []
    assert site.later().round(["n0"]) == ["n0"]


def test_the_end_of_another_worker_breaks_no_evidence(site: Site) -> None:
    site.fill(9).kill("n0").round(["n0"])
    site.governor.forget("node-1.1")
    assert site.later().round(["n0"]) == ["n0"]


def test_a_node_that_was_ready_for_a_moment_starts_over(site: Site) -> None:
    site.fill(9).kill("n0").round(["n0"])
    site.change("n0", is_ready=True)
    site.later(2.0).round(worker="node-1.1")
    site.kill("n0")
    site.later(3.0).round(worker="node-1.1")
    assert site.round(["n0"]) == []
    assert site.why("n0") == "not-confirmed"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        pytest.param({"is_ready": True}, "ready", id="ready"),
        pytest.param({"is_foreign": True}, "foreign", id="foreign"),
        pytest.param({"has_provider_id": False}, "no-provider-id", id="no-provider-id"),
    ],
)
def test_a_node_that_is_not_ours_to_delete_stays_for_ever(
    site: Site, facts: dict[str, bool], why: str
) -> None:
    site.fill(3).kill("n0").change("n0", **facts)
    for _ in range(10):
        assert site.later().round(["n0"]) == []
    assert site.why("n0") == why


def test_a_worker_gets_permits_only_for_its_own_proposals(site: Site) -> None:
    site.fill(9).kill("n0").round(["n0"])
    assert site.later().round(worker="node-1.1") == []
    assert site.later().round(["n0"], worker="node-1.1") == []


def test_another_worker_that_has_not_looked_since_is_waited_for_but_not_for_ever(
    site: Site,
) -> None:
    site.fill(9).kill("n0").round(worker="node-1.1")
    site.later(1.0).round(["n0"])
    assert site.later().round(["n0"]) == []
    assert site.why("n0") == "workers-not-heard"
    for _ in range(10):
        assert site.later().round(["n0"]) == []
    assert site.later().round(["n0"]) == ["n0"]


# Once, and within the budget.


def test_a_permit_is_good_once_and_another_needs_two_new_answers(site: Site) -> None:
    site.fill(3).kill("n0").round(["n0"])
    assert site.later().round(["n0"]) == ["n0"]
    assert site.round(["n0"]) == []
    assert site.later().round(["n0"]) == []
    assert site.later().round(["n0"]) == ["n0"]
    assert site.facts()["budget"]["left"] == 9


def test_a_deletion_that_failed_is_not_stopped_by_its_own_permit(tmp_path: Path) -> None:
    site = Site(tmp_path / "deletions.json", replace(POLICY, limit=1)).fill(9).kill("n0", "n1")
    site.round(["n0"])
    assert site.later().round(["n0"]) == ["n0"]
    site.later().round(["n0", "n1"])
    assert site.later().round(["n0", "n1"]) == ["n0"]


def test_no_more_nodes_go_in_a_window_than_the_limit(site: Site) -> None:
    site.fill(100).kill(*names(12)).round(names(12))
    first = site.later().round(names(12))
    assert len(first) == 10
    for name in first:
        del site.nodes[name]
    left = [name for name in names(12) if name not in first]
    assert site.later().round(left) == []
    assert site.why(left[0]) == "budget"
    assert site.later(595.0).round(left) == []  # a silence on the way
    assert site.later().round(left) == left


def test_permits_of_the_last_window_count_as_new_after_a_restart(site: Site) -> None:
    site.fill(100).kill(*names(12)).round(names(12))
    gone = site.later().round(names(12))
    left = [name for name in names(12) if name not in gone]
    site.later(500.0).restart()
    assert site.facts()["budget"]["left"] == 0
    site.later(500.0).round(left)
    assert site.later().round(left) == []
    site.later(95.0).round(left)
    assert site.later().round(left) == left


def test_permits_that_are_over_do_not_come_back_with_a_restart(site: Site) -> None:
    site.fill(100).kill("n0").round(["n0"])
    assert site.later().round(["n0"]) == ["n0"]
    site.later(600.0).round()
    site.restart()
    assert site.facts()["budget"]["left"] == 10


# Many at once.


def shards_report(site: Site, *gone: list[str]) -> list[str]:
    """One round of each worker; what they were permitted together."""
    return [
        name
        for number, part in enumerate(gone)
        for name in site.round(part, worker=f"node-{number}.1")
    ]


def test_many_gone_at_once_over_all_workers_hold_every_deletion(site: Site) -> None:
    site.fill(100).kill(*names(31))
    for _ in range(20):
        assert shards_report(site.later(), names(16), names(15, first=16)) == []
    assert site.why("n0") == "many-vanished"
    assert site.facts()["counts"]["held"] == 31
    assert [reason for reason, _ in site.warnings] == ["NodeDeletionsHeld"]
    assert "31 of 100" in site.warnings[0][1]


def test_a_second_worker_that_reports_the_rest_of_the_mass_comes_in_time(site: Site) -> None:
    site.fill(100).kill(*names(40))
    site.round(worker="node-1.1")
    site.later(1.0).round(names(20))
    assert site.later().round(names(20)) == []  # the second worker was not heard since
    site.later(0.1).round(names(20, first=20), worker="node-1.1")
    assert site.later().round(names(20)) == []
    assert site.why("n0") == "many-vanished"


def test_the_hold_ends_after_calm_rounds_and_needs_new_answers(site: Site) -> None:
    site.fill(100).kill(*names(31))
    shards_report(site, names(16), names(15, first=16))
    for _ in range(3):
        assert site.facts()["held"]
        assert site.later().round(["n0"], not_gone=names(15, first=1)) == []
        site.round(not_gone=names(15, first=16), worker="node-1.1")
    assert site.facts()["held"] == ""
    assert shards_report(site.later(), ["n0"], []) == []
    assert shards_report(site.later(), ["n0"], []) == ["n0"]


def test_a_worker_that_crashes_does_not_end_the_hold(site: Site) -> None:
    site.fill(100).kill(*names(31))
    shards_report(site, names(16), names(15, first=16))
    site.governor.forget("node-1.1")
    for _ in range(4):
        assert site.later().round(names(16)) == []
    assert site.facts()["held"]


def test_nodes_deleted_a_moment_ago_still_count_as_vanished(site: Site) -> None:
    site.fill(10).kill(*names(6)).round(names(3))
    for name in site.later().round(names(3)):
        del site.nodes[name]
    site.later().round(names(3, first=3))
    assert site.later().round(names(3, first=3)) == []
    assert "6 of 10" in site.warnings[0][1]


def test_allow_accepts_what_is_gone_now_and_doubts_what_vanishes_later(site: Site) -> None:
    site.fill(100).kill(*names(90)).round(names(40))
    site.governor.allow()
    assert site.later().round(names(40)) == []
    assert len(site.later().round(names(40))) == 10
    site.later().round(names(80))
    assert site.later().round(names(80)) == []
    assert [reason for reason, _ in site.warnings] == ["NodeDeletionsHeld"] * 2


def test_a_node_that_came_back_is_doubted_again(site: Site) -> None:
    site.fill(6).kill(*names(2)).round(names(2))
    site.governor.allow()
    site.later().round(not_gone=names(2))
    site.later().round(names(2))
    assert site.facts()["held"]


def test_allow_accepts_no_node_that_is_not_gone(site: Site) -> None:
    site.fill(6).kill(*names(2)).round(names(2))
    site.later().round(not_gone=names(2))
    site.governor.allow()
    site.later().round(names(2))
    assert site.facts()["held"]


def test_allow_does_not_accept_a_node_that_is_created_anew_later(site: Site) -> None:
    site.fill(6).kill(*names(2)).round(names(2))
    site.governor.allow()
    for name in names(2):
        site.change(name, uid=f"new-{name}")
    site.later().round(names(2))
    assert site.facts()["held"]


# The freeze, and the file.


def test_a_freeze_outlives_a_restart_until_it_is_lifted(site: Site) -> None:
    site.fill(3).kill("n0")
    site.governor.freeze("network audit", "ada")
    site.restart()
    for _ in range(3):
        assert site.later().round(["n0"]) == []
    assert site.why("n0") == "frozen"
    assert site.facts()["frozen"]["why"] == "network audit"
    assert site.facts()["frozen"]["by"] == "ada"
    site.governor.allow()
    site.restart()
    assert site.facts()["frozen"] is None
    site.later().round(["n0"])
    assert site.later().round(["n0"]) == ["n0"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b'{"freeze": null}',
     b'{"freeze": null, "permitted": {}}', b'{"freeze": null, "permitted": [1]}',
     b'{"freeze": "yes", "permitted": []}', b'{"freeze": {"why": "x"}, "permitted": []}',
     b'{"freeze": false, "permitted": []}'],
)  # fmt: skip
def test_a_state_file_that_is_not_understood_freezes_until_allow_writes_it_anew(
    site: Site, content: bytes
) -> None:
    site.path.write_bytes(content)
    site.restart()
    site.fill(3).kill("n0").round(["n0"])
    assert site.later().round(["n0"]) == []
    assert "cannot be read" in site.facts()["frozen"]["why"]
    assert site.path.read_bytes() == content
    site.governor.allow()
    assert site.later().round(["n0"]) == ["n0"]
    assert read_state(site.path).permitted == ("u0",)


def test_nothing_is_permitted_that_cannot_be_written_down(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    site = Site(tmp_path / "state" / "deletions.json").fill(3).kill("n0")
    (tmp_path / "state").unlink()
    site.governor.allow()
    site.round(["n0"])
    site.path.unlink()
    site.path.mkdir()  # now the file cannot be replaced
    assert site.later().round(["n0"]) == []
    assert "cannot be written" in site.facts()["trouble"]
    assert site.facts()["budget"]["left"] == 10
    assert site.why("n0") == "frozen"
    assert site.governor.answer({"action": "freeze"}).keys() == {"error"}
    assert site.governor.answer({"action": "allow"}).keys() == {"error"}
    assert site.facts()["frozen"], "an allow that is not kept lifts nothing"
    site.path.rmdir()
    assert site.governor.answer({"action": "allow"}).keys() == {"ok"}
    assert site.later().round(["n0"]) == ["n0"]


def test_a_disk_that_works_again_needs_nobody(site: Site) -> None:
    site.fill(3).kill("n0").round(["n0"])
    site.path.unlink()
    site.path.mkdir()
    assert site.later().round(["n0"]) == []
    site.path.rmdir()
    assert site.later().round(["n0"]) == ["n0"]


def test_a_permit_is_on_disk_before_the_worker_hears_of_it(site: Site) -> None:
    site.fill(3).kill("n0").round(["n0"])
    site.later().round(["n0"])
    assert read_state(site.path).permitted == ("u0",)
    assert site.path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in site.path.parent.iterdir()] == [site.path.name]


# Nonsense.

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)
ALMOST = st.lists(
    st.tuples(
        st.sampled_from(["n0", "n1", "", 3, None]),
        st.sampled_from(["u0", "u1", "", None]),
        st.text(max_size=2) | st.none(),
        st.floats() | st.integers() | st.just("1000") | st.booleans(),
    ).map(list),
    max_size=3,
)


@given(st.lists(st.tuples(ANYTHING, ANYTHING | ALMOST, ANYTHING), max_size=6))
@settings(max_examples=100, deadline=None)
def test_nonsense_from_a_worker_neither_deletes_nor_hurts(
    messages: list[tuple[Any, Any, Any]],
) -> None:
    with TemporaryDirectory() as place:
        site = Site(Path(place) / "deletions.json").fill(3).kill(*names(3))
        for message in messages:  # the clock stands still: nothing can be confirmed
            assert site.governor.hear("node-0.1", ProposeDeletions(*message)).nodes == []
        site.facts()


# Any history.

FRESH, SILENCE, LIMIT = 30.0, 60.0, 3


@dataclass(frozen=True)
class Word:
    """One thing that was said of a Node, as a stranger would write it down."""

    heard: float
    uid: str
    worker: str
    is_gone: bool
    answered: float


class AnyHistory(RuleBasedStateMachine):
    """Random answers, readiness, restarts and time; each permit is checked against the log."""

    def __init__(self) -> None:
        super().__init__()
        self.place = TemporaryDirectory()
        policy = replace(POLICY, limit=LIMIT, vanish_share=0.5)
        self.site = Site(Path(self.place.name) / "deletions.json", policy)
        self.starts = {"a": 1, "b": 1}
        self.log: dict[str, list[Word]] = {}
        self.rounds: set[tuple[float, str]] = set()
        self.seen_ready: dict[str, float] = {}
        self.used: dict[str, float] = {}  # UID → last permit or end of its worker
        self.accepted: set[str] = set()
        self.permitted: list[tuple[float, str]] = []
        self.is_frozen = False
        self.serial = 0

    def teardown(self) -> None:
        self.place.cleanup()

    def create(self, name: str) -> None:
        self.serial += 1
        self.site.nodes[name] = replace(NOT_READY, uid=f"uid-{self.serial}")

    @initialize(size=st.integers(1, 8))
    def begin(self, size: int) -> None:
        for name in names(size):
            self.create(name)

    @rule(seconds=st.sampled_from([0.1, 2.5, 4.9, 5.0, 20.0, 59.9, 61.0, 599.0]))
    def time_passes(self, seconds: float) -> None:
        self.site.later(seconds)

    @rule(number=st.integers(0, 8), what=st.sampled_from(["", "ready", "foreign", "without id"]))
    def a_node_changes(self, number: int, what: str) -> None:
        name = f"n{number}"
        if not what or name not in self.site.nodes:
            self.create(name)
        elif what == "ready":
            self.site.change(name, is_ready=not self.site.nodes[name].is_ready)
        elif what == "foreign":
            self.site.change(name, is_foreign=not self.site.nodes[name].is_foreign)
        else:
            has_id = self.site.nodes[name].has_provider_id
            self.site.change(name, has_provider_id=not has_id)

    @rule(shard=st.sampled_from("ab"))
    def a_worker_restarts(self, shard: str) -> None:
        worker = self.worker(shard)
        self.site.governor.forget(worker)
        self.starts[shard] += 1

    @rule()
    def the_supervisor_restarts(self) -> None:
        self.site.restart()
        self.log, self.seen_ready, self.accepted = {}, {}, set()
        self.rounds = set()

    @rule(freezes=st.sampled_from([True, False, False]))
    def a_person_decides(self, freezes: bool) -> None:
        self.is_frozen = freezes
        if freezes:
            self.site.governor.freeze("test")
        else:
            self.site.governor.allow()
            self.accepted |= self.vanished()

    @rule(
        shard=st.sampled_from("ab"),
        words=st.lists(st.sampled_from(["gone", "gone", "gone", "else", "left out"]), min_size=9,
                       max_size=9),
        ages=st.lists(st.sampled_from([0.0, 0.0, 0.0, 3.0, 29.0, 31.0, -1.0]), min_size=9,
                      max_size=9),
        is_deleted=st.booleans(),
    )  # fmt: skip
    def a_round(self, shard: str, words: list[str], ages: list[float], is_deleted: bool) -> None:
        self.hear(shard, dict(zip(names(9), words, strict=True)), ages, is_deleted)

    @precondition(lambda self: self.site.nodes)
    @rule(data=st.data(), rounds=st.integers(2, 4))
    def a_machine_is_gone(self, data: st.DataObject, rounds: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.site.nodes)))
        for _ in range(rounds):
            self.site.later()
            for shard in "ab":
                self.hear(shard, {name: "gone"}, [0.0] * 9, False)

    # What happens, written down independently of the code under test.

    def worker(self, shard: str) -> str:
        return f"{shard}.{self.starts[shard]}"

    def owned(self, shard: str, name: str) -> bool:
        return "ab"[int(name[1:]) % 2] == shard

    def hear(self, shard: str, words: dict[str, str], ages: list[float], deletes: bool) -> None:
        now, worker = self.site.now, self.worker(shard)
        gone: list[list[Any]] = []
        not_gone: list[str] = []
        for (name, word), age in zip(words.items(), ages, strict=False):
            facts = self.site.nodes.get(name)
            if facts is None or not self.owned(shard, name) or word == "left out":
                continue
            if word == "gone":
                gone.append([name, facts.uid, "no such machine", now - age])
            else:
                not_gone.append(name)
            said = Word(now, facts.uid, worker, word == "gone", now - age)
            self.log.setdefault(name, []).append(said)
        self.accepted &= self.vanished()
        for name, facts in self.site.nodes.items():
            if facts.is_ready:
                self.seen_ready[name] = now
        message = ProposeDeletions(len(gone) + len(not_gone), gone, not_gone)
        permits = self.site.governor.hear(worker, message).nodes
        self.rounds.add((now, worker))
        proposed = {entry[0] for entry in gone}
        for name, uid, _ in permits:
            self.check(name, uid, proposed)
            self.permitted.append((now, uid))
            self.used[uid] = now
            if deletes:
                del self.site.nodes[name]
        window = {uid for at, uid in self.permitted if now - at < self.site.policy.window}
        assert not permits or len(window) <= LIMIT
        assert len(permits) == len({name for name, _, _ in permits})

    def vanished(self) -> set[str]:
        """Nodes last said to be gone, less than a silence ago."""
        last = {name: words[-1] for name, words in self.log.items()}
        return {
            name
            for name, word in last.items()
            if word.is_gone and self.site.now - word.heard < SILENCE
        }

    def check(self, name: str, uid: str, proposed: set[str]) -> None:
        facts, now = self.site.nodes[name], self.site.now
        assert name in proposed
        assert facts == replace(NOT_READY, uid=uid)
        assert not self.is_frozen
        doubted = self.vanished() - self.accepted
        total = len(self.site.nodes.keys() | doubted)
        assert len(doubted) <= max(1, 0.5 * total)
        assert any(self.is_confirmed(name, word) for word in self.log[name] if word.heard == now)

    def is_confirmed(self, name: str, second: Word) -> bool:
        return any(
            self.is_evidence(first, second)
            and not any(
                not word.is_gone and first.answered <= word.heard <= second.heard
                for word in self.log[name]
            )
            and not first.heard <= self.seen_ready.get(name, 0.0) <= second.heard
            and self.used.get(first.uid, 0.0) < first.answered
            and self.is_unbroken(name, first, second)
            and self.is_in_every_round(name, first, second)
            for first in self.log[name]
        )

    def is_in_every_round(self, name: str, first: Word, second: Word) -> bool:
        spoken = {word.heard for word in self.log[name] if word.worker == first.worker}
        return all(
            at in spoken
            for at, worker in self.rounds
            if worker == first.worker and first.heard <= at <= second.heard
        )

    @staticmethod
    def is_evidence(first: Word, second: Word) -> bool:
        return (
            all(w.is_gone and 0 <= w.heard - w.answered <= FRESH for w in (first, second))
            and (first.uid, first.worker) == (second.uid, second.worker)
            and second.answered - first.answered >= POLICY.period - 1e-9
        )

    def is_unbroken(self, name: str, first: Word, second: Word) -> bool:
        times = sorted(
            word.answered
            for word in self.log[name]
            if word.is_gone and first.answered <= word.answered <= second.answered
        )
        return all(b - a <= SILENCE for a, b in pairwise(times))


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


STEPS = st.integers(0, 5 * 64).map(lambda n: n / 64)  # exact in binary


@given(
    size=st.integers(1, 50),
    phases=st.lists(STEPS, min_size=1, max_size=4),
    latency=st.integers(0, 2 * 64).map(lambda n: n / 64),
    place=st.sampled_from([0.0, 0.5, 1.0]),
    turned=STEPS,
)
@settings(max_examples=100, deadline=None)
def test_a_terminated_machine_goes_within_two_periods_and_a_round(
    size: int, phases: list[float], latency: float, place: float, turned: float
) -> None:
    period = POLICY.period + latency  # upstream's: the pause counts from the end of a round
    with TemporaryDirectory() as directory:
        site = Site(Path(directory) / "deletions.json").fill(size)
        died = site.now + 20.0 + turned
        starts = sorted(
            (site.now + phase + number * period, shard)
            for shard, phase in enumerate(phases)
            for number in range(20)
        )
        for start, shard in starts:
            site.now = start + latency
            if start >= died:
                site.kill("n0")
            is_asked = shard == 0 and start >= died
            gone = [["n0", "u0", "no such machine", start + place * latency]] if is_asked else []
            message = ProposeDeletions(len(gone), gone, [])
            if site.governor.hear(f"node-{shard}.1", message).nodes:
                assert site.now <= died + 2 * period + latency
                return
    raise AssertionError("it was never permitted")


# What people type and see.


def test_the_policy_is_what_the_flags_say() -> None:
    texts: dict[str, str | None] = {"cloud_provider": "simulated"}
    assert policy_of(parse(texts)) == POLICY
    texts |= {"node_deletion_limit": "3", "node_monitor_period": "1m", "node_vanish_share": "0.5"}
    assert policy_of(parse(texts)) == Policy(60.0, 3, 0.0, 600.0, 0.5)


async def typed(site: Site, runtime: Path, *words: str) -> Result:
    """What `ccm-supervisor deletions …` prints, over a real control socket."""

    async def reply(request: dict[str, Any]) -> dict[str, Any]:
        assert request["command"] == "deletions"
        return site.governor.answer(request)

    server = ControlServer(runtime / "control.sock", reply)
    await server.start()
    try:
        return await asyncio.to_thread(CliRunner().invoke, deletions, list(words))
    finally:
        server.close()


async def test_a_person_sees_and_switches_deletions(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "ada")
    site.fill(3).kill("n0").round(["n0"])
    here = f"--runtime-dir={tmp_path}"
    shown = await typed(site, tmp_path, here)
    assert shown.output.splitlines() == [
        "allowed",
        "budget: 10 of 10 left in 10m",
        "since the start: 1 proposed, 0 permitted",
        "  n0  not yet: not-confirmed, not before 5s from now",
    ]
    frozen = await typed(site, tmp_path, "freeze", "--reason", "audit", here)
    assert "no node is deleted" in frozen.output
    assert " by ada: audit" in (await typed(site, tmp_path, here)).output.splitlines()[0]
    allowed = await typed(site, tmp_path, here, "allow")
    assert allowed.exit_code == 0, allowed.output
    assert site.facts()["frozen"] is None


async def test_a_freeze_that_is_not_kept_is_told_as_a_failure(site: Site, tmp_path: Path) -> None:
    site.path.unlink()
    site.path.mkdir()
    result = await typed(site, tmp_path, "freeze", f"--runtime-dir={tmp_path}")
    assert result.exit_code == 2
    assert "a restart may forget it" in result.output
    shown = await typed(site, tmp_path, f"--runtime-dir={tmp_path}")
    assert "stopped: the state file" in shown.output


def test_an_unknown_action_says_which_there_are(site: Site) -> None:
    assert "show, freeze or allow" in site.governor.answer({"action": "melt"})["error"]
