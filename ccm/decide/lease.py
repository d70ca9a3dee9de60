"""Who may lead: the decision a replica takes when it looks at the Lease.

Ages count from when this process *saw* the Lease change, on the monotonic clock, because the times
written in it come from somebody else's clock.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a Lease says: who holds it, and a version that changes with every write.

    The version is empty for a Lease that is not there any more.
    """

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


def notice(before: Seen | None, record: LeaseRecord | None, now: float) -> Seen | None:
    """Keep the time of the first sight unless the holder wrote since; `record` is None if deleted.

    A change that is not a renewal (an annotation, say) raises the version but does not make the
    holder any fresher. A Lease that somebody deleted is remembered until it would have run out,
    because its holder goes on acting for a while.
    """
    if record is None:
        return before and Seen(replace(before.record, version=""), before.at)
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
    record, is_gone = seen.record, not seen.record.version
    if record.holder == identity:
        return CreateLease() if is_gone else RenewLease()
    if not record.holder:
        return CreateLease() if is_gone else TakeLease("it was released")
    left = seen.at + record.duration - now
    if left > 0:
        return LeaveLease(record.holder, left)
    if is_gone:
        return CreateLease()
    return TakeLease(f"{record.holder} did not renew it for {record.duration:g} s")


def permit_until(renewal_sent: float, renew_deadline: float) -> float:
    """Until when the leader and its workers may act, as a monotonic time.

    Counted from when the renewal was *sent*: others count their lease duration, which is longer,
    from when they saw it, which is later.
    """
    return renewal_sent + renew_deadline
