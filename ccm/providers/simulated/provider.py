"""The simulated cloud as a `CloudProvider`."""

from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.config import read_config
from ccm.providers.simulated.instances import PROVIDER_IDS, SimulatedInstances
from ccm.providers.simulated.load_balancers import SimulatedLoadBalancers
from ccm.providers.simulated.routes import SimulatedRoutes
from ccm.providers.simulated.volumes import SimulatedVolumes


class SimulatedCloud(CloudProvider):
    """Machines of the sandbox's cloud; `quotas` and `instances` are as configured once started."""

    name = "simulated"
    provider_ids = PROVIDER_IDS

    def __init__(self) -> None:
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
            self._api, self.instances, context.cluster_name, config.page_size
        )

    async def close(self) -> None:
        if self._api:
            await self._api.close()
