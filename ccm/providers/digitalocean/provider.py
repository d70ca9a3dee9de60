"""DigitalOcean as a `CloudProvider`."""

import os

from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.providers.digitalocean.api import DigitalOceanApi, quotas
from ccm.providers.digitalocean.config import DigitalOceanConfig, read_config
from ccm.providers.digitalocean.droplets import Droplets
from ccm.providers.digitalocean.firewall_api import Firewalls
from ccm.providers.digitalocean.ids import PROVIDER_IDS, Cluster
from ccm.providers.digitalocean.instances import DropletInstances
from ccm.providers.digitalocean.lb.load_balancers import DigitalOceanLoadBalancers
from ccm.providers.digitalocean.volumes import DigitalOceanVolumes


class DigitalOceanCloud(CloudProvider):
    """The droplets and load balancers of one team."""

    name = "digitalocean"
    provider_ids = PROVIDER_IDS

    def __init__(self) -> None:
        self.config = DigitalOceanConfig()
        self.firewalls: Firewalls | None = None
        self._api: DigitalOceanApi | None = None

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration; DigitalOcean may be down."""
        config = self.config = read_config(context.config, context.config_path, os.environ)
        self.quotas = quotas(config.common)
        api = self._api = DigitalOceanApi(config.common, context.gate, context.caller)
        droplets = Droplets(api, config.common.vpc_id)
        cluster_id = config.common.cluster_id
        cluster = Cluster(cluster_id or context.cluster_uid, context.cluster_uid)
        self.instances = DropletInstances(droplets, config.common.vpc_id)
        self.load_balancers = DigitalOceanLoadBalancers(
            api, droplets, config, cluster, context.restricts_annotations
        )
        self.volumes = DigitalOceanVolumes(api)
        if config.firewall.name:
            self.firewalls = Firewalls(api, config.firewall, cluster)

    async def prove_credentials(self) -> None:
        """One droplet, or none."""
        assert self._api
        await self._api.get("ListDroplets", "/droplets", per_page="1")

    async def close(self) -> None:
        """Close the connections."""
        if self._api:
            await self._api.close()
