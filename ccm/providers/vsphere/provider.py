"""vSphere as a `CloudProvider`."""

from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.providers.vsphere.config import read_config
from ccm.providers.vsphere.credentials import CredentialSource
from ccm.providers.vsphere.ids import PROVIDER_IDS
from ccm.providers.vsphere.instances import VsphereInstances
from ccm.providers.vsphere.vcenter import QUOTAS, VCenterApi


class VsphereCloud(CloudProvider):
    """The virtual machines of some vCenters."""

    name = "vsphere"
    provider_ids = PROVIDER_IDS
    quotas = QUOTAS

    def __init__(self) -> None:
        self._apis: list[VCenterApi] = []

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration; vCenter may be down."""
        config = read_config(context.config, context.config_path)
        self._apis = [
            VCenterApi(
                item, CredentialSource(item, context.read_secret), context.gate, context.caller
            )
            for item in config.vcenters
        ]
        self.instances = VsphereInstances(self._apis, config)

    async def prove_credentials(self) -> None:
        """A login to each vCenter."""
        for api in self._apis:
            await api.open_session()

    async def close(self) -> None:
        """End the sessions and close the connections."""
        for api in self._apis:
            await api.close()
