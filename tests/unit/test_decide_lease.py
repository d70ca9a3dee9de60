"""Who may lead: the table of a replica's decisions; `test_leader_election_*` lets two compete."""

from dataclasses import replace
from typing import Any

import pytest

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
    write_grace,
)

DURATION = 15.0

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


def test_a_permission_ends_early_enough_for_the_writes_of_before() -> None:
    assert permit_until(100.0, 10.0) == 110.0
    assert write_grace(15.0, 10.0) == 2.5
