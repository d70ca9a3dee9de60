"""Change notifications of a cloud: an occasion to read it sooner than its turn."""

import asyncio
import time
from contextlib import suppress

HINTED_INTERVAL = 1.0  # seconds between reads at least, however often the cloud notifies
GROWTH = 2.0  # of the interval, while hints follow each other; it is never longer than the pause


class CloudChanges:
    """The hints of one process; each pass waits on its own `HintedSleep`."""

    def __init__(self) -> None:
        self._sleeps: list[HintedSleep] = []

    def announce(self) -> None:
        """Something changed in the cloud."""
        for each in self._sleeps:
            each.wake()

    def hinted_sleep(self) -> "HintedSleep":
        """For one pass that repeats."""
        made = HintedSleep()
        self._sleeps.append(made)
        return made


class HintedSleep:
    """A pause that a hint ends; one that comes after its end counts for the next."""

    def __init__(self) -> None:
        self._hint = asyncio.Event()
        self._ended_at = float("-inf")
        self._interval = HINTED_INTERVAL

    def wake(self) -> None:
        self._hint.set()

    async def sleep(self, seconds: float) -> bool:
        """Return after so many seconds, or when hinted; whether it was a hint."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hint.wait()
                await asyncio.sleep(self._ended_at + self._interval - time.monotonic())
        is_hinted, now = self._hint.is_set(), time.monotonic()
        self._hint.clear()
        is_one_of_many = is_hinted and now - self._ended_at < GROWTH * self._interval
        longer = min(GROWTH * self._interval, seconds)
        self._interval = longer if is_one_of_many else HINTED_INTERVAL
        self._ended_at = now
        return is_hinted
