"""The gate in a worker: every cloud call waits for its grant, has a deadline, and is counted."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

from ccm import metrics
from ccm.counters import Counters
from ccm.decide.budget import Priority
from ccm.durations import format_duration
from ccm.errors import CloudError, Denied, Refused, Throttled

T = TypeVar("T")

_priority: ContextVar[Priority] = ContextVar("priority", default=Priority.REFRESH)


@contextmanager
def spending(priority: Priority) -> Iterator[None]:
    """Cloud calls made inside, threads included, go with this priority."""
    token = _priority.set(priority)
    try:
        yield
    finally:
        _priority.reset(token)


class GrantSource(Protocol):
    """Where grants come from; in a worker, the supervisor."""

    async def take(self, budget: str, priority: Priority) -> float:
        """When the call was granted that may be made now; wait for ever if none may be made."""
        ...

    def throttled(self, budget: str, seconds: float | None, granted: float) -> None:
        """Tell everybody that the cloud refused, for rate, a call that was granted at `granted`."""
        ...


class WorkerGate:
    """What a provider gets as its `Gate`.

    `check` raises `NoPermit` when this process may not act. It is asked after the wait for a grant,
    right before the call: a process that does not lead any more leaves the cloud alone.
    """

    def __init__(self, purse: GrantSource, timeout: float, check: Callable[[], None]) -> None:
        self._purse, self._timeout, self._check = purse, timeout, check
        self._loop = asyncio.get_running_loop()
        self.calls: Counter[tuple[str, str]] = Counter()  # operation, result
        self.counters = Counters()

    async def call(self, operation: str, budget: str, function: Callable[[], Awaitable[T]]) -> T:
        granted = await self._purse.take(budget, _priority.get())
        self._check()
        with self._watched(operation, budget, granted):
            try:
                async with asyncio.timeout(self._timeout):
                    return await function()
            except TimeoutError as error:
                limit = format_duration(self._timeout)
                raise CloudError(f"{operation}: no answer within {limit}") from error

    def call_blocking(self, operation: str, budget: str, function: Callable[[], T]) -> T:
        """For plain provider methods, which run in a thread; the SDK enforces the timeout."""
        wait = self._purse.take(budget, _priority.get())
        granted = asyncio.run_coroutine_threadsafe(wait, self._loop).result()
        self._check()
        with self._watched(operation, budget, granted):
            return function()

    @contextmanager
    def _watched(self, operation: str, budget: str, granted: float) -> Iterator[None]:
        began, result = time.monotonic(), "ok"
        try:
            yield
        except BaseException as error:
            result = _result(error)
            if isinstance(error, Throttled):
                told = self._purse.throttled
                self._loop.call_soon_threadsafe(told, budget, error.seconds, granted)
            raise
        finally:
            self.calls[(operation, result)] += 1
            self.counters.observe(
                metrics.CALLS, operation, result, seconds=time.monotonic() - began
            )


def _result(error: BaseException) -> str:
    match error:
        case Throttled():
            return "throttled"
        case Denied():
            return "denied"
        case Refused():
            return "refused"
        case asyncio.CancelledError():
            return "cancelled"
    return "error"
