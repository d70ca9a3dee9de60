"""Proxmox VE as a `CloudProvider`."""

from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.providers.proxmox.api import QUOTAS, ProxmoxApi
from ccm.providers.proxmox.config import read_config
from ccm.providers.proxmox.ids import PROVIDER_IDS
from ccm.providers.proxmox.instances import ProxmoxInstances
from ccm.providers.proxmox.inventory import Inventory


class ProxmoxCloud(CloudProvider):
    """The virtual machines of some clusters; each is a region."""

    name = "proxmox"
    provider_ids = PROVIDER_IDS
    quotas = QUOTAS

    def __init__(self) -> None:
        self._apis: list[ProxmoxApi] = []
        self._instances: ProxmoxInstances | None = None

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration; Proxmox may be down."""
        config = read_config(context.config, context.config_path)
        self._apis = [ProxmoxApi(item, context.gate, context.caller) for item in config.clusters]
        self._instances = ProxmoxInstances([Inventory(api) for api in self._apis], config)
        self.instances = self._instances

    async def prove_credentials(self) -> None:
        """What each token may do."""
        for api in self._apis:
            await api.get("GetPermissions", "/access/permissions")

    async def close(self) -> None:
        """Close the connections."""
        if self._instances:
            await self._instances.close()
        for api in self._apis:
            await api.close()
