"""Taking turns: keys run side by side, but a suspect runs alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ReadWriteLock:
    """Many may be inside together, or exactly one alone; who wants to be alone goes first."""

    def __init__(self) -> None:
        self._together = 0
        self._alone = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        while self._alone.locked():
            async with self._alone:  # wait for whoever is alone or about to be
                pass
        self._together += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._together -= 1
            if not self._together:
                self._empty.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        async with self._alone:
            await self._empty.wait()
            yield
