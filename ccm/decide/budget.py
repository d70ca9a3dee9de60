"""Who gets the next cloud calls: asks by priority and age, served with whole tokens of a bucket."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from heapq import nsmallest

from ccm.decide.rate_law import Bucket

GRANT_TIMEOUT = 2.0  # seconds in which a granted call must begin
GRANT_WAIT = 60.0  # seconds that a call waits for its grant; then its work is planned anew
AGEING = 5.0  # seconds of waiting that lift a call by one priority, so that nothing starves


class Priority(IntEnum):
    """Who goes first; the order of what an operator misses first."""

    NODE_INIT = 0
    LB_DELETE = 1
    LB_ENSURE = 2
    ROUTE = 3
    VOLUME = 4
    REFRESH = 5


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that `worker` waits for since `since` (monotonic); `number` is the worker's own."""

    worker: str
    number: int
    budget: str
    priority: Priority
    since: float


ServedAt = Mapping[tuple[str, Priority], float]
"""When a worker last got a call of a priority (monotonic)."""


def urgency(ask: Ask, now: float, served_at: ServedAt) -> tuple[float, float]:
    """Sort key: the most urgent ask first.

    An ask ages from when it came, or from when its worker last got a call of this priority: so
    workers take turns, and nothing starves however many calls a worker wants at once.
    """
    waited = now - max(ask.since, served_at.get((ask.worker, ask.priority), 0.0))
    return ask.priority - waited / AGEING, ask.since


def grantable(
    bucket: Bucket, asks: Iterable[Ask], now: float, served_at: ServedAt
) -> Iterator[Ask]:
    """The most urgent asks, as many as `bucket` has whole tokens; the caller spends them."""
    tokens = 0 if now < bucket.open_until else int(bucket.tokens + 1e-9)
    if tokens > 0:
        yield from nsmallest(tokens, asks, key=lambda ask: urgency(ask, now, served_at))
