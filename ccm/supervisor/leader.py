"""Leadership of this replica: take the lease, keep it, and know until when we may act."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from ccm.decide.lease import (
    CreateLease,
    LeaseRecord,
    LeaveLease,
    RenewLease,
    Seen,
    TakeLease,
    decide,
    notice,
    permit_until,
)
from ccm.errors import KubernetesError, Unreachable
from ccm.kube.lease import LeaseClient

log = logging.getLogger(__name__)

OVERDUE = 20.0  # seconds beyond the lease's end until a leader counts as stuck, as upstream
LOOKS = 4  # times per retry period that a replica looks which has nothing to renew
TELLING = 1.0  # seconds that a stop waits for its Event to be sent
WRITTEN_SINCE = (404, 409)  # answers to a write when the Lease is not what we saw last


@dataclass(frozen=True, slots=True)
class Timing:
    """Upstream's three durations, in seconds."""

    lease_duration: float
    renew_deadline: float
    retry_period: float

    @property
    def request_timeout(self) -> float:
        return max(self.renew_deadline / 2, 1.0)


class Leader:
    """Runs the election; tells `on_permit` until when we may act, whenever that changes.

    Leadership is held once at most: when it is lost, `run` returns and the process should end.
    """

    def __init__(
        self,
        lease: LeaseClient,
        timing: Timing,
        on_permit: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lease, self._timing, self._on_permit = lease, timing, on_permit
        self._clock = clock
        self._seen: Seen | None = None
        self._until = 0.0
        self._has_led = self._is_over = False
        self._turn = asyncio.Lock()  # one round of requests at a time
        self._telling: asyncio.Task[None] | None = None
        self.looked_at = clock()  # when a round of the election was last over
        self.slow_rounds = 0  # in which somebody else had written the lease
        self.sentence = "the lease was not looked at yet"

    @property
    def identity(self) -> str:
        return self._lease.identity

    @property
    def lease_name(self) -> str:
        return self._lease.name

    def is_leading(self) -> bool:
        return self._clock() < self._until

    def is_overdue(self) -> bool:
        """Whether we led, should long have noticed that it is over, and did not (as upstream)."""
        renewed_at = self._until - self._timing.renew_deadline
        patience = self._timing.lease_duration + OVERDUE
        return self._has_led and self._clock() - renewed_at > patience

    async def run(self) -> None:
        """Return when a leadership that was held is lost, or when `release` was called."""
        while not self._is_over and (self.is_leading() or not self._has_led):
            await self._cycle()
        if not self._is_over:
            late = f"not renewed for {self._timing.renew_deadline:g} s; last: {self.sentence}"
            why = late if self._until else self.sentence
            log.error("leadership lost", extra={"lease": self._lease.name, "why": why})
            self._stop_leading()

    async def release(self) -> None:
        """End the election, and give the lease back if it is ours.

        Call this when nothing of ours writes any more: a successor may act at once.
        """
        self._is_over = True
        async with self._turn:  # the write in hand may be the one that takes the lease
            self._stop_leading()
            try:
                await self._give_back()
            except (KubernetesError, Unreachable) as error:
                log.warning("lease not released", extra={"error": str(error)})
        if self._telling:
            await asyncio.wait({self._telling}, timeout=TELLING)

    async def _cycle(self) -> None:
        """Look, decide, act, wait: one round of the election."""
        before, is_renewed = self.sentence, False
        async with self._turn:
            if self._is_over:
                return
            try:
                self.sentence = await self._round()
                is_renewed = self.is_leading()
            except (KubernetesError, Unreachable) as error:
                self.sentence = f"could not reach the lease: {error}"
        self.looked_at = self._clock()
        if self.sentence != before:
            status = {"lease": self._lease.name, "decision": self.sentence}
            log.info("leader election", extra=status)
        await asyncio.sleep(self._pause(is_renewed))

    def _pause(self, is_renewed: bool) -> float:
        """A renewed lease has time; otherwise a look is cheap, and what we wait for is urgent."""
        retry = self._timing.retry_period
        pause = retry if is_renewed else retry / LOOKS
        return min(pause, max(self._until - self._clock(), 0.0)) if self._has_led else pause

    async def _round(self) -> str:
        # The holder writes without reading first: a conflict tells when somebody wrote meanwhile.
        if not self.is_leading() or self._seen is None:
            await self._look()
        try:
            return await self._act()
        except KubernetesError as error:
            if error.status not in WRITTEN_SINCE:
                raise
        # Perhaps that was ourselves, with a write that went through and was never answered.
        self.slow_rounds += 1
        await self._look()
        return await self._act()

    async def _look(self) -> None:
        record = await self._lease.read(self._timeout())
        self._seen = notice(self._seen, record, self._clock())

    async def _act(self) -> str:
        now = self._clock()
        match decide(self._seen, self.identity, now):
            case CreateLease():
                self._won(await self._lease.create(self._timeout()), now)
                return "created the lease and leads"
            case TakeLease(why):
                self._won(await self._lease.hold(self._timeout()), now)
                return f"took the lease ({why}) and leads"
            case RenewLease():
                self._won(await self._lease.hold(self._timeout()), now)
                return "holds the lease"
            case LeaveLease(holder, _):
                self._permit(0.0)
                return f"stands by; {holder} leads"

    def _timeout(self) -> float:
        """A leader needs no answer that comes after its permission is over."""
        left = self._until - self._clock()
        return min(self._timing.request_timeout, left) if left > 0 else self._timing.request_timeout

    async def _give_back(self) -> None:
        timeout = self._timing.request_timeout
        record = await self._lease.read(timeout)
        if record and record.holder == self.identity:
            await self._lease.release(timeout)
            self.sentence = "released the lease"

    def _won(self, record: LeaseRecord, sent_at: float) -> None:
        self._seen = Seen(record, sent_at)
        if self._is_over:
            return  # it is given back at once
        self._permit(permit_until(sent_at, self._timing.renew_deadline))
        if not self._has_led:
            self._has_led = True
            log.info("became leader", extra={"lease": self._lease.name, "identity": self.identity})
            self._tell("became leader")

    def _stop_leading(self) -> None:
        self._permit(0.0)
        if self._has_led:
            self._has_led = False
            self._tell("stopped leading")

    def _permit(self, until: float) -> None:
        if until or self._until:
            self._until = until
            self._on_permit(until)

    def _tell(self, what: str) -> None:
        """Announce it beside the election, which must not wait for an Event."""
        self._telling = asyncio.create_task(self._lease.announce(what))
