"""Azure as a `CloudProvider`."""

from contextlib import suppress
from pathlib import Path

from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.directories import read_bounded
from ccm.errors import Denied, NotFound
from ccm.providers.azure.api import QUOTAS, AzureApi
from ccm.providers.azure.config import FILE, MERGE, AzureConfig, check_cluster_name, read_config
from ccm.providers.azure.ids import PROVIDER_IDS
from ccm.providers.azure.instances import AzureInstances
from ccm.providers.azure.lb.load_balancers import AzureLoadBalancers
from ccm.providers.azure.routes import AzureRoutes
from ccm.providers.azure.volumes import AzureVolumes

NO_SUCH_NAME = "ccm-supervisor-check"
SECRET_NAME, SECRET_KEY = ("kube-system", "azure-cloud-provider"), "cloud-config"
"""Upstream's Secret with a configuration, or with a part of it."""


class AzureCloud(CloudProvider):
    """The machines, load balancers, routes and disks of one resource group."""

    name = "azure"
    provider_ids = PROVIDER_IDS
    quotas = QUOTAS

    def __init__(self) -> None:
        self._api: AzureApi | None = None
        self._config = AzureConfig()

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration; the first call gets the token, so Entra ID may be down."""
        config = read_config(context.config, context.config_path)
        secret = await self._read_secret(context, config)
        if secret is not None:
            config = read_config(context.config, context.config_path, secret)

        def read() -> AzureConfig:
            path = Path(context.config_path)
            content = read_bounded(path) if path.is_file() else context.config
            return read_config(content, context.config_path, secret, is_start=False)

        check_cluster_name(config, context.cluster_name, context.config_path)
        self._config = config
        api = self._api = AzureApi(config, read, context.gate, context.caller)
        self.instances = instances = AzureInstances(api, config)
        self.volumes = AzureVolumes(api)
        self.load_balancers = AzureLoadBalancers(api, config, instances, context)
        if config.route_table_name:
            self.routes = AzureRoutes(api, config, instances)

    async def prove_credentials(self) -> None:
        """One machine, which is not there."""
        assert self._api
        machine = f"{self._config.scope.machines()}/{NO_SUCH_NAME}"
        with suppress(NotFound):
            await self._api.get("GetVirtualMachine", machine)

    async def _read_secret(self, context: ProviderContext, config: AzureConfig) -> bytes | None:
        """The Secret's values, where the file refers to it, or there is no file."""
        if config.cloud_config_type in ("", FILE):
            return None
        if context.read_secret is None:
            raise Denied(f"Secret {'/'.join(SECRET_NAME)} cannot be read here")
        try:
            found = await context.read_secret(*SECRET_NAME)
        except Denied:
            if config.cloud_config_type == MERGE:
                return b""
            raise
        return found.get(SECRET_KEY, "").encode()

    async def close(self) -> None:
        """Close the connections."""
        if self._api:
            await self._api.close()
