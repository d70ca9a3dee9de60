"""The node controller: what one reconcile does, and which Events it records."""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Literal

from ccm.bus.frames import Message, PermitDeletions
from ccm.cloud.interface import Instances, look_up_of
from ccm.controllers import LIFECYCLE, NODE, is_enabled
from ccm.decide.budget import Priority
from ccm.errors import CloudError, Contested, KubernetesError
from ccm.kube.events import Event, ObjectRef
from ccm.log import performing, seconds_since
from ccm.model.cloud import Answer, Gone, Instance, Unknown
from ccm.model.objects import (
    NODE_IDENTITY,
    NODE_IDENTITY_PATHS,
    PROVIDED_NODE_IP,
    Json,
    Node,
    Projection,
    resource_version,
)
from ccm.model.writes import is_metadata_only
from ccm.settings import Settings
from workers.batch_reader import BatchReader
from workers.controller import Controller, ControllerContext, NotNeeded, Result
from workers.node.passes import MonitorPass, RefreshPass
from workers.node.plan import (
    Action,
    CannotPlan,
    Initialize,
    SetTaints,
    impossible_labels,
    is_refreshed,
    is_watched,
    message_for,
    patch_for,
    plan,
    plan_power,
    plan_update,
    written,
)
from workers.node.removal import NodeRemover
from workers.queue import RETRY
from workers.store import DUPLICATE, duplicate_message

log = logging.getLogger(__name__)

COMPONENT = "cloud-node-controller"
UNREPORTED_FAILURES = 2  # failed reads about a node without an Event
FORMER_MACHINE = (
    "The cloud still reports {} for this name, the machine of an earlier Node {} that is gone:"
    " tried again until the cloud reports another one"
)
FORMER_MACHINE_RETRY = 5.0  # seconds

BACKOFF = RETRY

PROJECTIONS = (
    # Before the Nodes themselves, so that none is taken in without it.
    Projection(NODE_IDENTITY, NODE_IDENTITY_PATHS),
    Projection(
        "Node",
        (
            *NODE_IDENTITY_PATHS,
            ("metadata", "labels"),
            ("metadata", "deletionTimestamp"),
            ("metadata", "annotations", PROVIDED_NODE_IP),
            ("spec", "taints"),
            ("status", "addresses"),
            ("status", "conditions", ("type", "Ready"), "status"),
        ),
    ),
)


def new_controller(context: ControllerContext) -> Controller:
    """The node controller of this process."""
    instances = context.provider.instances
    if instances is None:
        raise NotNeeded("the provider has no machines")
    return NodeController(context, instances)


def concurrency(settings: Settings) -> int:
    """Initialization is as wide as the API server takes requests, unless the flag narrows it."""
    return settings.concurrent_node_syncs or settings.kube_api_in_flight


class NodeWriter:
    """Writes what was planned for a Node as it is in the store now, and keeps what it became."""

    def __init__(self, context: ControllerContext, node: Node) -> None:
        self._context, self._node, self._seen = context, node, node.raw
        # As long as we know the version of all that we see, nothing else has to be tested.
        self._version = context.store.version("Node", node.name)

    async def write(self, action: Action) -> None:
        """Raises `KubernetesError` when the Node is not what it was in a way that matters."""
        patch = patch_for(self._node, action, self._version)
        known = self._context.store.version("Node", self._node.name)
        answer = await self._context.performer.perform(patch, since=known)
        if is_metadata_only(answer):
            answer = self._seen = written(self._seen, action, answer["metadata"])
            self._version = resource_version(answer)
        else:
            self._version = 0  # someone else may have written as well
        self._context.store.wrote("Node", self._node.name, answer)

    async def echoed(self) -> None:
        """Wait until the watch has brought the last write, for a moment at most.

        The API server begins a write with what its watch cache has. When that has yet to see the
        write before, it does all of the work twice: so it did of more than half of second writes.
        The slot is kept: no more Nodes are half written than a worker that leaves can finish.
        """
        await self._context.store.echoed("Node", self._node.name, self._context.timings.echo)


class NodeController:
    """Initializes Nodes, lets a taint follow the machine's power, removes permitted ones."""

    def __init__(self, context: ControllerContext, instances: Instances) -> None:
        self._context, self._instances = context, instances
        size = instances.batch_size
        self._reader: BatchReader[Node, Answer] = BatchReader(
            look_up_of(instances), size, Priority.NODE_INIT, context
        )
        self._proofs: BatchReader[Node, Answer] = BatchReader(
            instances.describe, size, Priority.REFRESH, context, in_flight=1
        )
        self._watched: dict[str, bool] = {}  # by name, whether monitor passes are about a Node
        self._refreshed: dict[str, None] = {}  # names of Nodes in the order of their refreshes
        self._refresh_pass = RefreshPass(context, instances, self._refreshed)
        self._monitor_pass = MonitorPass(context, instances, self._watched, self._refresh_pass)
        self._holders = context.machine_holders()
        self._remover = NodeRemover(context, self._holders)
        self._initialized = self._followed = 0
        enabled = context.settings.controllers
        self._does_node = is_enabled(NODE, enabled)
        self._does_lifecycle = is_enabled(LIFECYCLE, enabled)

    def map_to_keys(self, kind: str, key: str) -> Iterable[str]:
        """A Node of ours; of an identity those that have the same machine, or had it."""
        if kind != NODE_IDENTITY:
            self._watch(key)
            return (key,)
        raw = self._context.store.get(kind, key)
        others = self._holders.update(key, Node(raw) if raw is not None else None)
        return sorted(name for name in others if self._node(name))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reader.run())
            group.create_task(self._proofs.run())
            if self._does_lifecycle:
                group.create_task(self._monitor_pass.run())
            if self._does_node:
                group.create_task(self._refresh_pass.run())

    def object_ref(self, key: str) -> ObjectRef | None:
        node = self._node(key)
        return ObjectRef.of(node) if node else None

    def status(self) -> Json:
        return {
            "objects": self._context.store.count("Node"),
            "initialized": self._initialized,
            "deleted": self._remover.count,
            "followed": self._followed,
            "refresh_passes": self._refresh_pass.passes,
        }

    def details(self, key: str) -> Json:
        node = self._node(key)
        if node is None:
            return {"node": "not found"}
        details = {
            "provider ID": node.provider_id or "none",
            "uninitialized taint": "present" if node.is_uninitialized else "removed",
            "kubelet": "ready" if node.is_ready else "not ready: the cloud is asked about it",
        }
        if answer := self._monitor_pass.answer(node) or self._refresh_pass.answer(node):
            details["cloud"] = _answer_text(answer)
        return details

    async def reconcile(self, key: str) -> Result:
        """An answer of the cloud is kept for the next try only where a write failed, or waits."""
        try:
            result = await self._reconcile(key)
        except Contested:
            raise
        except CloudError:
            self._forget(key)
            raise
        self._forget(key)
        return result

    async def _reconcile(self, key: str) -> Result:
        node = self._node(key)
        if node is None:
            self._refresh_pass.forget(key)
            return Result("it is gone")
        if node.is_being_deleted:  # and held by someone's finalizer
            return Result("it is being deleted")
        if node.is_foreign(self._context.provider.provider_ids):
            message = f"left alone: {node.provider_id} is not of {self._context.provider.name}"
            if node.is_uninitialized:
                self._record(node, "LeftAlone", message, "Normal")
            return Result(message, is_done=not node.is_uninitialized)
        if self._holders.holder(key):
            self._settle(node, await self._reader.read(node))
        if why := self._holders.why_not(key):
            self._refresh_pass.forget(key)
            self._record(node, DUPLICATE, why)
            return Result(why, is_done=False)
        if node.is_uninitialized and self._does_node:
            return await self._initialize(node)
        return await self._follow(node)

    async def _read(self, node: Node) -> Answer:
        """What the cloud says of it; of one whose machine is not there apart from all others.

        To prove that costs many clouds a call, for which all of a batch wait: a kubelet may
        register any number of Nodes with provider IDs that it made up.
        """
        answer = await self._reader.read(node)
        is_nowhere = isinstance(answer, Unknown) and answer.is_nowhere
        if is_nowhere and self._context.queue.failures(node.name) >= UNREPORTED_FAILURES:
            return await self._proofs.read(node)
        return answer

    def _forget(self, key: str) -> None:
        for reader in (self._reader, self._proofs):
            reader.forget(key)

    def on_message(self, message: Message) -> None:
        if isinstance(message, PermitDeletions):
            self._remover.on_message(message)

    async def _initialize(self, node: Node) -> Result:
        began = time.monotonic()
        answer = await self._read(node)
        now = self._node(node.name)
        if now is None or not _is_same(now, node):
            return Result("it changed while the cloud was asked", is_done=False, requeue_after=0.0)
        match answer:
            case Unknown(why):
                if self._context.queue.failures(node.name) >= UNREPORTED_FAILURES:
                    self._record(now, "InitializationFailed", why)
                raise CloudError(why)
            case Gone(evidence):
                self._record(now, "CloudMachineNotFound", f"No machine for this node: {evidence}")
                raise CloudError(f"the cloud knows no such machine: {evidence}")
            case Instance() as instance if self._is_of_former(now, instance):
                message = FORMER_MACHINE.format(instance.provider_id, node.name)
                self._record(now, "InitializationFailed", message)
                return Result(message, is_done=False, requeue_after=FORMER_MACHINE_RETRY)
            case Instance() as instance:
                result = await self._write(now, instance)
                fields = {"node": now.name, "provider_id": instance.provider_id}
                log.info("node initialized", extra={**fields, **seconds_since(began)})
                return result

    def _is_of_former(self, node: Node, machine: Instance) -> bool:
        return not node.provider_id and self._holders.is_of_former(machine, node)

    async def _write(self, node: Node, instance: Instance) -> Result:
        writer = NodeWriter(self._context, node)
        if self._holders.older_on(instance, node):
            self._settle(node, instance)
        if holder := self._holders.older_on(instance, node):
            self._record(node, DUPLICATE, duplicate_message(holder))
            raise CloudError(duplicate_message(holder))
        try:
            self._check_names_machine(node, instance)
            actions = list(plan(node, instance))
        except CannotPlan as problem:
            self._record(node, "InitializationFailed", str(problem))
            raise CloudError(str(problem)) from problem
        self._record_impossible_labels(node, instance)
        for number, action in enumerate(actions):
            if number:
                await writer.echoed()
            await self._write_action(writer, node, action)
        self._initialized += 1
        self._record(node, "Synced", "Node synced successfully", "Normal")
        return Result("initialized")

    def _check_names_machine(self, node: Node, instance: Instance) -> None:
        """Raise `CannotPlan` for a provider ID by which no one finds the machine again.

        Once it is in a Node, nothing changes it.
        """
        new = "" if node.provider_id else instance.provider_id
        is_ours = self._context.provider.provider_ids.fullmatch(new)
        if new and not (is_ours and self._instances.machine_of(new)):
            raise CannotPlan(f"provider ID {new!r} names no machine, and is not written")

    def _settle(self, node: Node, machine: Answer) -> None:
        """Give a machine that `node` has as well, or gets, to the one that the cloud names."""
        if not isinstance(machine, Instance) or self._holders.is_settled(machine, node.name):
            return
        names = self._holders.claimants(machine) | {node.name}
        views = [self._context.store.get(NODE_IDENTITY, name) for name in sorted(names)]
        nodes = [Node(raw) for raw in views if raw is not None]
        for other in self._holders.settle(machine, nodes) - {node.name}:
            if self._node(other):
                self._context.queue.add(other)

    async def _follow(self, node: Node) -> Result:
        """Make a node what its machine is, as far as the last passes say.

        Its actions do not build on each other: one that the API server refuses holds up no other.
        """
        answer, writer = self._monitor_pass.answer(node), NodeWriter(self._context, node)
        if self._does_lifecycle:
            await self._perform_each(node, writer, plan_power(node, answer))
        if node.is_uninitialized:
            return Result("left tainted: --controllers")
        if not self._does_node:
            return Result("initialized")
        if not isinstance(answer, Instance) or not node.provider_id:
            answer = self._refresh_pass.answer(node)
        if isinstance(answer, Gone) and node.is_ready:
            message = f"No machine for this node, which is Ready: {answer.evidence}"
            self._record(node, "CloudMachineNotFound", message)
            return Result(message, is_done=False)
        instance = answer if isinstance(answer, Instance) else None
        if instance:
            self._record_impossible_labels(node, instance)
        try:
            actions = plan_update(node, instance, self._context.settings.prefer_beta_labels)
            await self._perform_each(node, writer, actions)
            result = Result("initialized")
        except CannotPlan as problem:
            self._record(node, "AddressesNotUpdated", str(problem))
            result = Result(str(problem), is_done=False)
        self._refresh_pass.forget(node.name)
        return result

    async def _perform_each(
        self, node: Node, writer: NodeWriter, actions: Iterable[Action]
    ) -> None:
        """Perform all actions; raises the first refusal or contest, after the others."""
        refusals: list[KubernetesError | Contested] = []
        for action in actions:
            try:
                with performing(log, message_for(action), node=node.name):
                    await self._write_action(writer, node, action)
                self._followed += not isinstance(action, SetTaints)
            except (KubernetesError, Contested) as error:
                if isinstance(error, KubernetesError) and not error.is_refusal:
                    raise
                refusals.append(error)
        if refusals:
            raise refusals[0]

    async def _write_action(self, writer: NodeWriter, node: Node, action: Action) -> None:
        await writer.write(action)
        if isinstance(action, Initialize):  # which may have made it ours
            self._watch(node.name)

    def _watch(self, name: str) -> None:
        """Notice which passes a Node is a matter of, as it now is in the store."""
        node, was_watched = self._node(name), self._watched.pop(name, None)
        provider_ids = self._context.provider.provider_ids
        if node is not None:
            self._watched[name] = is_watched(node, provider_ids)
            if self._watched[name] and was_watched is False:
                self._monitor_pass.run_early()
        if node is not None and is_refreshed(node, provider_ids):
            self._refreshed.setdefault(name)
        else:
            self._refreshed.pop(name, None)

    def _node(self, name: str) -> Node | None:
        return self._context.store.view(Node, name)

    def _record_impossible_labels(self, node: Node, instance: Instance) -> None:
        if left_out := impossible_labels(instance):
            message = f"Left out, as Kubernetes takes no such label: {', '.join(left_out)}"
            self._record(node, "LabelLeftOut", message)

    def _record(
        self, node: Node, reason: str, message: str, kind: Literal["Normal", "Warning"] = "Warning"
    ) -> None:
        self._context.recorder.record(Event(ObjectRef.of(node), kind, reason, message))


def _is_same(now: Node, asked: Node) -> bool:
    """Whether what the cloud said of `asked` may still be written."""
    return now.cloud_identity == asked.cloud_identity and now.is_uninitialized


def _answer_text(answer: Answer) -> str:
    match answer:
        case Gone(evidence):
            return f"the machine is gone: {evidence}"
        case Unknown(why):
            return f"unknown: {why}"
        case Instance(provider_id, power=power):
            return f"{provider_id} is {power}"
