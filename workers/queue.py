"""The work queue, and what is known of its keys: who is pending, why, and how each ended last."""

import asyncio
import heapq
import logging
import math
import random
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from ccm import metrics
from ccm.background import call_later
from ccm.counters import Counters
from ccm.decide.backoff import Backoff
from ccm.decide.budget import Allowances, RoundRobin
from ccm.model.status import PendingObjects, RecentDecision
from ccm.redaction import safe_text

log = logging.getLogger(__name__)

RETRY = Backoff(first=0.2, most=60.0)
DECISIONS_KEPT = 20_000  # keys; beyond that the one reconciled longest ago is forgotten
SUMMARY_INTERVAL = 60.0  # seconds between two records of what goes on failing
REFUSAL_INTERVAL = 3600.0  # the same, of what waits for a change of the object
FAILURES_KEPT = 10  # the newest, for the status page
LINES, LINES_REFILL = 100, 10.0  # of the log about one namespace at once, then one in so many s
NAMESPACES_KEPT = 10_000
GROUPS_SHOWN = 10  # reasons in a heartbeat
NAMES_SHOWN = 5  # keys of each
KEYS_LOOKED_AT = 1000  # of each, for their namespaces


class WorkQueue:
    """Keys to reconcile (client-go: a rate-limiting work queue): one reconcile a key at a time.

    A key that is added while it is in flight runs once more afterwards; one that failed comes back
    after its back-off, with jitter. A parked key still has its reconcile, which only waits.
    Namespaces take turns: one with many keys does not stand before all others.
    """

    def __init__(self, backoff: Backoff = RETRY) -> None:
        self._backoff = backoff
        self._ready: dict[str, float] = {}  # since when
        self._turns = RoundRobin[str]()  # ready keys
        self._in_flight: dict[str, float] = {}
        self._parked: dict[str, asyncio.Task[object] | None] = {}
        self._dirty: set[str] = set()
        self._failures: dict[str, int] = {}
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._is_closed = False
        self.counters = Counters()

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def is_busy(self) -> bool:
        """Whether keys are ready or in flight."""
        return bool(self._ready or self._in_flight)

    @property
    def waiting(self) -> int:
        """Keys that wait for their time."""
        return len(self._due)

    def next_due(self, now: float) -> float | None:
        """Seconds until the first of the waiting keys is due; None when none waits."""
        return min((timer.when() - now for timer in self._due.values()), default=None)

    def due_in(self, key: str) -> float | None:
        """Seconds until the time that this key waits for; None when it waits for none."""
        timer = self._due.get(key)
        return timer.when() - asyncio.get_running_loop().time() if timer else None

    def is_in_flight(self, key: str) -> bool:
        return key in self._in_flight

    @property
    def parked(self) -> Collection[str]:
        """Keys whose reconcile only waits for something, such as the cloud's answer."""
        return self._parked.keys()

    @contextmanager
    def parking(self, key: str) -> Iterator[None]:
        """In the reconcile of `key`: it only waits in here, so it is not in flight meanwhile.

        Another worker may have the key, and its end is not awaited: once the queue is closed,
        the reconcile is cancelled.
        """
        task = asyncio.current_task()
        self._in_flight.pop(key, None)
        self._parked[key] = task
        if self._is_closed and task:
            task.cancel()
        try:
            yield
        finally:
            del self._parked[key]
            self._in_flight[key] = time.monotonic()

    def oldest_in_flight(self, now: float) -> float:
        """Seconds that the longest-running key has been in flight."""
        return max((now - began for began in self._in_flight.values()), default=0.0)

    def unfinished(self, now: float) -> float:
        """Seconds that the keys in flight have been so, all together."""
        return sum(now - began for began in self._in_flight.values())

    def add(self, key: str) -> None:
        """Reconcile `key` as soon as possible."""
        if timer := self._due.pop(key, None):
            timer.cancel()
        if key in self._in_flight or key in self._parked:
            self._dirty.add(key)
            return
        if key not in self._ready:
            self._ready[key] = time.monotonic()
            self._turns.add(namespace_of(key), key)
            self.counters.count(metrics.QUEUE_ADDS)
        self._wake(1)

    def add_after(self, key: str, seconds: float) -> None:
        """Reconcile `key` in `seconds`, or sooner if something changes before."""
        due_in = self.due_in(key)
        if key in self._ready or (due_in is not None and due_in <= seconds):
            return
        self.counters.count(metrics.QUEUE_RETRIES)
        if due_in is not None:
            self._due[key].cancel()
        self._due[key] = call_later(seconds, self.add, key)

    def add_failed(self, key: str, backoff: Backoff | None = None) -> None:
        """Reconcile `key` again after its back-off: this one, or the controller's."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = (backoff or self._backoff).delay(self._failures[key], random.random())
        self.add_after(key, delay)

    def failures(self, key: str) -> int:
        """How often in a row this key failed."""
        return self._failures.get(key, 0)

    def forget_failures(self, key: str) -> None:
        self._failures.pop(key, None)

    async def wait(self) -> None:
        """Return once `get` does not have to wait."""
        while not self._ready and not self._is_closed:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake(1)  # it was woken and leaves: another takes its turn
                raise

    async def get(self) -> str | None:
        """The next key, which is then in flight until `done`; None once the queue is closed."""
        await self.wait()
        if self._is_closed:
            return None
        key = self._turns.pop()
        since = self._ready.pop(key)
        self.counters.observe(metrics.QUEUE_WAIT_SECONDS, seconds=time.monotonic() - since)
        self._in_flight[key] = time.monotonic()
        return key

    def done(self, key: str) -> None:
        """The key is no longer in flight."""
        seconds = time.monotonic() - self._in_flight.pop(key)
        self.counters.observe(metrics.QUEUE_WORK_SECONDS, seconds=seconds)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def close(self) -> None:
        """Hand out no more keys, and cancel the reconciles that only wait."""
        self._is_closed = True
        for task in self._parked.values():
            if task:
                task.cancel()
        for timer in self._due.values():
            timer.cancel()
        self._wake(len(self._waiters))

    def _wake(self, count: int) -> None:
        while self._waiters and count > 0:
            waiter = self._waiters.pop()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1


def namespace_of(key: str) -> str:
    """Of the key of a namespaced object; all others, such as "route 10.0.0.0/8", are one group."""
    return "" if " " in key else key.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Decision:
    """How one reconcile ended: `result` is done, waiting, refused or failed; `at` is monotonic."""

    result: str
    message: str
    at: float


@dataclass(slots=True)
class PendingGroup:
    """The pending keys that share a reason; `since` is monotonic."""

    why: str
    is_failure: bool
    since: float
    is_refusal: bool = False
    logged: float = -math.inf
    keys: dict[str, None] = field(default_factory=dict)

    def namespaces(self) -> set[str]:
        """Those of its first keys."""
        return {namespace_of(key) for key in islice(self.keys, KEYS_LOOKED_AT)}

    def is_due(self, now: float) -> bool:
        """Whether it is to be logged again."""
        interval = REFUSAL_INTERVAL if self.is_refusal else SUMMARY_INTERVAL
        return now - max(self.since, self.logged) >= interval


class ReconcileLog:
    """The last decision on each key; which keys are pending, and why.

    Something is pending while its last reconcile left work to do. A failure that many keys share
    is logged once, and once more when none of them has it any longer; of one namespace, whose
    tenant may have another reason with each change, no more than `LINES` at once.
    """

    def __init__(self) -> None:
        self._decisions: OrderedDict[str, Decision] = OrderedDict()
        self._pending: dict[str, PendingGroup] = {}
        self._groups: dict[tuple[str, bool], PendingGroup] = {}
        self._summarized = 0.0
        self._in_summary: dict[str, float] = {}  # namespaces, and when they were last
        self._lines = Allowances[str](LINES, LINES_REFILL, NAMESPACES_KEPT)
        self._recent: deque[tuple[float, str, str, str]] = deque(maxlen=FAILURES_KEPT)
        self.failing = 0  # pending keys that do not just wait
        self.done_count = 0

    def __len__(self) -> int:
        """How many keys are pending."""
        return len(self._pending)

    def __contains__(self, key: str) -> bool:
        """Whether `key` is pending."""
        return key in self._pending

    def last(self, key: str) -> Decision | None:
        """The last decision on `key`, if it is not too long ago."""
        return self._decisions.get(key)

    def recent(self, now: float) -> list[RecentDecision]:
        """The last failures and recoveries, newest first; `now` is monotonic."""
        return [
            {"key": key, "what": what, "why": why, "seconds_ago": round(now - at, 1)}
            for at, what, key, why in reversed(self._recent)
        ]

    def first(self, count: int) -> dict[str, str]:
        """Some pending keys and why."""
        return {key: group.why for key, group in islice(self._pending.items(), count)}

    def groups(self, now: float) -> list[PendingObjects]:
        """The reasons that most pending keys share, failures first; `now` is monotonic."""
        largest = heapq.nlargest(
            GROUPS_SHOWN, self._groups.values(), key=lambda it: (it.is_failure, len(it.keys))
        )
        return [
            {
                "why": group.why,
                "is_failure": group.is_failure,
                "seconds": round(now - group.since),
                "count": len(group.keys),
                "names": list(islice(group.keys, NAMES_SHOWN)),
            }
            for group in largest
        ]

    def done(self, key: str, message: str) -> None:
        """Nothing is left to do for `key`."""
        self._decided(key, "done", message)
        was = self._leave_group(key)
        self._pending.pop(key, None)
        if was:
            if self._may_log(key):
                log.info("reconcile recovered", extra={"key": key, "was": was})
            self._recent.append((time.monotonic(), "recovered", key, f"it was: {was}"))
        self.done_count += 1

    def waiting(self, key: str, why: str) -> None:
        """`key` waits for something ordinary; an earlier failure stays its reason meanwhile."""
        why = self._decided(key, "waiting", why)
        group = self._pending.get(key)
        if group and (group.is_failure or group.why == why):
            return
        self._leave_group(key)
        self._join_group(key, why, is_failure=False)

    def failed(self, key: str, why: str, result: str = "failed") -> None:
        """The reconcile failed, or was refused until something changes."""
        why = self._decided(key, result, why)
        group = self._pending.get(key)
        if group and group.is_failure and group.why == why:
            return
        self._leave_group(key)
        group = self._join_group(key, why, is_failure=True)
        group.is_refusal = result == "refused"
        if len(group.keys) == 1:
            if self._may_log(key):
                log.warning("reconcile failed", extra={"key": key, "why": why})
            self._recent.append((group.since, "failed", key, why))

    def summarize(self, now: float) -> None:
        """Log once a minute what has failed for that long, so that an outage is not silent: of the
        namespaces that were longest not in it, what most keys have.

        What the object's owner has to change is logged once an hour.
        """
        if now - self._summarized < SUMMARY_INTERVAL:
            return
        failures = (group for group in self._groups.values() if group.is_failure)
        due = [group for group in failures if group.is_due(now)]
        if not due:
            return

        def turn(group: PendingGroup) -> tuple[float, int]:
            last = (self._in_summary.get(name, -math.inf) for name in group.namespaces())
            return min(last), -len(group.keys)

        group = min(due, key=turn)
        self._summarized = group.logged = now
        if len(self._in_summary) > NAMESPACES_KEPT:
            self._in_summary.clear()
        self._in_summary |= dict.fromkeys(group.namespaces(), now)
        fields = {"why": group.why, "objects": len(group.keys), "pending": len(self)}
        seconds = round(now - group.since)
        log.warning("reconciles still fail", extra={**fields, "seconds": seconds})

    def _may_log(self, key: str) -> bool:
        """Whether its namespace has not had too many lines: each change may be another reason."""
        namespace = namespace_of(key)
        return not (namespace and self._lines.take(namespace, time.monotonic()))

    def _decided(self, key: str, result: str, message: str) -> str:
        """Note the decision; the message as it may be kept and shown."""
        message = safe_text(message)
        self._decisions[key] = Decision(result, message, time.monotonic())
        self._decisions.move_to_end(key)
        if len(self._decisions) > DECISIONS_KEPT:
            self._decisions.popitem(last=False)
        return message

    def _join_group(self, key: str, why: str, *, is_failure: bool) -> PendingGroup:
        since = self._decisions[key].at
        group = self._groups.setdefault((why, is_failure), PendingGroup(why, is_failure, since))
        group.keys[key] = None
        self._pending[key] = group
        self.failing += is_failure
        return group

    def _leave_group(self, key: str) -> str | None:
        """The failure that `key` no longer has, if no other key has it either."""
        group = self._pending.get(key)
        if group is None:
            return None
        del group.keys[key]
        self.failing -= group.is_failure
        if not group.keys:
            del self._groups[group.why, group.is_failure]
        return group.why if group.is_failure and not group.keys else None
