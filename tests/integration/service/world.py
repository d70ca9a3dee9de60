"""A service controller under its real runner, with a cluster and a cloud in memory around it."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ccm.bus.frames import Objects
from ccm.decide.backoff import Backoff
from ccm.kube.client import Kube
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from tests.support.cloud import Inventory, new_provider
from tests.support.cluster import Cluster
from tests.support.context import SETTINGS, TIMINGS
from tests.support.context import running as under_runner
from tests.support.deadlines import within
from tests.support.nodes import Tweak
from tests.support.world import World as ControllerWorld
from workers.queue import WorkQueue
from workers.service import controller as module
from workers.service.controller import BACKOFF, ServiceController
from workers.timings import Timings

from .cloud import Balancers
from .objects import KEY


class Queue(WorkQueue):
    """A work queue that keeps what was asked of it for later."""

    def __init__(self) -> None:
        super().__init__(BACKOFF)
        self.delays: list[tuple[str, float]] = []
        self.failed: list[str] = []

    def add_after(self, key: str, seconds: float) -> None:
        self.delays.append((key, seconds))
        super().add_after(key, seconds)

    def add_failed(self, key: str, backoff: Backoff | None = None) -> None:
        self.failed.append(key)
        super().add_failed(key, backoff)

    def is_idle(self) -> bool:
        return not len(self) and not self._in_flight

    def ripen(self) -> None:
        """Let the time pass after which the keys that wait are due."""
        for key in list(self._due):
            self.add(key)


class World(ControllerWorld):
    """One start of a service worker; a second one on the same cluster and cloud is a restart.

    `ensure` is what its first calls to ensure a balancer end with.
    """

    KEY = KEY
    controller: ServiceController
    queue: Queue

    def __init__(
        self,
        *things: Service | Node,
        cluster: Cluster | None = None,
        balancers: Balancers | None = None,
        ensure: Iterable[Exception] = (),
        kube: Kube | None = None,
        timings: Timings = TIMINGS,
        instances: Inventory | None = None,
        **settings: Any,
    ) -> None:
        self.balancers = balancers or Balancers()
        self.balancers.failures["ensure"] += ensure
        flags = replace(SETTINGS, **settings)
        super().__init__(
            module,
            new_provider(load_balancers=self.balancers, instances=instances),
            cluster=cluster,
            kube=kube,
            settings=flags,
            timings=timings,
            queue=Queue(),
            limit=module.concurrency(flags),
        )
        self.cluster.put(*things)
        self.balancers.check = self.permission.check
        self._seq = 0
        self.take: Any = self._apply

    def restarted(self, **settings: Any) -> "World":
        """A new start of the worker, on what this one left."""
        self.cluster.patches.clear()
        self.cluster.events.clear()
        self.balancers.calls.clear()
        self.balancers.writes = 0
        return World(cluster=self.cluster, balancers=self.balancers, **settings)

    @property
    def written(self) -> list[str]:
        """What the patches changed, in their order."""
        return [operations[-1]["path"].split("/")[2] for _, operations in self.cluster.patches]

    # --- what the informer delivers

    def connect(self) -> None:
        """Receive the whole cluster, then its changes."""
        entries = [self.entry(*name, raw) for name, raw in self.cluster.objects.items()]
        self.cluster.on_change = self.on_change
        self.frame(*entries, complete=True)

    def on_change(self, kind: str, key: str, raw: Json | None) -> None:
        self.frame(self.entry(kind, key, raw))

    def frame(self, *entries: list[Any], complete: bool = False) -> None:
        self._seq += 1
        self.take(Objects.of(1, self._seq, complete, entries))

    def _apply(self, frame: Objects) -> None:
        """What the runner does with a frame, for worlds without one."""
        for kind, key in self.store.apply(frame).changed:
            for affected in self.controller.map_to_keys(kind, key):
                self.queue.add(affected)

    # --- what tests do and see

    async def put(self, *things: Service | Node) -> None:
        """Change the cluster all at once, and wait until the controller has nothing left to do."""
        self.cluster.put(*things)
        await self.rest()

    async def change(self, *tweaks: Tweak) -> None:
        """Someone changes the Service."""
        await self.put(self.changed(*tweaks))

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
        return self.queue.is_idle() and self.controller._backends.is_debounced

    async def rest(self) -> None:
        async with within():
            while True:
                await asyncio.sleep(0.002)
                if self.is_idle():
                    await asyncio.sleep(0)
                    if self.is_idle():
                        return

    def service(self, key: str = KEY) -> Service:
        return self.cluster.service(key)

    async def reported(self, kind: str = "") -> list[tuple[str, str]]:
        """Reason and message of each Event."""
        return [(why, what) for one, why, what in await self.events() if kind in ("", one)]

    async def reasons(self) -> list[str]:
        return [reason for reason, _ in await self.reported()]


@asynccontextmanager
async def running(world: World, until_rest: bool = True) -> AsyncIterator[World]:
    """The world with its runner at work, connected to the cluster, until the end of the block."""
    async with under_runner(module, world.context, world.controller, world.port) as (runner, _):
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


def updates(w: World) -> list[tuple[str, ...]]:
    """The backend updates: Service and backends."""
    return [call[1:] for call in w.balancers.named("update")]


def asked_ports(w: World) -> object:
    record = w.balancers.of(w.service())
    return record and record.asked and record.asked["ports"]
