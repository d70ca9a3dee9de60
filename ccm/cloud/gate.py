"""The way to the cloud in a worker: every call has a priority, a grant, a deadline, and is counted.

A controller goes through `call`, which says for how urgent a piece of work the provider is called.
The provider goes through its `Gate` for each request that it then makes.
"""

import asyncio
import inspect
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from itertools import count
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from ccm import metrics
from ccm.bus.frames import CloudRemaining, CloudThrottled, Granted, GrantRequest, Message
from ccm.counters import Counters, bounded
from ccm.decide.budget import GRANT_TIMEOUT, GRANT_WAIT, Priority
from ccm.decide.rate_law import LONGEST_RETRY_AFTER
from ccm.durations import format_duration
from ccm.errors import (
    CloudError,
    Denied,
    HasWarnings,
    NotLeading,
    NotShown,
    Refused,
    RetryAfter,
    Throttled,
    Unanswered,
)
from ccm.model.status import CloudOutage

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

THROTTLED_RETRY = 1.0  # seconds until a throttled reconcile is tried again
SEND_RETRY = 0.05  # seconds until a request that the supervisor did not take is sent again
MOST_REMAINING = 1 << 31  # calls; whatever a cloud says, a message has to hold it
OUTAGE_AFTER, OUTAGE_FAILURES = 60.0, 3  # seconds and reads without a success that are reported
METHOD_TIMEOUT = 300.0  # seconds that a provider's method may take, with all its calls and grants
LONGEST_WORK = 300.0  # seconds until what a cloud is at work on is looked at, whatever it says
NOT_SHOWN_RETRY = 2.0  # seconds until another look for a published load balancer

# Set by `with_priority` around a provider's method, threads included, and read in here alone.
_priority: ContextVar[Priority] = ContextVar("priority", default=Priority.REFRESH)
_owner: ContextVar[str] = ContextVar("owner", default="")
_writes: ContextVar[list[str]] = ContextVar("writes")
_limit: ContextVar[asyncio.Timeout] = ContextVar("limit")
_is_expected: ContextVar[bool] = ContextVar("is_expected", default=False)


@contextmanager
def with_priority(priority: Priority, owner: str = "") -> Iterator[None]:
    """Requests that the provider makes inside, in threads as well, have this priority and owner."""
    tokens = _priority.set(priority), _owner.set(owner)
    try:
        yield
    finally:
        _priority.reset(tokens[0])
        _owner.reset(tokens[1])


def current_priority() -> Priority:
    """That of the requests which the provider makes here."""
    return _priority.get()


def current_owner() -> str:
    """On whose behalf these requests are; empty where it is the cluster's."""
    return _owner.get()


@contextmanager
def for_all(priority: Priority = Priority.LB_ENSURE) -> Iterator[None]:
    """Requests inside are what others wait for: in no owner's turn, and as urgent as theirs."""
    with with_priority(min(priority, current_priority())):
        yield


@contextmanager
def noted_writes() -> Iterator[list[str]]:
    """The writes, by operation, in threads as well, that the cloud took inside."""
    writes: list[str] = []
    token = _writes.set(writes)
    try:
        yield writes
    finally:
        _writes.reset(token)


def note_writes(writes: list[str]) -> None:
    """Have these count as made here: another caller made them for several."""
    _writes.get([]).extend(writes)


@contextmanager
def expecting_balancer(is_expected: bool) -> Iterator[None]:
    """Inside, `verify_missing` doubts that the Service has no load balancer, if `is_expected`."""
    token = _is_expected.set(is_expected)
    try:
        yield
    finally:
        _is_expected.reset(token)


def verify_missing() -> None:
    """Call it before a load balancer is created that the cloud would make a second time.

    Raises `NotShown` where one is published and no other answer has lacked it.
    """
    if _is_expected.get():
        why = "the cloud does not show the load balancer that is published"
        raise NotShown(why, NOT_SHOWN_RETRY)


@contextmanager
def warnings_as_notes(source: HasWarnings) -> Iterator[None]:
    """Give a `CloudError` the warnings as notes: a dry run goes no further than the first write."""
    try:
        yield
    except CloudError as error:
        for warning in source.warnings:
            error.add_note(warning)
        raise


async def invoke(method: Callable[..., T | Awaitable[T]], *args: Any) -> T:
    """The result of a provider's method; a plain one runs in a thread, the loop never blocks.

    Whatever the method does is the failure of this one call: what would end a task or the process
    is a `RuntimeError`, and a method that does not return in time a `CloudError`. Should it still
    run, it makes no write any more: someone else may be at the same object by then.
    """
    task, limit = asyncio.current_task(), asyncio.timeout(METHOD_TIMEOUT)
    assert task
    cancelling, token = task.cancelling(), _limit.set(limit)
    try:
        async with limit:
            if inspect.iscoroutinefunction(method):
                return cast(T, await method(*args))
            loop, run = asyncio.get_running_loop(), copy_context().run
            return cast(T, await loop.run_in_executor(_ThreadPerCall(), run, method, *args))
    except TimeoutError as error:
        if not limit.expired():
            raise
        took = format_duration(METHOD_TIMEOUT)
        raise CloudError(f"{_name(method)} of the provider did not return in {took}") from error
    except (SystemExit, asyncio.CancelledError) as error:
        if task.cancelling() > cancelling:  # this very task is to end
            raise
        raise RuntimeError(f"{_name(method)} raised {error!r}") from error
    finally:
        _limit.reset(token)


def has_ended() -> bool:
    """Whether the method that this is in was given up, and runs on in its thread."""
    limit = _limit.get(None)
    return limit is not None and limit.expired()


class _ThreadPerCall(Executor):
    """One that hangs takes no other's place, and ends with the process."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        result = Future[T]()

        def run() -> None:
            result.set_running_or_notify_cancel()
            try:
                result.set_result(fn(*args, **kwargs))
            except StopIteration as error:  # which a future of asyncio does not take
                result.set_exception(RuntimeError(f"raised {error!r}"))
            except BaseException as error:  # noqa: BLE001 - the caller that waits has to know
                result.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return result


def _name(method: Callable[..., object]) -> str:
    return str(getattr(method, "__name__", method))


async def call(
    priority: Priority, method: Callable[..., T | Awaitable[T]], *args: Any, owner: str = ""
) -> T:
    """The result of a provider's method, called for a controller on behalf of `owner`.

    Raises `CloudError` or `NotLeading` whatever the provider does, `RetryAfter` for throttling.
    """
    try:
        with with_priority(priority, owner):
            return await invoke(method, *args)
    except Throttled as error:
        seconds = min(error.seconds or THROTTLED_RETRY, LONGEST_RETRY_AFTER)
        raise RetryAfter(str(error), seconds) from error
    except RetryAfter as error:
        error.seconds = min(error.seconds, LONGEST_WORK)
        raise
    except (CloudError, NotLeading):
        raise
    except Exception as error:  # around one callback: a provider's bug is one failed call
        log.exception("provider failed", extra={"call": _name(method)})
        raise CloudError(f"the provider failed: {error!r}") from error


class GrantSource(Protocol):
    """Where grants come from; in a worker, the supervisor."""

    async def take(self, budget: str, priority: Priority) -> float:
        """When (monotonic) the call was granted that may begin now; waits until one is."""
        ...

    def throttled(self, budget: str, seconds: float | None, granted: float) -> None:
        """The cloud refused, for rate, a call that was granted at `granted`.

        `seconds` is the cloud's own word on when to come back; None when it gave none.
        """
        ...

    def remaining(self, budget: str, calls: int, seconds: float) -> None:
        """The cloud lets all clients together make so many calls more in the next `seconds`."""
        ...


class SupervisorGrants:
    """Asks the supervisor for each call: one message there, one back. A grant expires unused."""

    def __init__(self, send: Callable[[Message], bool], retry_interval: float = SEND_RETRY) -> None:
        self._send, self._retry_interval = send, retry_interval
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[float]] = {}

    async def take(self, budget: str, priority: Priority) -> float:
        while True:
            granted_at = await self._request(budget, priority)
            if time.monotonic() <= granted_at + GRANT_TIMEOUT:
                return granted_at

    def throttled(self, budget: str, seconds: float | None, granted: float) -> None:
        self._send(CloudThrottled(budget, seconds, granted))

    def remaining(self, budget: str, calls: int, seconds: float) -> None:
        self._send(CloudRemaining(budget, calls, seconds))

    def on_granted(self, message: Granted) -> None:
        """Let the call go that waits for this grant; it lapses when the call was given up."""
        waiting = self._waiting.get(message.number)
        if waiting and not waiting.done():
            waiting.set_result(message.at)

    async def _request(self, budget: str, priority: Priority) -> float:
        number = next(self._numbers)
        granted: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting[number] = granted
        try:
            while not self._send(  # noqa: ASYNC110 - a socket does not report that it has room
                GrantRequest(number, budget, int(priority), _owner.get())
            ):
                await asyncio.sleep(self._retry_interval)
            return await granted
        finally:
            del self._waiting[number]


class WorkerGate:
    """What a provider gets as its `Gate`.

    `check` raises `NotLeading` when this process does not lead. It is asked after the wait for a
    grant, right before the request leaves, and nowhere else on the way to the cloud. A call that
    gets no grant within `grant_wait` seconds is `Throttled`.
    """

    def __init__(
        self,
        grants: GrantSource,
        timeout: float,
        check: Callable[[], None],
        grant_wait: float = GRANT_WAIT,
    ) -> None:
        self._grants, self._timeout, self._check = grants, timeout, check
        self._grant_wait = grant_wait
        self._loop = asyncio.get_running_loop()
        self._lock, self.under_way = threading.Lock(), 0
        self.calls: Counter[tuple[str, str]] = Counter()  # operation, result
        self.counters = Counters()
        self._outage: tuple[float, int, str] | None = None  # since when, reads that failed, why

    def outage(self) -> CloudOutage:
        """For how many seconds no read has succeeded, and why; empty before `OUTAGE_AFTER`."""
        if not self._outage:
            return {}
        since, failures, why = self._outage
        seconds = time.monotonic() - since
        is_long = seconds >= OUTAGE_AFTER and failures >= OUTAGE_FAILURES
        return {"seconds": round(seconds), "why": why} if is_long else {}

    async def call(
        self, operation: str, budget: str, function: Callable[[], Awaitable[T]], *, is_write: bool
    ) -> T:
        granted = await self._granted(operation, budget, _priority.get())
        with self._leaving(operation, budget, granted, is_write):
            try:
                async with asyncio.timeout(self._timeout):
                    return await function()
            except TimeoutError as error:
                limit = format_duration(self._timeout)
                raise Unanswered(f"{operation}: no answer within {limit}") from error

    def call_blocking(
        self, operation: str, budget: str, function: Callable[[], T], *, is_write: bool
    ) -> T:
        """For plain provider methods, which run in a thread; the SDK enforces the timeout."""
        wait = self._granted(operation, budget, _priority.get())
        granted = asyncio.run_coroutine_threadsafe(wait, self._loop).result()
        with self._leaving(operation, budget, granted, is_write):
            return function()

    def report_remaining(self, budget: str, calls: int, seconds: float) -> None:
        if math.isfinite(seconds):  # a cloud may say anything
            calls = min(max(calls, 0), MOST_REMAINING)
            self._grants.remaining(budget, calls, max(seconds, 0.0))

    async def _granted(self, operation: str, budget: str, priority: Priority) -> float:
        try:
            async with asyncio.timeout(self._grant_wait):
                return await self._grants.take(budget, priority)
        except TimeoutError as error:
            limit = format_duration(self._grant_wait)
            raise Throttled(f"{operation}: no call of class {budget!r} free in {limit}") from error

    @contextmanager
    def _leaving(
        self, operation: str, budget: str, granted: float, is_write: bool
    ) -> Iterator[None]:
        """Count a request as under way from right before the check that it may leave."""
        with self._lock:
            self.under_way += 1
        try:
            self._check()
            if is_write and has_ended():
                raise CloudError(f"{operation}: its reconcile has ended already")
            with self._counted(operation, budget, granted, is_write):
                yield
        finally:
            with self._lock:
                self.under_way -= 1

    @contextmanager
    def _counted(
        self, operation: str, budget: str, granted: float, is_write: bool
    ) -> Iterator[None]:
        began, result = time.monotonic(), "ok"
        try:
            yield
        except BaseException as error:
            result = _result(error)
            if not is_write:
                self._note_failure(error)
            if isinstance(error, Throttled):
                report = self._grants.throttled
                self._loop.call_soon_threadsafe(report, budget, error.seconds, granted)
            raise
        else:
            if is_write:
                _writes.get([]).append(operation)
            else:
                self._outage = None
        finally:
            self.calls[bounded((operation, result), self.calls)] += 1
            seconds = time.monotonic() - began
            self.counters.observe(metrics.CLOUD_CALL_SECONDS, operation, result, seconds=seconds)

    def _note_failure(self, error: BaseException) -> None:
        """A refusal is an answer, and what we gave up ourselves says nothing of the cloud."""
        match error:
            case Refused():
                self._outage = None
            case CloudError() if not isinstance(error, RetryAfter):
                since, failures = self._outage[:2] if self._outage else (time.monotonic(), 0)
                self._outage = since, failures + 1, str(error)


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
