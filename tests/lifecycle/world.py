"""The lifecycle controller without its processes: feed, governor and one node worker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from workers.grants import Grants

from ccm.bus.frames import Ack, Hello, Message, ProposeDeletions, Resync, decode
from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Permission
from ccm.cloud.interface import CloudProvider
from ccm.controllers import LIFECYCLE
from ccm.kube.client import Kube
from ccm.kube.events import EventRecorder
from ccm.settings import Settings
from ccm.supervisor.deletions import Governor, Views, policy_of
from ccm.supervisor.informer import SharedInformer
from ccm.supervisor.nodes import WANT, NodeInformer
from tests.unit.node_world import Cloud, Machines
from workers.controller import ControllerContext
from workers.node.controller import BACKOFF, COMPONENT, PROJECTIONS, NodeController
from workers.performer import Performer
from workers.quarantine import Quarantine
from workers.queue import WorkQueue
from workers.runner import Runner, Ties
from workers.store import Store

NAME = "node-0.1"
SETTINGS = Settings(cloud_provider="fake", controllers=(LIFECYCLE,), node_monitor_period=0.02)


class World:
    """One supervisor's half and one worker's half, on an API server and a cloud in memory."""

    def __init__(self, kube: Kube, directory: Path) -> None:
        self.machines = Machines(page=100)
        self.proposals: list[ProposeDeletions] = []
        self.feed = SharedInformer(kube, self._deliver)
        nodes = NodeInformer(self.feed.view(WANT))
        nodes.scheme = Cloud.scheme
        views = Views(nodes.look, nodes.total)
        self.look = nodes.look
        self.governor = Governor(policy_of(SETTINGS), directory / "state", views, lambda *_: None)
        permission = Permission()
        permission.renew(float("inf"))
        self.hand = InFlightJournal(directory / "hand")
        self.context = ControllerContext(
            settings=SETTINGS,
            provider=cast(CloudProvider, Cloud(self.machines)),
            store=Store(PROJECTIONS),
            queue=WorkQueue(BACKOFF),
            quarantine=Quarantine(self.hand, self._hear, (), {}),
            performer=Performer(kube, permission, grace=5.0),
            recorder=EventRecorder(kube, COMPONENT, NAME),
            send=self._hear,
        )
        port: Any = SimpleNamespace(send=self._hear, permission=permission)
        gate: Any = SimpleNamespace(calls={})
        ties = Ties(port, cast(Grants, None), gate)
        self.runner = Runner(ties, self.context, NodeController(self.context, self.machines))

    async def rounds(self, count: int = 4) -> None:
        """Let this many rounds begin and end."""
        end = len(self.proposals) + count
        await self.until(lambda: len(self.proposals) >= end)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10.0):
            while not condition():  # noqa: ASYNC110 - nothing tells a test when this comes true
                await asyncio.sleep(0.002)

    def _hear(self, message: Message) -> bool:
        """The supervisor's ear."""
        match message:
            case Ack(seq):
                self.feed.acknowledge(NAME, seq)
            case Resync():
                self.feed.begin_again(NAME)
            case ProposeDeletions():
                self.proposals.append(message)
                permits = self.governor.on_message(NAME, message)
                asyncio.get_running_loop().call_soon(self.runner.on_message, permits)
        return True

    def _deliver(self, worker: str, frame: bytes) -> bool:
        asyncio.get_running_loop().call_soon(self.runner.on_message, decode(frame))
        return True

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        hello = Hello([{"kind": want.kind, "paths": want.paths} for want in PROJECTIONS], {})
        work = asyncio.create_task(self.runner.run(hello, 4))
        self.feed.join(NAME, hello, lambda kind, key: True)
        try:
            yield self
        finally:
            await self.feed.close()
            self.runner.drain(2.0)
            await work
            self.hand.close()


@asynccontextmanager
async def world(kube: Kube) -> AsyncIterator[World]:
    """A world that works until the end of the block."""
    with TemporaryDirectory() as directory:
        async with World(kube, Path(directory)).running() as made:
            yield made
