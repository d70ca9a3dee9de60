"""Reads that many ask for and that are made once: for `async` methods, and for plain ones.

A shared read is made for the cluster, at the priority of its callers, and not for the owner of the
first one: no caller waits behind all else that this owner wants, or for one that is less urgent.
All callers get the same answer, which they must not change; it is never older than the question.
What each then makes of it may take a moment: one goes on in a turn of the loop, owners in turns.
Work that others have to wait for is the cluster's as well: see `SharedLock`.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar, cast

from ccm.background import start_task
from ccm.cloud.gate import current_owner, current_priority, for_all, has_ended, with_priority
from ccm.cloud.interface import Gate
from ccm.decide.budget import Priority, RoundRobin
from ccm.errors import CloudError

A = TypeVar("A")
T = TypeVar("T")

KEPT = 600.0  # seconds for which an answer counts that hardly ever changes
KEPT_RETRY = 30.0  # seconds until the next read where one failed, or gave another answer
LINGER = 0.02  # seconds for which a read waits for others to share it, where there are any


class SharedLock:
    """Who holds it keeps all others waiting: its calls have this `priority`, or a higher one of its
    own, and are in no owner's turn. Without a priority they are as the caller's others.

    Owners that wait take turns: one with many changes does not stand before all others.
    """

    def __init__(self, priority: Priority | None = Priority.LB_ENSURE) -> None:
        self._priority, self.is_held = priority, False
        self._waiting = RoundRobin[asyncio.Future[None]]()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        await self.acquire()
        try:
            if self._priority is None:
                yield
                return
            with for_all(self._priority):
                yield
        finally:
            self.release()

    async def acquire(self) -> None:
        """Wait for it; who has it releases it."""
        if not self.is_held:
            self.is_held = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.add(current_owner(), turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was handed over
                self.release()
            raise

    def release(self) -> None:
        """Hand it over to the next who has not given up."""
        while self._waiting:
            if not (turn := self._waiting.pop()).done():
                turn.set_result(None)
                return
        self.is_held = False


class SharedBlockingLock:
    """The same for plain methods, which say themselves for whom their calls are.

    Whose turn comes after its method was given up gets a `CloudError`: no one waits for its reads.
    """

    def __init__(self) -> None:
        self._guard, self._is_held = threading.Lock(), False
        self._waiting = RoundRobin[threading.Event]()

    def __enter__(self) -> None:
        turn = threading.Event()
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return
            self._waiting.add(current_owner(), turn)
        turn.wait()
        if has_ended():
            self.__exit__()
            raise CloudError("its reconcile has ended already")

    def __exit__(self, *_: object) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.pop().set()
            else:
                self._is_held = False


class SharedRead(Generic[A]):
    """One call for all who ask while the one before is under way: N at once cost ⌈N / size⌉ calls.

    `read` makes one call for at most `size` keys, in a list; where no caller gives a key, it is
    called without one. Each caller gets the answer to the whole call.
    """

    def __init__(self, read: Callable[..., Awaitable[A]], size: int = 1) -> None:
        self._read, self._size = read, size
        self._waiting: dict[Priority, dict[str, asyncio.Future[A]]] = {}
        self._calling: set[asyncio.Task[None]] = set()
        self._going_on = SharedLock(None)

    @property
    def is_idle(self) -> bool:
        """Whether no one waits for an answer."""
        return not self._waiting

    async def __call__(self, key: str = "") -> A:
        """The answer to a call that has this key in it, or what it raises."""
        priority = current_priority()
        if priority not in self._waiting:
            self._waiting[priority] = {}
            self._calling.add(start_task(self._call(priority), self._calling.discard))
        answered = self._waiting[priority].setdefault(
            key, asyncio.get_running_loop().create_future()
        )
        await asyncio.wait([answered])  # which goes on for others when this caller is cancelled
        await self._going_on.acquire()
        asyncio.get_running_loop().call_soon(self._going_on.release)
        return answered.result()

    async def _call(self, priority: Priority) -> None:
        """Call after call, until no caller waits."""
        waiting = self._waiting[priority]
        try:
            with with_priority(priority):
                while keys := list(waiting)[: self._size]:
                    await self._answer({key: waiting.pop(key) for key in keys})
        finally:
            del self._waiting[priority]
            for answered in waiting.values():  # this process ends
                answered.cancel()

    async def _answer(self, asked: dict[str, asyncio.Future[A]]) -> None:
        keys = list(filter(None, asked))
        try:
            answer = await (self._read(keys) if keys else self._read())
        except BaseException as error:  # around one callback: all who share the call have to know
            for answered in asked.values():
                answered.set_exception(error)
                answered.exception()  # its callers may have been cancelled
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            for answered in asked.values():
                answered.set_result(answer)


class KeptRead(Generic[A]):
    """An answer that hardly ever changes, such as where we are: read again every ten minutes.

    One answer may be wrong: another one than is kept counts once the next read gives it as well.
    What is kept counts while reads fail.
    """

    def __init__(self, read: Callable[[], Awaitable[A]]) -> None:
        """`read` gives anything but None."""
        self._read = SharedRead(read)
        self._kept: A | None = None
        self._other: A | None = None  # that of the last read
        self._read_at = float("-inf")  # monotonic, when it is next due

    async def __call__(self, has: Callable[[A], bool] = lambda _: True) -> A:
        """The answer, read again where what is kept has not what is asked for.

        It raises what that read, or the first one, raises.
        """
        if self._kept is None or not has(self._kept):
            self._kept, self._read_at = await self._read(), time.monotonic() + KEPT
        elif time.monotonic() >= self._read_at:
            self._read_at = time.monotonic() + KEPT_RETRY  # all others go on with what is kept
            with suppress(CloudError):
                self._compare(await self._read())
        return self._kept

    def _compare(self, answer: A) -> None:
        if answer in (self._kept, self._other):
            self._kept, self._read_at = answer, time.monotonic() + KEPT
        self._other = answer


class SharedBlockingReads:
    """The same for plain methods, through a gate: one call for all who ask before it leaves.

    It waits for its grant, and before that, when others read as well, for `LINGER`.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate, self._lock = gate, threading.Lock()
        self._waiting: dict[tuple[Priority, str], Future[Any]] = {}
        self._readers = 0

    def call_blocking(self, key: str, operation: str, budget: str, function: Callable[[], T]) -> T:
        """As the gate's; calls of the same `key` and priority are the same."""
        known, answer = (current_priority(), key), Future[T]()
        with self._lock:
            self._readers += 1
            is_alone = self._readers == 1
            shared = self._waiting.setdefault(known, answer)
        try:
            if shared is answer:
                self._read(known, answer, operation, budget, function, 0 if is_alone else LINGER)
            return cast(T, shared.result())
        finally:
            with self._lock:
                self._readers -= 1

    def _read(
        self,
        known: tuple[Priority, str],
        answer: Future[T],
        operation: str,
        budget: str,
        function: Callable[[], T],
        linger: float,
    ) -> None:
        def leave() -> T:
            with self._lock:
                del self._waiting[known]
            return function()

        try:
            time.sleep(linger)
            with with_priority(known[0]):
                result = self._gate.call_blocking(operation, budget, leave, is_write=False)
                answer.set_result(result)
        except BaseException as error:  # around one callback: all who share the call have to know
            with self._lock:
                if self._waiting.get(known) is answer:  # it never left
                    del self._waiting[known]
            answer.set_exception(error)
            raise
