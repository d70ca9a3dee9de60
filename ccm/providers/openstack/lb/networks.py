"""Neutron's networks and subnets as load balancers need them; answers are kept for a while."""

import asyncio
import re
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from ipaddress import ip_network
from typing import Any
from weakref import WeakValueDictionary

from ccm.cloud.gate import current_owner
from ccm.cloud.json_api import verify_about
from ccm.cloud.machines import verify_any
from ccm.cloud.shared_read import SharedLock
from ccm.errors import CloudError, Refused
from ccm.model.annotations import check_length
from ccm.model.cloud import Network
from ccm.model.objects import Json, Node, objects, objects_with, text
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.ids import server_id_of
from ccm.providers.openstack.lb.names import tags_of
from ccm.providers.openstack.lb.place import Place
from ccm.providers.openstack.lb.request import IPV4, IPV6
from ccm.providers.openstack.neutron import MOST_ADDRESSES, list_all, list_ports

KEPT = 300.0  # seconds
REMEMBERED = 3600.0  # seconds; each is asked for with each comparison
FIXED_KEPT = 10.0  # seconds for the addresses of a server; one without any is asked for each time
MAX_NAME = 255  # characters; Neutron's
MAX_PATTERN = 1000  # characters, of which each `[` may be looked for to the end
MAX_WAYS = 8  # of a regular expression, by which a tenant could keep us busy
REPEAT, CHOICE = 2, 1
"""A repetition multiplies the ways to match by the length of a name, a choice by two."""
_REPEATS, _NESTED = re.compile(r"[*+?{]"), re.compile(r"\)[*+{]|\\[1-9]|\(\?P=")
ADDRESS_TYPES = ("InternalIP", "ExternalIP")
PORT_FIELDS = "device_id", "fixed_ips"


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet and the network that it is of."""

    id: str
    name: str
    network_id: str
    cidr: Network
    tags: frozenset[str] = frozenset()

    @property
    def family(self) -> str:
        return IPV4 if self.cidr.version == 4 else IPV6


class Networks:
    """Reads Neutron; what it says of a subnet or of external networks is kept for a while."""

    def __init__(self, api: OpenStackApi) -> None:
        self._api = api
        self._kept: dict[tuple[str, str], tuple[float, Any]] = {}
        self._fixed: dict[str, tuple[float, dict[str, str]]] = {}  # of servers, and when asked
        self._reading = SharedLock()
        self._keeping = WeakValueDictionary[tuple[str, str, str], asyncio.Lock]()

    async def subnet(self, subnet_id: str) -> Subnet:
        """The subnet of this ID; `Refused` when there is none."""

        async def read() -> Subnet:
            found = [await self._read_subnet(subnet_id) for _ in range(2)]
            if found[0] != found[1]:  # Nodes are opened to its range
                raise CloudError(f"GetSubnet: two answers about {subnet_id} differ")
            return found[0]

        found: Subnet = await self._keep("subnet", subnet_id, read)
        return found

    async def _read_subnet(self, subnet_id: str) -> Subnet:
        answer = await self._api.get("GetSubnet", "network", f"/subnets/{subnet_id}")
        verify_about("GetSubnet", answer["subnet"], "id", subnet_id)
        return read_subnet(answer["subnet"])

    async def subnets_of(self, network_id: str) -> list[Subnet]:
        """The subnets of a network, in the order of their IDs."""

        async def read() -> list[Subnet]:
            listed = await list_all(self._api, "subnets", [("network_id", network_id)])
            inside = objects_with(listed, "network_id", network_id)
            return sorted(map(read_subnet, inside), key=lambda item: item.id)

        found: list[Subnet] = await self._keep("subnets", network_id, read)
        return found

    async def external_networks(self) -> list[str]:
        """The IDs of the networks that floating IPs may come from."""

        async def read() -> list[str]:
            listed = await list_all(self._api, "networks", [("router:external", "True")])
            external = (item for item in listed if item.get("router:external", True))
            return sorted(text(item.get("id")) for item in external)

        found: list[str] = await self._keep("networks", "external", read)
        return found

    async def vip_subnets(
        self, place: Place, families: Sequence[str], nodes: Sequence[Node]
    ) -> list[Subnet]:
        """One for each of the families that its network has, the first of them always there."""
        first = await self.subnet(place.subnet_id) if place.subnet_id else None
        if first is None and not place.network_id:
            first = await self._subnet_of_nodes(nodes, families[0])
        if first and (first.family,) == tuple(families):
            return [first]
        network_id = first.network_id if first else place.network_id
        own = [first] if first else []
        found = _of_families(families, own + await self.subnets_of(network_id))
        if len(found) < len(families):  # what one answer lacks, the load balancer has never
            self._kept.pop(("subnets", network_id), None)
            found = _of_families(families, own + await self.subnets_of(network_id))
        if families[0] not in found:
            raise Refused(f"network {network_id} has no subnet of {families[0]}")
        return [found[family] for family in families if family in found]

    async def _subnet_of_nodes(self, nodes: Sequence[Node], family: str) -> Subnet:
        """Where most Nodes have their addresses, of which each kubelet chooses its own.

        Of as many, where the oldest has.
        """
        nodes = sorted(nodes, key=lambda node: node.age_order)
        servers = [server_id_of(node.provider_id) for node in nodes]
        fixed, counts = await self.fixed_addresses(servers), Counter[str]()
        for node, server in zip(nodes, servers, strict=True):
            at = fixed.get(server, {})
            if address := node_address(node, family, at, ""):
                counts[at[address]] += 1
        if not counts:
            raise Refused("no Node determines the subnet: set subnet-id in the configuration")
        return await self.subnet(max(counts, key=counts.__getitem__))

    async def fixed_addresses(self, servers: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """The addresses of servers, each with the ID of its subnet, by the servers' IDs.

        A kubelet may write any address into its Node: those count that Neutron gave its server.
        """
        asked, came_at = {*servers} - {""}, time.monotonic()
        async with self._reading.held():  # who comes meanwhile finds what is read
            await self._read_fixed({item for item in asked if not self._is_fresh(item, came_at)})
        found = {server: current for server, (_, current) in self._fixed.items() if current}
        verify_any(len(asked), len(asked & found.keys()), "servers' ports")
        return found

    def _is_fresh(self, server: str, came_at: float) -> bool:
        """Whether it was asked for since then; one with addresses, a moment before."""
        asked_at, current = self._fixed.get(server, (float("-inf"), {}))
        return asked_at >= came_at - (FIXED_KEPT if current else 0.0)

    async def _read_fixed(self, servers: Collection[str]) -> None:
        now, found = time.monotonic(), await self._listed(servers)
        kept = {
            key: (asked_at, current)
            for key, (asked_at, current) in self._fixed.items()
            if asked_at + (REMEMBERED if current else KEPT) > now
        }
        known = {key: kept[key][1] for key in {*servers} & kept.keys() if kept[key][1]}
        changed = {key for key in known.keys() & found.keys() if found[key] != known[key]}
        again = await self._listed(changed) if changed else {}
        found |= {key: known[key] for key in changed if again.get(key) != found[key]}
        lost = {key: current for key, current in known.items() if key not in found}
        held = await self._held_by_others(lost)
        for server, current in lost.items():  # a list may lack one, or its addresses: it stays
            found[server] = dict(current.items() - held)
        self._fixed = kept | {server: (now, found.get(server, {})) for server in servers}

    async def _listed(self, servers: Collection[str]) -> dict[str, dict[str, str]]:
        """As `fixed_addresses`, by one list; it may mix up ports."""
        found = defaultdict[str, dict[str, str]](dict)
        for port in await list_ports(self._api, "device_id", sorted(servers), PORT_FIELDS):
            if (server := text(port.get("device_id"))) in servers and (some := _fixed_in(port)):
                found[server] |= some
        return dict(found)

    async def _held_by_others(self, lost: Mapping[str, Mapping[str, str]]) -> set[tuple[str, str]]:
        """Which of the addresses of servers without ports others have by now, with their subnets.

        A kubelet whose server is gone may keep its Node, and another server gets the address.
        """
        asked = {f"ip_address={address}" for current in lost.values() for address in current}
        ports = await list_ports(self._api, "fixed_ips", sorted(asked), PORT_FIELDS)
        others = (port for port in ports if text(port.get("device_id")) not in lost)
        return {pair for port in others for pair in _fixed_in(port).items()}

    async def _keep(self, kind: str, key: str, read: Callable[[], Awaitable[Any]]) -> Any:
        """What was read for anyone, or what `read` gives; those of one owner wait for each other.

        A tenant may name another key each time: who waits for it is in no other's way.
        """
        keeping = self._keeping.setdefault((current_owner(), kind, key), asyncio.Lock())
        async with keeping:
            until, found = self._kept.get((kind, key), (0.0, None))
            if until < time.monotonic():
                found = await read() or await read()  # one answer may lack all
                now = time.monotonic()
                kept = {asked: known for asked, known in self._kept.items() if known[0] > now}
                self._kept = {**kept, (kind, key): (now + KEPT, found)}  # tenants name networks
        return found


def _of_families(families: Sequence[str], subnets: Sequence[Subnet]) -> dict[str, Subnet]:
    """The first one of each family that there is one of."""
    return {it: item for it in families for item in subnets[::-1] if item.family == it}


def _fixed_in(port: Json) -> dict[str, str]:
    """The addresses of a port, each with the ID of its subnet."""
    return {
        address: text(record.get("subnet_id"))
        for record in objects(port.get("fixed_ips"))
        if (address := text(record.get("ip_address")))
    }


def read_subnet(record: Json) -> Subnet:
    return Subnet(
        text(record.get("id")),
        text(record.get("name"))[:MAX_NAME],
        text(record.get("network_id")),
        ip_network(text(record.get("cidr"))),
        frozenset(tags_of(record)),
    )


def node_address(node: Node, family: str, fixed: Mapping[str, str], subnet_id: str) -> str:
    """The address by which a pool reaches a Node, of those that are in `fixed` with their subnets.

    A server may be in several networks: what is in the members' subnet comes before the rest.
    """
    some = node.addresses[:MOST_ADDRESSES] if fixed else []
    listed = [
        text(entry.get("address"))
        for wanted in ADDRESS_TYPES
        for entry in some
        if entry.get("type") == wanted
    ]
    usable = [item for item in listed if item in fixed and (":" in item) is (family == IPV6)]
    inside = [item for item in usable if fixed[item] == subnet_id]
    return next(iter(inside + usable), "")


def matching_subnets(subnets: Iterable[Subnet], pattern: str, tags: str) -> list[Subnet]:
    """Those whose name and tags are as upstream's notation says.

    A pattern is a glob, or after `~` a regular expression; tags are a list of which one is enough,
    or after `&` all are needed. `!` in front is the contrary.
    """
    has_name, has_tags = _name_test(pattern), _tags_test(tags)
    return [
        subnet
        for subnet in subnets
        if subnet.family == IPV4 and has_name(subnet) and has_tags(subnet)
    ]


def _name_test(pattern: str) -> Callable[[Subnet], bool]:
    if not pattern:
        return lambda _: True
    is_negated, body = pattern.startswith("!"), pattern.removeprefix("!")
    ways = REPEAT * len(_REPEATS.findall(body)) + CHOICE * body.count("|")
    check_length("floating-subnet", body, MAX_PATTERN)
    if body.startswith("~") and (ways > MAX_WAYS or _NESTED.search(body)):
        raise Refused(
            f"annotation floating-subnet {pattern!r} may take for ever: use fewer of * + ? {{ |"
        )
    try:
        expression = re.compile(body[1:] if body.startswith("~") else translate(body))
    except (re.error, RecursionError, OverflowError) as error:
        raise Refused(f"annotation floating-subnet {pattern!r} is not valid: {error}") from error
    return lambda subnet: bool(expression.fullmatch(subnet.name)) is not is_negated


def _tags_test(tags: str) -> Callable[[Subnet], bool]:
    if not tags:
        return lambda _: True
    is_negated, body = tags.startswith("!"), tags.removeprefix("!")
    wanted = {item.strip() for item in body.removeprefix("&").split(",")}
    enough = all if body.startswith("&") else any
    return lambda subnet: enough(item in subnet.tags for item in wanted) is not is_negated
