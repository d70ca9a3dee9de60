"""Google Compute Engine as a `CloudProvider`."""

import asyncio
from collections.abc import Mapping

from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.providers.gce.api import QUOTAS, GceApi
from ccm.providers.gce.config import read_config
from ccm.providers.gce.ids import PROVIDER_IDS
from ccm.providers.gce.instances import GceInstances
from ccm.providers.gce.lb.load_balancers import GceLoadBalancers
from ccm.providers.gce.lb.names import CONFIG_MAP, derived_cluster_id
from ccm.providers.gce.routes import GceRoutes
from ccm.providers.gce.volumes import GceVolumes

KEYS = "provider-uid", "uid"


class ClusterId:
    """What is in the names of shared parts: upstream's ID, which it keeps in a ConfigMap."""

    def __init__(self, context: ProviderContext) -> None:
        self._keep, self._cluster_id = context.keep_config_map, ""
        self._lock = asyncio.Lock()
        self._derived = derived_cluster_id(context.cluster_uid or context.cluster_name)

    async def read(self) -> str:
        """That of the provider before that of the cluster; where there is none, it is made once."""
        async with self._lock:  # Services that come together make one
            if not self._cluster_id:
                data: Mapping[str, str] = dict.fromkeys(KEYS, self._derived)
                if self._keep:
                    data = await self._keep("kube-system", CONFIG_MAP, data)
                self._cluster_id = next(filter(None, map(data.get, KEYS)), self._derived)
            return self._cluster_id


class GceCloud(CloudProvider):
    """Instances, load balancers, routes and disks of one project and region."""

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
        cluster_id = ClusterId(context)
        self.load_balancers = GceLoadBalancers(api, section, self.instances, cluster_id.read)

    async def prove_credentials(self) -> None:
        """One instance of the project."""
        assert self._api
        path = f"projects/{(await self._api.place()).project}/aggregated/instances"
        await self._api.get("instances.aggregatedList", path, maxResults="1")

    async def close(self) -> None:
        """Close the connections."""
        if self._api:
            await self._api.close()
