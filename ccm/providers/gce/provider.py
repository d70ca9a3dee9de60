"""Google Compute Engine as a `CloudProvider`."""

from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.providers.gce.api import QUOTAS, GceApi
from ccm.providers.gce.config import read_config
from ccm.providers.gce.ids import PROVIDER_IDS
from ccm.providers.gce.instances import GceInstances
from ccm.providers.gce.routes import GceRoutes
from ccm.providers.gce.volumes import GceVolumes


class GceCloud(CloudProvider):
    """Instances, routes and disks of one project and region."""

    name = "gce"
    provider_ids = PROVIDER_IDS
    quotas = QUOTAS

    def __init__(self) -> None:
        self._api: GceApi | None = None

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration; the first call gets the token, so Google may be down."""
        section = read_config(context.config, context.config_path)
        api = self._api = GceApi(section, context.gate, context.caller)
        self.instances = GceInstances(api, section.network)
        self.routes = GceRoutes(api, context.cluster_name)
        self.volumes = GceVolumes(api)

    async def close(self) -> None:
        """Close the connections."""
        if self._api:
            await self._api.close()
