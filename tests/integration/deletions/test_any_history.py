"""Any history of answers, restarts and time: each permit is checked against an independent log."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ccm.bus.frames import ProposeDeletions
from tests.support.properties import examples

from .cluster import NOT_READY, POLICY, Cluster, names

GONE = ("gone", "ended")
FRESH, SILENCE, LIMIT, CONFIRMATION = 30.0, 60.0, 3, 7.5


@dataclass(frozen=True)
class Word:
    """One thing that was said of a Node, as a stranger would write it down."""

    heard: float
    uid: str
    worker: str
    is_gone: bool
    answered: float
    has_id: bool
    is_final: bool = False


class AnyHistory(RuleBasedStateMachine):
    """Random answers, readiness, restarts and time; each permit is checked against the log."""

    def __init__(self) -> None:
        super().__init__()
        self.place = TemporaryDirectory()
        policy = replace(POLICY, confirmation=CONFIRMATION, limit=LIMIT, vanish_share=0.5)
        self.cluster = Cluster(Path(self.place.name) / "deletions.json", policy)
        self.starts = {"a": 1, "b": 1}
        self.log: dict[str, list[Word]] = {}
        self.passes: set[tuple[float, str]] = set()
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
        self.cluster.nodes[name] = replace(NOT_READY, uid=f"uid-{self.serial}")

    @initialize(size=st.integers(1, 8))
    def begin(self, size: int) -> None:
        for name in names(size):
            self.create(name)

    @rule(seconds=st.sampled_from([0.1, 2.5, 4.9, 5.0, 20.0, 59.9, 61.0, 599.0]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    @rule(number=st.integers(0, 8), what=st.sampled_from(["", "ready", "foreign", "without id"]))
    def a_node_changes(self, number: int, what: str) -> None:
        name = f"n{number}"
        if not what or name not in self.cluster.nodes:
            self.create(name)
        elif what == "ready":
            self.cluster.change(name, is_ready=not self.cluster.nodes[name].is_ready)
        elif what == "foreign":
            self.cluster.change(name, is_foreign=not self.cluster.nodes[name].is_foreign)
        else:
            has_id = self.cluster.nodes[name].has_provider_id
            self.cluster.change(name, has_provider_id=not has_id)

    @rule(shard=st.sampled_from("ab"))
    def a_worker_restarts(self, shard: str) -> None:
        worker = self.worker(shard)
        self.cluster.governor.forget(worker)
        self.starts[shard] += 1

    @rule()
    def the_supervisor_restarts(self) -> None:
        self.cluster.restart()
        self.log, self.seen_ready, self.accepted = {}, {}, set()
        self.used, self.passes = {}, set()

    @rule(freezes=st.sampled_from([True, False, False]))
    def a_person_decides(self, freezes: bool) -> None:
        self.is_frozen = freezes
        if freezes:
            self.cluster.ask("freeze")
        else:
            self.cluster.ask("allow")
            self.accepted |= self.vanished()

    @rule(
        shard=st.sampled_from("ab"),
        words=st.lists(st.sampled_from(["gone"] * 3 + ["ended", "else", "left out"]), min_size=9,
                       max_size=9),
        ages=st.lists(st.sampled_from([0.0, 0.0, 0.0, 3.0, 29.0, 31.0, -1.0]), min_size=9,
                      max_size=9),
        is_deleted=st.booleans(),
    )  # fmt: skip
    def a_pass(self, shard: str, words: list[str], ages: list[float], is_deleted: bool) -> None:
        self.on_message(shard, dict(zip(names(9), words, strict=True)), ages, is_deleted)

    @precondition(lambda self: self.cluster.nodes)
    @rule(data=st.data(), passes=st.integers(2, 4))
    def a_machine_is_gone(self, data: st.DataObject, passes: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster.nodes)))
        for _ in range(passes):
            self.cluster.advance()
            for shard in "ab":
                self.on_message(shard, {name: "gone"}, [0.0] * 9, False)

    # What happens, written down independently of the code under test.

    def worker(self, shard: str) -> str:
        return f"{shard}.{self.starts[shard]}"

    def owned(self, shard: str, name: str) -> bool:
        return "ab"[int(name[1:]) % 2] == shard

    def on_message(
        self, shard: str, words: dict[str, str], ages: list[float], deletes: bool
    ) -> None:
        now, worker = self.cluster.now, self.worker(shard)
        gone: list[list[Any]] = []
        not_gone: list[str] = []
        for (name, word), age in zip(words.items(), ages, strict=False):
            status = self.cluster.nodes.get(name)
            if status is None or not self.owned(shard, name) or word == "left out":
                continue
            if word in GONE:
                gone.append([name, status.uid, "no such machine", now - age, word == "ended"])
            else:
                not_gone.append(name)
            said = Word(
                *(now, status.uid, worker, word in GONE, now - age, status.has_provider_id),
                is_final=word == "ended",
            )
            self.log.setdefault(name, []).append(said)
        self.accepted &= self.vanished()
        for name, status in self.cluster.nodes.items():
            if status.is_ready:
                self.seen_ready[name] = now
        message = ProposeDeletions(len(gone) + len(not_gone), gone, not_gone)
        permits = self.cluster.governor.on_message(worker, message).nodes
        self.passes.add((now, worker))
        proposed = {entry[0] for entry in gone}
        for name, uid, _ in permits:
            self.check(name, uid, proposed)
            self.permitted.append((now, name))
            self.used[uid] = now
            if deletes:
                del self.cluster.nodes[name]
        window = {name for at, name in self.permitted if now - at < self.cluster.policy.window}
        assert not permits or len(window) <= LIMIT
        assert len(permits) == len({name for name, _, _ in permits})

    def vanished(self) -> set[str]:
        """Nodes last said to be gone, less than a silence ago."""
        last = {name: words[-1] for name, words in self.log.items()}
        return {
            name
            for name, word in last.items()
            if word.is_gone and self.cluster.now - word.heard < SILENCE
        }

    def check(self, name: str, uid: str, proposed: set[str]) -> None:
        status, now = self.cluster.nodes[name], self.cluster.now
        assert name in proposed
        assert status == replace(NOT_READY, uid=uid)
        assert not self.is_frozen
        matched = {name for name, words in self.log.items() if words[-1].has_id}
        doubted = (self.vanished() & matched) - self.accepted
        total = len(self.cluster.nodes.keys() | doubted)
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
            and self.is_in_every_pass(name, first, second)
            for first in self.log[name]
        )

    def is_in_every_pass(self, name: str, first: Word, second: Word) -> bool:
        spoken = {word.heard for word in self.log[name] if word.worker == first.worker}
        return all(
            at in spoken
            for at, worker in self.passes
            if worker == first.worker and first.heard <= at <= second.heard
        )

    @staticmethod
    def is_evidence(first: Word, second: Word) -> bool:
        return (
            all(w.is_gone and 0 <= w.heard - w.answered <= FRESH for w in (first, second))
            and (first.uid, first.worker) == (second.uid, second.worker)
            and (second.is_final or second.answered - first.answered >= CONFIRMATION - 1e-9)
        )

    def is_unbroken(self, name: str, first: Word, second: Word) -> bool:
        times = sorted(
            word.answered
            for word in self.log[name]
            if word.is_gone and first.answered <= word.answered <= second.answered
        )
        return all(b - a <= SILENCE for a, b in pairwise(times))


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = examples(60, stateful_step_count=30)


STEPS = st.integers(0, 5 * 64).map(lambda n: n / 64)  # exact in binary


@given(
    size=st.integers(1, 50),
    phases=st.lists(STEPS, min_size=1, max_size=4),
    latency=st.integers(0, 2 * 64).map(lambda n: n / 64),
    place=st.sampled_from([0.0, 0.5, 1.0]),
    turned=STEPS,
)
def test_a_terminated_machine_goes_within_two_periods_and_a_pass(
    size: int, phases: list[float], latency: float, place: float, turned: float
) -> None:
    period = POLICY.period + latency  # upstream's: the pause counts from the end of a pass
    with TemporaryDirectory() as directory:
        cluster = Cluster(Path(directory) / "deletions.json").fill(size)
        died = cluster.now + 20.0 + turned
        starts = sorted(
            (cluster.now + phase + number * period, shard)
            for shard, phase in enumerate(phases)
            for number in range(20)
        )
        for start, shard in starts:
            cluster.now = start + latency
            if start >= died:
                cluster.kill("n0")
            is_asked = shard == 0 and start >= died
            gone = (
                [["n0", "u0", "no such machine", start + place * latency, False]]
                if is_asked
                else []
            )
            message = ProposeDeletions(len(gone), gone, [])
            if cluster.governor.on_message(f"node-{shard}.1", message).nodes:
                assert cluster.now <= died + 2 * period + latency
                return
    raise AssertionError("it was never permitted")


# What a worker may send that is not a pass.

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
        st.just(False) | st.none(),
    ).map(list),
    max_size=3,
)


@given(st.lists(st.tuples(ANYTHING, ANYTHING | ALMOST, ANYTHING), max_size=6))
def test_nonsense_from_a_worker_neither_deletes_nor_hurts(
    messages: list[tuple[Any, Any, Any]],
) -> None:
    with TemporaryDirectory() as place:
        cluster = Cluster(Path(place) / "deletions.json").fill(3).kill(*names(3))
        for message in messages:  # the clock stands still: nothing can be confirmed
            assert cluster.governor.on_message("node-0.1", ProposeDeletions(*message)).nodes == []
        cluster.status()
