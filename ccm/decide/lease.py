"""Who may lead: the decision that a replica takes each time it reads the Lease.

Ages count from when this process *observed* the Lease change, on the monotonic clock, because the
times written in it come from someone else's clock.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class LeaderElectionRecord:
    """What a Lease says: who holds it, and a version that changes with every write.

    The version is empty for a Lease that does not exist any more.
    """

    holder: str
    duration: float
    renewed: str
    transitions: int
    version: str


@dataclass(frozen=True, slots=True)
class ObservedRecord:
    """A Lease and the monotonic time at which its holder's last write was first observed."""

    record: LeaderElectionRecord
    at: float


@dataclass(frozen=True, slots=True)
class CreateLease:
    """There is no Lease: create one that we hold."""


@dataclass(frozen=True, slots=True)
class AcquireLease:
    """The Lease is free, or its holder did not renew it in time."""

    why: str


@dataclass(frozen=True, slots=True)
class RenewLease:
    """We hold it: renew it."""


@dataclass(frozen=True, slots=True)
class StandBy:
    """Someone else holds it; it expires in `seconds` unless they renew."""

    holder: str
    seconds: float


LeaseAction = CreateLease | AcquireLease | RenewLease | StandBy


def observe(
    before: ObservedRecord | None, record: LeaderElectionRecord | None, now: float
) -> ObservedRecord | None:
    """The observation after a read; `record` is None when there is no Lease.

    A change that is not a renewal (an annotation, say) raises the version but does not make the
    holder any fresher. A Lease that someone deleted is remembered until it would have expired,
    because its holder goes on acting for a while.
    """
    if record is None:
        return before and ObservedRecord(replace(before.record, version=""), before.at)
    if before is not None:
        old = before.record
        if (old.holder, old.renewed, old.transitions) == (
            record.holder,
            record.renewed,
            record.transitions,
        ):
            return ObservedRecord(record, before.at)
    return ObservedRecord(record, now)


def decide(observed: ObservedRecord | None, identity: str, now: float) -> LeaseAction:
    """What `identity` does about the Lease it observed."""
    if observed is None:
        return CreateLease()
    record, is_gone = observed.record, not observed.record.version
    if record.holder == identity:
        return CreateLease() if is_gone else RenewLease()
    if not record.holder:
        return CreateLease() if is_gone else AcquireLease("it was released")
    left = observed.at + record.duration - now
    if left > 0:
        return StandBy(record.holder, left)
    if is_gone:
        return CreateLease()
    return AcquireLease(f"{record.holder} did not renew it for {record.duration:g} s")


def permit_until(renewal_sent: float, renew_deadline: float) -> float:
    """Until when the leader and its workers may act, as a monotonic time.

    Counted from when the renewal was *sent*: others count their lease duration, which is longer,
    from when they observed it, which is later.
    """
    return renewal_sent + renew_deadline


def write_grace(lease_duration: float, renew_deadline: float) -> float:
    """Seconds that a write which left in time may still take: half of what the lease lasts longer.

    The other half is for the API server, to finish what it has begun.
    """
    return (lease_duration - renew_deadline) / 2
