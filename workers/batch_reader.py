"""Questions to the cloud, gathered into batches, so that N objects cost ⌈N / batch⌉ reads."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from ccm.cloud.gate import spending
from ccm.cloud.invoke import invoke
from ccm.decide.budget import Priority
from ccm.errors import CloudError, NoPermit, Throttled
from ccm.model.cloud import Gone, Instance, Unknown, VolumePlace
from workers.quarantine import Quarantine
from workers.queue import WorkQueue

log = logging.getLogger(__name__)

QUICK = 0.005  # seconds that a question waits for company
PATIENT = 0.5  # seconds between two batches that are not full, while many questions come
LONGEST = 2.0  # seconds that a batch waits while more keys are ready, which may ask as well
IN_FLIGHT = 8  # reads at the same time
ANSWERS = (Instance, VolumePlace, Gone, Unknown)
FRESH = 300.0  # seconds for which an answer may be acted on; a refresh follows in as many


class Named(Protocol):
    """An object of Kubernetes; with another UID it is another one."""

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


Asked = TypeVar("Asked", bound=Named)
Asked_contra = TypeVar("Asked_contra", bound=Named, contravariant=True)
Said = TypeVar("Said")
Said_co = TypeVar("Said_co", covariant=True)


class Source(Protocol[Asked_contra, Said_co]):
    """The part of a provider that answers for many objects in one read, by their names."""

    batch_size: int

    def describe(
        self, objects: Sequence[Asked_contra], /
    ) -> Mapping[str, Said_co] | Awaitable[Mapping[str, Said_co]]: ...


class BatchReader(Generic[Asked, Said]):
    """Asks the cloud about objects; queues them when an answer is there, and keeps it for a while.

    A question that comes alone leaves almost at once. After a batch of several, the next one waits
    until it is full or half a second has passed: more are likely to come. While more keys
    are ready than could ask yet, it waits for them, however slow this machine is.
    """

    def __init__(
        self,
        source: Source[Asked, Said],
        priority: Priority,
        quarantine: Quarantine,
        queue: WorkQueue,
    ) -> None:
        self._source, self._priority = source, priority
        self._quarantine, self._queue = quarantine, queue
        self._waiting: dict[str, Asked] = {}
        self._under_way: set[str] = set()
        self._answers: dict[str, tuple[float, str, Said | Unknown]] = {}
        self._wake, self._full = asyncio.Event(), asyncio.Event()
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._reads: set[asyncio.Task[None]] = set()

    async def answer(self, object_ref: Asked) -> Said | Unknown | None:
        """What the cloud says; None while the question is on its way: its end queues the key.

        A suspect is asked about at once and alone, and then None means that the cloud throttles.
        """
        if kept := self._answers.get(object_ref.name):
            at, uid, answer = kept
            if uid == object_ref.uid and time.monotonic() - at < FRESH:
                return answer
        if self._quarantine.is_suspect(object_ref.name):
            answers = await self.describe([object_ref], self._priority)
            return None if answers is None else answers[object_ref.name]
        self._ask(object_ref)
        return None

    def forget(self, name: str) -> None:
        """Nobody needs an answer about this object any more."""
        self._waiting.pop(name, None)
        self._answers.pop(name, None)

    async def run(self) -> None:
        """Read batch after batch, until cancelled."""
        loop = asyncio.get_running_loop()
        patient_until = 0.0
        try:
            while True:
                await self._wake.wait()
                await self._gather(max(patient_until - loop.time(), QUICK))
                await self._slots.acquire()
                batch = self._next_batch()
                patient_until = loop.time() + PATIENT if len(batch) > 1 else 0.0
                self._start(batch)
        finally:
            for read in self._reads:
                read.cancel()

    def _ask(self, object_ref: Asked) -> None:
        """Put a question; one that is under way is not put again."""
        if object_ref.name in self._under_way:
            return
        self._waiting[object_ref.name] = object_ref
        self._wake.set()
        if len(self._waiting) >= self._source.batch_size:
            self._full.set()

    async def _gather(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._full.clear()
        while len(self._waiting) < self._source.batch_size:
            try:
                await asyncio.wait_for(self._full.wait(), seconds)
            except TimeoutError:
                if not len(self._queue) or loop.time() - began > LONGEST:
                    return

    def _next_batch(self) -> list[Asked]:
        names = list(self._waiting)[: self._source.batch_size]
        batch = [self._waiting.pop(name) for name in names]
        if not self._waiting:
            self._wake.clear()
        self._under_way.update(names)
        return batch

    def _start(self, batch: list[Asked]) -> None:
        read = asyncio.create_task(self._read(batch))
        self._reads.add(read)
        read.add_done_callback(self._reads.discard)

    async def _read(self, batch: list[Asked]) -> None:
        try:
            answers = await self.describe(batch, self._priority)
        finally:
            self._slots.release()
            self._under_way.difference_update(object_ref.name for object_ref in batch)
        now = time.monotonic()
        for object_ref in batch:
            if answers is None:  # throttled: the same question again, paced by the budget
                self._ask(object_ref)
                continue
            self._answers[object_ref.name] = now, object_ref.uid, answers[object_ref.name]
            self._queue.add(object_ref.name)

    async def describe(
        self, batch: Sequence[Asked], priority: Priority
    ) -> dict[str, Said | Unknown] | None:
        """One answer for each object, whatever the provider does; None to ask again later."""
        if not batch:
            return {}
        try:
            with spending(priority), self._quarantine.hold(object_ref.name for object_ref in batch):
                answers = await invoke(self._source.describe, batch)
            return {
                object_ref.name: _understood(answers.get(object_ref.name)) for object_ref in batch
            }
        except (Throttled, NoPermit):
            return None
        except CloudError as error:
            return {object_ref.name: Unknown(str(error)) for object_ref in batch}
        except Exception as error:  # around one callback: a provider's bug is one failed read
            failed = f"{type(self._source).__name__}.describe"
            log.exception("provider failed", extra={"call": failed})
            return {object_ref.name: Unknown(f"provider failed: {error!r}") for object_ref in batch}


def _understood(said: Said | None) -> Said | Unknown:
    """What a provider said, or Unknown when that is nothing or no answer at all."""
    if said is None:
        return Unknown("the cloud said nothing about it")
    if not isinstance(said, ANSWERS):
        return Unknown(f"the provider gave no answer but {said!r}")
    return said
