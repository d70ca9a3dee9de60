"""A service duty under its real runner, with a cluster and a cloud in memory around it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from workers.grants import Grants

from ccm.bus.frames import Hello, Message, Objects
from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Permission
from ccm.cloud.interface import CloudProvider
from ccm.kube.events import EventRecorder
from ccm.model.node import Node
from ccm.model.objects import Json
from ccm.model.projection import project
from ccm.model.service import Service
from ccm.settings import Settings
from workers.controller import ControllerContext
from workers.performer import Performer
from workers.quarantine import Quarantine
from workers.queue import WorkQueue
from workers.runner import Runner, Ties
from workers.service.controller import BACKOFF, COMPONENT, PROJECTIONS, ServiceController
from workers.store import Store

from .cloud import Balancers, Provider
from .cluster import Cluster
from .objects import KEY

PATIENCE = 10.0  # seconds after which what a test waits for will not come any more
PATHS = {want.kind: want.paths for want in PROJECTIONS}


class Queue(WorkQueue):
    """A work queue that keeps what was asked of it for later."""

    def __init__(self) -> None:
        super().__init__(BACKOFF)
        self.delays: list[tuple[str, float]] = []
        self.failed: list[str] = []

    def add_after(self, key: str, seconds: float) -> None:
        self.delays.append((key, seconds))
        super().add_after(key, seconds)

    def add_failed(self, key: str) -> None:
        self.failed.append(key)
        super().add_failed(key)

    def is_idle(self) -> bool:
        return not len(self) and not self._in_flight

    def ripen(self) -> None:
        """Let the time pass after which the keys that wait are due."""
        for key in list(self._due):
            self.add(key)


class World:
    """One start of a service worker; a second one on the same cluster and cloud is a restart."""

    def __init__(
        self,
        cluster: Cluster | None = None,
        balancers: Balancers | None = None,
        **settings: Any,
    ) -> None:
        self.cluster, self.balancers = cluster or Cluster(), balancers or Balancers()
        self.settings = Settings(cloud_provider="fake", **settings)
        self.queue, self.store = Queue(), Store(PROJECTIONS)
        self.permission = Permission()
        self.permission.renew(float("inf"))
        self.told: list[Message] = []
        self.recorder = EventRecorder(self.cluster.kube, COMPONENT, "service")
        self.context = self._context()
        self.controller = ServiceController(self.context, self.balancers)
        self._seq = 0
        self.take: Any = self._absorb

    def _context(self) -> ControllerContext:
        return ControllerContext(
            settings=self.settings,
            provider=cast(CloudProvider, Provider(self.balancers)),
            store=self.store,
            queue=self.queue,
            quarantine=cast(Quarantine, None),
            performer=Performer(self.cluster.kube, self.permission, grace=1.0),
            recorder=self.recorder,
            send=self.send,
        )

    def send(self, message: Message) -> bool:
        self.told.append(message)
        return True

    # --- the feed

    def connect(self) -> None:
        """Hear of the whole cluster, then of its changes."""
        entries = [_entry(kind, key, raw) for (kind, key), raw in self.cluster.objects.items()]
        self.cluster.on_change = self.on_message
        self.frame(*entries, complete=True)

    def on_message(self, kind: str, key: str, raw: Json | None) -> None:
        self.frame(_entry(kind, key, raw))

    def frame(self, *entries: list[Any], complete: bool = False) -> None:
        self._seq += 1
        self.take(Objects(1, self._seq, complete, list(entries), []))

    def _absorb(self, frame: Objects) -> None:
        """What the runner does with a frame, for worlds without one."""
        for kind, key in self.store.absorb(frame).changed:
            for affected in self.controller.map_to_keys(kind, key):
                self.queue.add(affected)

    # --- what tests do and see

    async def put(self, *things: Service | Node) -> None:
        """Change the cluster all at once, and wait until the duty has nothing left to do."""
        for thing in things:
            self.cluster.put(thing)
        await self.rest()

    async def remove(self, kind: str, key: str) -> None:
        self.cluster.remove(kind, key)
        await self.rest()

    async def later(self) -> None:
        """Let all waiting keys have their turn."""
        self.queue.ripen()
        await self.rest()

    def is_at_rest(self) -> bool:
        return self.queue.is_idle() and self.controller._hosts.is_at_rest

    async def rest(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                await asyncio.sleep(0.002)
                if self.is_at_rest():
                    await asyncio.sleep(0)
                    if self.is_at_rest():
                        return

    def service(self, key: str = KEY) -> Service:
        return self.cluster.service(key)

    async def events(self, kind: str = "") -> list[tuple[str, str]]:
        """What people were told, as reason and message."""
        await self.recorder.drain(PATIENCE)
        chosen = [e for e in self.cluster.events if kind in ("", e["type"])]
        return [(event["reason"], event["message"]) for event in chosen]

    async def reasons(self) -> list[str]:
        return [reason for reason, _ in await self.events()]


def _entry(kind: str, key: str, raw: Json | None) -> list[Any]:
    if raw is None:
        return [kind, key, 0, None]
    return [kind, key, int(raw["metadata"]["resourceVersion"]), project(raw, PATHS[kind])]


@asynccontextmanager
async def running(world: World, until_rest: bool = True) -> AsyncIterator[World]:
    """The world with its runner at work, connected to the cluster, until the end of the block."""
    with TemporaryDirectory() as directory:
        hand = InFlightJournal(Path(directory) / "service.1.hand")
        quarantine = Quarantine(hand, world.send, suspects=(), quarantined={})
        object.__setattr__(world.context, "quarantine", quarantine)
        port: Any = SimpleNamespace(send=world.send, permission=world.permission)
        gate: Any = SimpleNamespace(calls={})
        runner = Runner(Ties(port, cast(Grants, None), gate), world.context, world.controller)
        world.take = runner.on_message
        concurrency = world.settings.concurrent_service_syncs
        work = asyncio.create_task(runner.run(Hello([], {}), concurrency))
        try:
            world.connect()
            if until_rest:
                await world.rest()
            yield world
        finally:
            runner.drain(0.5)
            await work
            hand.close()


@asynccontextmanager
async def running_with(*things: Service | Node, **settings: Any) -> AsyncIterator[World]:
    """A world that starts with these objects in its cluster."""
    world = World(**settings)
    for thing in things:
        world.cluster.put(thing)
    async with running(world):
        yield world
