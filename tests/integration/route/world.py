"""A route controller with everything around it in memory: a cluster, a cloud, a runner."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

from ccm.errors import (
    CloudError,
    KubernetesError,
    NotLeading,
    Refused,
    RetryAfter,
    Unreachable,
)
from ccm.model.objects import Node
from tests.integration.route.cloud import FakeRoutes
from tests.support.cloud import Inventory, new_provider
from tests.support.cluster import Cluster
from tests.support.context import SETTINGS
from tests.support.deadlines import within
from tests.support.waiting import let_run
from tests.support.world import World as ControllerWorld
from workers.controller import Result
from workers.route import controller as module
from workers.route.controller import RouteController
from workers.route.pod_cidrs import PodCidrLimits

CLUSTER = ("10.244.0.0/16", "fd00:244::/48")
LIMITS = PodCidrLimits(tuple(map(ip_network, CLUSTER)))


class World(ControllerWorld):
    """One route controller. `settle` stands for supervisor and runner until nothing is left.

    A key that fails waits in `failures` for `retry`, as it would for its back-off.
    """

    controller: RouteController

    def __init__(
        self,
        cluster: Cluster,
        cloud: FakeRoutes,
        instances: Inventory | None = None,
        **flags: Any,
    ) -> None:
        self.cloud = cloud
        settings = replace(SETTINGS, cluster_cidr=CLUSTER, **flags)
        provider = new_provider(routes=cloud, instances=instances)
        super().__init__(module, provider, cluster=cluster, settings=settings)
        cloud.before_call = self.permission.check
        self.results: dict[str, Result] = {}
        self.failures: dict[str, Exception] = {}

    def feed(self, *_: Any) -> list[str]:
        """Bring the store up to date with a snapshot; the keys that this queues."""
        keys = super().feed()
        for key in keys:
            self.queue.add(key)
        return keys

    async def settle(self) -> None:
        """Feed and reconcile, side by side, until there is nothing left but failures."""
        self.feed()
        async with within():
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
            self.results[key] = await self.reconcile(key)
        except RetryAfter as wait:
            self.queue.add_after(key, min(wait.seconds, 0.001))
        except (CloudError, Refused, KubernetesError, Unreachable, NotLeading) as error:
            self.failures[key] = error
        finally:
            self.queue.done(key)

    async def reported(self) -> list[tuple[str, str, str]]:
        """What people were told: name of the Node, reason, message."""
        events = [(reason, message) for _, reason, message in await self.events()]
        names = [one["involvedObject"]["name"] for one in self.cluster.events]
        return [(name, *event) for name, event in zip(names, events, strict=True)]


@asynccontextmanager
async def world(
    *nodes: Node, cloud: FakeRoutes | None = None, instances: Inventory | None = None
) -> AsyncIterator[World]:
    """A cluster of these Nodes, whose route controller runs until the end of the block."""
    cluster = Cluster()
    cluster.put(*nodes)
    async with World(cluster, cloud or FakeRoutes(), instances).running() as made:
        yield made
        assert made.cloud.surprises == []


@asynccontextmanager
async def successor(of: World, **flags: Any) -> AsyncIterator[World]:
    """The same controller in a new process, with other flags: it has forgotten everything."""
    async with World(of.cluster, of.cloud, **flags).running() as made:
        yield made
