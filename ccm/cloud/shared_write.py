"""Writes that several ask for and that are made as one: what waits while one goes on is the next.

A change whose caller gave up before is in no later write: it may be wrong by then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ccm.cloud.gate import note_writes, noted_writes
from ccm.cloud.shared_read import SharedLock
from ccm.errors import CloudError

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class PendingChange(Generic[T]):
    """A caller's change until it is done, with its result or with an error."""

    change: T
    is_done: bool = False
    result: Any = None
    error: CloudError | None = None
    writes: list[str] = field(default_factory=list)
    """The requests that were made for it and others, by operation."""


class SharedWrite(Generic[T]):
    """`write` ends all that it gets, by `end_all`; `gather` is for how long others may join it."""

    def __init__(
        self,
        write: Callable[[Sequence[PendingChange[T]]], Awaitable[None]],
        lock: SharedLock | None = None,
        gather: float = 0.0,
    ) -> None:
        self._write, self._lock, self._gather = write, lock or SharedLock(), gather
        self._waiting = list[PendingChange[T]]()

    async def do(self, change: T, *, is_alone: bool = False) -> Any:
        """The result of the write with this change, which has no other in it if it `is_alone`.

        As owners take turns at the lock, one such write of an owner at a time is before others.
        """
        own, batch = PendingChange(change), [] if is_alone else self._waiting
        batch.append(own)
        try:
            async with self._lock.held():
                if not own.is_done:
                    if self._gather:
                        await asyncio.sleep(self._gather)
                    await self._write_all([item for item in batch if not item.is_done])
        finally:  # what was cancelled is not written later, and what waited with it is
            batch.remove(own)
            note_writes(own.writes)
        if own.error:
            raise own.error
        return own.result

    async def _write_all(self, pending: Sequence[PendingChange[T]]) -> None:
        with noted_writes() as writes:
            for item in pending:
                item.writes = writes
            await self._write(pending)


def end_all(
    pending: Iterable[PendingChange[Any]], result: Any = None, error: CloudError | None = None
) -> None:
    """Give those that are not done yet this result, or this error."""
    for item in pending:
        if not item.is_done:
            item.is_done, item.result, item.error = True, result, error
