"""Questions about machines, gathered into batches, so that N nodes cost ⌈N / batch⌉ cloud reads."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from ccm.cloud.gate import spending
from ccm.cloud.interface import Instances
from ccm.cloud.invoke import invoke
from ccm.decide.budget import Priority
from ccm.errors import CloudError, Throttled
from ccm.model.cloud import Answer, Unknown
from ccm.model.node import Node
from workers.caution import Caution

log = logging.getLogger(__name__)

QUICK = 0.005  # seconds that a question waits for company
PATIENT = 0.25  # seconds between two batches that are not full, while many questions come
IN_FLIGHT = 8  # reads at the same time
FRESH = 30.0  # seconds for which an answer may be acted on


class Inventory:
    """Asks the cloud about nodes; tells when an answer is there, and keeps it for a short while.

    A question that comes alone leaves almost at once. After a batch of several, the next one waits
    until it is full or a quarter of a second has passed: more are likely to come.
    """

    def __init__(
        self, instances: Instances, caution: Caution, on_answer: Callable[[str], None]
    ) -> None:
        self._instances, self._caution, self._on_answer = instances, caution, on_answer
        self._questions: dict[str, Node] = {}
        self._under_way: set[str] = set()
        self._answers: dict[str, tuple[float, Answer]] = {}
        self._wake, self._full = asyncio.Event(), asyncio.Event()
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._reads: set[asyncio.Task[None]] = set()

    def ask(self, node: Node) -> None:
        """Find out about this node's machine; an answer that is on its way is not asked again."""
        if node.name in self._under_way:
            return
        self._questions[node.name] = node
        self._wake.set()
        if len(self._questions) >= self._instances.batch_size:
            self._full.set()

    async def ask_alone(self, node: Node) -> Answer | None:
        """Find out now, in a read of its own; None when the cloud throttles."""
        answers = await self.describe([node], Priority.NODE_INIT)
        return None if answers is None else answers.get(node.name)

    def answer(self, name: str) -> Answer | None:
        """What the cloud said about this node, if that is fresh."""
        at, answer = self._answers.get(name, (0.0, None))
        return answer if asyncio.get_running_loop().time() - at < FRESH else None

    def forget(self, name: str) -> None:
        """Nobody needs an answer for this node any more."""
        self._questions.pop(name, None)
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

    async def _gather(self, seconds: float) -> None:
        self._full.clear()
        if len(self._questions) < self._instances.batch_size:
            try:
                await asyncio.wait_for(self._full.wait(), seconds)
            except TimeoutError:
                return

    def _next_batch(self) -> list[Node]:
        names = list(self._questions)[: self._instances.batch_size]
        batch = [self._questions.pop(name) for name in names]
        if not self._questions:
            self._wake.clear()
        self._under_way.update(names)
        return batch

    def _start(self, batch: list[Node]) -> None:
        read = asyncio.create_task(self._read(batch))
        self._reads.add(read)
        read.add_done_callback(self._reads.discard)

    async def _read(self, batch: list[Node]) -> None:
        try:
            answers = await self.describe(batch, Priority.NODE_INIT)
        finally:
            self._slots.release()
            self._under_way.difference_update(node.name for node in batch)
        for node in batch:
            if answers is None:  # throttled: the same question again, paced by the budget
                self.ask(node)
                continue
            self._answers[node.name] = asyncio.get_running_loop().time(), answers[node.name]
            self._on_answer(node.name)

    async def describe(self, batch: Sequence[Node], priority: Priority) -> dict[str, Answer] | None:
        """One answer for each node, whatever the provider does; None when the cloud throttles."""
        if not batch:
            return {}
        answers: Mapping[str, Answer]
        try:
            with spending(priority), self._caution.hold(node.name for node in batch):
                answers = await invoke(self._instances.describe, batch)
        except Throttled:
            return None
        except CloudError as error:
            return {node.name: Unknown(str(error)) for node in batch}
        except Exception as error:  # around one callback: a provider's bug is one failed read
            log.exception("provider failed", extra={"call": "instances.describe"})
            return {node.name: Unknown(f"provider failed: {error!r}") for node in batch}
        silence = Unknown("the cloud said nothing about it")
        return {node.name: answers.get(node.name, silence) for node in batch}
