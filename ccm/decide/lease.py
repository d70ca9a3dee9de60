"""Who may lead: the decision a replica takes when it looks at the Lease.

Ages count from when this process *saw* the Lease change, on the monotonic clock, because the times
written in it come from somebody else's clock.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a Lease says: who holds it, and a version that changes with every write."""

    holder: str
    duration: float
    renewed: str
    transitions: int
    version: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A Lease and the monotonic time at which it was first seen in just this state."""

    record: LeaseRecord
    at: float


@dataclass(frozen=True, slots=True)
class CreateLease:
    """There is no Lease: make one that we hold."""


@dataclass(frozen=True, slots=True)
class TakeLease:
    """The Lease is free or its holder has been silent too long."""

    why: str


@dataclass(frozen=True, slots=True)
class RenewLease:
    """We hold it: say so again."""


@dataclass(frozen=True, slots=True)
class LeaveLease:
    """Somebody else holds it; it runs out in `seconds` unless they renew."""

    holder: str
    seconds: float


LeaseAction = CreateLease | TakeLease | RenewLease | LeaveLease


def notice(before: Seen | None, record: LeaseRecord, now: float) -> Seen:
    """Keep the time of the first sight unless the holder wrote since.

    A change that is not a renewal (an annotation, say) raises the version but does not make the
    holder any fresher.
    """
    if before is not None:
        old = before.record
        if (old.holder, old.renewed, old.transitions) == (
            record.holder,
            record.renewed,
            record.transitions,
        ):
            return Seen(record, before.at)
    return Seen(record, now)


def decide(seen: Seen | None, identity: str, now: float) -> LeaseAction:
    """What `identity` does about the Lease it sees."""
    if seen is None:
        return CreateLease()
    record = seen.record
    if record.holder == identity:
        return RenewLease()
    if not record.holder:
        return TakeLease("it was released")
    left = seen.at + record.duration - now
    if left <= 0:
        return TakeLease(f"{record.holder} did not renew it for {record.duration:g} s")
    return LeaveLease(record.holder, left)


def permit_until(renewal_sent: float, renew_deadline: float) -> float:
    """Until when the leader and its workers may act, as a monotonic time.

    Counted from when the renewal was *sent*: others count their lease duration, which is longer,
    from when they saw it, which is later.
    """
    return renewal_sent + renew_deadline
