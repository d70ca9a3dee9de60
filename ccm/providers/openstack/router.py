"""What Neutron says of a router: its routes, whose they are, and where a Node's may lead."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from itertools import islice

from ccm.cloud.lookup import MAX_PARTS
from ccm.errors import Refused
from ccm.model.cloud import AddressType, Network, read_network
from ccm.model.objects import Json, Node, mapping, objects, objects_with, text

MAX_NETWORKS = 20_000  # of address groups; another cluster may write any number into its own
PAIRS = "allowed_address_pairs"
"""Of a port: with what addresses, beside its own, its server may send."""


@dataclass(frozen=True, slots=True)
class RouterRoute:
    """An extra route of the router as Neutron has it; without a next hop, its mark alone."""

    cidr: str
    next_hop: str

    @property
    def network(self) -> Network:
        return ip_network(self.cidr, strict=False)

    @property
    def body(self) -> Json:
        return {"destination": self.cidr, "nexthop": self.next_hop}


@dataclass(frozen=True, slots=True)
class Hop:
    """An address of a port of a server, to which routes may lead."""

    address: str
    port: Json

    def lacks_pair(self, cidr: str) -> bool:
        """Whether the port drops what pods send; without port security nothing is dropped."""
        some = objects(self.port.get(PAIRS))[:MAX_PARTS]
        has_pair = any(is_pair(pair, cidr) for pair in some)
        return bool(self.port.get("port_security_enabled")) and not has_pair


@dataclass(frozen=True, slots=True)
class AddressGroup:
    """The networks that a cluster routes; without an ID there is none."""

    id: str = ""
    networks: frozenset[Network] = frozenset()
    parts: tuple["AddressGroup", ...] = ()

    @classmethod
    def of(cls, groups: list[Json], name: str) -> "AddressGroup":
        """The first of a name, with the networks of all: Neutron takes a name twice."""
        named = objects_with(groups, "name", name)
        each = [cls(text(item.get("id")), networks_in([item])) for item in named]
        first = min((part.id for part in each), default="")
        return cls(first, networks_in(named), tuple(each))


@dataclass(frozen=True, slots=True)
class Router:
    """The router as it was read, with what address groups say of its routes."""

    routes: Mapping[Network, Sequence[RouterRoute]]
    group: AddressGroup
    former: AddressGroup  # from before its name had the cluster's UID; maybe another cluster's
    others: frozenset[Network]

    @property
    def ours(self) -> frozenset[Network]:
        return self.group.networks

    def on(self, network: Network) -> Sequence[RouterRoute]:
        return self.routes.get(network, ())

    def check(self, wanted: RouterRoute) -> None:
        """Raise `Refused` when another route, or another cluster's, has the network."""
        for route in self.on(wanted.network):
            if not is_same_address(route.next_hop, wanted.next_hop):
                raise Refused(f"the router leads {route.cidr} to {route.next_hop} already")
            if wanted.network in self.others - self.ours:
                raise Refused(f"the route for {route.cidr} is another cluster's")


@dataclass(frozen=True, slots=True)
class RouterPorts:
    """The networks that the router is in, and by server its addresses there."""

    networks: frozenset[str] = frozenset()
    hops: Mapping[str, Sequence[Hop]] = field(default_factory=dict)


def by_network(routes: Iterable[RouterRoute]) -> Mapping[Network, Sequence[RouterRoute]]:
    """The routes of each network; ValueError when one is for none."""
    found = defaultdict[Network, list[RouterRoute]](list)
    for route in routes:
        found[route.network].append(route)
    return found


def our_routes(
    router: Router, hops: Mapping[str, tuple[str, Hop]], by_server: Mapping[str, Node]
) -> Iterator[RouterRoute]:
    """The routes for networks that are marked as ours; the mark alone where there is none.

    Of several, those to a Node that has the network: someone made the others beside it.
    """
    for network in router.ours:
        current = router.on(network)
        if not current:
            yield RouterRoute(str(network), "")
        for route in current:
            node = by_server.get(hops[route.next_hop][0]) if route.next_hop in hops else None
            if len(current) == 1 or (node and wants(node, network)):
                yield route


def wants(node: Node, network: Network) -> bool:
    """Whether it is one of the Node's pod networks."""
    return any(read_network(cidr) == network for cidr in node.pod_cidrs)


def networks_in(groups: Sequence[Json]) -> frozenset[Network]:
    """The networks in address groups."""
    listed = (text(cidr) for group in groups for cidr in group.get("addresses") or ())
    some = islice(listed, MAX_NETWORKS)
    return frozenset(network for cidr in some if (network := read_network(cidr)))


def hops_of(port: Json) -> Iterator[Hop]:
    """The fixed addresses of a port."""
    for fixed in objects(port.get("fixed_ips")):
        yield Hop(text(fixed.get("ip_address")), port)


def choose_hop(hops: Sequence[Hop], node: Node, family: int) -> Hop | None:
    """The server's address of the family that its Node names first, or any; None without one.

    A Node's addresses are the kubelet's word, so they only choose among the server's own.
    """
    fitting = [hop for hop in hops if ip_address(hop.address).version == family]
    internal = [
        text(address.get("address"))
        for address in node.addresses
        if address.get("type") == AddressType.INTERNAL_IP
    ]
    return min(
        fitting,
        key=lambda hop: internal.index(hop.address) if hop.address in internal else len(internal),
        default=None,
    )


def is_same(one: str, other: str) -> bool:
    """Whether two texts name the same network."""
    return read_network(one) == read_network(other) is not None


def is_pair(pair: object, cidr: str) -> bool:
    """Whether an address pair is that of a network."""
    return is_same(text(mapping(pair).get("ip_address")), cidr)


def is_same_address(one: str, other: str) -> bool:
    """Whether two texts name the same address."""
    return ip_address(one) == ip_address(other)
