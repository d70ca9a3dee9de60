"""Worlds of a node controller: one in memory, one with a supervisor's half and an API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ccm.bus.frames import Message, ProposeDeletions
from ccm.controllers import LIFECYCLE
from ccm.kube.client import Kube
from ccm.supervisor.deletions import DeletionGovernor, policy_of
from ccm.supervisor.nodes import NODE_PROJECTION, NodeLister
from tests.support.cloud import Inventory, new_provider
from tests.support.context import (
    NAME,
    SETTINGS,
    TIMINGS,
    FakePort,
    controller_context,
    informed,
)
from tests.support.waiting import until
from tests.support.world import MANY, InventoryWorld
from workers.node import controller as module
from workers.node.controller import NodeController
from workers.timings import Timings


class World(InventoryWorld):
    """One node controller, and the machines of its cloud."""

    KEY = "node-1"
    controller: NodeController

    def __init__(self, machines: Inventory | None = None, **options: Any) -> None:
        self.machines = machines or Inventory()
        super().__init__(module, "instances", self.machines, **options)


@asynccontextmanager
async def world(
    *controllers: str,
    machines: Inventory | None = None,
    limit: int = MANY,
    timings: Timings = TIMINGS,
    **flags: Any,
) -> AsyncIterator[World]:
    """A world whose parts run until the end of the block; all controllers unless some are named."""
    if controllers:
        flags |= {"controllers": controllers, "node_monitor_period": 0.01}
    settings = replace(SETTINGS, **flags)
    async with World(machines, settings=settings, limit=limit, timings=timings).running() as made:
        yield made


class SupervisedWorld:
    """A supervisor's informer and governor, and a lifecycle controller with its runner."""

    def __init__(self, machines: Inventory, period: float) -> None:
        self.settings = replace(
            SETTINGS,
            controllers=(LIFECYCLE,),
            node_monitor_period=period,
            node_deletion_confirmation_period=0.0,
        )
        self.machines = machines
        self.proposals: list[ProposeDeletions] = []
        self.nodes: NodeLister
        self.governor: DeletionGovernor

    async def passes(self, count: int = 4) -> None:
        """Let this many monitor passes begin and end."""
        end = len(self.proposals) + count
        await until(lambda: len(self.proposals) >= end, "a monitor pass")

    @asynccontextmanager
    async def running(self, kube: Kube, directory: Path) -> AsyncIterator["SupervisedWorld"]:
        def on_message(message: Message) -> None:
            if isinstance(message, ProposeDeletions):
                self.proposals.append(message)
                permits = self.governor.on_message(NAME, message)
                asyncio.get_running_loop().call_soon(runner.on_message, permits)

        port, provider = FakePort(on_message), new_provider(instances=self.machines)
        self.context = controller_context(module, provider, kube, port, self.settings)
        controller = NodeController(self.context, self.machines)
        async with informed(kube, module, self.context, controller, port) as (informer, runner):
            self.nodes = NodeLister(informer.store(NODE_PROJECTION))
            self.nodes.provider_ids = provider.provider_ids
            policy, state = policy_of(self.settings), directory / "state"
            self.governor = DeletionGovernor(policy, state, self.nodes, lambda *_: None)
            yield self


@asynccontextmanager
async def supervised_world(
    kube: Kube, machines: Inventory | None = None, period: float = 0.02
) -> AsyncIterator[SupervisedWorld]:
    """A world that works until the end of the block, with the lifecycle controller alone."""
    with TemporaryDirectory() as directory:
        world = SupervisedWorld(machines or Inventory(), period)
        async with world.running(kube, Path(directory)) as made:
            yield made
