"""A service controller under its real runner, with a cluster and a cloud in memory around it."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from ccm.bus.frames import Hello, Message, Objects
from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Permission
from ccm.cloud.gate import SupervisorGrants
from ccm.kube.client import Kube
from ccm.kube.events import EventRecorder
from ccm.model.objects import Json, Node
from ccm.model.projection import project
from ccm.model.service import Service
from ccm.settings import Settings
from workers.controller import Controller, ControllerContext
from workers.performer import Performer
from workers.quarantine import Quarantine
from workers.queue import WorkQueue
from workers.runner import Connection, Runner
from workers.service.controller import (
    BACKOFF,
    COMPONENT,
    PROJECTIONS,
    ServiceController,
    concurrency,
)
from workers.store import Store

from .cloud import Balancers, Provider
from .cluster import Cluster
from .objects import KEY, Tweak

TIMEOUT = 10.0  # seconds after which what a test waits for will not come any more
PATHS = {projection.kind: projection.paths for projection in PROJECTIONS}
HELLO = Hello([{"kind": kind, "paths": paths} for kind, paths in PATHS.items()], {})


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


def controller_context(kube: Kube, provider: Any, **changes: Any) -> ControllerContext:
    """The context of a controller that is leader for ever; its quarantine comes with a runner."""
    permission = Permission()
    permission.renew(float("inf"))
    context = ControllerContext(
        settings=Settings(cloud_provider=provider.name),
        provider=provider,
        store=Store(PROJECTIONS),
        queue=Queue(),
        quarantine=cast(Quarantine, None),
        performer=Performer(kube, permission, grace=1.0),
        recorder=EventRecorder(kube, COMPONENT, "service"),
        send=lambda message: True,
    )
    return replace(context, **changes)


@asynccontextmanager
async def runner_of(
    controller: Controller, context: ControllerContext, gate: Any
) -> AsyncIterator[Runner]:
    """The controller under its runner, until the end of the block."""
    with TemporaryDirectory() as directory:
        journal = InFlightJournal(Path(directory) / "service.1.hand")
        quarantine = Quarantine(journal, context.send, (), {}, concurrency(context.settings))
        context = replace(context, quarantine=quarantine)
        port: Any = SimpleNamespace(send=context.send, permission=context.performer.permission)
        connection = Connection(port, cast(SupervisorGrants, None), gate)
        runner = Runner(connection, context, controller)
        work = asyncio.create_task(runner.run(HELLO))
        try:
            yield runner
        finally:
            runner.drain(0.5)
            await work
            journal.close()


class World:
    """One start of a service worker; a second one on the same cluster and cloud is a restart.

    `ensure` is what its first calls to ensure a balancer end with.
    """

    def __init__(
        self,
        *things: Service | Node,
        cluster: Cluster | None = None,
        balancers: Balancers | None = None,
        ensure: Iterable[Exception] = (),
        **settings: Any,
    ) -> None:
        self.cluster, self.balancers = cluster or Cluster(), balancers or Balancers()
        for thing in things:
            self.cluster.put(thing)
        self.balancers.failures["ensure"] += ensure
        self.sent: list[Message] = []
        self.context = controller_context(
            self.cluster.kube,
            Provider(self.balancers),
            settings=Settings(cloud_provider="fake", **settings),
            send=self.send,
        )
        self.queue, self.store = cast(Queue, self.context.queue), self.context.store
        self.permission = self.context.performer.permission
        self.balancers.check = self.permission.check
        self.controller = ServiceController(self.context, self.balancers)
        self._seq = 0
        self.take: Any = self._absorb

    def send(self, message: Message) -> bool:
        self.sent.append(message)
        return True

    def restarted(self, **settings: Any) -> "World":
        """A new start of the worker, on what this one left."""
        self.cluster.patches.clear()
        self.cluster.events.clear()
        self.balancers.calls.clear()
        self.balancers.writes = 0
        return World(cluster=self.cluster, balancers=self.balancers, **settings)

    # --- what the informer delivers

    def connect(self) -> None:
        """Receive the whole cluster, then its changes."""
        entries = [_entry(kind, key, raw) for (kind, key), raw in self.cluster.objects.items()]
        self.cluster.on_change = self.on_change
        self.frame(*entries, complete=True)

    def on_change(self, kind: str, key: str, raw: Json | None) -> None:
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
        """Change the cluster all at once, and wait until the controller has nothing left to do."""
        for thing in things:
            self.cluster.put(thing)
        await self.rest()

    async def change(self, *tweaks: Tweak) -> None:
        """Somebody changes the Service."""
        self.cluster.put(self.changed(*tweaks))
        await self.rest()

    def changed(self, *tweaks: Tweak, key: str = KEY) -> Service:
        """The Service as it is, but for these changes."""
        changed = self.service(key)
        for tweak in tweaks:
            tweak(changed.raw)
        return changed

    async def remove(self, kind: str, key: str) -> None:
        self.cluster.remove(kind, key)
        await self.rest()

    async def later(self) -> None:
        """Let all waiting keys have their turn."""
        self.queue.ripen()
        await self.rest()

    def is_idle(self) -> bool:
        return self.queue.is_idle() and self.controller._hosts.is_debounced

    async def rest(self) -> None:
        async with asyncio.timeout(TIMEOUT):
            while True:
                await asyncio.sleep(0.002)
                if self.is_idle():
                    await asyncio.sleep(0)
                    if self.is_idle():
                        return

    def service(self, key: str = KEY) -> Service:
        return self.cluster.service(key)

    async def events(self, kind: str = "") -> list[tuple[str, str]]:
        """Reason and message of each Event."""
        await self.context.recorder.drain(TIMEOUT)
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
    gate = SimpleNamespace(calls={})
    async with runner_of(world.controller, world.context, gate) as runner:
        world.take = runner.on_message
        world.connect()
        if until_rest:
            await world.rest()
        yield world


@asynccontextmanager
async def running_with(*things: Service | Node, **options: Any) -> AsyncIterator[World]:
    """A world that starts with these objects in its cluster; `options` are those of `World`."""
    async with running(World(*things, **options)) as world:
        yield world
