"""Incus as a `CloudProvider`."""

from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.http import path_of
from ccm.providers.incus.api import QUOTAS, IncusApi
from ccm.providers.incus.config import read_config
from ccm.providers.incus.events import EventListener
from ccm.providers.incus.ids import PROVIDER_IDS, Cluster
from ccm.providers.incus.instances import IncusInstances
from ccm.providers.incus.inventory import Inventory
from ccm.providers.incus.lb.load_balancers import IncusLoadBalancers
from ccm.providers.incus.routes import IncusRoutes
from ccm.providers.incus.volumes import IncusVolumes


class IncusCloud(CloudProvider):
    """The instances of some projects, on one Incus or on several."""

    name = "incus"
    provider_ids = PROVIDER_IDS
    quotas = QUOTAS

    def __init__(self) -> None:
        self._apis: dict[str, IncusApi] = {}
        self._listener: EventListener | None = None

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration; Incus may be down."""
        config = read_config(context.config, context.config_path)
        self._apis = {
            name: IncusApi(name, remote, context.gate, context.caller)
            for name, remote in config.remotes.items()
        }
        apis = list(self._apis.values())
        inventory = Inventory(apis)
        cluster = Cluster(context.cluster_name, context.cluster_uid)
        self.instances = IncusInstances(apis, inventory, config.nodes)
        self.routes = IncusRoutes(
            inventory, config.nodes.network, config.routes, cluster.uid or cluster.name
        )
        if driver := config.volumes.csi_driver:
            self.volumes = IncusVolumes(apis, config.nodes, driver)
        if config.balancers.network:
            api = self._apis[config.balancers.remote]
            of_remote = Inventory([api])
            self.load_balancers = IncusLoadBalancers(
                api, self.instances, of_remote, config.balancers, cluster
            )
        if context.on_change:
            self._listener = EventListener(apis, context.on_change)

    async def prove_credentials(self) -> None:
        """The projects, each by its name."""
        for api in self._apis.values():
            for project in api.projects:
                await api.get("GetProject", path_of("projects", project))

    async def close(self) -> None:
        """Close the connections."""
        if self._listener:
            await self._listener.close()
        for api in self._apis.values():
            await api.close()
