"""Executing keys: side by side up to a limit, each in the journal, suspects later and by groups.

Suspects are keys that were executing when workers of this controller died. What a key only waits
for is not executing: then it holds no slot and is in no journal.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import coroutine
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import orjson

from ccm.background import call_later
from ccm.bus.frames import Message, Survived
from ccm.bus.in_flight import InFlightJournal
from ccm.decide.budget import RoundRobin
from ccm.decide.quarantine import FREE, Suspicions
from ccm.model.objects import Json
from workers.queue import NAMESPACES_KEPT, WorkQueue, namespace_of

T = TypeVar("T")

SUSPECT_DELAY = 1.0  # seconds from the start, and from one group of suspects to the next
HELD_RETRY = 0.1  # seconds until a suspect is tried again while another group executes
TURNS = 4  # of a namespace that writes, at the same time
LARGE = 100_000  # bytes of an object, whose writes cost others time
RESERVED = 5  # one in so many slots is not for a namespace that has all others
REST = 4  # times what a large write took, until its turn is another's
IN_A_PASS = 0.001  # seconds of the processor for one namespace, in one pass of the loop
LONG = 0.01  # seconds of the processor in one turn of the loop
LONG_BESIDE_OTHERS = 0.002  # the same where others have theirs between, and wait for it
BESIDE = 1.0  # seconds since a turn of another
FOR_A_NODE = 5e-6  # seconds more for each Node: all Services have these behind them
SHARE = 0.125  # of the time, for the long turns of one namespace
SAVED = 0.2  # seconds of rest that a quiet time makes up for


class KeyExecutor:
    """What keys have to pass before they execute; `send` reports harmless keys to the supervisor.

    At most `limit` keys execute at the same time.
    """

    def __init__(
        self,
        journal: InFlightJournal,
        send: Callable[[Message], bool],
        suspicions: Suspicions,
        limit: int = 1000,
    ) -> None:
        self._journal, self._send = journal, send
        self._suspicions = dict(suspicions)
        self._suspects: set[str] = set()  # that execute, or wait for what they need to go on
        self._turn = FREE  # the group of these suspects
        groups = sorted({(it.until, it.group) for it in suspicions.values() if it.group != FREE})
        start = time.monotonic()  # the last suspect comes last: it may end what others do
        self._starts = {
            group: start + SUSPECT_DELAY * turn for turn, (_, group) in enumerate(groups, 1)
        }
        self._slots = asyncio.Semaphore(limit)
        self._without_slot: set[str] = set()  # keys that wait and have left their slot to another
        self._executing: Counter[str] = Counter()

    def seconds_to_wait(self, key: str) -> float:
        """How long a suspect or quarantined key is still left alone; 0 or less for all others.

        A group of suspects executes beside no other group: a death in it is then its own.
        """
        suspicion = self._suspicions.get(key)
        if suspicion is None or suspicion.group == FREE:
            return 0.0
        wait = max(suspicion.until, self._starts[suspicion.group]) - time.monotonic()
        is_held = bool(self._suspects) and self._turn != suspicion.group
        return max(wait, HELD_RETRY) if is_held else wait

    def is_quarantined(self, key: str) -> bool:
        """Whether it is left alone for now; once its time is over it waits for its turn only."""
        return key in self._suspicions and self._suspicions[key].until > time.monotonic()

    def survived(self, key: str) -> None:
        """`key` was reconciled to an end, and this process is still there."""
        if self._suspicions.pop(key, None) is not None:
            self._send(Survived(key))

    async def acquire_slot(self) -> None:
        """Wait until fewer than `limit` keys execute; each that executes has a slot."""
        await self._slots.acquire()

    def release_slot(self, key: str | None = None) -> None:
        """Leave the slot, which may be that of `key`, to another key."""
        if key in self._without_slot:
            self._without_slot.remove(key)  # cancelled before it had its slot back
        else:
            self._slots.release()

    @contextmanager
    def executing(self, key: str) -> Iterator[None]:
        """Execute `key`, which has a slot and need not wait any longer."""
        suspicion = self._suspicions.get(key)
        if suspicion and suspicion.group != FREE:
            self._suspects.add(key)
            self._turn = suspicion.group
        self._take(key)
        try:
            yield
        finally:
            self._suspects.discard(key)
            if key not in self._without_slot:
                self._done(key)

    @asynccontextmanager
    async def waiting(self, key: str) -> AsyncIterator[None]:
        """Inside `executing`: only wait for something, and give the slot to another meanwhile."""
        self._done(key)
        self._slots.release()
        self._without_slot.add(key)
        try:
            yield
        finally:
            await self._slots.acquire()
            self._without_slot.discard(key)
            self._take(key)

    @contextmanager
    def journaled(self, keys: Sequence[str]) -> Iterator[None]:
        """Call the provider for many keys at once: a death in here is held against them all.

        It takes no slot, as a read may take as long as the cloud likes.
        """
        for key in keys:
            self._take(key)
        try:
            yield
        finally:
            for key in keys:
                self._done(key)

    def _take(self, key: str) -> None:
        self._executing[key] += 1
        self._journal.take(key)

    def _done(self, key: str) -> None:
        self._executing[key] -= 1
        if not self._executing[key]:
            del self._executing[key]
            self._journal.done(key)


class WriteTurns:
    """Lets few keys of a namespace write at once; those that wait hold up no others.

    A Service of 1.25 MB keeps the API server busy for 0.3 s with each write. A namespace of such
    Services writes one at a time, and occupies a fifth of a processor at the most.
    """

    def __init__(self, executor: KeyExecutor, queue: WorkQueue) -> None:
        self._executor, self._queue = executor, queue
        self._turns = WeakValueDictionary[str, _Turns]()

    async def write(self, namespace: str, key: str, perform: Callable[[], Awaitable[Json]]) -> Json:
        """The answer to a write in the reconcile of `key`, which is parked until its turn."""
        turns = self._turns.setdefault(namespace, _Turns())
        if turns.locked():
            with self._queue.parking(key):
                async with self._executor.waiting(key):
                    await turns.acquire()
        else:
            await turns.acquire()
        began, is_large = time.monotonic(), turns.is_last
        try:
            answer = await perform()
            is_large = len(orjson.dumps(answer)) > LARGE
        finally:  # a write that failed counts as the ones before
            if is_large:
                turns.rest(REST * (time.monotonic() - began))
            else:
                turns.release()
        return answer


class _Turns(asyncio.Semaphore):
    """Of a namespace: each large write is the last of its turn, but for one turn, which rests."""

    def __init__(self) -> None:
        super().__init__(TURNS)
        self._left = TURNS

    @property
    def is_last(self) -> bool:
        return self._left == 1

    def rest(self, seconds: float) -> None:
        if self.is_last:
            call_later(seconds, self.release)
        else:
            self._left -= 1


class Slots:
    """Of the keys that want something, at most `limit` have their turn; the next is enqueued.

    Namespaces take turns.
    """

    def __init__(self, limit: int, enqueue: Callable[[str], None]) -> None:
        self._limit, self._enqueue = limit, enqueue
        self._having: set[str] = set()
        self._waiting = RoundRobin[str]()

    @property
    def is_idle(self) -> bool:
        return not (self._having or self._waiting)

    def take(self, key: str, is_urgent: bool = False) -> bool:
        """Whether it is the turn of `key`, until it leaves; otherwise it is enqueued later.

        If `is_urgent`, it is the next of its namespace.
        """
        if key not in self._having and len(self._having) >= self._limit:
            self._waiting.add(namespace_of(key), key, is_urgent)
            return False
        self._having.add(key)
        return True

    def leave(self, key: str) -> None:
        """At the end of each reconcile of `key`, whether it took its turn or not."""
        self._having.discard(key)
        while self._waiting and len(self._having) < self._limit:
            following = self._waiting.pop()
            self._having.add(following)
            self._enqueue(following)


class NamespaceSlots:
    """Slots for each namespace: what one has under way for minutes leaves some of `limit` free.

    A load balancer of fifty ports may wait for hundreds of grants.
    """

    def __init__(self, limit: int, enqueue: Callable[[str], None]) -> None:
        self._most = limit - limit // RESERVED
        self._enqueue = enqueue
        self._by_namespace: dict[str, Slots] = {}

    def take(self, key: str, is_urgent: bool = False) -> bool:
        """As `Slots`."""
        namespace = namespace_of(key)
        slots = self._by_namespace.setdefault(namespace, Slots(self._most, self._enqueue))
        return slots.take(key, is_urgent)

    def leave(self, key: str) -> None:
        """As `Slots`."""
        if slots := self._by_namespace.get(namespace_of(key)):
            slots.leave(key)
            if slots.is_idle:
                del self._by_namespace[namespace_of(key)]


class ProcessorShares:
    """Gives the namespaces turns at the processor, and has those rest whose turns are long.

    A Service with 5,000 source ranges takes 20 ms to read, and as much to compare. Turns that are
    not long are free, however many there are, but go one behind another: between two of them
    others have theirs. Urgent work counts as all does, and rests for what was urgent before.
    """

    def __init__(self, node_count: Callable[[], int]) -> None:
        self._node_count = node_count
        self._passes = WeakValueDictionary[str, _Pass]()  # by namespace
        self._rests_until: dict[tuple[str, bool], float] = {}  # also of what is urgent alone
        self._latest, self._changed = "", 0.0  # the namespace that had a turn, and since when

    def seconds_to_rest(self, key: str, is_urgent: bool = False) -> float:
        """How long a reconcile of `key` is still to wait for others; 0 or less for most."""
        return self._rests_until.get((namespace_of(key), is_urgent), 0.0) - time.monotonic()

    async def measure(self, key: str, work: Coroutine[Any, Any, T], is_urgent: bool = False) -> T:
        """What the work of `key` returns; its long turns are counted as they pass."""
        count = partial(self._count, namespace_of(key), is_urgent)
        return await _by_turns(work, self._passes.setdefault(namespace_of(key), _Pass()), count)

    def _count(self, namespace: str, is_urgent: bool, seconds: float) -> None:
        now = time.monotonic()
        if namespace != self._latest:
            self._latest, self._changed = namespace, now
        least = LONG_BESIDE_OTHERS if now - self._changed < BESIDE else LONG
        if seconds < least + FOR_A_NODE * self._node_count():
            return
        if len(self._rests_until) > NAMESPACES_KEPT:
            self._rests_until = {name: it for name, it in self._rests_until.items() if it > now}
        for counted in (namespace, False), *([(namespace, True)] if is_urgent else []):
            rested = max(self._rests_until.get(counted, 0.0), now - SAVED)
            self._rests_until[counted] = rested + seconds / SHARE


class _Pass:
    """What a namespace has of one pass of the loop, and its turns that wait for the next."""

    def __init__(self) -> None:
        self._used, self._has_begun = 0.0, False
        self._waiting = deque[asyncio.Future[None]]()

    def take(self) -> Generator[Any, Any, None]:
        """Wait for a pass that has time left for the namespace."""
        if self._used >= IN_A_PASS:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            yield from turn

    def count(self, seconds: float) -> None:
        if not self._has_begun:
            self._has_begun = True
            call_later(0.0, self._end)
        self._used += seconds
        if self._used < IN_A_PASS:
            self._release()

    def _end(self) -> None:
        self._used, self._has_begun = 0.0, False
        self._release()

    def _release(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


@coroutine
def _by_turns(
    work: Coroutine[Any, Any, T], its: _Pass, count: Callable[[float], None]
) -> Generator[Any, Any, T]:
    """As `work`; `count` gets the processor's seconds of each turn of the loop in it."""
    resume: Callable[[], Any] = partial(work.send, None)
    while True:
        try:
            yield from its.take()
        except BaseException as error:  # noqa: BLE001 - the work gets it
            resume = partial(work.throw, error)
        began = time.thread_time()
        try:
            awaited = resume()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            seconds = time.thread_time() - began
            its.count(seconds)
            count(seconds)
        try:
            resume = partial(work.send, (yield awaited))
        except BaseException as error:  # noqa: BLE001 - the work gets it
            resume = partial(work.throw, error)
