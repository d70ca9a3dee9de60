"""The rounds about nodes that are not Ready: one batched read, then taints and proposals."""

import asyncio
import logging
import time

from ccm.bus.frames import ProposeDeletions
from ccm.decide.budget import Priority
from ccm.model.cloud import Answer, Gone, Unknown
from ccm.model.node import Node
from workers.batch_reader import BatchReader
from workers.controller import ControllerContext
from workers.node.lifecycle import is_watched
from workers.node.rounds import batches, nodes_where

log = logging.getLogger(__name__)


class Monitor:
    """Asks about every node that is not Ready, once a period for all of them together.

    The answers stay until the next round: a reconcile follows the power state in them. What the
    cloud positively does not have is proposed to the supervisor, which alone permits deletions.
    """

    def __init__(
        self, context: ControllerContext, inventory: BatchReader[Node, Answer], batch_size: int
    ) -> None:
        self._context, self._inventory, self._batch_size = context, inventory, batch_size
        self._answers: dict[str, tuple[str, Answer]] = {}  # by name, with the UID

    def answer(self, node: Node) -> Answer | None:
        """What the last round said about this very node, and not about one before of its name."""
        uid, answer = self._answers.get(node.name, ("", None))
        return answer if uid == node.uid else None

    async def run(self) -> None:
        """Round after round, while this worker may act."""
        while True:
            await asyncio.sleep(self._context.settings.node_monitor_period)
            await self._context.performer.permission.wait()
            await self._round()

    async def _round(self) -> None:
        scheme = self._context.provider.scheme
        nodes = await nodes_where(self._context.store, lambda node: is_watched(node, scheme))
        answers: dict[str, Answer] = {}
        gone: list[list[object]] = []
        for batch in batches(nodes, self._batch_size):
            asked_at = time.monotonic()  # an answer is at least as new as its question
            batch_answers = await self._inventory.describe(batch, Priority.REFRESH)
            if batch_answers is None:
                batch_answers = {node.name: Unknown("throttled") for node in batch}
            answers |= batch_answers
            gone += [
                [node.name, node.uid, answer.evidence, asked_at]
                for node in batch
                if isinstance(answer := batch_answers[node.name], Gone)
            ]
        before = self._answers
        self._answers = {node.name: (node.uid, answers[node.name]) for node in nodes}
        self._propose(len(nodes), gone, answers)
        for name in self._answers.keys() | before.keys():
            if self._answers.get(name) != before.get(name):
                self._context.queue.add(name)

    def _propose(self, asked: int, gone: list[list[object]], answers: dict[str, Answer]) -> None:
        not_gone = [name for name, answer in answers.items() if not isinstance(answer, Gone)]
        self._context.send(ProposeDeletions(asked, gone, not_gone))
