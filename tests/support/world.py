"""A controller with a cluster, a cloud and a supervisor's end around it, all in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import orjson

from ccm.kube.client import Kube
from ccm.model.objects import Json, carried, watched_kind
from ccm.settings import Settings
from workers.controller import Result
from workers.queue import WorkQueue
from workers.timings import Timings

from .cloud import Inventory, new_provider
from .cluster import Cluster, KubeObject, key_of
from .context import (
    SETTINGS,
    TIMINGS,
    Entry,
    FakePort,
    controller_context,
    new_executor,
    snapshot,
)
from .deadlines import timeout, within

MANY = 1000  # keys that may execute at the same time unless a test says otherwise


class World:
    """One start of a controller. `feed` stands for the supervisor, `sync` for the runner.

    A second world on the same cluster and cloud is a restart. With a `kube` the writes go there.
    """

    KEY = ""  # of the object that tests are about unless they name one

    def __init__(
        self,
        module: Any,
        provider: Any,
        *,
        cluster: Cluster | None = None,
        kube: Kube | None = None,
        settings: Settings = SETTINGS,
        timings: Timings = TIMINGS,
        queue: WorkQueue | None = None,
        limit: int = MANY,
    ) -> None:
        self.module, self.provider = module, provider
        self.cluster, self.port = cluster or Cluster(), FakePort()
        self.sent, self.permission = self.port.sent, self.port.permission
        self.cluster.fence = self.permission.check
        self.context = controller_context(
            module,
            provider,
            kube or self.cluster,
            self.port,
            settings,
            new_executor(self.port, limit),
            timings,
            queue,
        )
        self.queue, self.store = self.context.queue, self.context.store
        self.paths = {one.kind: one.paths for one in module.PROJECTIONS}
        self.controller = module.new_controller(self.context)
        self._epoch = 0

    def entry(self, kind: str, key: str, raw: Json | None) -> Entry:
        """The object as the informer delivers it, cut down to the projection."""
        if raw is None:
            return [kind, key, 0, None]
        version = int(raw["metadata"]["resourceVersion"])
        return [kind, key, version, orjson.loads(carried(kind, raw, self.paths[kind]))]

    def feed(self, *objects: KubeObject) -> list[str]:
        """A snapshot of these objects or of the cluster's; the keys that the changes concern."""
        raws = [one.raw for one in objects] or list(self.cluster.objects.values())
        self._epoch += 1
        entries = [
            self.entry(kind, key_of(raw), raw)
            for kind in self.paths
            for raw in raws
            if raw["kind"] == watched_kind(kind)
        ]
        applied = self.store.apply(snapshot(*entries, epoch=self._epoch))
        return [key for name in applied.changed for key in self.controller.map_to_keys(*name)]

    async def reconcile(self, key: str = "") -> Result:
        """One reconcile with what its runner holds meanwhile; raises what the controller raises."""
        key, executor = key or self.KEY, self.context.executor
        await executor.acquire_slot()
        try:
            with executor.executing(key):
                async with within():
                    result: Result = await self.controller.reconcile(key)
            return result
        finally:
            executor.release_slot(key)

    async def sync(self, key: str = "") -> Result:
        """Reconcile what the cluster has now."""
        self.feed()
        return await self.reconcile(key)

    async def events(self) -> list[tuple[str, str, str]]:
        """The Events so far: type, reason, message."""
        await self.context.recorder.drain(timeout())
        return [(one["type"], one["reason"], one["message"]) for one in self.cluster.events]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Its parts run until the end of the block; the test is the runner."""
        parts = (self.controller.run(), self.context.recorder.run())
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            yield self
        finally:
            self.queue.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class InventoryWorld(World):
    """A world whose cloud has one part, which answers for many objects in one read."""

    def __init__(self, module: Any, part: str, inventory: Inventory, **options: Any) -> None:
        super().__init__(module, new_provider(**{part: inventory}), **options)
        self.inventory = inventory
        inventory.check = self.permission.check

    def put(self, *objects: KubeObject, answer: object = None) -> None:
        """Create or replace them in the cluster; the cloud answers this about each of them."""
        self.cluster.put(*objects)
        if answer is not None:
            self.inventory.answers |= {key_of(one.raw): answer for one in objects}
