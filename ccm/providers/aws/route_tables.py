"""Route tables as routes to machines, and what a route to a machine needs; nothing in here acts."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from ccm.model.cloud import Route
from ccm.model.objects import Json, Node, mapping, objects, text


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """One route in one table; `instance_id` is empty when the machine is not known any more."""

    table: str
    cidr: str
    instance_id: str
    is_blackhole: bool


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """What a route to an instance needs: its only interface is implied, one of several named."""

    instance_id: str
    interface_id: str
    has_more_interfaces: bool
    checks_source: bool

    @property
    def parameters(self) -> dict[str, str]:
        """How the target is named in a call."""
        if self.has_more_interfaces:
            return {"NetworkInterfaceId": self.interface_id}
        return {"InstanceId": self.instance_id}


def table_ids(tables: Sequence[Json]) -> list[str]:
    """The IDs of route tables."""
    return [text(table.get("RouteTableId")) for table in tables]


def route_entries(table: Json, every: bool = False) -> Iterator[RouteEntry]:
    """The routes of a table that lead to instances, or led to one; all of them when `every`."""
    table_id = text(table.get("RouteTableId"))
    for route in objects(table.get("Routes")):
        cidr = text(route.get("DestinationCidrBlock") or route.get("DestinationIpv6CidrBlock"))
        instance_id = text(route.get("InstanceId"))
        is_blackhole = route.get("State") == "blackhole"
        if cidr and (instance_id or is_blackhole or every):
            yield RouteEntry(table_id, cidr, instance_id, is_blackhole)


def merge_entries(
    entries: Sequence[RouteEntry], nodes: Mapping[str, Node], table_count: int
) -> Iterator[Route]:
    """One route for the same in several tables; its `id` names the tables that have it."""
    groups: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for entry in entries:
        groups[entry.cidr, entry.instance_id, entry.is_blackhole].append(entry.table)
    for (cidr, instance_id, is_blackhole), held_by in groups.items():
        node = nodes.get(instance_id)
        is_wanted = node and any(is_same_network(cidr, own) for own in node.pod_cidrs)
        if len(held_by) < table_count and is_wanted and not is_blackhole:
            continue  # listed as missing, so that `create` adds it where it is not
        name = node.name if node else ""
        route_id = f"{','.join(sorted(held_by))}@{cidr}"
        yield Route(cidr, name, id=route_id, is_blackhole=is_blackhole)


def read_target(record: Json) -> RouteTarget:
    """The target in EC2's record of an instance."""
    interfaces = objects(record.get("NetworkInterfaces"))
    first = [i for i in interfaces if mapping(i.get("Attachment")).get("DeviceIndex", 0) == 0]
    checks = first[0].get("SourceDestCheck") if first else record.get("SourceDestCheck")
    return RouteTarget(
        instance_id=text(record.get("InstanceId")),
        interface_id=text(first[0].get("NetworkInterfaceId")) if first else "",
        has_more_interfaces=len(interfaces) > 1,
        checks_source=bool(checks) or bool(record.get("SourceDestCheck")),
    )


def destination(cidr: str) -> dict[str, str]:
    """The parameter that names the network of a route."""
    key = "DestinationIpv6CidrBlock" if ":" in cidr else "DestinationCidrBlock"
    return {key: cidr}


def is_same_network(one: str, other: str) -> bool:
    """Whether two texts name the same network."""
    try:
        return ip_network(one) == ip_network(other)
    except ValueError:
        return False
