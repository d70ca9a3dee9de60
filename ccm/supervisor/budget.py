"""The one cloud budget of all workers: takes what they ask for, grants what the buckets hold."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from ccm.bus.frames import AskCalls, CloudThrottled, Granted, Message, ReturnCalls
from ccm.decide.budget import (
    Ask,
    Bucket,
    Priority,
    next_token_in,
    refill,
    share_out,
    throttled,
)
from ccm.model.node import Json

log = logging.getLogger(__name__)


class Budget:
    """Buckets by class of calls; the rates come from the provider unless flags say otherwise."""

    def __init__(self, rates: Mapping[str, float], send: Callable[[str, Message], bool]) -> None:
        self._rates, self._send = rates, send
        self._buckets: dict[str, Bucket] = {}
        self._asks: list[Ask] = []
        self._timer: asyncio.TimerHandle | None = None
        self._granted: Counter[str] = Counter()
        self._throttled: Counter[str] = Counter()

    def declare(self, quotas: Mapping[str, list[float]]) -> None:
        """The provider's quotas, as its workers report them; the first report counts."""
        for budget, (per_second, burst) in quotas.items():
            rate = self._rates.get(budget, per_second)
            new = Bucket.new(rate, max(int(burst), 1), time.monotonic())
            self._buckets.setdefault(budget, new)

    def ask(self, worker: str, message: AskCalls) -> None:
        """A worker waits for calls; it hears of them as soon as the bucket has some."""
        if message.budget not in self._buckets:
            log.error("unknown budget class", extra={"worker": worker, "class": message.budget})
            return  # no grant, no call
        self._asks.append(
            Ask(
                worker,
                message.number,
                message.budget,
                Priority(message.priority),
                max(message.count, 0),
                time.monotonic(),
            )
        )
        self._serve()

    def take_back(self, message: ReturnCalls) -> None:
        """Calls that were granted and not made."""
        if bucket := self._buckets.get(message.budget):
            tokens = min(bucket.tokens + message.count, bucket.burst)
            self._buckets[message.budget] = replace(bucket, tokens=tokens)
            self._serve()

    def slow_down(self, worker: str, message: CloudThrottled) -> None:
        """The cloud said that we are too fast: everybody waits, from now on."""
        if bucket := self._buckets.get(message.budget):
            slower = throttled(bucket, message.seconds, time.monotonic())
            self._buckets[message.budget] = slower
            self._throttled[message.budget] += 1
            log.warning(
                "cloud throttles; calls slowed for all workers",
                extra={"class": message.budget, "worker": worker, "per_second": slower.rate},
            )

    def forget(self, worker: str) -> None:
        """The worker is gone: nobody waits for its calls any more."""
        self._asks = [ask for ask in self._asks if ask.asker != worker]

    def facts(self, now: float) -> Json:
        """What `status` shows, per class."""
        return {
            budget: {
                "per_second": round(refill(bucket, now).rate, 3),
                "full_per_second": bucket.full,
                "granted": self._granted[budget],
                "throttled": self._throttled[budget],
                "waiting": {ask.asker: ask.count for ask in self._asks if ask.budget == budget},
            }
            for budget, bucket in self._buckets.items()
        }

    def _serve(self) -> None:
        """Grant what can be granted now, and come back when the next call can be."""
        now = time.monotonic()
        for budget in {ask.budget for ask in self._asks}:
            bucket = refill(self._buckets[budget], now)
            asks = [ask for ask in self._asks if ask.budget == budget]
            for grant in share_out(bucket, asks, now):
                bucket = replace(bucket, tokens=bucket.tokens - grant.count)
                self._granted[budget] += grant.count
                self._settle(grant.ask, grant.count)
            self._buckets[budget] = bucket
        self._come_back(now)

    def _settle(self, ask: Ask, count: int) -> None:
        self._asks.remove(ask)
        if count < ask.count:
            self._asks.append(replace(ask, count=ask.count - count))
        self._send(ask.asker, Granted(ask.number, count))

    def _come_back(self, now: float) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        waits = [next_token_in(self._buckets[ask.budget], now) for ask in self._asks]
        if waits:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(min(waits), 0.001), self._serve)
