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
from ccm.kube.lease import LeaseFile

log = logging.getLogger(__name__)


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
    """Runs the election; tells `on_permit` until when we may act, whenever that changes."""

    def __init__(
        self, lease: LeaseFile, timing: Timing, on_permit: Callable[[float], None]
    ) -> None:
        self._lease, self._timing, self._on_permit = lease, timing, on_permit
        self._seen: Seen | None = None
        self._until = 0.0
        self.looked_at = time.monotonic()  # when a round of the election was last over
        self.sentence = "the lease was not looked at yet"

    @property
    def identity(self) -> str:
        return self._lease.identity

    def is_leading(self) -> bool:
        return time.monotonic() < self._until

    async def run(self) -> None:
        """Return when a leadership that was held is lost; the process should end then."""
        while not self.is_leading():
            await self._cycle()
        while self.is_leading():
            await self._cycle()
        self._permit(0.0)
        log.error("leadership lost", extra={"why": self.sentence})

    async def release(self) -> None:
        """Give the lease back, if we hold it; call this when nothing writes any more."""
        if not self.is_leading():
            return
        self._permit(0.0)
        try:
            await self._lease.release(self._timing.request_timeout)
            self.sentence = "released the lease"
        except (KubernetesError, Unreachable) as error:
            log.warning("lease not released", extra={"error": str(error)})

    async def _cycle(self) -> None:
        """Look, decide, act, wait: one round of the election."""
        before = self.sentence
        try:
            self.sentence = await self._round()
        except (KubernetesError, Unreachable) as error:
            self._seen = None if self._is_conflict(error) else self._seen
            self.sentence = f"could not reach the lease: {error}"
        self.looked_at = time.monotonic()
        if self.sentence != before:
            log.info("leader election", extra={"decision": self.sentence})
        await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        left = self._until - time.monotonic()
        retry = self._timing.retry_period
        return min(retry, max(left, 0.0)) if left > 0 else retry

    async def _round(self) -> str:
        timeout = self._timing.request_timeout
        # The holder writes without reading first: a conflict tells when somebody else did.
        if not self.is_leading() or self._seen is None:
            record = await self._lease.read(timeout)
            self._seen = notice(self._seen, record, time.monotonic()) if record else None
        now = time.monotonic()
        match decide(self._seen, self.identity, now):
            case CreateLease():
                self._won(await self._lease.create(timeout), now)
                return "created the lease and leads"
            case TakeLease(why):
                self._won(await self._lease.hold(timeout), now)
                return f"took the lease ({why}) and leads"
            case RenewLease():
                self._won(await self._lease.hold(timeout), now)
                return "holds the lease"
            case LeaveLease(holder, _):
                if self._until:
                    self._permit(0.0)
                return f"stands by; {holder} leads"

    def _won(self, record: LeaseRecord, sent_at: float) -> None:
        if not self._until:
            log.info("became leader", extra={"identity": self.identity})
        self._seen = Seen(record, sent_at)
        self._permit(permit_until(sent_at, self._timing.renew_deadline))

    def _permit(self, until: float) -> None:
        self._until = until
        self._on_permit(until)

    @staticmethod
    def _is_conflict(error: Exception) -> bool:
        return isinstance(error, KubernetesError) and error.status in (404, 409)
