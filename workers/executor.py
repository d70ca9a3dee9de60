"""Executing keys: side by side up to a limit, each in the journal, suspects alone or not yet.

A suspect was in flight when a worker of this controller died. What a key only waits for is not
executing: then it holds no slot, is in no journal, and keeps nobody out.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from ccm.bus.frames import Message, Survived
from ccm.bus.in_flight import InFlightJournal


class ReadWriteLock:
    """Many may share it, or exactly one has it alone; who wants it alone goes first."""

    def __init__(self) -> None:
        self._sharing = 0
        self._exclusive = asyncio.Lock()
        self._is_free = asyncio.Event()
        self._is_free.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Share it with others."""
        while self._exclusive.locked():
            async with self._exclusive:  # wait for whoever has it alone or is about to
                pass
        self._sharing += 1
        self._is_free.clear()
        try:
            yield
        finally:
            self._sharing -= 1
            if not self._sharing:
                self._is_free.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Have it alone."""
        async with self._exclusive:
            await self._is_free.wait()
            yield


class KeyExecutor:
    """What keys have to pass before they execute; `send` tells the supervisor who was harmless.

    `suspects` run alone, `quarantined` ones alone and not before a monotonic time. At most `limit`
    others execute at the same time.
    """

    def __init__(
        self,
        journal: InFlightJournal,
        send: Callable[[Message], bool],
        suspects: tuple[str, ...],
        quarantined: dict[str, float],
        limit: int = 1000,
    ) -> None:
        self._journal, self._send = journal, send
        self._lock = ReadWriteLock()
        self._slots = asyncio.Semaphore(limit)
        self._without_slot: set[str] = set()  # keys that wait and have left their slot to another
        self._executing: Counter[str] = Counter()
        self._entered: dict[str, AsyncExitStack] = {}
        self._not_before = dict.fromkeys(suspects, 0.0) | quarantined

    def seconds_to_wait(self, key: str) -> float:
        """How long a quarantined key is still left alone; 0 or less for all others."""
        return self._not_before.get(key, 0.0) - time.monotonic()

    def is_suspect(self, key: str) -> bool:
        return key in self._not_before

    def survived(self, key: str) -> None:
        """`key` was reconciled to an end, and this process is still there."""
        if self._not_before.pop(key, None) is not None:
            self._send(Survived(key))

    async def acquire_slot(self) -> None:
        """Wait until fewer than `limit` keys execute; whoever executes has a slot."""
        await self._slots.acquire()

    def release_slot(self, key: str | None = None) -> None:
        """Leave the slot, which may be that of `key`, to another key."""
        if key in self._without_slot:
            self._without_slot.remove(key)  # cancelled before it had its slot back
        else:
            self._slots.release()

    @asynccontextmanager
    async def executing(self, key: str) -> AsyncIterator[None]:
        """Execute `key`, which has a slot: beside others, or alone when it is a suspect."""
        if self.is_suspect(key):
            async with self._lock.exclusive():
                with self.journaled((key,)):
                    yield
            return
        await self._enter(key)
        try:
            yield
        finally:
            await self._leave(key)

    @asynccontextmanager
    async def waiting(self, key: str) -> AsyncIterator[None]:
        """Inside `executing`: only wait for something, and give the slot to another meanwhile."""
        await self._leave(key)
        self._slots.release()
        self._without_slot.add(key)
        try:
            yield
        finally:
            await self._slots.acquire()
            self._without_slot.discard(key)
            await self._enter(key)

    async def _enter(self, key: str) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._lock.shared())
            stack.enter_context(self.journaled((key,)))
            self._entered[key] = stack.pop_all()

    async def _leave(self, key: str) -> None:
        if entered := self._entered.pop(key, None):
            await entered.aclose()

    @contextmanager
    def journaled(self, keys: Sequence[str]) -> Iterator[None]:
        """Record `keys`, so that a death in here is held against them.

        Alone it is enough to call the provider for many keys at once: that takes no slot, and waits
        for no suspect, as a read may take as long as the cloud likes.
        """
        for key in keys:
            self._executing[key] += 1
            self._journal.take(key)
        try:
            yield
        finally:
            for key in keys:
                self._executing[key] -= 1
                if not self._executing[key]:
                    del self._executing[key]
                    self._journal.done(key)
