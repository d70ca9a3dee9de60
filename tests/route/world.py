"""A route controller with everything around it in memory: a cluster, a cloud, a runner."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest.mock import patch

from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Permission
from ccm.cloud.interface import CloudProvider
from ccm.errors import CloudError, KubernetesError, NoPermit, Refused, RetryAfter
from ccm.kube.client import STRATEGIC_PATCH
from ccm.kube.events import EventRecorder
from ccm.model.objects import Json, Node
from ccm.model.projection import project
from ccm.sandbox.kubernetes.kinds import NODE
from ccm.sandbox.kubernetes.patch import strategic_merge
from ccm.settings import Settings
from tests.route.cloud import FakeRoutes
from tests.route.nodes import SCHEME
from tests.unit.cluster import Cluster
from tests.unit.feeding import snapshot
from tests.unit.waiting import PATIENCE, let_run
from workers.controller import ControllerContext, Result
from workers.performer import Performer
from workers.quarantine import Quarantine
from workers.queue import WorkQueue
from workers.route import listing
from workers.route.controller import COMPONENT, PROJECTIONS, RouteController
from workers.store import Store

CLUSTER = ("10.244.0.0/16", "fd00:244::/48")


class Nodes(Cluster):
    """A cluster that takes strategic merge patches of a Node's status."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[KubernetesError] = []
        self.before_write: Callable[[], None] = lambda: None  # the fence of a real client

    async def patch(self, path: str, kind: str, body: Any, timeout: float = 30.0) -> Json:
        assert kind == STRATEGIC_PATCH
        self.before_write()
        if self.failures:
            raise self.failures.pop(0)
        name = path.removeprefix("/api/v1/nodes/").removesuffix("/status")
        old = self._nodes.get(name)
        if old is None:
            raise KubernetesError(404, "NotFound", f'nodes "{name}" not found', None)
        if body["metadata"]["uid"] != old["metadata"]["uid"]:
            raise KubernetesError(409, "Conflict", "the UID is another one", None)
        new = strategic_merge(NODE, deepcopy(old), body)
        new["spec"] = old["spec"]
        self.writes += 1
        self.put(Node(new))
        return deepcopy(self._nodes[name])


class Cloud:
    """A provider with routes and nothing else."""

    name = scheme = SCHEME

    def __init__(self, routes: FakeRoutes | None) -> None:
        self.routes = routes


class World:
    """One route controller. `settle` stands for supervisor and runner until nothing is left.

    A key that fails waits in `failures` for `retry`, as it would for its back-off.
    """

    def __init__(self, hand: InFlightJournal, cloud: FakeRoutes, cluster: Nodes) -> None:
        self.hand, self.cloud, self.cluster = hand, cloud, cluster
        self.queue, self.store = WorkQueue(), Store(PROJECTIONS)
        self.permission = Permission()
        self.permission.renew(float("inf"))
        cluster.before_write = cloud.before_call = self.permission.check
        self.recorder = EventRecorder(cluster.kube, COMPONENT, "route")
        self.controller = RouteController(self.context(), cloud)
        self.results: dict[str, Result] = {}
        self.failures: dict[str, Exception] = {}
        self._epoch = 0

    def context(self, **flags: Any) -> ControllerContext:
        return ControllerContext(
            settings=Settings(cloud_provider="fake", **{"cluster_cidr": CLUSTER, **flags}),
            provider=cast(CloudProvider, Cloud(self.cloud)),
            store=self.store,
            queue=self.queue,
            quarantine=Quarantine(self.hand, lambda _: True, suspects=(), quarantined={}),
            performer=Performer(self.cluster.kube, self.permission, grace=1.0),
            recorder=self.recorder,
            send=lambda _: True,
        )

    def node(self, name: str) -> Node:
        found = self.cluster.get(name)
        assert found is not None
        return found

    def feed(self) -> list[str]:
        """Bring the store up to date with a snapshot; the keys that this queues."""
        entries = []
        for name in self.cluster.names():
            raw = self.node(name).raw
            value = project(raw, PROJECTIONS[0].paths)
            entries.append(["Node", name, int(raw["metadata"]["resourceVersion"]), value])
        self._epoch += 1
        absorbed = self.store.absorb(snapshot(*entries, epoch=self._epoch))
        keys = [key for name in absorbed.changed for key in self.controller.map_to_keys(*name)]
        for key in keys:
            self.queue.add(key)
        return keys

    async def settle(self) -> None:
        """Feed and reconcile, side by side, until there is nothing left but failures."""
        self.feed()
        async with asyncio.timeout(PATIENCE):
            while True:
                await self._drain()
                if not self.feed() and not len(self.queue):
                    return

    async def retry(self) -> None:
        """The back-off of all failures is over."""
        for key in list(self.failures):
            self.queue.add(key)
        await self.settle()

    async def full_pass(self) -> None:
        """The period is over."""
        self.controller._listing.ask()
        await self.settle()

    async def _drain(self) -> None:
        await let_run()
        while len(self.queue) or self.queue.waiting:
            async with asyncio.TaskGroup() as group:
                while len(self.queue):
                    key = await self.queue.get()
                    assert key is not None
                    group.create_task(self._handle(key))
            await asyncio.sleep(0.001 if self.queue.waiting else 0)

    async def _handle(self, key: str) -> None:
        """What the runner does, but for back-off."""
        self.failures.pop(key, None)
        try:
            self.results[key] = await self.controller.reconcile(key)
        except RetryAfter as wait:
            self.queue.add_after(key, min(wait.seconds, 0.001))
        except (CloudError, Refused, KubernetesError, NoPermit) as error:
            self.failures[key] = error
        finally:
            self.queue.done(key)

    async def events(self) -> list[tuple[str, str, str]]:
        """What people were told: name of the Node, reason, message."""
        await self.recorder.drain(PATIENCE)
        return [
            (one["involvedObject"]["name"], one["reason"], one["message"])
            for one in self.cluster.events
        ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        tasks = [
            asyncio.create_task(self.controller.run()),
            asyncio.create_task(self.recorder.run()),
        ]
        try:
            yield self
        finally:
            self.queue.close()
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


@asynccontextmanager
async def world(*nodes: Node, cloud: FakeRoutes | None = None) -> AsyncIterator[World]:
    """A cluster of these Nodes, whose route duty runs until the end of the block."""
    cluster = Nodes()
    for node in nodes:
        cluster.put(node)
    with TemporaryDirectory() as directory, quick_lists():
        hand = InFlightJournal(Path(directory) / "route.1.hand")
        async with World(hand, cloud or FakeRoutes(), cluster).running() as made:
            yield made
            assert made.cloud.surprises == []


@asynccontextmanager
async def successor(of: World) -> AsyncIterator[World]:
    """The same duty in a new process: it has forgotten everything."""
    async with World(of.hand, of.cloud, of.cluster).running() as made:
        yield made


def quick_lists() -> Any:
    """No pause between two lists."""
    return patch.multiple(listing, LIST_INTERVAL=0.0, DOUBTED_LIST_RETRY=0.0)
