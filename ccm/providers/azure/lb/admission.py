"""The one security group of all Services: who may reach their addresses, written with others'."""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy

from ccm.cloud.shared_read import SharedRead
from ccm.model.objects import Json
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.ids import NETWORK
from ccm.providers.azure.lb import security_group
from ccm.providers.azure.lb.members import Backends
from ccm.providers.azure.lb.request import BalancerRequest, additional_ips
from ccm.providers.azure.lb.security_group import Access
from ccm.providers.azure.shared_writes import SharedResource


class Admission:
    """Opens and closes; does nothing where the file names no security group."""

    def __init__(self, api: AzureApi, config: AzureConfig) -> None:
        self._name = config.security_group_name
        scope = config.network_scope(config.security_group_resource_group)
        path = scope.id(NETWORK, "networkSecurityGroups", self._name)
        self._group = SharedResource(api, "SecurityGroup", path, None)
        self._read_group = SharedRead(self._group.read)

    async def admit(
        self,
        request: BalancerRequest,
        addresses: Sequence[str],
        stale: Collection[str],
        kept: Mapping[str, Collection[str]],
        wanted: Backends,
        machine_ips: Collection[str],
    ) -> None:
        """Let clients reach the Service's addresses, or the machines' where none floats."""
        if not request.is_floating:
            stale, known = {*stale, *addresses}, filter(None, wanted.values())
            addresses = sorted({ip for machine in known for ip in machine.private})
        addresses = [*addresses, *additional_ips(request.annotations)]
        access = Access(request.sources, request.security_ports(), request.denies_others)
        is_off = request.annotations.is_true("disable-load-balancer-nsg-rule")
        warnings = request.annotations.warnings
        await self.open(None if is_off else access, addresses, stale, kept, warnings, machine_ips)

    async def open(
        self,
        access: Access | None,
        addresses: Collection[str],
        stale: Collection[str],
        kept: Mapping[str, Collection[str]],
        warnings: list[str],
        machine_ips: Collection[str] = (),
    ) -> None:
        """As `security_group.apply`; what is right is not written."""
        if not self._name:
            return
        group = await self._read_group()
        if group is None:
            warnings.append(f"security group {self._name} is missing: no client is let in")
            return

        def edit(item: Json) -> None:
            security_group.apply(item, access, addresses, stale, kept, machine_ips)

        copy = deepcopy(group)
        edit(copy)
        if copy != group:
            await self._group.change(edit, group)
