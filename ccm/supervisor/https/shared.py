"""What takes milliseconds of the loop to make, and what clients ask for without end."""

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

SHARE = 0.1  # of the time of the loop, where clients ask without end
LONGEST_REST = 1.0  # seconds between two of these, as when this process was stopped meanwhile


class Shared(Generic[T]):
    """Something of few forms that is made when someone asks.

    Who asks before it is begun gets that one, and most of the time goes to others, however many
    ask.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._made: dict[str, tuple[T, float]] = {}  # by form, and when it was begun (monotonic)
        self._rests_until = 0.0

    async def get(self, make: Callable[[], T], form: str = "") -> T:
        """What `make` makes, of this form, no earlier than now."""
        asked = time.monotonic()
        async with self._turn:
            made = self._made.get(form)
            if made is None or made[1] < asked:
                await asyncio.sleep(max(self._rests_until - time.monotonic(), 0.0))
                made = self._made[form] = self._make(make)
        return made[0]

    def _make(self, make: Callable[[], T]) -> tuple[T, float]:
        begun = time.monotonic()
        made = make()
        self._rests_until = begun + min((time.monotonic() - begun) / SHARE, LONGEST_REST)
        return made, begun
