"""Leadership of one replica: taking, keeping and losing the lease."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest

from ccm.decide.lease import LeaseRecord
from ccm.errors import KubernetesError, Unreachable
from ccm.kube.lease import LeaseFile
from ccm.supervisor.leader import Leader, Timing

from .waiting import PATIENCE, until

TIMING = Timing(lease_duration=0.3, renew_deadline=0.2, retry_period=0.02)


class Lease:
    """The Lease on the API server, shared by all replicas; a network between can be cut."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self.version = 0

    def write(self, base: LeaseRecord | None, holder: str, duration: float) -> LeaseRecord:
        if base != self.record:
            raise KubernetesError(409, "Conflict", "the object has been modified", None)
        self.version += 1
        term = (base.transitions if base else 0) + 1
        self.record = LeaseRecord(
            holder, duration, str(self.version), term if not base or base.holder != holder
            else base.transitions, str(self.version)
        )  # fmt: skip
        return self.record


class File:
    """One replica's way to the Lease, as `LeaseFile` behaves."""

    def __init__(self, lease: Lease, identity: str) -> None:
        self._lease, self.identity = lease, identity
        self._known: LeaseRecord | None = None
        self.failure: Exception | None = None

    def _check(self) -> None:
        if self.failure:
            raise self.failure

    async def read(self, timeout: float) -> LeaseRecord | None:
        self._check()
        self._known = self._lease.record
        return self._known

    async def create(self, timeout: float) -> LeaseRecord:
        self._check()
        self._known = self._lease.write(None, self.identity, 0.3)
        return self._known

    async def hold(self, timeout: float) -> LeaseRecord:
        self._check()
        self._known = self._lease.write(self._known, self.identity, 0.3)
        return self._known

    async def release(self, timeout: float) -> None:
        self._check()
        self._lease.write(self._known, "", 0.05)

    async def announce(self, what: str) -> None:
        pass


class Replica:
    """A leader with its lease file, and the permits it gave."""

    def __init__(self, lease: Lease, identity: str) -> None:
        self.file = File(lease, identity)
        self.permits: list[float] = []
        self.leader = Leader(cast(LeaseFile, self.file), TIMING, self.permits.append)

    @property
    def leads(self) -> bool:
        return self.leader.is_leading()

    @property
    def may_act(self) -> bool:
        return bool(self.permits) and self.permits[-1] > time.monotonic()


@asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks = [asyncio.create_task(replica.leader.run()) for replica in replicas]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_a_replica_alone_makes_the_lease_and_leads() -> None:
    lease = Lease()
    one = Replica(lease, "one")
    async with running(one):
        await until(lambda: one.leads)
        assert lease.record
        assert lease.record.holder == "one"
        assert one.leader.sentence == "created the lease and leads"


async def test_a_permit_ends_before_the_lease_does_and_is_renewed() -> None:
    one = Replica(Lease(), "one")
    async with running(one):
        await until(lambda: len(one.permits) >= 3)
        assert one.permits == sorted(one.permits)
        assert one.permits[-1] <= time.monotonic() + TIMING.renew_deadline


async def test_a_second_replica_stands_by() -> None:
    lease = Lease()
    one, two = Replica(lease, "one"), Replica(lease, "two")
    async with running(one):
        await until(lambda: one.leads)
        async with running(two):
            await until(lambda: two.leader.sentence == "stands by; one leads")
            assert not two.may_act


async def test_a_released_lease_is_taken_without_waiting() -> None:
    lease = Lease()
    one, two = Replica(lease, "one"), Replica(lease, "two")
    async with running(one) as tasks:
        await until(lambda: one.leads)
        async with running(two):
            await until(lambda: "stands by" in two.leader.sentence)
            tasks[0].cancel()
            await one.leader.release()
            began = time.monotonic()
            assert not one.may_act
            await until(lambda: two.leads)
            assert time.monotonic() - began < TIMING.lease_duration
            assert "it was released" in two.leader.sentence


@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("refused"),
        KubernetesError(500, "InternalError", "etcd is away", None),
        KubernetesError(403, "Forbidden", "no", None),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_a_leader_that_cannot_renew_stops_acting_before_another_starts(
    failure: Exception,
) -> None:
    lease = Lease()
    one, two = Replica(lease, "one"), Replica(lease, "two")
    async with running(one) as tasks:
        await until(lambda: one.leads)
        async with running(two):
            one.file.failure = failure
            both = await _acted_together(one, two, lambda: two.leads)
            assert not both
            async with asyncio.timeout(PATIENCE):
                await tasks[0]
            assert one.permits[-1] == 0.0
            assert "could not reach the lease" in one.leader.sentence


async def _acted_together(one: Replica, two: Replica, over: Callable[[], bool]) -> bool:
    """Whether both ever had a valid permit at one look, until `over`."""
    seen = False

    def look() -> bool:
        nonlocal seen
        seen = seen or (one.may_act and two.may_act)
        return over()

    await until(look)
    return seen


async def test_a_blip_shorter_than_the_deadline_costs_nothing() -> None:
    one = Replica(Lease(), "one")
    async with running(one) as tasks:
        await until(lambda: one.leads)
        one.file.failure = Unreachable("reset")
        await until(lambda: "could not reach" in one.leader.sentence)
        one.file.failure = None
        await until(lambda: one.leader.sentence == "holds the lease")
        assert not tasks[0].done()


async def test_an_annotation_by_somebody_else_does_not_cost_the_leadership() -> None:
    lease = Lease()
    one = Replica(lease, "one")
    async with running(one) as tasks:
        await until(lambda: one.leads)
        for _ in range(3):
            lease.write(lease.record, "one", 0.3)
            before = len(one.permits)
            await until(lambda before=before: len(one.permits) > before)  # type: ignore[misc]
        assert one.leads
        assert not tasks[0].done()


async def test_a_leader_whose_lease_was_taken_stops_at_once() -> None:
    lease = Lease()
    one = Replica(lease, "one")
    async with running(one) as tasks:
        await until(lambda: one.leads)
        lease.write(lease.record, "thief", 0.3)
        async with asyncio.timeout(PATIENCE):
            await tasks[0]
        assert not one.may_act
        assert lease.record
        assert lease.record.holder == "thief"


async def test_what_is_not_held_is_not_released() -> None:
    lease = Lease()
    lease.write(None, "other", 0.3)
    await Replica(lease, "one").leader.release()
    assert lease.record
    assert lease.record.holder == "other"


async def test_a_release_that_fails_still_ends_the_permission() -> None:
    one = Replica(Lease(), "one")
    async with running(one) as tasks:
        await until(lambda: one.leads)
        tasks[0].cancel()
        one.file.failure = Unreachable("refused")
        await one.leader.release()
        assert not one.may_act
