"""The one security group of all Services: who may reach their addresses, written with others'."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ccm.cloud.shared_read import SharedRead
from ccm.model.objects import Json, copy_of, objects, text
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.ids import NETWORK, properties_of
from ccm.providers.azure.lb import plan, security_group
from ccm.providers.azure.lb.annotations import PREFIX
from ccm.providers.azure.lb.members import Backends, private_addresses
from ccm.providers.azure.lb.names import Names
from ccm.providers.azure.lb.owners import ips_of
from ccm.providers.azure.lb.records import Records
from ccm.providers.azure.lb.request import DENIES, BalancerRequest
from ccm.providers.azure.lb.security_group import Access, Extent
from ccm.providers.azure.shared_writes import SharedResource


def extent_of(
    names: Names, balancers: Iterable[Json], frontends: Sequence[Json], listed: Sequence[Json]
) -> Extent:
    """What these frontends, which are or were the Service's, are to others by what is there now.

    `listed` are public addresses, among which theirs are.
    """
    balancers = list(balancers)
    shared = plan.shared_frontends(balancers, names, frontends)
    foreign = [item for item in shared if not names.is_own(text(item.get("name")))]
    kept = plan.ports_of_others(balancers, names, frontends)
    return Extent((), ips_of(shared, listed), ips_of(foreign, listed), kept)


class Admission:
    """Opens and closes; does nothing where the file names no security group."""

    def __init__(self, api: AzureApi, config: AzureConfig, records: Records) -> None:
        self._name = config.security_group_name
        scope = config.network_scope(config.security_group_resource_group)
        path = scope.id(NETWORK, "networkSecurityGroups", self._name)
        self._group = SharedResource(api, "SecurityGroup", path, None)
        self._read_group = SharedRead(self._group.read)
        self._records = records

    async def admit(
        self,
        request: BalancerRequest,
        addresses: Sequence[str],
        extent: Extent,
        wanted: Backends,
    ) -> None:
        """Let clients reach the Service's addresses, or the machines' where none floats."""
        annotations = request.annotations
        ports = request.security_ports(not {*addresses}.isdisjoint(extent.foreign))
        own = {*addresses} - {*extent.shared}
        self._take_over(request.names, own)
        if not request.is_floating:
            extent = replace(extent, stale={*extent.stale, *own})
            addresses = sorted(private_addresses(wanted.values()))
        addresses = [*addresses, *request.additional]
        access = Access(request.sources, ports, request.denies_others)
        if access.denies_others and not {*addresses}.isdisjoint(extent.foreign):
            why = "the address is another Service's"
            annotations.warnings.append(f"annotation {PREFIX}{DENIES} has no effect: {why}")
        is_off = annotations.is_true("disable-load-balancer-nsg-rule")
        opened = None if is_off else access
        await self.open(request.names, opened, addresses, extent, annotations.warnings)

    async def opened(self) -> set[str]:
        """The addresses that clients may reach, whichever Service has them."""
        group = await self._read_group() if self._name else None
        listed = objects(properties_of(group or {}).get(security_group.RULES))
        managed = filter(security_group.is_managed, listed)
        return {address for rule in managed for address in security_group.destinations(rule)}

    def _take_over(self, names: Names, addresses: Collection[str]) -> None:
        """Let no other Service reach the addresses of one that has them for itself."""
        for other in self._records.others(names):
            if lost := {*other.additional} & {*addresses}:
                other.reached = {name: {*some} - lost for name, some in other.reached.items()}

    async def open(
        self,
        names: Names | None,
        access: Access | None,
        addresses: Collection[str],
        extent: Extent,
        warnings: list[str],
    ) -> None:
        """As `security_group.apply`, for the Service of these names; what is right is not written.

        Without them, no Service has these addresses any more.
        """
        if not self._name:
            return
        owner = names.service.namespace if names else ""
        if names:
            wanted = security_group.rules_for(access, addresses, extent)
            reached = {name: destinations for name, (_, destinations) in wanted.items()}
            self._records.of(names).reached = reached
        group = await self._read_group() or await self._group.listed()  # one answer may hide it
        if group is None:
            warnings.append(f"security group {self._name} is missing: no client is let in")
            return

        def edit(item: Json) -> None:
            others = [item.reached for item in self._records.others(names)] if names else []
            security_group.apply(item, access, addresses, extent, others)

        copy = copy_of(group)
        edit(copy)
        if copy == group and not access:  # one answer may lack the rules, which no one closes later
            group = await self._group.listed() or group
            edit(copy := copy_of(group))
        if copy != group:
            await self._group.change(edit, group, owner=owner)
