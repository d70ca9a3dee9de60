"""The world around a start: what checks need of it, each part looked at once and shared by all."""

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from ccm.checks.finding import NotChecked
from ccm.checks.look import api, cloud
from ccm.checks.look.api import Reach
from ccm.checks.look.cloud import Read, Reader, Started
from ccm.checks.look.lease import LeaseSeen, look_at_lease
from ccm.checks.look.runtime import RuntimeSeen, look_at_runtime
from ccm.cloud.interface import CloudProvider
from ccm.controllers import LIFECYCLE, NODE, ROUTE, SERVICE, VOLUME, is_enabled
from ccm.errors import ConfigurationFault
from ccm.kube.client import Kube
from ccm.model.node import Node
from ccm.model.service import Service
from ccm.model.volume import PersistentVolume
from ccm.settings import Settings, default_runtime_dir
from ccm.settings.given import Given

log = logging.getLogger(__name__)

T = TypeVar("T")


def once(look: Callable[["Site"], Coroutine[Any, Any, T]]) -> Callable[["Site"], Awaitable[T]]:
    """Share one look among all who wait for it; one that loses patience takes it from nobody."""

    @functools.wraps(look)
    async def shared(site: "Site") -> T:
        name = look.__name__
        if name not in site.looks:
            site.looks[name] = asyncio.create_task(look(site), name=name)
        result: T = await asyncio.shield(site.looks[name])
        return result

    return shared


async def _close(provider: CloudProvider) -> None:
    try:
        await provider.close()
    except Exception:  # around one callback: what was found is worth more
        log.debug("provider failed to close", exc_info=True)


class Site:
    """Looks are lazy. They raise `NotChecked` for what is missing and judged by another check."""

    def __init__(self, settings: Settings, given: Mapping[str, Given]) -> None:
        self.settings, self.given = settings, given
        self.looks: dict[str, asyncio.Task[Any]] = {}
        self._kube: Kube | None = None

    async def close(self) -> None:
        """End what is still under way, and give back what was taken."""
        started = self.looks.get("started")
        for look in self.looks.values():
            look.cancel()
        await asyncio.gather(*self.looks.values(), return_exceptions=True)
        if started and not started.cancelled() and (provider := started.result().provider):
            await _close(provider)
        if self._kube:
            await self._kube.close()

    def does(self, *controllers: str) -> bool:
        """Whether `--controllers` asks for one of these."""
        return any(is_enabled(each, self.settings.controllers) for each in controllers)

    @property
    def makes_routes(self) -> bool:
        settings = self.settings
        is_wanted = settings.configure_cloud_routes and bool(settings.cluster_cidr)
        return is_wanted and self.does(ROUTE)

    # The cluster.

    @once
    async def reach(self) -> Reach:
        """The first contact with the API server; raises nothing."""
        try:
            self._kube, url = await api.connect(self.settings)
        except ConfigurationFault as fault:
            return Reach("", error=fault)
        return await api.contact(self._kube, url)

    async def kube(self) -> Kube:
        """A client of an API server that answers."""
        reach = await self.reach()
        if reach.error or self._kube is None:
            raise NotChecked("the API server does not answer as it should; see api-server")
        return self._kube

    async def server_now(self) -> float:
        """The wall clock of the API server, whose times stand in all objects."""
        return time.time() + ((await self.reach()).ahead or 0.0)

    @once
    async def nodes(self) -> Sequence[Node]:
        return [Node(raw) for raw in await self.list("/api/v1/nodes", "nodes")]

    @once
    async def services(self) -> Sequence[Service]:
        return [Service(raw) for raw in await self.list("/api/v1/services", "services")]

    async def list(self, path: str, what: str) -> list[dict[str, Any]]:
        return await api.listed(await self.kube(), path, what)

    @once
    async def lease(self) -> LeaseSeen | None:
        """The Lease that would be ours, also when `--leader-elect` is off."""
        kube, ahead = await self.kube(), (await self.reach()).ahead or 0.0
        patience = self.settings.leader_elect_retry_period + 1.0
        path = f"{self.leases}/{self.settings.leader_elect_resource_name}"
        return await look_at_lease(kube, path, lambda: time.time() + ahead, patience)

    @property
    def leases(self) -> str:
        """Where the Leases beside ours are."""
        namespace = self.settings.leader_elect_resource_namespace
        return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def leader(self) -> str:
        """Who acts in this cluster now, as far as can be seen; empty when nobody does."""
        if (await self.runtime()).may_act:
            return "the supervisor of this host"
        try:
            lease = await self.lease()
        except NotChecked:
            return ""
        return lease.holder if lease and lease.is_alive else ""

    # The cloud.

    @once
    async def started(self) -> Started:
        """What became of the provider's start; raises nothing."""
        return await cloud.started(self.settings)

    async def provider(self) -> CloudProvider:
        """A provider that is ready."""
        provider = (await self.started()).provider
        if provider is None:
            raise NotChecked("the provider did not start; see cloud-provider")
        return provider

    @once
    async def reads(self) -> Sequence[Read]:
        """Cheap reads of each part that the controllers need, one after the other."""
        provider = await self.provider()
        reader = Reader((await self.started()).purse)
        nodes = await self._nodes_if_any()
        if provider.instances and self.does(NODE, LIFECYCLE):
            describe, size = provider.instances.describe, provider.instances.batch_size
            for part in cloud.samples(nodes, provider.scheme, size):
                await reader.ask("instances", "machines of nodes", describe, part)
        if provider.routes and self.makes_routes:
            await reader.ask("routes", "routes", provider.routes.list, nodes)
        if provider.load_balancers and self.does(SERVICE):
            get = provider.load_balancers.get
            await reader.ask("load balancers", "a load balancer", get, cloud.NOTHING)
        if provider.volumes and self.does(VOLUME):
            for volume in cloud.own_volume(provider, await self._volumes_if_any()):
                await reader.ask("volumes", "a volume", provider.volumes.describe, [volume])
        return reader.reads

    async def _nodes_if_any(self) -> Sequence[Node]:
        try:
            return await self.nodes()
        except NotChecked:
            return ()

    async def _volumes_if_any(self) -> Sequence[PersistentVolume]:
        try:
            listed = await self.list("/api/v1/persistentvolumes", "volumes")
        except NotChecked:
            return ()
        return [PersistentVolume(raw) for raw in listed]

    # This machine.

    @once
    async def runtime(self) -> RuntimeSeen:
        directory = self.settings.runtime_dir or default_runtime_dir()
        return await asyncio.to_thread(look_at_runtime, directory)
