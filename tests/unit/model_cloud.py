"""Clouds with a rate limit and workers that want more, under an exact virtual clock."""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from ccm.decide.budget import whole_tokens
from ccm.decide.rate_law import Bucket, next_token_in, refill, spend, throttled

RetryAfter = Callable[[float], float | None]
"""What the cloud says of the seconds to wait: whole ones, as the header of RFC 9110, or none."""


class Limit(Protocol):
    """What a cloud counts calls with."""

    def wait(self, now: float) -> float:
        """Zero when a call at `now` is taken, else the seconds until one would be."""
        ...


class TokenBucket:
    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second, self._burst = per_second, burst
        self._tokens, self._at = float(burst), 0.0

    def wait(self, now: float) -> float:
        gained = (now - self._at) * self._per_second
        self._tokens, self._at = min(self._burst, self._tokens + gained), now
        if self._tokens < 1:
            return (1 - self._tokens) / self._per_second
        self._tokens -= 1
        return 0.0


class SlidingWindow:
    def __init__(self, calls: int, seconds: float) -> None:
        self._calls, self._seconds = calls, seconds
        self._taken: deque[float] = deque()

    def wait(self, now: float) -> float:
        while self._taken and self._taken[0] <= now - self._seconds:
            self._taken.popleft()
        if len(self._taken) >= self._calls:
            return self._taken[0] + self._seconds - now
        self._taken.append(now)
        return 0.0


class FixedWindow:
    def __init__(self, calls: int, seconds: float) -> None:
        self._calls, self._seconds = calls, seconds
        self._window, self._taken = 0, 0

    def wait(self, now: float) -> float:
        window = int(now / self._seconds)
        if window != self._window:
            self._window, self._taken = window, 0
        if self._taken >= self._calls:
            return (window + 1) * self._seconds - now
        self._taken += 1
        return 0.0


@dataclass
class World:
    """One bucket of ours, `callers` that always want another call, a cloud, perhaps a co-tenant.

    A call is under way for about `latency` before the cloud sees it, with as much jitter again.
    """

    limit: Limit
    bucket: Bucket
    retry_after: RetryAfter = math.ceil
    callers: int = 40
    latency: float = 0.004
    seed: int = 1
    seen: list[tuple[float, bool]] = field(default_factory=list)  # when, whether it was taken
    _events: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = count()
        self._random = random.Random(self.seed)
        self._waiting = self.callers
        self._woken_at = math.inf
        self._serve_at(0.0)

    def tenant(self, per_second: float, begin: float, end: float) -> None:
        """Someone else spends from the same account for a while."""
        for number in range(int((end - begin) * per_second)):
            self._at(begin + number / per_second, self._limit_only)

    def run(self, seconds: float) -> None:
        """Let the world go on until this time."""
        while self._events and self._events[0][0] <= seconds:
            now, _, act = heapq.heappop(self._events)
            act(now)

    def throttled_share(self, begin: float, end: float) -> float:
        taken = [was_taken for at, was_taken in self.seen if begin <= at < end]
        return taken.count(False) / max(len(taken), 1)

    def per_second(self, begin: float, end: float) -> float:
        """Calls that the cloud took."""
        return sum(taken for at, taken in self.seen if begin <= at < end) / (end - begin)

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), act))

    def _limit_only(self, now: float) -> None:
        self.limit.wait(now)

    def _serve_at(self, when: float) -> None:
        if when < self._woken_at:
            self._woken_at = when
            self._at(when, self._serve)

    def _serve(self, now: float) -> None:
        if now != self._woken_at:
            return  # woken by someone else meanwhile
        self._woken_at = math.inf
        self.bucket = refill(self.bucket, now)
        for _ in range(min(whole_tokens(self.bucket, now), self._waiting)):
            self.bucket = spend(self.bucket, 1)
            self._waiting -= 1
            delay = self.latency * (0.5 + self._random.expovariate(1.0))
            self._at(now + delay, self._arriving(now))
        if self._waiting:
            timer = 0.001 * (1.0 + self._random.random())  # no loop wakes up on the dot
            self._serve_at(now + max(next_token_in(self.bucket, now), timer))

    def _arriving(self, granted: float) -> Callable[[float], None]:
        def arrive(now: float) -> None:
            wait = self.limit.wait(now)
            self.seen.append((now, not wait))
            self._at(now + self.latency / 2, self._answered(granted, wait))

        return arrive

    def _answered(self, granted: float, wait: float) -> Callable[[float], None]:
        def answer(now: float) -> None:
            if wait:
                seconds = self.retry_after(wait)
                self.bucket = throttled(self.bucket, seconds, now, granted)
            self._waiting += 1
            self._serve_at(now)

        return answer
