"""The one cloud budget of all workers: takes what they ask for, grants what the buckets hold."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ccm.bus.frames import (
    AskCalls,
    CallsShut,
    CloudThrottled,
    Granted,
    MadeCalls,
    Message,
    ReturnCalls,
)
from ccm.counters import Histogram
from ccm.decide.budget import (
    GOOD_FOR,
    Ask,
    Bucket,
    Priority,
    give_back,
    next_token_in,
    refill,
    share_out,
    spare,
    spend,
    throttled,
)
from ccm.model.objects import Json
from ccm.supervisor.spending import Lease, Leases, Spending, label, shown

log = logging.getLogger(__name__)

GRACE = 0.5  # seconds that a worker has longer to tell that it used a grant in time
SILENCE = 10.0  # seconds without another grant for a worker that let one lapse and says nothing


class Budget:
    """Buckets by class of calls; the rates come from the provider unless flags say otherwise.

    `reserve` is the share of every rate that is left to other users of the account. Whatever is
    not certain grants nothing: a class that no provider declared, a rate that is not above zero.
    """

    def __init__(
        self,
        rates: Mapping[str, float],
        send: Callable[[str, Message], bool],
        reserve: float = 0.0,
    ) -> None:
        self._rates, self._send, self._share = rates, send, 1.0 - reserve
        self._buckets: dict[str, Bucket] = {}
        self._asks: list[Ask] = []
        self._leases = Leases()
        self._silent: dict[str, float] = {}  # workers that let a grant lapse, until we try again
        self._told: set[str] = set()  # classes that we complained about
        self._spending: dict[str, Spending] = {}
        self._timer: asyncio.TimerHandle | None = None

    def declare(self, quotas: Mapping[str, list[float]]) -> None:
        """The provider's quotas, as its workers report them; the first report counts."""
        for budget, (per_second, burst) in quotas.items():
            if budget in self._buckets:
                continue
            rate = self._rates.get(budget, per_second) * self._share
            if not (0 < rate < math.inf and 0 < per_second < math.inf and 0 <= burst < math.inf):
                self._complain(budget, "budget class without a rate: its calls are never granted")
                continue
            size = max(burst * min(rate / per_second, 1.0), 1.0)
            self._buckets[budget] = Bucket.new(rate, size, time.monotonic())
        self._serve()

    def ask(self, worker: str, message: AskCalls) -> None:
        """A worker waits for calls; it hears of them as soon as the bucket has some."""
        if message.budget not in self._buckets:
            self._complain(message.budget, "unknown budget class: its calls are never granted")
        self._silent.pop(worker, None)
        self._asks.append(
            Ask(
                worker,
                message.number,
                message.budget,
                Priority(message.priority),
                max(message.count, 0),
                time.monotonic(),
                max(message.ahead, 0),
            )
        )
        self._serve()

    def note_made(self, worker: str, message: MadeCalls) -> None:
        """Calls that were granted and made; those that we gave up for lost count again."""
        self._silent.pop(worker, None)
        known = self._leases.settle(worker, message.budget, message.priority, message.count)
        if bucket := self._buckets.get(message.budget):
            self._buckets[message.budget] = spend(bucket, message.count - known)

    def take_back(self, worker: str, message: ReturnCalls) -> None:
        """Calls that were granted and not made."""
        self._silent.pop(worker, None)
        count = self._leases.settle(worker, message.budget, message.priority, message.count)
        self._restore(worker, message.budget, Priority(message.priority), count)
        self._serve()

    def slow_down(self, worker: str, message: CloudThrottled) -> None:
        """The cloud said that we are too fast: everybody waits, from now on."""
        budget, bucket = message.budget, self._buckets.get(message.budget)
        if not bucket:
            return
        slower = throttled(bucket, message.seconds, time.monotonic(), message.granted)
        self._buckets[budget] = slower
        self._of(budget).throttled += 1
        if slower.episodes == bucket.episodes:
            return
        for holder in self._leases.holders(budget):
            self._send(holder, CallsShut(budget))
        log.warning(
            "cloud throttles; calls slowed for all workers",
            extra={
                "class": budget,
                "worker": worker,
                "per_second": round(slower.rate, 3),
                "burst": round(slower.burst, 1),
                "shut_seconds": round(slower.shut_until - slower.at, 1),
            },
        )

    def forget(self, worker: str) -> None:
        """The worker is gone: nobody waits for its calls any more, and its grants return."""
        self._asks = [ask for ask in self._asks if ask.asker != worker]
        self._silent.pop(worker, None)
        for lease in self._leases.drop(worker):
            self._restore(worker, lease.budget, lease.priority, lease.count)
        self._serve()

    def status(self, now: float) -> Json:
        """What `status` shows, per class."""
        names = {*self._buckets, *(ask.budget for ask in self._asks)}
        return {
            budget: shown(
                now,
                refill(self._buckets[budget], now) if budget in self._buckets else None,
                self._of(budget),
                [ask for ask in self._asks if ask.budget == budget],
                self._leases.held(budget),
            )
            for budget in sorted(names)
        }

    def waits(self) -> Iterator[tuple[str, str, Histogram]]:
        """How long calls of each class and priority waited, since the start."""
        for budget, spending in self._spending.items():
            for priority, waits in spending.waits.items():
                yield budget, label(priority), waits.spread

    def _serve(self) -> None:
        """Grant what can be granted now, and come back when there is more to do."""
        now = time.monotonic()
        self._silent = {name: until for name, until in self._silent.items() if until > now}
        for lease in self._leases.lapsed(now - GRACE):
            self._restore(lease.worker, lease.budget, lease.priority, lease.count)
            self._note_silence(lease.worker, now)
        for budget in {ask.budget for ask in self._eligible()}:
            bucket = self._refilled(budget, now)
            asks = [ask for ask in self._eligible() if ask.budget == budget]
            grants = list(share_out(bucket, asks, now))
            self._buckets[budget] = spend(bucket, sum(grant.count for grant in grants))
            for grant in grants:
                self._settle(grant.ask, grant.count, self._ahead(grant.ask), now)
        self._come_back(now)

    def _eligible(self) -> Iterator[Ask]:
        """Who can be served at all: of a known class, and in a worker that listens."""
        return (a for a in self._asks if a.budget in self._buckets and a.asker not in self._silent)

    def _refilled(self, budget: str, now: float) -> Bucket:
        held = self._leases.ahead(budget)
        return refill(replace(self._buckets[budget], held=held), now)

    def _ahead(self, ask: Ask) -> int:
        """Calls beyond the need of this ask, off the bucket."""
        bucket = self._buckets[ask.budget]
        count = spare(bucket, ask.ahead)
        self._buckets[ask.budget] = spend(bucket, count)
        return count

    def _settle(self, ask: Ask, count: int, ahead: int, now: float) -> None:
        if not self._send(ask.asker, Granted(ask.number, count + ahead, now)):
            self._buckets[ask.budget] = give_back(self._buckets[ask.budget], count + ahead)
            self._note_silence(ask.asker, now)
            return
        self._asks.remove(ask)
        if count < ask.count:
            self._asks.append(replace(ask, count=ask.count - count, served_at=now))
        until = now + GOOD_FOR
        lease = Lease(ask.asker, ask.budget, ask.priority, count + ahead, ahead, until)
        self._leases.add(lease)
        self._of(ask.budget).note(ask, count, ahead, now)

    def _note_silence(self, worker: str, now: float) -> None:
        """A worker took no grant, or did nothing with one: it hangs, so others go first."""
        if worker not in self._silent:
            self._silent[worker] = now + SILENCE
            log.warning(
                "worker lets cloud calls lapse; they go to others", extra={"worker": worker}
            )

    def _restore(self, worker: str, budget: str, priority: Priority, count: int) -> None:
        if count and budget in self._buckets:
            bucket = self._refilled(budget, time.monotonic())
            self._buckets[budget] = give_back(bucket, count)
            self._of(budget).note_return(worker, priority, count)

    def _come_back(self, now: float) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        waits = [next_token_in(self._buckets[ask.budget], now) for ask in self._eligible()]
        waits += [until + GRACE - now for until in self._leases.first_end()]
        waits += [until - now for until in self._silent.values()]
        if waits:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(min(waits), 0.001), self._serve)

    def _of(self, budget: str) -> Spending:
        return self._spending.setdefault(budget, Spending())

    def _complain(self, budget: str, message: str) -> None:
        """Once per class: what an operator must know of a class that cannot be served."""
        if budget not in self._told:
            self._told.add(budget)
            log.error(message, extra={"class": budget})
