"""Turns at the API server: one namespace's Services do not all write at the same time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from ccm.model.service import Service
from workers.executor import KeyExecutor
from workers.queue import WorkQueue

WRITES_OF_A_NAMESPACE = 4
"""At the same time: each write of a large object keeps the API server busy for 0.3 s."""


class WriteTurns:
    """Lets few Services of a namespace write at once; those that wait hold up no others."""

    def __init__(self, executor: KeyExecutor, queue: WorkQueue) -> None:
        self._executor, self._queue = executor, queue
        self._turns = WeakValueDictionary[str, asyncio.Semaphore]()

    @asynccontextmanager
    async def turn(self, service: Service) -> AsyncIterator[None]:
        """Around a write in the reconcile of the Service, which is parked until its turn."""
        fresh = asyncio.Semaphore(WRITES_OF_A_NAMESPACE)
        turns = self._turns.setdefault(service.namespace, fresh)
        if turns.locked():
            with self._queue.parking(service.key):
                async with self._executor.waiting(service.key):
                    await turns.acquire()
        else:
            await turns.acquire()
        try:
            yield
        finally:
            turns.release()
