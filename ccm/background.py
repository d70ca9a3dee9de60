"""Timers, callbacks and tasks that nothing awaits: an exception in them is not lost."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_DELAY = 1.0  # seconds until a callback that raised is called again, doubled each time
MAX_RETRY_DELAY = 60.0


def call_later(seconds: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
    """As the loop's own, for a callback that may be called again when it raised."""
    return asyncio.get_running_loop().call_later(seconds, call_until_done, callback, *args)


def call_until_done(callback: Callable[..., object], *args: Any) -> None:
    """Call it; when it raises, log that and call it again later, until it does not."""
    _call(RETRY_DELAY, callback, *args)


def _call(retry_delay: float, callback: Callable[..., object], *args: Any) -> None:
    try:
        callback(*args)
    except Exception:  # around one callback: what it was to do is done when that is possible
        log.exception("callback failed and is called again", extra={"seconds": retry_delay})
        following = min(2 * retry_delay, MAX_RETRY_DELAY)
        asyncio.get_running_loop().call_later(retry_delay, _call, following, callback, *args)


def start_task(
    work: Coroutine[Any, Any, None], on_end: Callable[["asyncio.Task[None]"], object]
) -> "asyncio.Task[None]":
    """Run `work` beside others; what it raises is logged, as nothing awaits it.

    The caller keeps the task until `on_end`: the loop holds no task that only waits.
    """

    def end(task: "asyncio.Task[None]") -> None:
        on_end(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("task failed", exc_info=error)

    task = asyncio.create_task(work)
    task.add_done_callback(end)
    return task


class Deadlines:
    """As `asyncio.timeout`, with one timer for all that are under way at the same time.

    A timer each costs a fifth of a request to the API server.
    """

    def __init__(self) -> None:
        self._open: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float) -> "Deadline":
        """A block (`with`, in a task) that ends with `TimeoutError` when it takes longer."""
        return Deadline(self, time.monotonic() + seconds)

    def add(self, deadline: "Deadline") -> None:
        self._open[deadline] = None
        if self._timer is None or deadline.at < self._timer.when():
            self._arm(deadline.at)

    def remove(self, deadline: "Deadline") -> None:
        self._open.pop(deadline, None)

    def _arm(self, at: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = time.monotonic()
        for deadline in [deadline for deadline in self._open if deadline.at <= now]:
            self.remove(deadline)
            deadline.expire()
        if self._open:
            self._arm(min(deadline.at for deadline in self._open))


class Deadline:
    """One block of `Deadlines.within`; `at` is monotonic."""

    __slots__ = ("_cancelling", "_deadlines", "_has_expired", "_task", "at")

    def __init__(self, deadlines: Deadlines, at: float) -> None:
        self._deadlines, self.at, self._has_expired = deadlines, at, False
        task = asyncio.current_task()
        assert task
        self._task, self._cancelling = task, task.cancelling()

    def __enter__(self) -> None:
        self._deadlines.add(self)

    def expire(self) -> None:
        """The time is over."""
        self._has_expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self._deadlines.remove(self)
        if not self._has_expired:
            return
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error


async def gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all; what the first raises is raised once the others have ended, too."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return [task.result() for task in tasks]
