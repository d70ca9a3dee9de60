"""Turns at the API server: what one namespace's Services may write while others want to, too."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from ccm.background import call_later
from ccm.model.service import Service
from workers.executor import KeyExecutor
from workers.queue import WorkQueue

TURNS = 4  # of a namespace, at the same time
USUAL = 0.05  # seconds that a write takes
REST = 3  # times what a write took beyond that, until its turn is another's

# A Service of 1.25 MB keeps the API server busy for 0.3 s with each write: with its rests, a
# namespace of such Services occupies one of its processors at the most.


class WriteTurns:
    """Lets few Services of a namespace write at once; those that wait hold up no others."""

    def __init__(self, executor: KeyExecutor, queue: WorkQueue) -> None:
        self._executor, self._queue = executor, queue
        self._turns = WeakValueDictionary[str, asyncio.Semaphore]()

    @asynccontextmanager
    async def turn(self, service: Service) -> AsyncIterator[None]:
        """Around a write in the reconcile of the Service, which is parked until its turn."""
        turns = self._turns.setdefault(service.namespace, asyncio.Semaphore(TURNS))
        if turns.locked():
            with self._queue.parking(service.key):
                async with self._executor.waiting(service.key):
                    await turns.acquire()
        else:
            await turns.acquire()
        began = time.monotonic()
        try:
            yield
        finally:
            excess = time.monotonic() - began - USUAL
            call_later(max(excess, 0.0) * REST, turns.release)
