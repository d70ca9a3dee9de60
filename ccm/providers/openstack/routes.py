"""Routes to pod networks: extra routes of one router, which an address group says are ours.

Routes have no marks of their own, and a router has 50 tags at the most.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_network
from typing import TypeVar

from ccm.cloud.json_api import read_list, verify_about
from ccm.cloud.lookup import in_turns
from ccm.cloud.machines import verify_any
from ccm.cloud.shared_read import SharedLock
from ccm.cloud.shared_write import PendingChange, SharedWrite, end_all
from ccm.errors import CloudError, NotFound, Refused
from ccm.model.cloud import Network, Route, read_network
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.providers.openstack import ids
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.ids import Cluster
from ccm.providers.openstack.neutron import (
    MOST_ADDRESSES,
    if_unchanged,
    is_of,
    list_ports,
    read_port,
)
from ccm.providers.openstack.router import (
    PAIRS,
    AddressGroup,
    Hop,
    Router,
    RouterPorts,
    RouterRoute,
    by_network,
    choose_hop,
    hops_of,
    is_pair,
    networks_in,
    our_routes,
    wants,
)

T = TypeVar("T")

GROUP_PREFIX = "ccm-routes-"
DESCRIPTION = "Pod networks that a cluster's cloud controller manager routes"
MAX_NAME = 255
GATHER = 0.2  # seconds in which calls for several Nodes come together
PORT_FIELDS = (
    "id",
    "device_id",
    "network_id",
    "fixed_ips",
    PAIRS,
    "port_security_enabled",
    "revision_number",
)


class OpenStackRoutes:
    """Ours are those whose networks are in the address group of our cluster.

    A route in no such group that leads a Node's pod network to this Node is upstream's, or from
    before the cluster's UID was known: it is left out of the list, so that `create` marks it.
    """

    def __init__(self, api: OpenStackApi, router_id: str, cluster: Cluster) -> None:
        self._api, self._router_id = api, router_id
        self._former = f"{GROUP_PREFIX}{cluster.name}"[:MAX_NAME]
        self._group = f"{GROUP_PREFIX}{cluster.uid}" if cluster.uid else self._former
        self._ports = RouterPorts()  # as when last listed, without what was changed since
        lock = SharedLock(None)  # one for both, as they change the same group
        self._add = combined(self._add_routes, lock)
        self._remove = combined(self._remove_routes, lock)
        self._learn = combined(self._learn_ports)

    async def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
        """Our routes; one that lacks its mark or its address pair is left out."""
        router = await self._read_router()  # after which the region is known
        by_server = {self._server_of(node): node for node in nodes}
        by_server.pop("", None)
        ports = self._ports = await self._read_ports(by_server)
        hops = {hop.address: (server, hop) for server, own in ports.hops.items() for hop in own}
        ours = list(our_routes(router, hops, by_server))
        elsewhere = {item.next_hop for item in ours if item.next_hop and item.next_hop not in hops}
        current = {hop.address for port in await self._ports_at(elsewhere) for hop in hops_of(port)}
        by_age = sorted(nodes, key=lambda node: node.age_order, reverse=True)  # the oldest counts
        wanted = [(read_network(cidr), node) for node in by_age for cidr in node.pod_cidrs]
        asked = {network for network, _ in wanted}
        says = {
            (network, text(address.get("address"))): node
            for network, node in wanted
            for address in node.addresses[:MOST_ADDRESSES]
        }
        listed = []
        async for route in in_turns(ours):
            if not route.next_hop and route.network in asked:
                continue  # a mark alone, or an answer without the router's routes: it is made again
            server, hop = hops.get(route.next_hop, ("", None))
            node = by_server.get(server)
            if hop is None:  # a list may leave a port out: the Node says that it has the address
                node = says.get((route.network, route.next_hop))
            if node and hop and wants(node, route.network) and hop.lacks_pair(route.cidr):
                continue
            is_blackhole = hop is None and node is None and route.next_hop not in current
            name, route_id = node.name if node else "", f"{route.cidr}@{route.next_hop}"
            listed.append(Route(route.cidr, name, id=route_id, is_blackhole=is_blackhole))
        return listed

    async def create(self, node: Node, cidr: str) -> None:
        """As the interface; where the server is was read with the last list."""
        server = self._server_of(node)
        if not server:
            raise Refused(f"provider ID {node.provider_id or '(none)'} names no server here")
        if server not in self._ports.hops:
            await self._learn.do(server)
        network = ip_network(cidr, strict=False)
        hop = choose_hop(self._ports.hops.get(server, ()), node, network.version)
        if hop is None:
            self._forget(server)
            family = f"IPv{network.version}"
            raise CloudError(f"{node.name} has no {family} address in a network of the router")
        await self._add.do(RouterRoute(str(network), hop.address))
        if hop.lacks_pair(cidr):
            port = await self._read_port(hop.port)
            if not any(is_pair(pair, cidr) for pair in port[PAIRS]):
                await self._set_pairs(port, [*port[PAIRS], {"ip_address": cidr}])

    async def delete(self, route: Route) -> None:
        """The mark goes last, so that what was broken off is listed again."""
        cidr, _, next_hop = route.id.partition("@")
        for listed in await self._ports_at({next_hop} - {""}):
            port = await self._read_port(listed)
            left = [pair for pair in port[PAIRS] if not is_pair(pair, cidr)]
            if len(left) < len(port[PAIRS]):
                await self._set_pairs(port, left)
        await self._remove.do(RouterRoute(cidr, next_hop))

    # Reading

    def _server_of(self, node: Node) -> str:
        """Its server; no router leads to one of another region."""
        return ids.server_in(self._api.region, node.provider_id)

    async def _read_router(self) -> Router:
        path, project = f"/routers/{self._router_id}", await self._api.project_id()
        asked = "ListAddressGroups", "network", "/address-groups", "address_groups"
        try:
            answer, listed = await asyncio.gather(
                self._api.get("GetRouter", "network", path),
                self._api.pages(*asked, project_id=project),
            )
        except NotFound as error:
            raise Refused(f"no router {self._router_id}, or no address groups: {error}") from error
        router = mapping(answer.get("router"))
        if text(router.get("id")) != self._router_id or not isinstance(router.get("routes"), list):
            raise CloudError("GetRouter: the answer is not about the router")
        listed_routes = [
            RouterRoute(text(record.get("destination")), text(record.get("nexthop")))
            for record in objects(router.get("routes"))
        ]
        try:
            routes = by_network(listed_routes)
        except ValueError as error:
            raise CloudError(f"GetRouter: a route is not understood: {error}") from error
        groups = [group for group in listed if is_of(project, group)]
        own = AddressGroup.of(groups, self._group)
        has_former = self._former != self._group
        former = AddressGroup.of(groups, self._former) if has_former else AddressGroup()
        others = [
            group
            for group in groups
            if text(group.get("name")).startswith(GROUP_PREFIX)
            and group.get("name") not in (self._group, self._former)
        ]
        return Router(routes, own, former, networks_in(others))

    async def _read_ports(self, servers: Iterable[str]) -> RouterPorts:
        """Where the router is, and where these servers are in the same networks."""
        hops: dict[str, list[Hop]] = {server: [] for server in servers}
        ports = await list_ports(self._api, "device_id", [self._router_id, *hops], PORT_FIELDS)
        own = [port for port in ports if port.get("device_id") == self._router_id]
        if not own:
            raise CloudError("ListPorts: the answer has no port of the router: it is not trusted")
        networks = frozenset(text(port.get("network_id")) for port in own)
        for port in ports:
            device = text(port.get("device_id"))
            if device in hops and port.get("network_id") in networks:
                hops[device] += hops_of(port)
        verify_any(len(hops), sum(map(bool, hops.values())), "servers' ports at the router")
        return RouterPorts(networks, hops)

    async def _learn_ports(self, servers: Sequence[str]) -> None:
        """The same of servers that the last list did not know."""
        ports = await self._read_ports(servers)
        self._ports = replace(ports, hops={**self._ports.hops, **ports.hops})

    async def _ports_at(self, addresses: Set[str]) -> Sequence[Json]:
        """The ports with these addresses in networks of the router, the router's own left out."""
        if not addresses:
            return []
        networks = self._ports.networks or (await self._read_ports([])).networks
        wanted = [f"ip_address={address}" for address in sorted(addresses)]
        ports = await list_ports(self._api, "fixed_ips", wanted, PORT_FIELDS)
        current = [
            port
            for port in ports
            if port.get("network_id") in networks
            and any(hop.address in addresses for hop in hops_of(port))
        ]
        return [port for port in current if port.get("device_id") != self._router_id]

    # Writing

    async def _add_routes(self, routes: Sequence[RouterRoute]) -> None:
        """Marks first, so that no route of ours is ever without; only what is not there yet."""
        router = await self._read_router()
        for route in routes:
            router.check(route)
        if unmarked := {route.network for route in routes} - router.ours:
            await self._mark(router.group.id, unmarked)
        if moved := {route.network for route in routes} & router.former.networks:
            await self._unmark(router.former, self._former, moved)
        if missing := [route for route in routes if not router.on(route.network)]:
            await self._change("AddExtraRoutes", "add_extraroutes", missing)

    async def _remove_routes(self, routes: Sequence[RouterRoute]) -> None:
        """Marks last, so that what was broken off is listed again."""
        if leading := [route for route in routes if route.next_hop]:
            await self._change("RemoveExtraRoutes", "remove_extraroutes", leading)
        router = await self._read_router()
        if marked := {route.network for route in routes} & router.ours:
            await self._unmark(router.group, self._group, marked)
        if left := {route.network for route in routes} & router.former.networks & router.ours:
            await self._unmark(router.former, self._former, left)

    async def _mark(self, group_id: str, networks: Collection[Network]) -> None:
        addresses = sorted(map(str, networks))
        if group_id:
            await self._read_group(group_id, self._group)
            target = f"/address-groups/{group_id}/add_addresses"
            body: Json = {"addresses": addresses}
            await self._api.call("AddAddresses", "network", "PUT", target, body)
            return
        group = {"name": self._group, "description": DESCRIPTION, "addresses": addresses}
        body = {"address_group": group}
        await self._api.call("CreateAddressGroup", "network", "POST", "/address-groups", body)

    async def _unmark(self, group: AddressGroup, name: str, networks: Collection[Network]) -> None:
        """In each group of the name."""
        for part in group.parts:
            if not part.networks.intersection(networks):
                continue
            with suppress(NotFound):
                current = await self._read_group(part.id, name)
                if marked := current.networks.intersection(networks):
                    await self._unmark_part(current, marked)

    async def _read_group(self, group_id: str, name: str) -> AddressGroup:
        """By itself: a list that mixes up groups would have another cluster's marks changed."""
        answer = await self._api.get("GetAddressGroup", "network", f"/address-groups/{group_id}")
        group = dict(mapping(answer.get("address_group")))
        for key, value in (("id", group_id), ("name", name)):
            verify_about("GetAddressGroup", group, key, value)
        return AddressGroup(group_id, networks_in([group]))

    async def _unmark_part(self, group: AddressGroup, networks: Collection[Network]) -> None:
        """With the last network the group goes, so that nothing of ours is left behind."""
        target = f"/address-groups/{group.id}"
        if networks == group.networks:
            with suppress(NotFound):
                await self._api.call("DeleteAddressGroup", "network", "DELETE", target)
            return
        try:
            await self._take_out(target, networks)
        except NotFound:  # of one that has gone meanwhile: then all stay
            for network in networks if len(networks) > 1 else ():
                with suppress(NotFound):
                    await self._take_out(target, [network])

    async def _take_out(self, group: str, networks: Collection[Network]) -> None:
        body: Json = {"addresses": sorted(map(str, networks))}
        target = f"{group}/remove_addresses"
        await self._api.call("RemoveAddresses", "network", "PUT", target, body)

    async def _change(self, operation: str, action: str, routes: Sequence[RouterRoute]) -> None:
        body = {"router": {"routes": [route.body for route in routes]}}
        target = f"/routers/{self._router_id}/{action}"
        await self._api.call(operation, "network", "PUT", target, body)

    async def _read_port(self, listed: Json) -> Json:
        """By itself, with all the pairs that its list has of the same revision."""
        port = await read_port(self._api, text(listed.get("id")))
        pairs, known = read_list("GetPort", port, PAIRS), objects(listed.get(PAIRS))
        if _place(port) != _place(listed):
            raise CloudError(f"GetPort: port {port.get('id')} is listed otherwise")
        is_same = port.get("revision_number") == listed.get("revision_number")
        if is_same and any(pair not in pairs for pair in known):
            raise CloudError(f"GetPort: port {port.get('id')} lacks {PAIRS} of its revision")
        return port

    async def _set_pairs(self, port: Json, pairs: Sequence[Json]) -> None:
        """Unless someone has changed the port meanwhile: then it is read again."""
        self._forget(text(port.get("device_id")))
        body: Json = {"port": {PAIRS: [*pairs]}}
        target = f"/ports/{text(port.get('id'))}"
        await self._api.call("UpdatePort", "network", "PUT", target, body, if_unchanged(port))

    def _forget(self, server: str) -> None:
        """What a server's ports are is read again when it is asked for."""
        hops = {other: own for other, own in self._ports.hops.items() if other != server}
        self._ports = replace(self._ports, hops=hops)


def _place(port: Json) -> tuple[str, set[str]]:
    """What routes rest on: a list that mixes up ports would have another's pairs changed."""
    return text(port.get("device_id")), {hop.address for hop in hops_of(port)}


def combined(
    write: Callable[[Sequence[T]], Awaitable[None]], lock: SharedLock | None = None
) -> SharedWrite[T]:
    """Where one for several is refused, each is tried by itself."""

    async def write_all(pending: Sequence[PendingChange[T]]) -> None:
        try:
            await write([item.change for item in pending])
        except CloudError as error:
            if len(pending) > 1 and isinstance(error, Refused):
                for item in pending:
                    await write_all([item])
            end_all(pending, error=error)
        end_all(pending)

    return SharedWrite(write_all, lock or SharedLock(None), GATHER)
