"""How long tests wait: for a condition, and the longer the busier or slower this machine is now.

No test has seconds of its own for a wait. A deadline says how long something takes at the most on
a machine at rest; its time passes more slowly while other processes want the processors, so that a
busy machine makes a test slower and not red. A wait that succeeds ends at once, so generous
deadlines cost nothing.
"""

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

PATIENCE = float(os.environ.get("TEST_PATIENCE", "30"))
"""Seconds at rest after which a condition does not come true any more."""
TICK = 0.25  # seconds between two looks at the load
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.2  # seconds between two looks at what costs to look at
TIMED = "tests/e2e"  # the folder of the tests that measure time, which `alone` marks
REFERENCE = 0.018  # seconds that `_work` takes on the machine where deadlines were chosen


def slowness() -> float:
    """How many times longer than at rest work takes now; never below 1.

    The processes that want to run, now and on average over the last minute, over the processors
    that they may use, times how slow one processor is.
    """
    return _slowness(max(_wanting()))


def dilation() -> int:
    """How many times longer the product's own durations and intervals are chosen on it now.

    At half the slowness of the last minute: they are not as short as they could be, and last longer
    than a moment in which tests begin.
    """
    average, _ = _wanting()
    return math.ceil(_slowness(average) / 2)


def timeout(seconds: float = PATIENCE) -> float:
    """Twice that as of now, for what takes a number, such as the time-out of a subprocess."""
    return 2 * seconds * slowness()


class Deadline:
    """Passes after so many seconds of a machine at rest; it has to be looked at to grow."""

    def __init__(self, seconds: float = PATIENCE) -> None:
        self.seconds = seconds
        self._left = seconds
        self._looked = time.monotonic()
        self._rate = slowness()
        self._began = self._looked

    def has_passed(self) -> bool:
        if time.monotonic() - self._looked >= min(TICK, self._left):
            self._look()
        return self._left <= 0

    def pause(self) -> float:
        """Seconds until it is worth to look again: a tenth of what has gone, within limits."""
        return min(max((time.monotonic() - self._began) / 10, SHORTEST_PAUSE), LONGEST_PAUSE)

    def gone(self) -> float:
        """Seconds of a machine at rest since it began."""
        self._look()
        return self.seconds - self._left

    def _look(self) -> None:
        now, rate = time.monotonic(), slowness()
        self._left -= (now - self._looked) / max(rate, self._rate)
        self._looked, self._rate = now, rate

    def __str__(self) -> str:
        """For the message of a failure."""
        waited = time.monotonic() - self._began
        return f"{self.seconds:g} s at rest, {waited:.1f} s on this machine"


@asynccontextmanager
async def within(seconds: float = PATIENCE) -> AsyncIterator[Deadline]:
    """`asyncio.timeout` with such a deadline."""
    deadline = Deadline(seconds)
    async with asyncio.timeout(None) as limit:

        async def look() -> None:
            while not deadline.has_passed():  # noqa: ASYNC110 - time passes of its own
                await asyncio.sleep(min(TICK, seconds))
            limit.reschedule(asyncio.get_running_loop().time())

        looking = asyncio.create_task(look())
        try:
            yield deadline
        finally:
            looking.cancel()


def _wanting() -> tuple[float, float]:
    """The processes that want to run, on average over the last minute and now."""
    average, _, _, running, *_ = Path("/proc/loadavg").read_text().split()
    return float(average), float(running.partition("/")[0])


def _slowness(wanting: float) -> float:
    return _processor() * max(1.0, wanting / len(os.sched_getaffinity(0)))


@cache
def _processor() -> float:
    """How much slower than the reference one processor is here, in its own time."""
    return max(1.0, min(_work() for _ in range(3)) / REFERENCE)


def _work() -> float:
    began = time.thread_time()
    sum(number * number for number in range(200_000))
    return time.thread_time() - began
