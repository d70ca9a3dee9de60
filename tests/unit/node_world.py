"""A node duty with everything around it in memory: a cluster, a cloud, and the runner's part."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from ccm.bus.frames import Message
from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Permission
from ccm.cloud.interface import CloudProvider
from ccm.kube.events import EventRecorder
from ccm.model.cloud import Answer
from ccm.model.node import Node
from ccm.model.projection import project
from ccm.settings import Settings
from workers.controller import ControllerContext, Result
from workers.node.controller import COMPONENT, PROJECTIONS, NodeController
from workers.performer import Performer
from workers.quarantine import Quarantine
from workers.queue import WorkQueue
from workers.store import Store

from .cluster import Cluster
from .feeding import snapshot
from .waiting import PATIENCE

WAITS = "waits for the cloud's answer"


class Machines:
    """The instances part of a cloud: what it says of each node, and the reads it was asked for."""

    def __init__(self, page: int) -> None:
        self.batch_size = page
        self.answers: dict[str, Answer] = {}
        self.failures: list[Exception] = []  # what the next reads end with
        self.reads: list[list[str]] = []

    def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        self.reads.append([node.name for node in nodes])
        if self.failures:
            raise self.failures.pop(0)
        return {name: self.answers[name] for name in self.reads[-1] if name in self.answers}


class Cloud:
    """A provider with machines and nothing else."""

    name = scheme = "fake"

    def __init__(self, machines: Machines) -> None:
        self.instances = machines


class World:
    """One node duty. `feed` stands for the supervisor, `sync` for the runner's consumer."""

    def __init__(self, hand: InFlightJournal, settings: Settings, page: int) -> None:
        self.cluster, self.machines = Cluster(), Machines(page)
        self.told: list[Message] = []  # to the supervisor
        self.queue, self.store = WorkQueue(), Store(PROJECTIONS)
        self.permission = Permission()
        self.permission.renew(float("inf"))
        self.recorder = EventRecorder(self.cluster.kube, COMPONENT, "node-0")
        self.controller = NodeController(self._context(hand, settings), self.machines)
        self._epoch = 0

    def _context(self, hand: InFlightJournal, settings: Settings) -> ControllerContext:
        return ControllerContext(
            settings=settings,
            provider=cast(CloudProvider, Cloud(self.machines)),
            store=self.store,
            queue=self.queue,
            quarantine=Quarantine(hand, self._hear, suspects=(), quarantined={}),
            performer=Performer(self.cluster.kube, self.permission, grace=1.0),
            recorder=self.recorder,
            send=self._hear,
        )

    def _hear(self, message: Message) -> bool:
        self.told.append(message)
        return True

    def feed(self) -> None:
        """Bring the store up to date with a snapshot."""
        entries = []
        for name in self.cluster.names():
            raw = cast(Node, self.cluster.get(name)).raw
            value = project(raw, PROJECTIONS[0].paths)
            entries.append(["Node", name, int(raw["metadata"]["resourceVersion"]), value])
        self._epoch += 1
        self.store.absorb(snapshot(*entries, epoch=self._epoch))

    async def sync(self, name: str = "node-1") -> Result:
        """Reconcile until the cloud has answered; raises what the duty raises."""
        self.feed()
        result = await self.controller.reconcile(name)
        while result.message == WAITS:
            async with asyncio.timeout(PATIENCE):
                key = await self.queue.get()
            assert key == name
            self.queue.done(name)
            result = await self.controller.reconcile(name)
        return result

    async def events(self) -> list[tuple[str, str, str]]:
        """What people were told: type, reason, message."""
        await self.recorder.drain(PATIENCE)
        return [(one["type"], one["reason"], one["message"]) for one in self.cluster.events]


@asynccontextmanager
async def world(*controllers: str, page: int = 100, **flags: Any) -> AsyncIterator[World]:
    """A world whose parts run until the end of the block; all controllers unless some are named."""
    settings = Settings(cloud_provider="fake", **flags)
    if controllers:
        settings = replace(settings, controllers=controllers, node_monitor_period=0.01)
    with TemporaryDirectory() as directory:
        hand = InFlightJournal(Path(directory) / "node-0.1.hand")
        async with _running(World(hand, settings, page)) as made:
            yield made


@asynccontextmanager
async def _running(made: World) -> AsyncIterator[World]:
    tasks = [asyncio.create_task(made.controller.run()), asyncio.create_task(made.recorder.run())]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
