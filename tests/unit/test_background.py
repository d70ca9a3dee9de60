"""Timers, callbacks and tasks that nobody awaits."""

import asyncio
import errno
import re
from pathlib import Path

import pytest

from ccm import background
from ccm.background import Deadlines
from tests.support.waiting import until

pytestmark = pytest.mark.virtual_time

ROOT = Path(__file__).parents[2]

TIMER = re.compile(r"\b(?:call_at|call_later|call_soon)\(|add_(?:reader|signal_handler)\(.*")
GUARDED = re.compile(r"call_later\(|add_.*\bcall_until_done,|runner\.drain")
"""What sets a timer with the guard, and what only completes a future."""


async def test_a_callback_that_raises_is_called_until_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "RETRY_DELAY", 0.01)
    calls: list[str] = []

    def callback(text: str) -> None:
        calls.append(text)
        if len(calls) < 3:
            raise OSError(errno.EMFILE, "too many open files")

    background.call_later(0.0, callback, "again")
    await until(lambda: len(calls) == 3)
    assert calls == ["again"] * 3


async def test_what_a_task_raises_is_logged_and_it_is_let_go(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept: set[asyncio.Task[None]] = set()

    async def work() -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    kept.add(background.start_task(work(), kept.discard))
    await until(lambda: not kept)
    assert [record.exc_text for record in caplog.records if record.message == "task failed"]


async def test_what_one_of_many_raises_waits_for_the_end_of_the_others() -> None:
    ended: list[str] = []

    async def fail() -> None:
        raise OSError("no")

    async def wait() -> None:
        try:
            await asyncio.sleep(60.0)
        finally:
            ended.append("the other")

    with pytest.raises(OSError, match="no"):
        await background.gather_all([wait(), fail()])
    assert ended == ["the other"]


def test_no_timer_and_no_callback_of_the_product_goes_without_the_guard() -> None:
    """The loop drops a callback that raises, and with it whatever it was to do."""
    unguarded = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("ccm/supervisor", "ccm/bus", "workers")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in path.read_text().splitlines()
        if TIMER.search(line) and (not GUARDED.search(line) or "loop.call" in line)
    ]
    assert unguarded == []


async def test_what_takes_too_long_is_broken_off_and_nothing_else() -> None:
    deadlines = Deadlines()
    ended: list[str] = []

    async def wait(seconds: float, work: float) -> None:
        try:
            with deadlines.within(seconds):
                await asyncio.sleep(work)
            ended.append("done")
        except TimeoutError:
            ended.append("late")

    await asyncio.gather(wait(5.0, 0.02), wait(0.01, 5.0), wait(5.0, 0.03))
    assert ended == ["late", "done", "done"]
    await asyncio.gather(wait(0.04, 5.0), wait(0.02, 5.0))  # the nearest is not the first
    assert ended[3:] == ["late", "late"]
    await wait(0.0, 5.0)
    assert ended[5:] == ["late"]


async def test_a_deadline_that_passes_unused_is_none() -> None:
    deadlines = Deadlines()
    with deadlines.within(0.01):
        pass
    await asyncio.sleep(0.02)
    with deadlines.within(5.0):
        await asyncio.sleep(0.02)


async def test_a_cancelled_block_is_cancelled_and_not_late() -> None:
    deadlines = Deadlines()

    async def wait() -> None:
        with deadlines.within(5.0):
            await asyncio.sleep(5.0)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_block_that_is_cancelled_as_its_time_ends_is_cancelled() -> None:
    deadlines = Deadlines()

    async def wait() -> None:
        with deadlines.within(-1.0):
            task = asyncio.current_task()
            assert task
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.sleep(5.0)

    task = asyncio.create_task(wait())
    with pytest.raises(asyncio.CancelledError):
        await task
