"""The machines behind load balancers: read, spread over several, and joined to their pools."""

from collections.abc import Awaitable, Callable, Iterator, Sequence

from ccm.cloud.machines import verify_complete
from ccm.cloud.shared_read import SharedLock
from ccm.errors import RetryAfter
from ccm.model.objects import Json, Node, text
from ccm.providers.azure import ids
from ccm.providers.azure.api import RACE_RETRY, AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.instances import AzureInstances
from ccm.providers.azure.lb import plan
from ccm.providers.azure.lb.admission import Admission
from ccm.providers.azure.lb.members import (
    BY_ADDRESS_ONLY,
    Backends,
    Candidates,
    Members,
    PoolMembers,
    backends,
    joined_addresses,
    joined_groups,
    named,
    pool_members,
    private_addresses,
)
from ccm.providers.azure.lb.names import Names
from ccm.providers.azure.lb.placement import Balancers
from ccm.providers.azure.lb.security_group import Extent


class BackendPools:
    """Those of all Services, in the load balancers that `read_balancers` gives as they are now."""

    def __init__(
        self,
        api: AzureApi,
        config: AzureConfig,
        instances: AzureInstances,
        admission: Admission,
        read_balancers: Callable[[], Awaitable[Balancers]],
    ) -> None:
        self._config, self._instances, self._admission = config, instances, admission
        self._members, self._read_balancers = Members(api, config), read_balancers
        self._spreading = SharedLock()
        self.nodes: Sequence[Node] = ()  # the last ones given

    async def read(self, names: Names, nodes: Sequence[Node], balancers: Balancers) -> Candidates:
        """Those in the groups of Nodes, and of what is in the cluster's pools."""
        writes, groups = self._members.writes, joined_groups(self._pools(balancers, names))
        return Candidates(nodes, await self._instances.read_all(nodes, groups), writes)

    def addresses(self, names: Names, balancers: Balancers, read: Candidates) -> set[str]:
        """Those of the machines behind these load balancers, and of Nodes, which may have left."""
        asked = (read.machines.by_id.get(ids.machine_of(node.provider_id)) for node in read.nodes)
        own = private_addresses(asked)
        return own | joined_addresses(self._pools(balancers, names), read.machines.interfaces)

    def warnings(self, wanted: Backends, read: Candidates) -> Iterator[str]:
        """Which Nodes are not behind load balancers as the others are, and why."""
        if unknown := [name for name, machine in wanted.items() if machine is None]:
            yield f"the machine is not known of {named(unknown)}"
        if odd := [item.name for item in read.nodes if self._cannot_join(item, wanted, read)]:
            yield f"{named(odd)} left out: {BY_ADDRESS_ONLY}"
        if left := [item.name for item in read.nodes if self._is_left_out(item, wanted)]:
            yield f"no load balancer takes {named(left)}"

    def _is_left_out(self, node: Node, wanted: Backends) -> bool:
        """Whether a Node would be behind none, if all load balancers were there."""
        configs, machine = self._config.balancers, wanted.get(node.name)
        return bool(configs and machine) and not any(
            item.takes_node(node.labels, machine.vm_set if machine else "") for item in configs
        )

    def _cannot_join(self, node: Node, wanted: Backends, read: Candidates) -> bool:
        """Whether a Node is left out as one of a uniform scale set, which joins by address only."""
        machine = read.machines.by_id.get(ids.machine_of(node.provider_id))
        is_of_set = machine is not None and machine.is_of_uniform_set
        return is_of_set and node.name not in wanted and not self._config.has_ip_pools

    async def take_over(self, names: Names, before: Balancers, left: Balancers) -> None:
        """Put the machines of load balancers that were deleted behind those that are left."""
        if self._config.balancers and self.nodes and len(left) < len(before):
            read = await self.read(names, self.nodes, left)
            _, reasons = await self.join(names, left, read, is_changed=True)
            verify_complete(reasons)

    async def join(
        self, names: Names, balancers: Balancers, read: Candidates, *, is_changed: bool = False
    ) -> tuple[Backends, Sequence[str]]:
        """Put the machines behind the load balancers of a Service; why some are not there yet.

        Several share the machines: one Service at a time spreads them, by what is there now; what
        was read is old once something is changed.
        """
        wanted, reasons = backends(read.nodes, read.machines, self._config), list[str]()
        is_wrong = any(self._wrong(names, balancers, wanted, read))
        if self._config.balancers and (is_wrong or is_changed):
            async with self._spreading.held():
                reasons = await self._fill(names, await self._read_balancers(), wanted, read)
        elif is_wrong:
            reasons = await self._fill(names, balancers, wanted, read)
        return wanted, reasons

    def _wrong(
        self, names: Names, balancers: Balancers, wanted: Backends, read: Candidates
    ) -> Iterator[PoolMembers]:
        for item in pool_members(names, balancers, read, wanted, self._config):
            if not self._members.are_right(item, read.machines.interfaces):
                yield item

    async def _fill(
        self, names: Names, balancers: Balancers, wanted: Backends, read: Candidates
    ) -> list[str]:
        """Those pools first that machines leave: others may wait for them.

        Who leaves all of them is in no rule before: afterwards no pool would show it.
        """
        interfaces, wrong = read.machines.interfaces, self._wrong(names, balancers, wanted, read)
        listed = [(self._members.leaving(item, interfaces), item) for item in wrong]
        if gone := {ip for left, _ in listed for ip in left}:
            await self._verify_agreed(names, balancers, read)
        gone -= private_addresses(wanted.values())
        if gone and plan.has_node_ports(balancers.values()):
            await self._admission.open(None, None, (), Extent(gone), [])
        reasons = list[str]()
        for _, members in sorted(listed, key=lambda pair: not pair[0]):
            reasons += await self._members.join(members, interfaces, read.writes)
        return reasons

    async def _verify_agreed(self, names: Names, balancers: Balancers, read: Candidates) -> None:
        """Raise where another read has others in the pools: one list may mix up machines."""
        again = await self.read(names, read.nodes, balancers)
        if self._desired(names, balancers, again) != self._desired(names, balancers, read):
            raise RetryAfter("two answers about the machines of nodes differ", RACE_RETRY)

    def _desired(self, names: Names, balancers: Balancers, read: Candidates) -> list[object]:
        wanted = backends(read.nodes, read.machines, self._config)
        listed = pool_members(names, balancers, read, wanted, self._config)
        return [self._members.desired(item, read.machines.interfaces) for item in listed]

    def _pools(self, balancers: Balancers, names: Names) -> list[Json]:
        """The cluster's, and a Service's own."""
        pools = [pool for balancer in balancers.values() for pool in plan.pools_of(balancer)]
        return [item for item in pools if names.is_managed_pool(text(item.get("name")))]
