"""Timers, callbacks and tasks that nobody awaits: none of them is lost when it raises."""

import asyncio
import logging
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
    """Run `work` beside others; what it raises is logged, as nobody awaits it.

    The caller keeps the task until `on_end`: the loop holds no task that only waits.
    """

    def end(task: "asyncio.Task[None]") -> None:
        on_end(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("task failed", exc_info=error)

    task = asyncio.create_task(work)
    task.add_done_callback(end)
    return task


async def gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all; what the first raises is raised once the others have ended, too."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return [task.result() for task in tasks]
