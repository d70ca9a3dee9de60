"""Leader election of this replica: acquire the Lease, renew it, and know until when we may act."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from ccm.background import start_task
from ccm.decide.lease import (
    AcquireLease,
    CreateLease,
    LeaderElectionRecord,
    ObservedRecord,
    RenewLease,
    StandBy,
    decide,
    observe,
    permit_until,
    write_grace,
)
from ccm.decide.offer import OfferSchedule, after_offer, observe_down, workers_due
from ccm.errors import KubernetesError, Unreachable
from ccm.kube.lease import LeaseClient

log = logging.getLogger(__name__)

HEALTH_TOLERANCE = (
    20.0  # seconds beyond a lease duration until an election is unhealthy, as upstream
)
READS_PER_RETRY_PERIOD = 4  # of a replica that has nothing to renew
EVENT_TIMEOUT = 1.0  # seconds that a stop waits for its Event to be sent
READINESS_INTERVAL = 0.005  # seconds between two looks at our workers, while a free Lease waits
FENCED_INTERVAL = 0.05  # seconds between two questions whether our workers stopped acting
OFFERED_PERIODS = 2  # retry periods for which others may take a Lease that was offered
LEFT_TO_OTHERS = "does not acquire the lease: workers are not ready"
CONFLICT_STATUSES = (404, 409)  # answers to a write when the Lease is not what we observed last


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """Upstream's three durations, and how long a worker is down until an offer, in seconds."""

    lease_duration: float
    renew_deadline: float
    retry_period: float
    offer_after: float = 0.0

    @property
    def request_timeout(self) -> float:
        """The longest that one request for the Lease may take, while answers come in time."""
        return max(self.renew_deadline / 2, 1.0)

    @property
    def write_grace(self) -> float:
        """Seconds that a write may still be under way after our workers stopped sending any."""
        return write_grace(self.lease_duration, self.renew_deadline)


@dataclass(frozen=True, slots=True)
class WorkerProbes:
    """What an election asks about the workers of this replica.

    `are_fenced` says of all that they have stopped since permission was taken back; `down` says
    which do not run, and why.
    """

    are_up: Callable[[], bool] = lambda: True
    are_fenced: Callable[[], bool] = lambda: True
    down: Callable[[], Mapping[str, str]] = dict


NO_PROBES = WorkerProbes()  # of an election that has no workers of its own


@dataclass(frozen=True, slots=True)
class Interruption:
    """We led, with so many transitions, and do not act; the Lease is for others until `ends_at`."""

    why: str
    transitions: int
    ends_at: float


class LeaderElector:
    """Runs the election; calls `on_permit` with the time until which we may act when it changes.

    One that cannot renew the Lease stops acting, and leads again once it can. A replica that led
    never leads after another one: when another took the Lease, `run` returns and the process
    should end. One whose workers are not up leaves a free Lease to others for one lease duration.
    """

    def __init__(
        self,
        lease: LeaseClient,
        config: LeaderElectionConfig,
        on_permit: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
        probes: WorkerProbes = NO_PROBES,
    ) -> None:
        self._lease, self._config, self._on_permit = lease, config, on_permit
        self._clock, self._probes = clock, probes
        self._observed: ObservedRecord | None = None
        self._left_since: float | None = None  # from when on we left a free Lease to others
        self._until = 0.0
        self._lapse: asyncio.TimerHandle | None = None
        self._has_led = self._is_over = self._was_taken = False
        self._is_slow = self._has_failed = False  # the last attempt
        self._schedule = OfferSchedule(config.offer_after, config.offer_after)
        self._interruption: Interruption | None = None
        self._requests = asyncio.Lock()  # held during one attempt
        self._events: set[asyncio.Task[None]] = set()
        self.checked_at = clock()  # when an attempt last ended
        self.slow_paths = 0  # attempts in which someone else had written the Lease
        self.last_decision = "the lease was not read yet"
        self.refusal = ""  # how the API server refused access last, until it grants it again

    @property
    def identity(self) -> str:
        return self._lease.identity

    @property
    def lease_name(self) -> str:
        return self._lease.name

    def is_leading(self) -> bool:
        """Whether the last renewal still counts."""
        return self._clock() < self._until

    def is_overdue(self) -> bool:
        """Whether an attempt should long have ended, and did not."""
        limit = self._config.lease_duration + HEALTH_TOLERANCE
        return self._observed is not None and self._clock() - self.checked_at > limit

    async def run(self) -> None:
        """Return when leadership is lost, or when `release` was called."""
        while not self._is_over and not self._was_taken:
            await self._attempt()
        if not self._is_over:
            extra = {"lease": self._lease.name, "why": self.last_decision}
            log.error("leadership lost", extra=extra)
            self._stop_leading()

    async def release(self) -> None:
        """End the election, and release the Lease if it is ours.

        Call this when nothing of ours writes any more: a successor may act at once.
        """
        self._is_over = True
        async with self._requests:  # the write in flight may be the one that acquires the Lease
            self._stop_leading()
            await self._release()
        if self._events:
            await asyncio.wait(self._events, timeout=EVENT_TIMEOUT)

    async def _attempt(self) -> None:
        """Try to acquire or renew the Lease once, then offer it or wait for the next attempt."""
        before, began, is_renewed = self.last_decision, self._clock(), False
        async with self._requests:
            if self._is_over:
                return
            try:
                self.last_decision = await self._try_acquire_or_renew()
                is_renewed = self.is_leading()
                self.refusal, self._has_failed = "", False
            except (KubernetesError, Unreachable) as error:
                self.last_decision = f"could not reach the lease: {error}"
                is_denied = isinstance(error, KubernetesError) and error.is_denial
                self.refusal = str(error) if is_denied else ""
                self._has_failed = True
        self.checked_at = self._clock()
        self._is_slow = self.checked_at - began >= self._config.request_timeout
        if self.last_decision != before:
            extra = {"lease": self._lease.name, "decision": self.last_decision}
            log.info("leader election", extra=extra)
        if is_renewed and not self._is_over and (why := self._why_offer()):
            await self._offer_lease(why)
            return
        pause = self._pause(is_renewed)
        if self.last_decision == LEFT_TO_OTHERS:
            await self._until_ready(pause)
        else:
            await asyncio.sleep(pause)

    async def _until_ready(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._probes.are_up():  # noqa: ASYNC110 - states of many workers
                    await asyncio.sleep(READINESS_INTERVAL)

    def _why_offer(self) -> str:
        """Which workers have been down for too long, and why; empty while no offer is due."""
        now, down = self._clock(), self._probes.down()
        self._schedule = observe_down(self._schedule, down, now)
        names = workers_due(self._schedule, now)
        if names:
            self._schedule = after_offer(self._schedule, now)
        return "; ".join(f"{name}: {down[name]}" for name in names)

    async def _offer_lease(self, why: str) -> None:
        """Stop acting, and release the Lease once nothing of ours has any effect any more.

        Whatever fails in here, the next attempts renew it or take it back unless someone led.
        """
        seconds = (self._until - self._clock()) / 2
        log.error("this leader cannot run all controllers", extra={"why": why})
        self.last_decision = f"offers the lease to others, as its workers are not up: {why}"
        self._record_event(self.last_decision, "LeaseOffered")
        interruption = self._interrupt(why)
        if not await self._are_fenced_within(seconds):
            log.warning("lease not offered: a worker did not stop acting in time")
            return
        async with self._requests:
            if not self._is_over:
                await self._release()
                ends_at = self._clock() + OFFERED_PERIODS * self._config.retry_period
                self._interruption = replace(interruption, ends_at=ends_at)

    def _suspend_when_due(self) -> None:
        """Stop when the permission ends, while a renewal may be under way: its success proves that
        no one led meanwhile."""
        if (left := self._until - self._clock()) > 0:
            self._lapse = asyncio.get_running_loop().call_later(left, self._suspend_when_due)
            return
        why = f"not renewed for {self._config.renew_deadline:g} s; last: {self.last_decision}"
        log.error("leadership suspended", extra={"lease": self._lease.name, "why": why})
        self._interrupt(why)

    def _interrupt(self, why: str) -> Interruption:
        assert self._observed
        self._interruption = Interruption(why, self._observed.record.transitions, self._clock())
        self._stop_leading()
        return self._interruption

    async def _are_fenced_within(self, seconds: float) -> bool:
        """Whether all workers stopped in time; what they sent has then arrived, or never will."""
        try:
            async with asyncio.timeout(seconds):
                while not self._probes.are_fenced():  # noqa: ASYNC110 - answers of many workers
                    await asyncio.sleep(FENCED_INTERVAL)
        except TimeoutError:
            return False
        await asyncio.sleep(self._config.write_grace)
        return True

    def _pause(self, is_renewed: bool) -> float:
        """A renewed Lease has time unless answers are slow, and so has who is refused for long.

        Otherwise a read is cheap, and what we wait for is urgent.
        """
        retry = self._config.retry_period
        may_wait = not self._is_slow if is_renewed else self.refusal and not self._has_led
        return retry if may_wait else retry / READS_PER_RETRY_PERIOD

    async def _try_acquire_or_renew(self) -> str:
        # The holder writes without reading first: a conflict shows that someone wrote meanwhile.
        # After a failure that may be ourselves, with a write that was never answered.
        if not self.is_leading() or self._observed is None or self._has_failed:
            await self._observe()
        try:
            return await self._act()
        except KubernetesError as error:
            if error.status not in CONFLICT_STATUSES:
                raise
        self.slow_paths += 1
        await self._observe()
        return await self._act()

    async def _observe(self) -> None:
        record = await self._lease.get(self._timeout())
        self._observed = observe(self._observed, record, self._clock())

    async def _act(self) -> str:
        now = self._clock()
        if self._interruption and self._led_meanwhile(self._interruption):
            self._was_taken = True
            return "another replica took the lease meanwhile"
        match decide(self._observed, self.identity, now):
            case CreateLease() | AcquireLease() if self._leaves_to_others(now):
                why = self._interruption and self._interruption.why
                return f"{LEFT_TO_OTHERS}: {why}" if why else LEFT_TO_OTHERS
            case CreateLease():
                self._on_renewed(await self._lease.create(self._timeout()), now)
                return "created the lease and leads"
            case AcquireLease(why):
                self._on_renewed(await self._lease.update(self._timeout()), now)
                return f"took the lease ({why}) and leads"
            case RenewLease():
                self._on_renewed(await self._lease.update(self._timeout()), now)
                return "holds the lease"
            case StandBy(holder, _):
                self._left_since, self._was_taken = None, self._has_led
                self._permit(0.0)
                return f"stands by; {holder} leads"

    def _leaves_to_others(self, now: float) -> bool:
        """Whether a free Lease is better held by a replica that is ready, if there is one."""
        if self._interruption:
            return now < self._interruption.ends_at
        if self._has_led or self._probes.are_up():
            self._left_since = None
            return False
        if self._left_since is None:
            self._left_since = now
        return now - self._left_since < self._config.lease_duration

    def _led_meanwhile(self, since: Interruption) -> bool:
        """Whether another replica held the Lease since then; our own hold counts one."""
        assert self._observed
        record = self._observed.record
        is_ours = record.holder == self.identity
        taken = record.transitions - since.transitions
        return record.holder not in ("", self.identity) or taken not in (0, int(is_ours))

    def _timeout(self) -> float:
        """Time for another try, unless answers are slow: then as long as one is of use."""
        return self._config.renew_deadline if self._is_slow else self._config.request_timeout

    async def _release(self) -> None:
        timeout = self._config.request_timeout
        try:
            record = await self._lease.get(timeout)
            if record and record.holder == self.identity:
                await self._lease.release(timeout)
                self.last_decision = "released the lease"
        except (KubernetesError, Unreachable) as error:
            log.warning("lease not released", extra={"error": str(error)})

    def _on_renewed(self, record: LeaderElectionRecord, sent_at: float) -> None:
        self._observed = ObservedRecord(record, sent_at)
        if self._is_over:
            return  # it is released at once
        until = permit_until(sent_at, self._config.renew_deadline)
        if until <= self._clock():
            return  # too late to be of use
        self._interruption = None
        self._permit(until)
        self._suspend_when_due()
        if not self._has_led:
            self._has_led = True
            log.info("became leader", extra={"lease": self._lease.name, "identity": self.identity})
            self._record_event("became leader")

    def _stop_leading(self) -> None:
        self._permit(0.0)
        if self._has_led:
            self._has_led = False
            self._record_event("stopped leading")

    def _permit(self, until: float) -> None:
        if self._lapse:
            self._lapse.cancel()
            self._lapse = None
        if until or self._until:
            self._until = until
            self._on_permit(until)

    def _record_event(self, what: str, warning: str = "") -> None:
        """Beside the election, which must not wait for an Event."""
        event = self._lease.record_event(what, warning)
        self._events.add(start_task(event, self._events.discard))
