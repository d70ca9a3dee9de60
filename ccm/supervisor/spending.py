"""The books of the cloud budget: which grants are in whose hands, and what `status` shows of it."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ccm import metrics
from ccm.counters import Histogram
from ccm.decide.budget import Ask, Bucket, Priority
from ccm.model.objects import Json

RECENT = 1000  # waits per priority that the percentiles are of


@dataclass(slots=True)
class Lease:
    """`count` calls in a worker's hands, `ahead` of them granted before they were needed."""

    worker: str
    budget: str
    priority: Priority
    count: int
    ahead: int
    until: float


class Leases:
    """Every grant that its worker has neither used nor returned, oldest first."""

    def __init__(self) -> None:
        self._leases: list[Lease] = []

    def add(self, lease: Lease) -> None:
        self._leases.append(lease)

    def settle(self, worker: str, budget: str, priority: int, count: int) -> int:
        """Take `count` calls out of the worker's hands, oldest first; how many were in them."""
        left = count
        for lease in list(self._leases):
            if (lease.worker, lease.budget, lease.priority) == (worker, budget, priority):
                taken = min(lease.count, left)
                lease.count -= taken
                lease.ahead = min(lease.ahead, lease.count)
                left -= taken
                if not lease.count:
                    self._leases.remove(lease)
        return count - left

    def drop(self, worker: str) -> list[Lease]:
        """Everything out of the hands of a worker that is gone."""
        gone = [lease for lease in self._leases if lease.worker == worker]
        self._leases = [lease for lease in self._leases if lease.worker != worker]
        return gone

    def lapsed(self, now: float) -> list[Lease]:
        """Everything that is past its time."""
        late = [lease for lease in self._leases if lease.until < now]
        self._leases = [lease for lease in self._leases if lease.until >= now]
        return late

    def first_end(self) -> Iterator[float]:
        """When the oldest grant ends; nothing if there is none."""
        return (lease.until for lease in self._leases[:1])

    def ahead(self, budget: str) -> int:
        return sum(lease.ahead for lease in self._leases if lease.budget == budget)

    def holders(self, budget: str) -> set[str]:
        return {lease.worker for lease in self._leases if lease.budget == budget}

    def held(self, budget: str) -> Counter[str]:
        """Calls in hands, per worker."""
        held: Counter[str] = Counter()
        for lease in self._leases:
            if lease.budget == budget:
                held[lease.worker] += lease.count
        return held


@dataclass(slots=True)
class Waits:
    """How long calls of one priority waited for their grant."""

    calls: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    spread: Histogram = field(default_factory=lambda: Histogram(metrics.GRANT_WAITS.buckets))
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def note(self, seconds: float, calls: int) -> None:
        self.calls += calls
        self.seconds += seconds * calls
        self.longest = max(self.longest, seconds)
        self.spread.observe(seconds, calls)
        self.recent.extend([seconds] * min(calls, RECENT))

    def status(self) -> Json:
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
class Spending:
    """What became of one class since the supervisor started."""

    throttled: int = 0
    by_priority: Counter[Priority] = field(default_factory=Counter)
    by_worker: Counter[str] = field(default_factory=Counter)
    waits: dict[Priority, Waits] = field(default_factory=dict)

    def note(self, ask: Ask, count: int, ahead: int, now: float) -> None:
        """So many calls were granted, after the wait of this ask."""
        self.by_priority[ask.priority] += count + ahead
        self.by_worker[worker_name(ask.asker)] += count + ahead
        self.waits.setdefault(ask.priority, Waits()).note(now - ask.since, count)

    def note_return(self, worker: str, priority: Priority, count: int) -> None:
        self.by_priority[priority] -= count
        self.by_worker[worker_name(worker)] -= count


def worker_name(ident: str) -> str:
    """What an operator calls the worker; `ident` names one start of it ("node-0.3")."""
    return ident.rpartition(".")[0] or ident


def label(priority: Priority) -> str:
    return priority.name.lower().replace("_", "-")


def shown(
    now: float,
    bucket: Bucket | None,
    spending: Spending,
    asks: Sequence[Ask],
    held: Counter[str],
) -> Json:
    """One class as `status` shows it; without a bucket it is unknown and never granted."""
    waiting: Counter[str] = Counter()
    for ask in asks:
        waiting[worker_name(ask.asker)] += ask.count
    return {
        **_pace(now, bucket),
        "granted": spending.by_priority.total(),
        "granted_by_priority": {label(p): n for p, n in sorted(spending.by_priority.items())},
        "granted_by_worker": dict(sorted(spending.by_worker.items())),
        "throttled": spending.throttled,
        "waits": {label(p): waits.status() for p, waits in sorted(spending.waits.items())},
        "waiting": dict(waiting),
        "queue": [
            {
                "worker": worker_name(ask.asker),
                "priority": label(ask.priority),
                "calls": ask.count,
                "seconds": round(now - ask.since, 1),
            }
            for ask in sorted(asks, key=lambda ask: ask.since)
        ],
        "in_hand": {worker_name(ident): count for ident, count in held.items()},
    }


def _pace(now: float, bucket: Bucket | None) -> Json:
    if bucket is None:
        return {"state": "unknown class", "per_second": 0.0, "full_per_second": 0.0}
    is_shut, is_slowed = now < bucket.shut_until, bucket.rate < bucket.full
    return {
        "state": "shut" if is_shut else "slowed" if is_slowed else "open",
        "per_second": round(bucket.rate, 3),
        "full_per_second": round(bucket.full, 3),
        "burst": round(bucket.burst, 1),
        "full_burst": round(bucket.most, 1),
        "in_stock": round(max(bucket.tokens, 0.0), 1),
        "shut_seconds": round(max(bucket.shut_until - now, 0.0), 1),
        "episodes": bucket.episodes,
        "last_episode_seconds": round(now - bucket.episode.at, 1) if bucket.episode else None,
    }
