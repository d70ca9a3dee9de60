"""What takes milliseconds of the loop to make, and what clients ask for without end."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")

SHARE = 0.1  # of the time of the loop, where clients ask without end
LONGEST_REST = 1.0  # seconds between two of these, as when this process was stopped meanwhile


class SharedDocuments:
    """Documents of few names that are made when someone asks.

    Who asks before one is begun gets that one, and most of the time goes to others, however many
    ask, and for however many documents.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._made: dict[str, tuple[object, float]] = {}  # by name, and when it was begun
        self._rests_until = 0.0  # monotonic, as the former

    async def get(self, name: str, make: Callable[[], T]) -> T:
        """What `make` makes, of this name, no earlier than now."""
        asked = time.monotonic()
        async with self._turn:
            made = self._made.get(name)
            if made is None or made[1] < asked:
                await asyncio.sleep(max(self._rests_until - time.monotonic(), 0.0))
                made = self._made[name] = self._make(make)
        return cast(T, made[0])

    def _make(self, make: Callable[[], object]) -> tuple[object, float]:
        begun = time.monotonic()
        made = make()
        self._rests_until = begun + min((time.monotonic() - begun) / SHARE, LONGEST_REST)
        return made, begun
