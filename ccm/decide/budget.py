"""The shared cloud budget: who gets the next calls, and how a throttling answer slows everybody."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

AGEING = 10.0  # seconds of waiting that lift a call by one priority, so that nothing starves
RECOVERY = 60.0  # seconds from the floor back to the full rate
FLOOR = 0.05  # the share of the full rate that throttling cannot take away


class Priority(IntEnum):
    """Who goes first; the order of what an operator misses first."""

    NODE_INIT = 0
    LB_DELETE = 1
    LB_ENSURE = 2
    ROUTE = 3
    VOLUME = 4
    REFRESH = 5


@dataclass(frozen=True, slots=True)
class Bucket:
    """One class of calls: `rate` calls a second now, at most `full`, and `tokens` to spend."""

    full: float
    burst: float
    rate: float
    tokens: float
    at: float
    shut_until: float = 0.0

    @classmethod
    def new(cls, per_second: float, burst: int, now: float) -> "Bucket":
        return cls(per_second, burst, per_second, burst, now)


@dataclass(frozen=True, slots=True)
class Ask:
    """A worker waits for `count` calls of one class since `since` (monotonic)."""

    asker: str
    number: int
    budget: str
    priority: Priority
    count: int
    since: float


@dataclass(frozen=True, slots=True)
class Grant:
    """`count` calls that the asker of `ask` may make now."""

    ask: Ask
    count: int


def refill(bucket: Bucket, now: float) -> Bucket:
    """The bucket at `now`: tokens flow in, and a slowed rate recovers a little."""
    passed = max(now - bucket.at, 0.0)
    rate = min(bucket.full, bucket.rate + bucket.full * passed / RECOVERY)
    if now < bucket.shut_until:
        return replace(bucket, at=now)
    open_for = min(passed, now - bucket.shut_until) if bucket.shut_until else passed
    tokens = min(bucket.burst, bucket.tokens + bucket.rate * open_for)
    return replace(bucket, at=now, rate=rate, tokens=tokens)


def throttled(bucket: Bucket, seconds: float | None, now: float) -> Bucket:
    """The bucket after the cloud refused for rate: half the rate, nothing for `seconds`.

    Answers to calls that were under way together count once: while the bucket is shut, another
    refusal only keeps it shut for longer.
    """
    bucket = refill(bucket, now)
    until = now + (seconds if seconds is not None else 1.0)
    if now < bucket.shut_until:
        return replace(bucket, shut_until=max(bucket.shut_until, until))
    rate = max(bucket.rate / 2, bucket.full * FLOOR)
    return replace(bucket, rate=rate, tokens=0.0, shut_until=until)


def urgency(ask: Ask, now: float) -> tuple[float, float]:
    """Sort key: the most urgent ask first."""
    return ask.priority - (now - ask.since) / AGEING, ask.since


def share_out(bucket: Bucket, asks: Iterable[Ask], now: float) -> Iterator[Grant]:
    """Whole calls from `bucket` to the most urgent asks; the caller takes them off the bucket."""
    left = 0 if now < bucket.shut_until else int(bucket.tokens + 1e-9)
    for ask in sorted(asks, key=lambda ask: urgency(ask, now)):
        if left <= 0:
            return
        count = min(left, ask.count)
        left -= count
        yield Grant(ask, count)


def next_token_in(bucket: Bucket, now: float) -> float:
    """Seconds until the bucket can give one more call."""
    shut = max(bucket.shut_until - now, 0.0)
    missing = max(1.0 - bucket.tokens, 0.0)
    return shut + missing / bucket.rate
