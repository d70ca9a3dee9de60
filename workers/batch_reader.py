"""Reads about many objects, gathered into batches, so that N objects cost ⌈N / batch⌉ reads."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from ccm.background import start_task
from ccm.cloud.gate import invoke, with_priority
from ccm.cloud.interface import Read
from ccm.decide.batching import GatheringBatch, LastBatch, begin, leave, seconds_to_wait
from ccm.decide.budget import MOST_OBJECTS, READ_PAUSE, READS, Allowances, Priority
from ccm.errors import CloudError, NotLeading, RetryAfter, Throttled
from ccm.model.cloud import Gone, Instance, Unknown, VolumePlace
from workers.controller import ControllerContext
from workers.executor import KeyExecutor

log = logging.getLogger(__name__)

READS_IN_FLIGHT = 8
TURNS_TO_JOIN = 5  # of the event loop, until a key that leaves the queue waits here
ANSWERS = (Instance, VolumePlace, Gone, Unknown)
MOST_IN_VAIN = 3  # reads in a row that find nothing; later ones take turns with load balancers


class Named(Protocol):
    """An object of Kubernetes; with another identity it is another one to the cloud."""

    @property
    def name(self) -> str: ...

    @property
    def cloud_identity(self) -> tuple[str, ...]: ...


ObjectT = TypeVar("ObjectT", bound=Named)
AnswerT = TypeVar("AnswerT")


class BatchReader(Generic[ObjectT, AnswerT]):
    """Asks the cloud about objects; a reconcile awaits the answer for its own.

    When a batch leaves is decided in `ccm.decide.batching`. While more keys are ready than could
    join yet, it waits for them, however slow this machine is.
    """

    def __init__(
        self,
        read: Read[ObjectT, AnswerT],
        batch_size: int,
        priority: Priority,
        context: ControllerContext,
        in_flight: int = READS_IN_FLIGHT,
    ) -> None:
        """So many reads are under way at the same time, each about `batch_size` objects at most."""
        self._read, self._batch_size = read, batch_size
        self._priority, self._timings = priority, context.timings
        self._executor, self._queue = context.executor, context.queue
        self._waiting: dict[str, tuple[ObjectT, asyncio.Future[AnswerT | Unknown]]] = {}
        self._answers: dict[str, tuple[float, tuple[str, ...], AnswerT | Unknown]] = {}
        self._some, self._enough = asyncio.Event(), asyncio.Event()
        self._wanted = batch_size  # objects in the batch that gathers
        self._joined_at = 0.0  # by the loop's clock
        self._slots = asyncio.Semaphore(in_flight)
        self._reads: set[asyncio.Task[None]] = set()
        self._allowances = Allowances[str](READS, READ_PAUSE, MOST_OBJECTS)
        self._in_vain = 0  # reads in a row that found nothing: kubelets register under any names

    async def read(self, obj: ObjectT) -> AnswerT | Unknown:
        """What the cloud says of `obj`, at most `answer_ttl` old unless `forget` was called.

        Call it in the reconcile of the key `obj.name`, which is parked meanwhile. Raises
        `NotLeading` when this process does not lead, and `RetryAfter` for one object too often.
        """
        name, identity = obj.name, obj.cloud_identity
        if kept := self._answers.get(name):
            at, its, answer = kept
            if its == identity and time.monotonic() - at < self._timings.answer_ttl:
                return answer
        if pause := self._allowances.take(name, time.monotonic()):
            raise RetryAfter("it changes again and again: the cloud is asked later", pause)
        with self._queue.parking(name):
            async with self._executor.waiting(name):
                answer = await self._join(name, obj)
        self._answers[name] = time.monotonic(), identity, answer
        return answer

    def forget(self, name: str) -> None:
        """The answer about this object is not needed any more."""
        self._answers.pop(name, None)

    async def run(self) -> None:
        """Read batch after batch, until cancelled."""
        clock, timings, last = asyncio.get_running_loop().time, self._timings.batch, LastBatch()
        try:
            while True:
                await self._some.wait()
                gathering = begin(last, clock(), timings)
                await self._gather(gathering)
                await self._slots.acquire()
                batch = self._next_batch()
                if not batch:  # who waited was cancelled
                    self._slots.release()
                    continue
                is_full = len(batch) >= self._batch_size
                last = leave(gathering, clock(), len(batch), is_full, timings)
                self._reads.add(start_task(self._read_for(batch), self._reads.discard))
        finally:
            for read in self._reads:
                read.cancel()

    async def _join(self, name: str, obj: ObjectT) -> AnswerT | Unknown:
        """Wait for the answer in the next batch."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[AnswerT | Unknown] = loop.create_future()
        self._waiting[name], self._joined_at = (obj, answered), loop.time()
        self._some.set()
        if len(self._waiting) >= self._wanted:
            self._enough.set()
        try:
            return await answered
        finally:
            if self._waiting.get(name) == (obj, answered):
                del self._waiting[name]

    async def _gather(self, batch: GatheringBatch) -> None:
        """Wait until it is time for the batch to leave."""
        clock, timings = asyncio.get_running_loop().time, self._timings.batch
        full = self._batch_size
        while len(self._waiting) < full:
            for _ in range(TURNS_TO_JOIN):
                await asyncio.sleep(0)
            are_more_coming, size = len(self._queue) > 0, len(self._waiting)
            seconds = seconds_to_wait(
                batch, clock(), self._joined_at, are_more_coming, timings, size
            )
            if not seconds:
                return
            self._wanted = full if are_more_coming else int(min(full, batch.enough))
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._until_enough()

    async def _until_enough(self) -> None:
        while len(self._waiting) < self._wanted:  # also after one was cancelled
            self._enough.clear()
            await self._enough.wait()

    def _next_batch(self) -> "list[tuple[ObjectT, asyncio.Future[AnswerT | Unknown]]]":
        names = list(self._waiting)[: self._batch_size]
        batch = [self._waiting.pop(name) for name in names]
        if not self._waiting:
            self._some.clear()
        return batch

    async def _read_for(
        self, batch: "list[tuple[ObjectT, asyncio.Future[AnswerT | Unknown]]]"
    ) -> None:
        """Read once for all who wait, and hand out the answers."""
        objects = [obj for obj, _ in batch]
        error: Exception = CloudError("the read was broken off")
        try:
            answers = await self._until_answered(objects)
            for obj, answered in batch:
                if not answered.done():
                    answered.set_result(answers[obj.name])
        except NotLeading as refused:
            error = refused
        finally:
            self._slots.release()
            for _, answered in batch:
                if not answered.done():
                    answered.set_exception(error)

    async def _until_answered(self, batch: Sequence[ObjectT]) -> dict[str, AnswerT | Unknown]:
        """Describe again while the cloud throttles: the budget sets the pace."""
        priority = self._priority
        if self._in_vain >= MOST_IN_VAIN:
            priority = max(priority, Priority.LB_ENSURE)
        while (answers := await read_batch(self._executor, self._read, batch, priority)) is None:  # noqa: ASYNC110
            await asyncio.sleep(self._timings.throttled_batch_retry)
        is_found = any(isinstance(item, Instance | VolumePlace) for item in answers.values())
        self._in_vain = 0 if is_found else self._in_vain + 1
        return answers


async def read_batch(
    executor: KeyExecutor,
    read: Read[ObjectT, AnswerT],
    batch: Sequence[ObjectT],
    priority: Priority,
) -> dict[str, AnswerT | Unknown] | None:
    """One answer for each object of `batch`, by name, whatever the provider does.

    None when the cloud throttles; raises `NotLeading` when this process does not lead.
    """
    try:
        with executor.journaled([obj.name for obj in batch]), with_priority(priority):
            answers = await invoke(read, batch)
        return {obj.name: _checked(answers.get(obj.name)) for obj in batch}
    except Throttled:
        return None
    except NotLeading:
        raise
    except CloudError as error:
        return {obj.name: Unknown(str(error)) for obj in batch}
    except Exception as error:  # around one callback: a provider's bug is one failed read
        log.exception("provider failed", extra={"call": getattr(read, "__qualname__", "")})
        return {obj.name: Unknown(f"provider failed: {error!r}") for obj in batch}


def _checked(answer: AnswerT | None) -> AnswerT | Unknown:
    """A provider's answer, or Unknown when that is nothing or none of `ANSWERS`."""
    if answer is None:
        return Unknown("the cloud did not report it")
    if not isinstance(answer, ANSWERS):
        return Unknown(f"the provider gave no answer but {answer!r}")
    return answer
