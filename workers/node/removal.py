"""Deletes the Nodes that the supervisor permits to delete, each once more checked."""

import asyncio
import logging
from typing import Any, Literal
from urllib.parse import quote

from ccm import metrics
from ccm.background import start_task
from ccm.bus.frames import PermitDeletions
from ccm.errors import KubernetesError, NotLeading, Outdated, Unreachable
from ccm.kube.events import Event, ObjectRef
from ccm.log import performing
from ccm.model.objects import Json, Node
from ccm.model.writes import Delete
from workers.controller import ControllerContext
from workers.store import MachineHolders

log = logging.getLogger(__name__)


class NodeRemover:
    """Deletes a Node if it is the one that was meant and still not Ready."""

    def __init__(self, context: ControllerContext, holders: MachineHolders) -> None:
        self._context, self._holders = context, holders
        self._tasks = set[asyncio.Task[Any]]()
        self.count = 0  # since the start

    def on_message(self, permitted: PermitDeletions) -> None:
        """Begin to delete these."""
        for name, uid, evidence in permitted.nodes:
            self._tasks.add(start_task(self._delete(name, uid, evidence), self._tasks.discard))

    async def _delete(self, name: str, uid: str, evidence: str) -> None:
        node = self._still_to_delete(name, uid)
        if node is None:
            return

        def check(found: Json) -> None:
            if self._still_to_delete(name, uid) is None or Node(found).is_ready:
                raise Outdated("it is Ready by now, or another one")

        message = f"Deleting node {name} because it does not exist in the cloud provider"
        self._record(node, "Normal", "DeletingNode", message)
        write = Delete(f"/api/v1/nodes/{quote(name)}", uid)
        try:
            with performing(log, "node deleted", node=name, why=evidence):
                await self._context.performer.perform(write, check)
            self.count += 1
            self._holders.on_gone(node.provider_id)
            self._context.counters.count(metrics.NODES_DELETED)
        except (KubernetesError, Unreachable, NotLeading, Outdated) as error:
            why = f"Failed deleting node {name}: {error}"
            self._record(node, "Warning", "DeletingNodeFailed", why)

    def _still_to_delete(self, name: str, uid: str) -> Node | None:
        node = self._context.store.view(Node, name)
        if node is None or node.uid != uid or node.is_being_deleted:
            return None
        return None if node.is_ready else node

    def _record(
        self, node: Node, kind: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        self._context.recorder.record(Event(ObjectRef.of(node), kind, reason, message))
