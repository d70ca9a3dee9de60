"""Worlds of a node controller: one in memory, one with a supervisor's half and an API server."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from ccm.bus.frames import Ack, Message, ProposeDeletions, Resync, decode
from ccm.controllers import LIFECYCLE
from ccm.kube.client import Kube
from ccm.model.cloud import Answer
from ccm.model.objects import Node
from ccm.model.projection import project
from ccm.settings import Settings
from ccm.supervisor.deletions import DeletionGovernor, policy_of
from ccm.supervisor.informer import SharedInformer
from ccm.supervisor.nodes import NODE_PROJECTION, NodeLister
from tests.unit.cluster import Cluster
from tests.unit.feeding import snapshot
from tests.unit.waiting import PATIENCE, until
from tests.worlds.context import (
    SETTINGS,
    FakePort,
    controller_context,
    hello,
    new_quarantine,
    new_runner,
)
from workers.controller import Result
from workers.node import controller as module
from workers.node.controller import PROJECTIONS, NodeController

NAME = "node-0.1"
MANY = 1000  # keys that may execute at the same time unless a test says otherwise


class Machines:
    """The instances part of a cloud: what it says of each node, and the reads it was asked for."""

    def __init__(self, page: int = 100) -> None:
        self.batch_size = page
        self.answers: dict[str, Answer] = {}
        self.failures: list[Exception] = []  # what the next reads end with
        self.reads: list[list[str]] = []
        self.gate = asyncio.Event()  # no read is answered before it is set
        self.gate.set()

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        self.reads.append([node.name for node in nodes])
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        names = [node.name for node in nodes]
        return {name: self.answers[name] for name in names if name in self.answers}


class Cloud:
    """A provider with machines and nothing else."""

    name = scheme = "fake"

    def __init__(self, machines: Machines) -> None:
        self.instances = machines


class World:
    """One node controller. `feed` stands for the supervisor, `sync` for the runner."""

    def __init__(self, settings: Settings, page: int, limit: int, suspects: Sequence[str]) -> None:
        self.cluster, self.machines, self.port = Cluster(), Machines(page), FakePort()
        self.told, self.permission = self.port.sent, self.port.permission
        self.cluster.fence = self.permission.check
        self.quarantine = new_quarantine(self.port, limit, *suspects)
        self.context = controller_context(
            module, Cloud(self.machines), self.cluster, self.port, settings, self.quarantine
        )
        self.queue, self.store = self.context.queue, self.context.store
        self.controller = NodeController(self.context, self.machines)
        self._epoch = 0

    def feed(self) -> None:
        """Bring the store up to date with a snapshot."""
        entries = []
        for name in self.cluster.names():
            raw = cast(Node, self.cluster.get(name)).raw
            value = project(raw, PROJECTIONS[0].paths)
            entries.append(["Node", name, int(raw["metadata"]["resourceVersion"]), value])
        self._epoch += 1
        self.store.absorb(snapshot(*entries, epoch=self._epoch))

    async def reconcile(self, name: str = "node-1") -> Result:
        """One reconcile with what its runner holds meanwhile; raises what the controller raises."""
        await self.quarantine.acquire_place()
        try:
            async with asyncio.timeout(PATIENCE), self.quarantine.executing(name):
                return await self.controller.reconcile(name)
        finally:
            self.quarantine.release_place(name)

    async def sync(self, name: str = "node-1") -> Result:
        """Reconcile what the cluster has now."""
        self.feed()
        return await self.reconcile(name)

    async def events(self) -> list[tuple[str, str, str]]:
        """The Events so far: type, reason, message."""
        await self.context.recorder.drain(PATIENCE)
        return [(one["type"], one["reason"], one["message"]) for one in self.cluster.events]


@asynccontextmanager
async def world(
    *controllers: str,
    page: int = 100,
    limit: int = MANY,
    suspects: Sequence[str] = (),
    **flags: object,
) -> AsyncIterator[World]:
    """A world whose parts run until the end of the block; all controllers unless some are named."""
    settings = replace(SETTINGS, **flags)  # type: ignore[arg-type]
    if controllers:
        settings = replace(settings, controllers=controllers, node_monitor_period=0.01)
    made = World(settings, page, limit, suspects)
    tasks = [asyncio.create_task(part.run()) for part in (made.controller, made.context.recorder)]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SupervisedWorld:
    """A supervisor's informer and governor, and a lifecycle controller with its runner."""

    def __init__(self, kube: Kube, directory: Path) -> None:
        settings = replace(SETTINGS, controllers=(LIFECYCLE,), node_monitor_period=0.02)
        self.machines = Machines()
        self.proposals: list[ProposeDeletions] = []
        self.informer = SharedInformer(kube, self._deliver)
        self.nodes = NodeLister(self.informer.store(NODE_PROJECTION))
        self.nodes.scheme = Cloud.scheme
        policy, state = policy_of(settings), directory / "state"
        self.governor = DeletionGovernor(policy, state, self.nodes, lambda *_: None)
        self.port = FakePort(self._on_message)
        self.context = controller_context(module, Cloud(self.machines), kube, self.port, settings)
        controller = NodeController(self.context, self.machines)
        self.runner = new_runner(self.context, controller, self.port)

    async def passes(self, count: int = 4) -> None:
        """Let this many monitor passes begin and end."""
        end = len(self.proposals) + count
        await until(lambda: len(self.proposals) >= end, "a monitor pass")

    def _on_message(self, message: Message) -> None:
        match message:
            case Ack(seq):
                self.informer.acknowledge(NAME, seq)
            case Resync():
                self.informer.resync(NAME)
            case ProposeDeletions():
                self.proposals.append(message)
                permits = self.governor.on_message(NAME, message)
                asyncio.get_running_loop().call_soon(self.runner.on_message, permits)

    def _deliver(self, worker: str, frame: bytes) -> bool:
        asyncio.get_running_loop().call_soon(self.runner.on_message, decode(frame))
        return True


@asynccontextmanager
async def supervised_world(kube: Kube) -> AsyncIterator[SupervisedWorld]:
    """A world that works until the end of the block, with the lifecycle controller alone."""
    with TemporaryDirectory() as directory:
        made = SupervisedWorld(kube, Path(directory))
        work = asyncio.create_task(made.runner.run(hello(module)))
        made.informer.subscribe(NAME, hello(module), lambda kind, key: True)
        try:
            yield made
        finally:
            await made.informer.close()
            made.runner.drain(2.0)
            await work
