"""The rate limit of the simulated cloud: one token bucket for reads and one for writes."""

import math
from dataclasses import dataclass

from ccm.sandbox.cloud.ledger import Clock
from ccm.sandbox.cloud.problems import Problem, invalid

BUDGETS = ("read", "write")


@dataclass(frozen=True, slots=True)
class Rate:
    """So many calls a second, after a burst of so many at once."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        if self.per_second <= 0 or self.burst < 1:
            raise invalid("a rate needs per_second above 0 and a burst of 1 or more")


class TokenBucket:
    """A full bucket that every call takes one token from and that time fills again."""

    def __init__(self, rate: Rate, clock: Clock) -> None:
        self.rate = rate
        self._clock = clock
        self._tokens, self._filled_at = float(rate.burst), clock()

    def take(self) -> float:
        """Take a token; return 0, or the seconds until there will be one."""
        now = self._clock()
        gained = (now - self._filled_at) * self.rate.per_second
        self._tokens, self._filled_at = min(self.rate.burst, self._tokens + gained), now
        if self._tokens < 1:
            return (1 - self._tokens) / self.rate.per_second
        self._tokens -= 1
        return 0.0

    @property
    def remaining(self) -> int:
        return int(self._tokens)


class Limits:
    """The buckets in force; a class without one is not limited."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def set(self, budget: str, rate: Rate | None) -> None:
        """Put a new, full bucket in force, or none."""
        if budget not in BUDGETS:
            raise invalid(f"{budget!r} is not a class of calls: {', '.join(BUDGETS)}")
        self._buckets.pop(budget, None)
        if rate:
            self._buckets[budget] = TokenBucket(rate, self._clock)

    def rates(self) -> dict[str, Rate | None]:
        found = {budget: self._buckets.get(budget) for budget in BUDGETS}
        return {budget: bucket.rate if bucket else None for budget, bucket in found.items()}

    def take(self, budget: str) -> dict[str, str]:
        """Spend one call; return the headers that say what is left, or raise the 429."""
        bucket = self._buckets.get(budget)
        if bucket is None:
            return {}
        wait = bucket.take()
        headers = {
            "RateLimit-Limit": str(bucket.rate.burst),
            "RateLimit-Remaining": str(bucket.remaining),
        }
        if wait:
            # Retry-After is in whole seconds (RFC 9110, 10.2.3).
            headers["Retry-After"] = str(math.ceil(wait))
            raise Problem(429, "RateLimitExceeded", f"too many {budget} calls", headers)
        return headers
