"""OpenStack as a `CloudProvider`."""

from pathlib import Path

from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.directories import read_bounded
from ccm.providers.openstack.api import QUOTAS, OpenStackApi
from ccm.providers.openstack.config import OpenStackConfig, read_config
from ccm.providers.openstack.ids import PROVIDER_IDS, Cluster
from ccm.providers.openstack.instances import OpenStackInstances
from ccm.providers.openstack.lb.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.routes import OpenStackRoutes
from ccm.providers.openstack.volumes import OpenStackVolumes


class OpenStackCloud(CloudProvider):
    """Nova, Neutron, Octavia and Cinder of one region, as one project sees them."""

    name = "openstack"
    provider_ids = PROVIDER_IDS
    quotas = QUOTAS

    def __init__(self) -> None:
        self._api: OpenStackApi | None = None

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration; the first call gets the token, so Keystone may be down."""
        config = read_config(context.config, context.config_path)

        def read() -> OpenStackConfig:
            path = Path(context.config_path)
            content = read_bounded(path) if path.is_file() else context.config
            return read_config(content, context.config_path, is_start=False)

        cluster = Cluster(context.cluster_name, context.cluster_uid)
        api = self._api = OpenStackApi(config, read, context.gate, context.caller)
        self.instances = OpenStackInstances(api, config.networking, config.is_regional)
        self.volumes = OpenStackVolumes(api)
        if router_id := config.routes.router_id:
            self.routes = OpenStackRoutes(api, router_id, cluster)
        if config.balancers.enabled:
            self.load_balancers = OctaviaLoadBalancers(
                api, config.balancers, config.classes, cluster, context.restricts_annotations
            )

    async def close(self) -> None:
        """Close the connections."""
        if self._api:
            await self._api.close()
