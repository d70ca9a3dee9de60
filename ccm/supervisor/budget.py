"""The one cloud budget of all workers: receives their requests, grants what the buckets hold."""

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ccm import metrics
from ccm.background import call_later
from ccm.bus.frames import CloudRemaining, CloudThrottled, Granted, GrantRequest, Message
from ccm.counters import Histogram
from ccm.decide.budget import GRANT_WAIT, FairQueue, PendingRequest, Priority, whole_tokens
from ccm.decide.rate_law import Bucket, next_token_in, refill, remaining, spend, throttled
from ccm.model.status import BucketStatus, BudgetStatus, WaitingCalls, WaitStatus

log = logging.getLogger(__name__)

RECENT_WAITS = 1000  # per priority, for the percentiles
UNHEARD_RETRY = 1.0  # seconds until a worker that takes no grant is looked at again


class Budget:
    """Buckets by class of calls; the rates come from the provider unless flags say otherwise.

    A grant that was sent is spent, made or not: it expires in the worker, and what a worker that
    dies leaves unused is a few calls less, never one more. `is_responsive` says whether a worker
    was heard of just now: one that hangs gets nothing, others go first.

    `reserve` is the share of every rate that is left to other users of the account. Whatever is
    not certain grants nothing: a class that no provider declared, a rate that is not above zero.
    """

    def __init__(
        self,
        rates: Mapping[str, float],
        send: Callable[[str, Message], bool],
        is_responsive: Callable[[str], bool],
        reserve: float = 0.0,
        unheard_retry: float = UNHEARD_RETRY,
        grant_wait: float = GRANT_WAIT,
    ) -> None:
        self._grant_wait = grant_wait
        self._rates, self._send, self._share = rates, send, 1.0 - reserve
        self._is_responsive, self._unheard_retry = is_responsive, unheard_retry
        self._buckets: dict[str, Bucket] = {}
        self._pending: dict[str, list[PendingRequest]] = {}  # by class, oldest first
        self._spending: dict[str, BudgetStats] = {}
        self._logged: set[str] = set()  # classes that we complained about
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
        self._grant_waiting()

    def request(self, worker: str, message: GrantRequest) -> None:
        """A worker waits for a call; it hears of it as soon as the bucket has a token."""
        if message.budget not in self._buckets:
            self._complain(message.budget, "unknown budget class: its calls are never granted")
        priority = Priority(message.priority)
        now, number, owner = time.monotonic(), message.number, message.owner
        request = PendingRequest(worker, number, message.budget, priority, now, owner)
        self._pending.setdefault(request.budget, []).append(request)
        self._drop_expired(request.budget, request.since)
        self._grant_waiting()

    def slow_down(self, worker: str, message: CloudThrottled) -> None:
        """The cloud answered that we are too fast: every worker waits, from now on."""
        budget, bucket = message.budget, self._buckets.get(message.budget)
        if not bucket:
            return
        slower = throttled(bucket, message.seconds, time.monotonic(), message.granted)
        self._buckets[budget] = slower
        self._of(budget).throttled += 1
        if slower.episodes == bucket.episodes:
            return
        log.warning(
            "cloud throttles; calls slowed for all workers",
            extra={
                "class": budget,
                "worker": worker,
                "per_second": round(slower.rate, 3),
                "burst": round(slower.burst, 1),
                "open_seconds": round(slower.open_until - slower.at, 1),
            },
        )

    def limit(self, message: CloudRemaining) -> None:
        """The cloud reported what is left for all clients; `reserve` of that is left to others."""
        if not (bucket := self._buckets.get(message.budget)):
            return
        calls, now = int(message.calls * self._share), time.monotonic()
        self._buckets[message.budget] = remaining(bucket, calls, message.seconds, now)
        if not calls and bucket.open_until <= now:
            seconds = round(message.seconds, 1)
            log.warning(
                "the cloud has no calls left for this account; all workers wait",
                extra={"class": message.budget, "seconds": seconds},
            )
        self._grant_waiting()

    def forget(self, worker: str) -> None:
        """The worker is gone: nothing waits for its calls any more."""
        for budget, pending in self._pending.items():
            self._pending[budget] = [request for request in pending if request.worker != worker]

    def status(self, now: float) -> dict[str, BudgetStatus]:
        """What `status` shows, per class."""
        return {
            budget: class_status(
                now,
                refill(self._buckets[budget], now) if budget in self._buckets else None,
                self._of(budget),
                self._pending.get(budget, []),
            )
            for budget in sorted({*self._buckets, *self._pending})
        }

    def waits(self) -> Iterator[tuple[str, str, Histogram]]:
        """How long calls of each class and priority waited, since the start."""
        for budget, spending in self._spending.items():
            for priority, waits in spending.waits.items():
                yield budget, label(priority), waits.histogram

    def _grant_waiting(self) -> None:
        """Grant what can be granted now, and come back when there is more to do."""
        now = time.monotonic()
        next_at = [delay for budget in self._buckets for delay in self._grant_class(budget, now)]
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if next_at:
            self._timer = call_later(max(min(next_at), 0.001), self._grant_waiting)

    def _grant_class(self, budget: str, now: float) -> Iterator[float]:
        """Grant the calls of one class; yields in how many seconds there may be more to do."""
        pending = self._drop_expired(budget, now)
        if not pending:
            return
        self._buckets[budget] = bucket = refill(self._buckets[budget], now)
        if not whole_tokens(bucket, now):  # one more that waits costs nothing, however many do
            yield next_token_in(bucket, now)
            return
        listening = set(filter(self._is_responsive, {request.worker for request in pending}))
        listening -= self._grant(budget, listening, now)
        workers = {request.worker for request in pending}
        if workers & listening:
            yield next_token_in(self._buckets[budget], now)
        if workers - listening:
            yield self._unheard_retry

    def _drop_expired(self, budget: str, now: float) -> list[PendingRequest]:
        """The pending requests of a class without those for which nothing waits any more."""
        pending = self._pending.get(budget, [])
        while pending and pending[0].since < now - self._grant_wait:
            pending.pop(0)
        return pending

    def _grant(self, budget: str, workers: set[str], now: float) -> set[str]:
        """Grant what the bucket has to requests of `workers`; return those it cannot reach."""
        spending, unreachable = self._of(budget), set[str]()
        waiting = [request for request in self._pending[budget] if request.worker in workers]
        while waiting and whole_tokens(self._buckets[budget], now):
            request = spending.fair_queue.next_request(waiting)
            if not self._send(request.worker, Granted(request.number, now)):
                unreachable.add(request.worker)  # its socket is full or closed
                waiting = [each for each in waiting if each.worker != request.worker]
                continue
            self._buckets[budget] = spend(self._buckets[budget], 1)
            spending.granted(request, waiting, now)
            waiting.remove(request)
            self._pending[budget].remove(request)
        return unreachable

    def _of(self, budget: str) -> "BudgetStats":
        return self._spending.setdefault(budget, BudgetStats())

    def _complain(self, budget: str, message: str) -> None:
        """Once per class: what an operator must know of a class that cannot be served."""
        if budget not in self._logged:
            self._logged.add(budget)
            log.error(message, extra={"class": budget})


@dataclass(slots=True)
class WaitStats:
    """How long calls of one priority waited for their grant, in seconds."""

    calls: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    histogram: Histogram = field(
        default_factory=lambda: Histogram(metrics.GRANT_WAIT_SECONDS.buckets)
    )
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_WAITS))

    def add(self, seconds: float) -> None:
        self.calls += 1
        self.seconds += seconds
        self.longest = max(self.longest, seconds)
        self.histogram.observe(seconds)
        self.recent.append(seconds)

    def status(self) -> WaitStatus:
        ordered = sorted(self.recent) or [0.0]
        last = len(ordered) - 1
        return {
            "calls": self.calls,
            "seconds": round(self.seconds, 3),
            "p50": round(ordered[last // 2], 3),
            "p99": round(ordered[last * 99 // 100], 3),
            "longest": round(self.longest, 3),
        }


@dataclass(slots=True)
class BudgetStats:
    """What became of one class since the supervisor started."""

    throttled: int = 0
    by_priority: Counter[Priority] = field(default_factory=Counter)
    by_worker: Counter[str] = field(default_factory=Counter)
    waits: dict[Priority, WaitStats] = field(default_factory=dict)
    fair_queue: FairQueue = field(default_factory=FairQueue)

    def granted(
        self, request: PendingRequest, waiting: Sequence[PendingRequest], now: float
    ) -> None:
        """The call of this request, one of those that wait, was granted at `now`."""
        self.fair_queue.grant(request, waiting, now)
        self.by_priority[request.priority] += 1
        self.by_worker[worker_name(request.worker)] += 1
        self.waits.setdefault(request.priority, WaitStats()).add(now - request.since)


def worker_name(ident: str) -> str:
    """What an operator calls the worker; `ident` names one start of it ("node-0.3")."""
    return ident.rpartition(".")[0] or ident


def label(priority: Priority) -> str:
    """The priority in metrics and `status`, such as "node-init"."""
    return priority.name.lower().replace("_", "-")


def class_status(
    now: float, bucket: Bucket | None, spending: BudgetStats, pending: Sequence[PendingRequest]
) -> BudgetStatus:
    """One class as `status` shows it; without a bucket it is unknown and never granted."""
    return {
        **_bucket_status(now, bucket),
        "granted": spending.by_priority.total(),
        "granted_by_priority": {label(p): n for p, n in sorted(spending.by_priority.items())},
        "granted_by_worker": dict(sorted(spending.by_worker.items())),
        "throttled": spending.throttled,
        "waits": {label(p): waits.status() for p, waits in sorted(spending.waits.items())},
        "waiting": dict(Counter(worker_name(request.worker) for request in pending)),
        "queue": _queue_status(now, pending),
    }


def _queue_status(now: float, pending: Sequence[PendingRequest]) -> list[WaitingCalls]:
    """One entry a worker and priority: how many calls wait, and the longest of their waits."""
    groups: dict[tuple[str, Priority], list[PendingRequest]] = {}
    for request in pending:
        groups.setdefault((worker_name(request.worker), request.priority), []).append(request)
    return [
        {
            "worker": worker,
            "priority": label(priority),
            "calls": len(group),
            "seconds": round(now - group[0].since, 1),
        }
        for (worker, priority), group in groups.items()
    ]


def _bucket_status(now: float, bucket: Bucket | None) -> BucketStatus:
    if bucket is None:
        return {"state": "unknown class", "per_second": 0.0, "full_per_second": 0.0}
    is_open, is_slowed = now < bucket.open_until, bucket.rate < bucket.full
    return {
        "state": "open" if is_open else "slowed" if is_slowed else "closed",
        "per_second": round(bucket.rate, 3),
        "full_per_second": round(bucket.full, 3),
        "burst": round(bucket.burst, 1),
        "full_burst": round(bucket.most, 1),
        "tokens": round(max(bucket.tokens, 0.0), 1),
        "open_seconds": round(max(bucket.open_until - now, 0.0), 1),
        "episodes": bucket.episodes,
        "last_episode_seconds": round(now - bucket.episode.at, 1) if bucket.episode else None,
    }
