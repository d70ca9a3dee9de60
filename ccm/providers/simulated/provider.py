"""The simulated cloud as a `CloudProvider`."""

from collections.abc import Mapping

from ccm.cloud.interface import Instances, LoadBalancers, ProviderContext, Quota, Routes, Volumes
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.config import read_config
from ccm.providers.simulated.instances import PROVIDER_IDS, SimulatedInstances
from ccm.providers.simulated.load_balancers import SimulatedLoadBalancers
from ccm.providers.simulated.routes import SimulatedRoutes
from ccm.providers.simulated.volumes import SimulatedVolumes


class SimulatedCloud:
    """Machines of the sandbox's cloud; `quotas` and `instances` are as configured once started."""

    def __init__(self) -> None:
        self.name = "simulated"
        self.provider_ids = PROVIDER_IDS
        self.has_cluster_id = True
        self.quotas: Mapping[str, Quota] = {}
        self.instances: Instances | None = None
        self.load_balancers: LoadBalancers | None = None
        self.routes: Routes | None = None
        self.volumes: Volumes | None = None
        self._api: SimulatedApi | None = None

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration; the first call to the cloud opens the first connection."""
        config = read_config(context.config, context.config_path)
        self._api = SimulatedApi(config, context.gate, context.caller)
        self.quotas = {"read": config.read_quota, "write": config.write_quota}
        self.instances = SimulatedInstances(self._api, config.page_size)
        self.volumes = SimulatedVolumes(self._api, config.page_size)
        self.routes = SimulatedRoutes(self._api, context.cluster_name)
        self.load_balancers = SimulatedLoadBalancers(
            self._api, context.cluster_name, config.page_size
        )

    async def close(self) -> None:
        if self._api:
            await self._api.close()
