"""The Nodes behind a load balancer: which, by which address, and what lets traffic in to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ccm.cloud.many_members import check_members, compute
from ccm.model.objects import Node
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.ids import server_id_of
from ccm.providers.openstack.lb.names import Names
from ccm.providers.openstack.lb.networks import Networks, node_address
from ccm.providers.openstack.lb.request import OVN, LoadBalancerRequest, Member
from ccm.providers.openstack.lb.security_groups import SecurityGroups, rules_for


@dataclass(frozen=True, slots=True)
class NodeBackends:
    """Addresses of Nodes by name, and of those their servers and subnets.

    `subnet_id` is the members' subnet.
    """

    addresses: Mapping[str, str]
    servers: Mapping[str, str]
    subnets: Mapping[str, str]
    subnet_id: str

    def members(self, request: LoadBalancerRequest, node_port: int) -> frozenset[Member]:
        """One for each Node; none where the port is unknown.

        OVN refuses all members of a call for one of another subnet that does not say of which.
        """
        check_port = request.health_check.port if request.health_check else 0
        known = {*self.subnets.values()} if request.provider == OVN else {self.subnet_id}
        return frozenset(
            Member(
                name,
                address,
                node_port,
                check_port if request.has_node_check else 0,
                self.subnets[name] if self.subnets[name] in known else "",
            )
            for name, address in self.addresses.items()
            if node_port
        )

    def count(self, request: LoadBalancerRequest) -> int:
        """How many members there are in all pools; `Refused` where no load balancer takes them."""
        check_members(len(request.ports), len(self.addresses))
        return len(request.ports) * len(self.addresses)

    async def by_port(self, request: LoadBalancerRequest) -> dict[int, frozenset[Member]]:
        ports = {port.node_port for _, port in request.ports}
        return await compute(
            self.count(request), lambda: {port: self.members(request, port) for port in ports}
        )


class Backends:
    """Chooses members, and keeps the security group that lets them be reached."""

    def __init__(self, api: OpenStackApi, networks: Networks, manages_groups: bool) -> None:
        self._networks, self._groups = networks, SecurityGroups(api)
        self._manages_groups = manages_groups

    async def of(
        self, request: LoadBalancerRequest, nodes: Sequence[Node], vip_subnet_id: str
    ) -> NodeBackends:
        """The Nodes that the Service wants, as this cloud's load balancer reaches them."""
        subnet_id = request.place.member_subnet_id or vip_subnet_id
        servers = [server_id_of(node.provider_id) for node in nodes]
        fixed = await self._networks.fixed_addresses(servers)
        return choose(request, nodes, fixed, subnet_id)

    async def open(
        self, request: LoadBalancerRequest, backends: NodeBackends, vip_subnet_id: str
    ) -> None:
        """Let the load balancer in, if that is ours to do; take back what we once did if not."""
        name = request.names.security_group
        if not self._manages_groups:
            await self._groups.delete_stale(name)
            return
        addresses = backends.addresses
        sources = {backends.subnet_id}
        if {*backends.subnets.values()} - sources:
            sources.add(vip_subnet_id)  # by way of routers
        cidrs = {str((await self._networks.subnet(source)).cidr) for source in sources - {""}}
        ports = [(port.protocol, port.node_port) for _, port in request.ports]
        clients = request.ranges if request.provider == OVN else cidrs  # OVN keeps their addresses
        check_port = request.health_check.port if request.health_check else 0
        await self._groups.ensure(
            name,
            request.names.security_group_description,
            rules_for(ports, clients, (check_port, cidrs)),
            {backends.servers[node]: address for node, address in addresses.items()},
        )

    async def close(self, names: Names) -> None:
        """Take away what let it in, whether or not that is ours to do any more."""
        await self._groups.delete(names.security_group)


def choose(
    request: LoadBalancerRequest,
    nodes: Sequence[Node],
    fixed: Mapping[str, Mapping[str, str]],
    subnet_id: str,
) -> NodeBackends:
    """The Nodes with the labels asked for, a server here and an address, each address once.

    Networks may have the same addresses: then that in the members' subnet counts, or the oldest.
    """
    addresses, servers, subnets = dict[str, str](), dict[str, str](), dict[str, str]()
    taken = set[str]()
    found = list[tuple[bool, tuple[str, str], str, str, str]]()
    for node in nodes:
        server = server_id_of(node.provider_id)
        at = fixed.get(server, {})
        address = node_address(node, request.family, at, subnet_id)
        is_chosen = all(
            key in node.labels and value in ("", node.labels[key])
            for key, value in request.selector.items()
        )
        if is_chosen and address:
            found.append((at[address] != subnet_id, node.age_order, node.name, server, address))
    for _, _, name, server, address in sorted(found):
        if address not in taken:
            taken.add(address)
            addresses[name], servers[name] = address, server
            subnets[name] = fixed[server][address]
    if nodes and request.selector and not addresses:
        request.annotations.warnings.append("no Node has the labels of annotation node-selector")
    return NodeBackends(addresses, servers, subnets, subnet_id)
