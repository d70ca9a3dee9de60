"""How much of the processor the keys of one namespace take, beside those of all others."""

import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

from workers.queue import NAMESPACES_KEPT, namespace_of

LONG = 0.01  # seconds of the processor in one turn of the loop, which others feel
FOR_A_NODE = 5e-6  # seconds more for each Node: all Services have these behind them
SHARE = 0.125  # of the time, for the long turns of one namespace
SAVED = 1.0  # seconds of rest that a quiet time makes up for


class ProcessorShares:
    """Has the keys of a namespace rest whose reconciles take the loop for long at a time.

    A Service with 5,000 source ranges takes 50 ms to read, and as much to compare. Turns shorter
    than `LONG` are free, however many there are. Keys of no namespace share nothing.
    """

    def __init__(self, node_count: Callable[[], int]) -> None:
        self._node_count = node_count
        self._rests_until: dict[str, float] = {}

    def seconds_to_rest(self, key: str) -> float:
        """How long a reconcile of `key` is still to wait for others; 0 or less for most."""
        return self._rests_until.get(namespace_of(key), 0.0) - time.monotonic()

    async def measure(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        """Do the work of `key`; its long turns are counted as they pass."""
        namespace = namespace_of(key)
        await (_Measured(work, partial(self._count, namespace)) if namespace else work)

    def _count(self, namespace: str, seconds: float) -> None:
        if seconds < LONG + FOR_A_NODE * self._node_count():
            return
        now = time.monotonic()
        if len(self._rests_until) > NAMESPACES_KEPT:
            self._rests_until = {name: it for name, it in self._rests_until.items() if it > now}
        rested = max(self._rests_until.get(namespace, 0.0), now - SAVED)
        self._rests_until[namespace] = rested + seconds / SHARE


class _Measured(Generator[Any, Any, None]):
    """As `work`; `count` gets the processor's seconds of each turn of the loop in it."""

    def __init__(self, work: Coroutine[Any, Any, None], count: Callable[[float], None]) -> None:
        self._work, self._count = work, count

    def __await__(self) -> Generator[Any, Any, None]:
        return self

    def send(self, value: Any) -> Any:
        return self._step(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._work.throw, *error)

    def _step(self, resume: Callable[..., Any], *arguments: Any) -> Any:
        began = time.thread_time()
        try:
            return resume(*arguments)
        finally:
            self._count(time.thread_time() - began)
