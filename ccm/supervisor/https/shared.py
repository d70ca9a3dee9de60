"""What takes milliseconds of the loop to make, and what clients ask for without end."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

T = TypeVar("T")

SHARE = 0.1  # of the time of the loop, where clients ask without end
LONGEST_REST = 1.0  # seconds for one of these, as when this process was stopped meanwhile


@dataclass(slots=True)
class Document:
    """What was made last, when (monotonic), and for how many seconds all rest for that."""

    made: object = None
    begun: float = 0.0
    rest: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedDocuments:
    """Documents of few names that are made when someone asks.

    Who asks before one is begun gets that one, and most of the time goes to others, however many
    ask, and for however many documents: each rests for what all of them take, and waits for the
    rest of no other.
    """

    def __init__(self) -> None:
        self._documents = defaultdict[str, Document](Document)
        self._turn = asyncio.Lock()

    async def get(self, name: str, make: Callable[[], T]) -> T:
        """What `make` makes, of this name, no earlier than now."""
        asked, document = time.monotonic(), self._documents[name]
        async with document.turn:
            if document.begun < asked:
                rest = sum(each.rest for each in self._documents.values() if self._counts(each))
                await asyncio.sleep(document.begun + rest - time.monotonic())
                async with self._turn:  # one in a turn of the loop
                    await asyncio.sleep(0)
                begun = time.monotonic()
                document.made, document.begun = make(), begun
                document.rest = min((time.monotonic() - begun) / SHARE, LONGEST_REST)
        return cast(T, document.made)

    def _counts(self, document: Document) -> bool:
        """Whether it may be one that clients ask for without end."""
        return time.monotonic() - document.begun < LONGEST_REST * len(self._documents)
