"""How the cloud behaves over time: its parameters, what is still to happen, and its rate limits."""

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields

from ccm.sandbox.cloud.codec import CloudApiError, invalid

Clock = Callable[[], float]
BUDGETS = ("read", "write")


@dataclass(frozen=True, slots=True)
class CloudParameters:
    """How this cloud behaves, changeable while it runs; all times are seconds."""

    page: int = 100
    """The most records in one answer, and the most names or ids in one request."""
    latency: float = 0.0
    max_routes: int = 1000
    max_load_balancers: int = 100
    retention: float = 60.0
    """How long a terminated machine stays visible before it is simply absent."""
    provisioning: float = 0.0
    """How long a load balancer works on a creation or a change before it is active."""
    deletion: float = 0.0

    def __post_init__(self) -> None:
        if self.page < 1:
            raise invalid("a page holds 1 record or more")
        negative = [field.name for field in fields(self) if getattr(self, field.name) < 0]
        if negative:
            raise invalid(f"these are not negative: {', '.join(negative)}")


class Simulation:
    """Gives out numbers and holds the transitions that happen later by themselves."""

    def __init__(self, parameters: CloudParameters, clock: Clock) -> None:
        self.parameters = parameters
        self._clock = clock
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        return next(self._numbers)

    def schedule(self, seconds: float, transition: Callable[[], None]) -> None:
        """Do it at the first `run_due` once `seconds` have passed; at once when zero."""
        if seconds <= 0:
            transition()
        else:
            heapq.heappush(self._due, (self._clock() + seconds, next(self._order), transition))

    def run_due(self) -> None:
        """Bring the state up to now."""
        while self._due and self._due[0][0] <= self._clock():
            heapq.heappop(self._due)[2]()


@dataclass(frozen=True, slots=True)
class CallRate:
    """So many calls a second, after a burst of so many at once."""

    per_second: float
    burst: int = 1

    def __post_init__(self) -> None:
        if self.per_second <= 0 or self.burst < 1:
            raise invalid("a rate needs per_second above 0 and a burst of 1 or more")


class TokenBucket:
    """A full bucket that every call takes one token from and that time fills again."""

    def __init__(self, rate: CallRate, clock: Clock) -> None:
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


class RateLimiter:
    """The buckets in force; a class of calls without one is not limited."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def set(self, budget: str, rate: CallRate | None) -> None:
        """Put a new, full bucket in force, or none."""
        if budget not in BUDGETS:
            raise invalid(f"{budget!r} is not a class of calls: {', '.join(BUDGETS)}")
        self._buckets.pop(budget, None)
        if rate:
            self._buckets[budget] = TokenBucket(rate, self._clock)

    def rates(self) -> dict[str, CallRate | None]:
        rates = {budget: bucket.rate for budget, bucket in self._buckets.items()}
        return dict.fromkeys(BUDGETS) | rates

    def take(self, budget: str) -> None:
        """Spend one call, or raise the 429."""
        bucket = self._buckets.get(budget)
        if bucket and (wait := bucket.take()):
            # Retry-After is in whole seconds (RFC 9110, 10.2.3).
            headers = {"Retry-After": str(math.ceil(wait))}
            raise CloudApiError(429, "RateLimitExceeded", f"too many {budget} calls", headers)
