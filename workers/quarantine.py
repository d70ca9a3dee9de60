"""What a worker does about keys that were in hand when an earlier start of it died."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from ccm.bus.frames import Message, Survived
from ccm.bus.in_flight import InFlightJournal
from workers.turns import ReadWriteLock


class Quarantine:
    """Records every key that is in hand, lets suspects run alone, and reports who was harmless."""

    def __init__(
        self,
        hand: InFlightJournal,
        send: Callable[[Message], bool],
        suspects: tuple[str, ...],
        quarantined: dict[str, float],
    ) -> None:
        self._hand, self._send = hand, send
        self._turns = ReadWriteLock()
        self._holds: Counter[str] = Counter()
        self._not_before = dict.fromkeys(suspects, 0.0) | quarantined

    def seconds_to_wait(self, key: str) -> float:
        """How long a quarantined key is still left alone; 0 or less for all others."""
        return self._not_before.get(key, 0.0) - time.monotonic()

    def is_suspect(self, key: str) -> bool:
        return key in self._not_before

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Have `key` in hand, beside others or, for a suspect, alone."""
        is_alone = self.is_suspect(key)
        async with self._turns.alone() if is_alone else self._turns.together():
            with self.hold((key,)):
                yield

    @contextmanager
    def hold(self, keys: Iterable[str]) -> Iterator[None]:
        """Note that `keys` are in hand, so that a death in here is held against them."""
        held = tuple(keys)
        for key in held:
            self._holds[key] += 1
            self._hand.take(key)
        try:
            yield
        finally:
            for key in held:
                self._holds[key] -= 1
                if not self._holds[key]:
                    del self._holds[key]
                    self._hand.done(key)

    def survived(self, key: str) -> None:
        """`key` was worked on to an end, and this process is still there."""
        if self._not_before.pop(key, None) is not None:
            self._send(Survived(key))
