"""Routes of pod networks in the cluster's one route table; all others in it are left alone."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address, ip_network

from ccm.cloud.shared_read import SharedLock
from ccm.decide.budget import Priority
from ccm.errors import Refused
from ccm.model.cloud import AddressType, Route, read_network
from ccm.model.objects import Json, Node, objects, text
from ccm.providers.azure import ids
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.instances import AzureInstances
from ccm.providers.azure.shared_writes import SharedResource

SEPARATOR = "____"
"""Between a Node's name and its network in the name of a route, which is all the mark it has."""
HOP_TYPE = "VirtualAppliance"
MOST_NAME = 80  # characters of a route's name; Azure refuses all that is written with a longer one


class AzureRoutes:
    """A route's name is its Node's with the network, as upstream's; it leads to an address.

    Routes that are made or taken away at the same time are one write of the table.
    """

    def __init__(self, api: AzureApi, config: AzureConfig, instances: AzureInstances) -> None:
        scope = config.network_scope(config.route_table_resource_group)
        path = scope.id(ids.NETWORK, "routeTables", config.route_table_name)
        empty: Json = {"location": config.location, "properties": {"routes": []}}
        self._table = SharedResource(
            api, "RouteTable", path, empty, lock=SharedLock(Priority.ROUTE)
        )
        self._instances = instances

    async def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
        """The table's routes of Nodes; one is a blackhole when no machine has its address."""
        by_name = {node.name.lower(): node for node in nodes}
        records = _routes_of(await self._table.read() or {})
        routes = [(record, by_name.get(node_of(record))) for record in records if node_of(record)]
        # Machines by address; read when a Node does not explain its route.
        owners, unread = defaultdict[str, set[str]](set), set[str]()
        odd = [node for item, node in routes if not (node and hop_of(item) in _inner(node))]
        if odd:
            known = [node for node in odd if node]
            machines = await (
                self._instances.read_few(known)
                if len(known) == len(odd)
                else self._instances.read_all(nodes)  # any machine may have the address
            )
            for machine in machines.records:
                if not self._instances.why_foreign(machine):  # networks have the same addresses
                    for ip in machine.private:
                        owners[ip].add(machine.key)
            machine_ids = {node.name: ids.machine_of(node.provider_id) for node in nodes}
            unread = {name for name, item in machine_ids.items() if machines.why_unread(item)}
        return [
            Route(
                cidr=text(ids.properties_of(item).get("addressPrefix")),
                node=_name(node),
                id=text(item.get("name")),
                is_blackhole=not (_name(node) in unread or _leads(hop_of(item), node, owners)),
            )
            for item, node in routes
        ]

    async def create(self, node: Node, cidr: str) -> None:
        """Route to the address that the cloud says the machine has, not the Node."""
        machine_id = ids.machine_of(node.provider_id)
        if not machine_id:
            raise Refused(f"node {node.name} has no machine of this cloud")
        if len(name := name_of(node.name, cidr)) > MOST_NAME:
            raise Refused(f"Azure takes no route with a name as long as {name}")
        machine = (await self._instances.read_all([node])).by_id.get(machine_id)
        version = ip_network(cidr).version
        hops = (
            [item for item in machine.private if ip_address(item).version == version]
            if machine
            else []
        )
        if not hops:
            raise Refused(f"the machine of node {node.name} has no IPv{version} address")
        wanted: Json = {
            "name": name,
            "properties": {
                "addressPrefix": cidr,
                "nextHopType": HOP_TYPE,
                "nextHopIpAddress": hops[0],
            },
        }
        await self._table.change(lambda table: add(table, wanted))

    async def delete(self, route: Route) -> None:
        def remove(table: Json) -> None:
            left = [item for item in _routes_of(table) if text(item.get("name")) != route.id]
            if len(left) < len(_routes_of(table)):
                table["properties"]["routes"] = left

        if await self._table.read() is not None:
            await self._table.change(remove)


def add(table: Json, wanted: Json) -> None:
    """Put a route into the table; raises `Refused` for one in its way that is another's."""
    routes, settings = _routes_of(table), wanted["properties"]
    for route in routes:
        properties = ids.properties_of(route)
        has_name = ids.same(text(route.get("name")), wanted["name"])
        if has_name and settings.items() <= properties.items():
            return
        prefix = text(properties.get("addressPrefix"))
        if has_name or read_network(prefix) == read_network(settings["addressPrefix"]):
            hop = text(properties.get("nextHopIpAddress"))
            raise Refused(f"route {text(route.get('name'))} leads {prefix} to {hop} already")
    table["properties"] = {**ids.properties_of(table), "routes": [*routes, wanted]}


def name_of(node: str, cidr: str) -> str:
    """A route's name, as upstream's."""
    return f"{node}{SEPARATOR}{cidr.translate({ord(item): None for item in ':./'})}"


def node_of(route: Json) -> str:
    """The Node, in lower case, in the name of a route of this form; empty for all others."""
    properties, name = ids.properties_of(route), text(route.get("name"))
    node, _, _ = name.rpartition(SEPARATOR)
    cidr = text(properties.get("addressPrefix"))
    is_ours = text(properties.get("nextHopType")) == HOP_TYPE and read_network(cidr)
    return node.lower() if is_ours and name == name_of(node, cidr) else ""


def hop_of(route: Json) -> str:
    return text(ids.properties_of(route).get("nextHopIpAddress"))


def _routes_of(table: Json) -> list[Json]:
    return objects(ids.properties_of(table).get("routes"))


def _name(node: Node | None) -> str:
    return node.name if node else ""


def _inner(node: Node) -> set[str]:
    kinds = AddressType.INTERNAL_IP
    return {
        text(address.get("address")) for address in node.addresses if address.get("type") == kinds
    }


def _leads(hop: str, node: Node | None, owners: Mapping[str, Collection[str]]) -> bool:
    """Whether a hop is an address of the Node's machine; without a Node, of any.

    One of no machine is the Node's where it says so: a list may leave its machine out.
    """
    found = owners.get(hop, ())
    if node is None:
        return bool(found)
    return ids.machine_of(node.provider_id) in found if found else hop in _inner(node)
