"""The node duty: what it wants, what one reconcile does, and what it tells people."""

from collections.abc import Iterable

from ccm.cloud.interface import Instances
from ccm.errors import CloudError, ConfigurationFault
from ccm.kube.events import Note, ObjectRef
from ccm.model.cloud import Gone, Instance, Unknown
from ccm.model.node import PROVIDED_NODE_IP, Json, Node
from ccm.model.projection import Want
from ccm.settings import Settings
from workers.duty import Duty, Outcome, Tools
from workers.node.inventory import Inventory
from workers.node.patches import patch_for
from workers.node.plan import CannotPlan, plan

COMPONENT = "cloud-node-controller"

WANTS = (
    Want(
        "Node",
        (
            ("metadata", "name"),
            ("metadata", "uid"),
            ("metadata", "labels"),
            ("metadata", "annotations", PROVIDED_NODE_IP),
            ("spec", "providerID"),
            ("spec", "taints"),
            ("status", "addresses"),
        ),
    ),
)


def duty(tools: Tools) -> Duty:
    """The node duty of this process."""
    instances = tools.provider.instances
    if instances is None:
        raise ConfigurationFault(
            "--cloud-provider",
            f"{tools.provider.name!r} knows nothing of machines",
            "choose a provider with instances",
        )
    return NodeDuty(tools, instances)


def concurrency(settings: Settings) -> int:
    """Initialisation is as wide as the API server takes requests, unless the flag narrows it."""
    return settings.concurrent_node_syncs or settings.kube_api_in_flight


class NodeDuty:
    """Initialises Nodes: asks about the machine, then writes addresses, labels and provider ID."""

    def __init__(self, tools: Tools, instances: Instances) -> None:
        self._tools = tools
        self._inventory = Inventory(instances, tools.queue.add)
        self._initialised = 0

    def keys_for(self, kind: str, key: str) -> Iterable[str]:
        return (key,)

    async def run(self) -> None:
        await self._inventory.run()

    def facts(self) -> Json:
        return {"objects": self._tools.store.count("Node"), "initialised": self._initialised}

    async def reconcile(self, key: str) -> Outcome:
        raw = self._tools.store.get("Node", key)
        node = Node(raw) if raw is not None else None
        if node is None or not node.is_uninitialized:
            self._inventory.forget(key)
            return Outcome("initialised" if node else "it is gone")
        scheme = self._tools.provider.scheme
        if node.is_foreign(scheme):
            return Outcome(f"left alone: {node.provider_id} is not ours", is_settled=False)
        match self._inventory.answer(key):
            case None:
                self._inventory.ask(node)
                return Outcome("waits for the cloud's answer", is_settled=False)
            case Unknown(why):
                self._inventory.forget(key)
                raise CloudError(why)
            case Gone(evidence):
                self._inventory.forget(key)
                self._tell(node, "CloudMachineNotFound", f"No machine for this node: {evidence}")
                raise CloudError(f"the cloud knows no such machine: {evidence}")
            case Instance() as instance:
                return await self._initialise(node, instance)

    async def _initialise(self, node: Node, instance: Instance) -> Outcome:
        try:
            actions = list(plan(node, instance))
        except CannotPlan as problem:
            self._inventory.forget(node.name)
            self._tell(node, "InitializationFailed", str(problem))
            raise CloudError(str(problem)) from problem
        for action in actions:
            answer = await self._tools.performer.perform(patch_for(node, action))
            self._tools.store.wrote("Node", node.name, answer)
        self._inventory.forget(node.name)
        self._initialised += 1
        note = Note(_about(node), "Normal", "Synced", "Node synced successfully")
        self._tools.recorder.tell(note)
        return Outcome("initialised")

    def _tell(self, node: Node, reason: str, message: str) -> None:
        self._tools.recorder.tell(Note(_about(node), "Warning", reason, message))


def _about(node: Node) -> ObjectRef:
    return ObjectRef("v1", "Node", node.name, node.uid)
