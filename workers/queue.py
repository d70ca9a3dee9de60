"""The work queue: one in flight per key, dirty-again re-queues, back-off per key with jitter."""

import asyncio
import heapq
import random
import time
from collections import OrderedDict

from ccm import metrics
from ccm.counters import Counters
from ccm.decide.backoff import Backoff

RETRY = Backoff(first=0.2, most=300.0)


class WorkQueue:
    """Keys to reconcile. A key that is added while it is in hand runs once more afterwards."""

    def __init__(self, backoff: Backoff = RETRY) -> None:
        self._backoff = backoff
        self._ready: OrderedDict[str, float] = OrderedDict()  # since when
        self._in_flight: dict[str, float] = {}
        self._dirty: set[str] = set()
        self._failures: dict[str, int] = {}
        self._later: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._is_closed = False
        self.counters = Counters()

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def waiting(self) -> int:
        """Keys that wait for their time."""
        return len(self._due)

    def next_due(self, now: float) -> float | None:
        """Seconds until the first of the waiting keys is due; None when none waits."""
        return min(self._due.values()) - now if self._due else None

    def due_in(self, key: str) -> float | None:
        """Seconds until the time that this key waits for; None when it waits for none."""
        due = self._due.get(key)
        return None if due is None else due - asyncio.get_running_loop().time()

    def is_in_flight(self, key: str) -> bool:
        return key in self._in_flight

    def oldest_in_flight(self, now: float) -> float:
        """Seconds that the longest-running key has been in hand."""
        return max((now - began for began in self._in_flight.values()), default=0.0)

    def unfinished(self, now: float) -> float:
        """Seconds that the keys in hand have been so, all together."""
        return sum(now - began for began in self._in_flight.values())

    def add(self, key: str) -> None:
        """Reconcile `key` as soon as possible."""
        self._due.pop(key, None)
        if key in self._in_flight:
            self._dirty.add(key)
            return
        if key not in self._ready:
            self._ready[key] = time.monotonic()
            self.counters.count(metrics.ADDS)
        self._wake(1)

    def add_after(self, key: str, seconds: float) -> None:
        """Reconcile `key` in `seconds`, or sooner if something changes before."""
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        if key in self._ready or self._due.get(key, when + 1) <= when:
            return
        self.counters.count(metrics.RETRIES)
        self._due[key] = when
        heapq.heappush(self._later, (when, key))
        self._arm(loop)

    def add_failed(self, key: str) -> None:
        """Reconcile `key` again after its back-off."""
        self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, self._backoff.delay(self._failures[key], random.random()))

    def failures(self, key: str) -> int:
        """How often in a row this key failed."""
        return self._failures.get(key, 0)

    def forget_failures(self, key: str) -> None:
        self._failures.pop(key, None)

    async def get(self) -> str | None:
        """The next key, which is then in hand until `done`; None once the queue is closed."""
        while not self._ready and not self._is_closed:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake(1)  # it was woken and leaves: another takes its turn
                raise
        if self._is_closed:
            return None
        key, since = self._ready.popitem(last=False)
        self.counters.observe(metrics.QUEUED, seconds=time.monotonic() - since)
        self._in_flight[key] = time.monotonic()
        return key

    def done(self, key: str) -> None:
        """The key is no longer in hand."""
        if began := self._in_flight.pop(key, None):
            seconds = time.monotonic() - began
            self.counters.observe(metrics.WORKED, seconds=seconds)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def close(self) -> None:
        """Hand out no more keys."""
        self._is_closed = True
        if self._timer:
            self._timer.cancel()
        self._wake(len(self._waiters))

    def _wake(self, count: int) -> None:
        while self._waiters and count > 0:
            waiter = self._waiters.pop()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer:
            self._timer.cancel()
        if self._later:
            self._timer = loop.call_at(self._later[0][0], self._ripen, loop)

    def _ripen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        while self._later and self._later[0][0] <= loop.time():
            when, key = heapq.heappop(self._later)
            if self._due.get(key) == when:
                self.add(key)
        self._arm(loop)
