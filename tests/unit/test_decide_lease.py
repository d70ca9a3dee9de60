"""Who may lead: the table of one replica's decisions, and that two never act at once."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ccm.decide.lease import (
    AcquireLease,
    CreateLease,
    LeaderElectionRecord,
    LeaseAction,
    ObservedRecord,
    RenewLease,
    StandBy,
    decide,
    observe,
    permit_until,
)

DURATION, DEADLINE = 15.0, 10.0

OTHERS = LeaderElectionRecord(
    "other", DURATION, renewed="2020-01-01T00:00:00", transitions=3, version="7"
)
DELETED = replace(OTHERS, version="")


def seen(at: float, record: LeaderElectionRecord = OTHERS, **changes: Any) -> ObservedRecord:
    return ObservedRecord(replace(record, **changes), at)


@pytest.mark.parametrize(
    ("observed", "now", "expected"),
    [
        pytest.param(None, 100.0, CreateLease(), id="there-is-no-lease"),
        pytest.param(seen(100.0, holder=""), 100.0, AcquireLease("it was released"), id="released"),
        pytest.param(seen(0.0, holder="me"), 999.0, RenewLease(), id="ours"),
        pytest.param(seen(100.0), 100.0, StandBy("other", 15.0), id="just-seen"),
        pytest.param(seen(100.0), 114.0, StandBy("other", 1.0), id="nearly-over"),
        pytest.param(seen(100.0), 115.0, AcquireLease("other did not renew it for 15 s"),
                     id="just-over"),
        pytest.param(seen(100.0, duration=60.0), 130.0, StandBy("other", 30.0),
                     id="the-holders-own-duration-counts"),
        pytest.param(seen(100.0, DELETED), 114.0, StandBy("other", 1.0), id="deleted"),
        pytest.param(seen(100.0, DELETED), 115.0, CreateLease(), id="deleted-and-over"),
        pytest.param(seen(0.0, DELETED, holder="me"), 1.0, CreateLease(), id="ours-and-deleted"),
        pytest.param(seen(0.0, DELETED, holder=""), 1.0, CreateLease(), id="released-and-deleted"),
    ],
)  # fmt: skip
def test_a_replica_decides_by_what_it_saw_and_when(
    observed: ObservedRecord | None, now: float, expected: LeaseAction
) -> None:
    assert decide(observed, "me", now) == expected


@pytest.mark.parametrize(
    "stamp", ["1970-01-01T00:00:00", "2999-01-01T00:00:00", "", "not a time at all"]
)
def test_the_time_written_in_a_lease_decides_nothing(stamp: str) -> None:
    observed = observe(None, replace(OTHERS, renewed=stamp), 50.0)
    assert decide(observed, "me", 51.0) == StandBy("other", 14.0)


@pytest.mark.parametrize(
    ("change", "seen_at"),
    [
        pytest.param({"version": "8"}, 100.0, id="only-the-version"),
        pytest.param({"duration": 30.0, "version": "8"}, 100.0, id="only-the-duration"),
        pytest.param({"renewed": "later", "version": "8"}, 109.0, id="a-renewal"),
        pytest.param({"renewed": "earlier", "version": "8"}, 109.0, id="a-renewal-by-a-late-clock"),
        pytest.param({"holder": "third", "version": "8"}, 109.0, id="another-holder"),
        pytest.param({"transitions": 4, "version": "8"}, 109.0, id="another-term"),
    ],
)
def test_only_a_write_of_the_holder_makes_a_lease_fresh(
    change: dict[str, Any], seen_at: float
) -> None:
    assert observe(seen(100.0), replace(OTHERS, **change), 109.0) == seen(seen_at, **change)


def test_a_deleted_lease_is_remembered_as_it_was_last_seen() -> None:
    assert observe(seen(100.0), None, 109.0) == seen(100.0, DELETED)
    assert observe(None, None, 109.0) is None


def test_the_permit_counts_from_when_the_renewal_was_sent() -> None:
    assert permit_until(100.0, 10.0) == 110.0


# Two replicas that follow the decisions, on a store with compare-and-swap.


@dataclass
class Store:
    """The Lease on the API server; `version` changes with every write."""

    record: LeaderElectionRecord | None = None
    version: int = 0

    def write(self, base: str, record: LeaderElectionRecord) -> LeaderElectionRecord | None:
        """The record as stored, or None when it is not `base` any more that is replaced."""
        if base != (self.record.version if self.record else ""):
            return None
        self.version += 1
        self.record = replace(record, version=str(self.version))
        return self.record


@dataclass
class Sent:
    """A write that has left: what it replaces, what it says, when it left by its sender's clock."""

    base: str
    record: LeaderElectionRecord
    at: float


@dataclass
class Replica:
    """What one process knows. Its clocks are off by `offset` and `wall_offset`."""

    name: str
    offset: float
    wall_offset: float
    observed: ObservedRecord | None = None
    permit: float = float("-inf")
    sent: Sent | None = None

    def now(self, time: float) -> float:
        return time + self.offset

    def may_act(self, time: float) -> bool:
        return self.now(time) < self.permit

    def read(self, store: Store, time: float) -> None:
        if store.record is None:
            self.observed = None
        else:
            self.observed = observe(self.observed, store.record, self.now(time))

    def send(self, time: float) -> None:
        """Let the write that was decided on leave, from what was last seen."""
        if self.sent or isinstance(decide(self.observed, self.name, self.now(time)), StandBy):
            return
        old = self.observed.record if self.observed else None
        term = old.transitions + (old.holder != self.name) if old else 0
        stamp = f"{time + self.wall_offset:.6f} by {self.name}"
        base = old.version if old else ""
        record = LeaderElectionRecord(self.name, DURATION, stamp, term, base)
        self.sent = Sent(base, record, self.now(time))

    def land(self, store: Store, is_heard: bool) -> None:
        if self.sent is None:
            return
        stored, sent, self.sent = store.write(self.sent.base, self.sent.record), self.sent, None
        if stored and is_heard:
            self.observed = ObservedRecord(stored, sent.at)
            self.permit = permit_until(sent.at, DEADLINE)
        else:
            self.observed = None

    def release(self, store: Store, time: float) -> None:
        if self.observed is None or self.sent or not self.may_act(time):
            return
        self.permit = float("-inf")
        store.write(
            self.observed.record.version, replace(self.observed.record, holder="", duration=1.0)
        )
        self.observed = None


ACTIONS = ("cycle", "read", "send", "land", "land-unheard", "release", "annotate")


def perform(action: str, replica: Replica, store: Store, time: float) -> None:
    match action:
        case "cycle":  # everything at once, as it mostly goes
            replica.read(store, time)
            replica.send(time)
            replica.land(store, is_heard=True)
        case "read":
            replica.read(store, time)
        case "send":
            replica.send(time)
        case "land" | "land-unheard":
            replica.land(store, is_heard=action == "land")
        case "release":
            replica.release(store, time)
        case "annotate" if store.record:
            store.write(store.record.version, store.record)


Step = tuple[float, int, str]

steps = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.0, 2.0, 4.9, 5.1, 9.9, 10.1, 14.9, 15.1]) | st.floats(0, 20),
        st.integers(0, 1),
        st.sampled_from(("cycle",) * 6 + ACTIONS),
    ),
    max_size=12,
)
skew = st.floats(-1e4, 1e4)

# A renewal that is long under way, while the other replica waits the old one out.
SLOW_RENEWAL: list[Step] = [
    (0.0, 0, "send"),
    (0.0, 0, "land"),
    (0.0, 1, "read"),
    (9.9, 0, "send"),
    (5.1, 1, "send"),
    (0.0, 0, "land"),
    (0.0, 1, "land"),
]
# The holder is alive but cut off; somebody annotates its Lease meanwhile.
ANNOTATED: list[Step] = [
    (0.0, 0, "send"),
    (0.0, 0, "land"),
    (0.0, 1, "read"),
    (9.9, 1, "annotate"),
    (0.0, 1, "read"),
    (5.1, 1, "read"),
    (0.0, 1, "send"),
    (0.0, 1, "land"),
]


# The holder renews, and the other counts from what it saw first.
RENEWED: list[Step] = [(0.0, 0, "cycle"), (0.0, 1, "cycle"), (9.9, 0, "cycle"), (5.1, 1, "cycle")]
# The other looks once more just before the permit ends.
EARLY: list[Step] = [(0.0, 0, "cycle"), (0.0, 1, "cycle"), (9.9, 1, "cycle")]


@settings(max_examples=500)
@given(steps, skew, skew, skew, skew)
@example(SLOW_RENEWAL, 0.0, 0.0, 0.0, 0.0)
@example(EARLY, 0.0, 9.0, 0.0, 0.0)
@example(RENEWED, 0.0, 0.0, 0.0, 0.0)
@example(ANNOTATED, 50.0, -50.0, -3600.0, 3600.0)
def test_two_replicas_never_may_act_at_the_same_time(
    history: list[Step], offset_a: float, offset_b: float, wall_a: float, wall_b: float
) -> None:
    replicas = [Replica("a", offset_a, wall_a), Replica("b", offset_b, wall_b)]
    store, time = Store(), 0.0
    for passed, who, action in history:
        time += passed
        perform(action, replicas[who], store, time)
        assert sum(replica.may_act(time) for replica in replicas) <= 1


def test_a_silent_holder_is_replaced_once_its_duration_is_over() -> None:
    store, holder, waiting = Store(), Replica("a", 0.0, 0.0), Replica("b", 777.0, -99.0)
    holder.send(0.0)
    holder.land(store, is_heard=True)
    waiting.read(store, 3.0)
    waiting.send(17.9)
    assert waiting.sent is None
    waiting.send(18.1)
    waiting.land(store, is_heard=True)
    assert waiting.may_act(18.2)
