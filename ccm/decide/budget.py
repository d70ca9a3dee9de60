"""Who gets the next cloud call: strictly by priority, a small share for all, owners in turn.

And whose turn it is elsewhere, and how often something may happen of each of many.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

from ccm.decide.rate_law import Bucket

K = TypeVar("K", bound=Hashable)

GRANT_TIMEOUT = 2.0  # seconds in which a granted call must begin
GRANT_WAIT = 60.0  # seconds that a call waits for its grant; then its work is planned again
SHARE = 10  # of so many calls, one goes to a priority that strict order would let wait
READS, READ_PAUSE = 10, 30.0
"""So many reads about one object at once, then one in so many seconds: a kubelet changes its Node,
and a tenant a volume, as often as they like."""
MOST_OBJECTS = 10_000  # whose reads are counted
OWNERS_KEPT = 1000  # beyond that, those without a waiting call are forgotten


class Priority(IntEnum):
    """Who goes first; the order of what an operator misses first."""

    NODE_INIT = 0
    LB_DELETE = 1
    LB_ENSURE = 2
    ROUTE = 3
    VOLUME = 4
    REFRESH = 5


TAKING_TURNS = frozenset({Priority.ROUTE, Priority.VOLUME})
"""What waits for no more than one call of each namespace: Nodes and Pods wait for it."""


def rank(priority: Priority) -> Priority:
    """What goes before all of a higher one.

    Services have load balancers deleted and created as often as their tenants like: the deletions
    of one namespace are not before the creations of another, but take turns with them.
    """
    return Priority.LB_DELETE if priority is Priority.LB_ENSURE else priority


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A call that `worker` waits for since `since` (monotonic); `number` is the worker's own.

    `owner` is on whose behalf it is: the namespace of a Service, empty for the cluster.
    """

    worker: str
    number: int
    budget: str
    priority: Priority
    since: float
    owner: str = ""


@dataclass(slots=True)
class FairQueue:
    """Who was served when, in one class: what those who wait next are compared by."""

    in_order: int = 0  # calls since the last that any lower priority could get, while one waited
    granted: int = 0
    lower_at: dict[Priority, int] = field(default_factory=dict)
    owner_at: dict[tuple[Priority, str, str], float] = field(default_factory=dict)

    def next_request(self, pending: Collection[PendingRequest]) -> PendingRequest:
        """The request to grant now, of one or more that wait.

        Of `SHARE` calls, the last goes to the lower priority that was served longest ago; so a
        higher one never waits for more than one call of a lower. Routes and volumes take turns with
        namespaces. A request counts since it came, or from when its owner last got a call of this
        priority: owners, and workers, take turns.
        """
        first = min(rank(request.priority) for request in pending)
        candidates = [request for request in pending if rank(request.priority) is first]
        owners = {request.owner for request in candidates}
        lower = {each.priority for each in pending if rank(each.priority) is not first}
        if self.in_order < SHARE - 1:
            last = max((self.lower_at.get(each, 0) for each in lower), default=0)
            has_turn = owners - {""} and self.granted - last >= len(owners)
            lower = lower & TAKING_TURNS if has_turn else set()
        if lower:
            chosen = min(lower, key=lambda each: (self.lower_at.get(each, 0), each))
            candidates = [request for request in pending if request.priority is chosen]
        return min(candidates, key=self._counts_from)

    def grant(
        self, request: PendingRequest, pending: Collection[PendingRequest], now: float
    ) -> None:
        """`request`, one of `pending`, is granted."""
        self.granted += 1
        self.lower_at[request.priority] = self.granted
        own, ranks = rank(request.priority), {rank(other.priority) for other in pending}
        if own > min(ranks) and self.in_order >= SHARE - 1:
            self.in_order = 0
        elif len(ranks) > 1:
            self.in_order += 1
        if len(self.owner_at) > OWNERS_KEPT:
            recent = {who: at for who, at in self.owner_at.items() if at > now - GRANT_WAIT}
            self.owner_at = recent
        self.owner_at[_who(request)] = now

    def _counts_from(self, request: PendingRequest) -> tuple[float, Priority, float]:
        since = max(request.since, self.owner_at.get(_who(request), request.since))
        return since, request.priority, request.since


def _who(request: PendingRequest) -> tuple[Priority, str, str]:
    """Who has one turn, whatever of its own rank it asks for; the cluster has one a priority."""
    priority = rank(request.priority) if request.owner else request.priority
    return priority, request.worker, request.owner


def whole_tokens(bucket: Bucket, now: float) -> int:
    """How many calls the bucket has now."""
    return 0 if now < bucket.open_until else int(bucket.tokens + 1e-9)


class RoundRobin(Generic[K]):
    """Items that wait, of several owners: each has one in its turn, its oldest first."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_owner)

    def add(self, owner: str, item: K, is_first: bool = False) -> None:
        """Let it wait, unless it does already; before all others of its owner if `is_first`."""
        items = self._by_owner.setdefault(owner, OrderedDict())
        items.setdefault(item)
        if is_first:
            items.move_to_end(item, last=False)

    def next_item(self) -> K:
        """That of the owner whose turn it is."""
        return next(iter(next(iter(self._by_owner.values()))))

    def oldest_of_most(self) -> K:
        """That of the owner who has most."""
        most: OrderedDict[K, None] = max(self._by_owner.values(), key=len)
        return next(iter(most))

    def pop(self) -> K:
        """The same, which waits no longer."""
        return self.take(next(iter(self._by_owner)), self.next_item())

    def take(self, owner: str, item: K) -> K:
        """It waits no longer; its owner's next turn is behind those of the others."""
        items = self._by_owner[owner]
        del items[item]
        if items:
            self._by_owner.move_to_end(owner)
        else:
            del self._by_owner[owner]
        return item

    def discard(self, owner: str, item: K) -> None:
        """It waits no longer, if it did."""
        if item in self._by_owner.get(owner, ()):
            self.take(owner, item)


class Allowances(Generic[K]):
    """`burst` times at once, and one more every `refill` seconds, for each key.

    Of more keys than `most` those are forgotten that were asked about longest ago.
    """

    def __init__(self, burst: int, refill: float, most: int) -> None:
        self._burst, self._refill, self._most = float(burst), refill, most
        self._left: OrderedDict[K, tuple[float, float]] = OrderedDict()  # and as of when

    def __contains__(self, key: K) -> bool:
        """Whether it was asked about before."""
        return key in self._left

    def take(self, key: K, now: float) -> float:
        """0 where it may happen now, which is counted; else in how many seconds it may."""
        left, at = self._left.pop(key, (self._burst, now))
        left = min(left + (now - at) / self._refill, self._burst)
        wait = max((1.0 - left) * self._refill, 0.0)
        self._left[key] = (left if wait else left - 1.0), now
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return wait

    def give_back(self, key: K) -> None:
        """One that was taken did not count, as it turned out; a key that is forgotten has all."""
        if key in self._left:
            left, at = self._left[key]
            self._left[key] = left + 1.0, at
