"""The slow pass over initialised nodes: what their machines are by now, in batched reads."""

import asyncio
import logging
from collections.abc import Sequence

from ccm.decide.budget import Priority
from ccm.model.cloud import Answer, Instance
from ccm.model.node import Node
from workers.batch_reader import BatchReader
from workers.controller import ControllerContext
from workers.node.plan import CannotPlan, follow
from workers.node.rounds import batches, nodes_where

log = logging.getLogger(__name__)

ASK_AGAIN = 5.0  # seconds after which a batch that the cloud throttled is asked for once more


class Refresh:
    """Asks about every initialised node once a period, one batch after the other, evenly spread.

    A node that is what its machine is costs nothing more; the others get a reconcile, which takes
    the answer from here. A start begins with a pause: restarts of workers must not add up to reads.
    """

    def __init__(
        self, context: ControllerContext, inventory: BatchReader[Node, Answer], batch_size: int
    ) -> None:
        self._context, self._inventory, self._batch_size = context, inventory, batch_size
        self._answers: dict[str, tuple[str, Instance]] = {}
        self._passes = 0

    @property
    def passes(self) -> int:
        """How often all nodes were asked about since the start."""
        return self._passes

    def answer(self, node: Node) -> Instance | None:
        """What this node has to become, until `forget`."""
        uid, instance = self._answers.get(node.name, ("", None))
        return instance if uid == node.uid else None

    def forget(self, name: str) -> None:
        """The node is what it has to be, or cannot become it."""
        self._answers.pop(name, None)

    async def run(self) -> None:
        """Pass after pass, while this worker may act."""
        period = self._context.settings.node_status_update_frequency
        while True:
            nodes = await nodes_where(self._context.store, self._is_due)
            parts = list(batches(nodes, self._batch_size))
            for part in parts:
                await asyncio.sleep(period / len(parts))
                await self._ask(part)
            if not parts:
                await asyncio.sleep(period)
            self._passes += 1

    def _is_due(self, node: Node) -> bool:
        """Initialised and ours; without a provider ID its kubelet sets the addresses itself."""
        is_foreign = node.is_foreign(self._context.provider.scheme)
        return bool(node.provider_id) and not node.is_uninitialized and not is_foreign

    async def _ask(self, nodes: Sequence[Node]) -> None:
        while True:
            await self._context.performer.permission.wait()
            answers = await self._inventory.describe(nodes, Priority.REFRESH)
            if answers is not None:
                break
            await asyncio.sleep(ASK_AGAIN)
        for node in nodes:
            answer = answers[node.name]
            if isinstance(answer, Instance) and self._differs(node, answer):
                self._answers[node.name] = node.uid, answer
                self._context.queue.add(node.name)

    def _differs(self, node: Node, instance: Instance) -> bool:
        try:
            return any(follow(node, instance, self._context.settings.prefer_beta_labels))
        except CannotPlan:
            return True  # a reconcile tells people
