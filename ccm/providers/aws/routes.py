"""Routes to pod networks in the route tables of the cluster, the same routes in all of them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccm.errors import CloudError, Refused
from ccm.model.cloud import Route, read_network
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.providers.aws import ids
from ccm.providers.aws.client import AwsApi, AwsError, NotAllowed
from ccm.providers.aws.tags import LEGACY_CLUSTER_TAG, ClusterTagging, read_tags

TABLE_FULL = "RouteLimitExceeded"
ALREADY_EXISTS = "RouteAlreadyExists"
TABLE_NOT_FOUND = "InvalidRouteTableID.NotFound"
NOT_FOUND = ("InvalidRoute.NotFound", TABLE_NOT_FOUND)
QUOTA_REMEDY = "raise the quota 'Routes per route table' (50 by default, 1,000 at the most)"


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


class AwsRoutes:
    """Routes by instance. Tables are the configured one, or all that carry the cluster's tag."""

    def __init__(self, api: AwsApi, tagging: ClusterTagging, table_id: str) -> None:
        self._api, self._tagging, self._table_id = api, tagging, table_id
        self._targets: dict[str, RouteTarget] = {}  # of Nodes without a route, when last listed
        self._table_ids: list[str] = []  # when last listed
        self._known_ids = set[str]()  # of tables that two answers have with the cluster's tag

    def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
        """Our routes; one that is not in all tables is left out if its own Node has to have it."""
        tables = self._tables()
        self._table_ids = [text(table.get("RouteTableId")) for table in tables]
        entries = [entry for table in tables for entry in route_entries(table)]
        by_instance = {ids.instance_id_of(n.provider_id): n for n in nodes if n.provider_id}
        by_instance.pop("", None)
        routes = list(merge_entries(entries, by_instance, len(tables)))
        self._prefetch_targets(nodes, routes)
        return routes

    def create(self, node: Node, cidr: str) -> None:
        """As the interface; the check of source addresses of the instance is turned off."""
        instance_id = ids.instance_id_of(node.provider_id)
        if not instance_id:
            raise Refused(f"node {node.name} has no instance")
        tables = self._table_ids or [text(item.get("RouteTableId")) for item in self._tables()]
        target = self._targets.pop(instance_id, None) or self._read_target(instance_id)
        self._disable_source_check(target)
        for table_id in tables:
            self._create_in(table_id, cidr, target)

    def delete(self, route: Route) -> None:
        """Delete the route from each table that its ID names."""
        for table_id in route.id.partition("@")[0].split(","):
            try:
                self._api.call("ec2:DeleteRoute", **destination(table_id, route.cidr))
            except AwsError as error:
                if error.code not in NOT_FOUND:
                    raise

    def _tables(self) -> Sequence[Json]:
        """The tables whose routes are ours; `Refused` when there is none."""
        if self._table_id:
            return [self._table(self._table_id)]
        tag = self._tagging.cluster_tag()
        filters = [{"Name": "tag-key", "Values": [tag.key, LEGACY_CLUSTER_TAG]}]
        tables = self._describe_tables(Filters=filters)
        ours = [table for table in tables if tag.is_on(read_tags(table.get("Tags")))]
        if not ours:
            raise Refused(f"no route table carries the tag {tag.key}: tag one or set RouteTableID")
        self._verify_known({text(table.get("RouteTableId")) for table in ours})
        return ours

    def _verify_known(self, listed: set[str]) -> None:
        """Read new ones by ID: a list that mixes up tables would have another's routes changed."""
        if not (new := sorted(listed - self._known_ids)):
            return
        tag = self._tagging.cluster_tag()
        found = self._describe_tables(RouteTableIds=new)
        tagged = [table for table in found if tag.is_on(read_tags(table.get("Tags")))]
        if lost := {*new} - {text(table.get("RouteTableId")) for table in tagged}:
            raise CloudError(f"EC2: two answers differ about the tags of {min(lost)}")
        self._known_ids = listed

    def _describe_tables(self, **parameters: Any) -> Sequence[Json]:
        return self._api.list_pages("ec2:DescribeRouteTables", "RouteTables", **parameters)

    def _create_in(self, table_id: str, cidr: str, target: RouteTarget) -> None:
        """Add the route without asking first; what is in the way is looked at only then."""
        where = destination(table_id, cidr)
        try:
            self._api.call("ec2:CreateRoute", **where, **target.parameters)
        except AwsError as error:
            if error.code == ALREADY_EXISTS:
                self._adopt(table_id, cidr, target)
            elif error.code == TABLE_FULL:
                used = len(objects(self._table(table_id).get("Routes")))
                full = f"route table {table_id} is full with {used} routes: {QUOTA_REMEDY}"
                raise Refused(full) from error
            elif error.code == TABLE_NOT_FOUND:
                self._table_ids = []
                raise CloudError(f"{error}: looked for again") from error
            else:
                raise

    def _adopt(self, table_id: str, cidr: str, target: RouteTarget) -> None:
        """Return if the route in the way is the very same; replace one that is a blackhole."""
        entries = route_entries(self._table(table_id), every=True)
        found = next((entry for entry in entries if is_same_network(entry.cidr, cidr)), None)
        if found is None:
            raise CloudError(f"{table_id} has a route for {cidr}, but does not list it")
        if found.is_blackhole:
            self._turn(destination(table_id, cidr), target)
        elif found.instance_id != target.instance_id:
            taken = found.instance_id or "something else than an instance"
            raise Refused(f"{table_id} has a route for {cidr} already, to {taken}")

    def _turn(self, where: Json, target: RouteTarget) -> None:
        """Have a route lead somewhere else; upstream's credentials have to recreate it."""
        try:
            self._api.call("ec2:ReplaceRoute", **where, **target.parameters)
        except NotAllowed:
            self._api.call("ec2:DeleteRoute", **where)
            self._api.call("ec2:CreateRoute", **where, **target.parameters)

    def _table(self, table_id: str) -> Json:
        for table in self._describe_tables(RouteTableIds=[table_id]):
            if table.get("RouteTableId") == table_id:
                return table
        raise CloudError(f"EC2's answer leaves {table_id} out")

    def _disable_source_check(self, target: RouteTarget) -> None:
        """Packets of pods come with addresses that are not the interface's own."""
        if not target.checks_source:
            return
        has_several = target.has_more_interfaces
        action = (
            "ec2:ModifyNetworkInterfaceAttribute" if has_several else "ec2:ModifyInstanceAttribute"
        )
        self._api.call(action, **target.parameters, SourceDestCheck={"Value": False})

    def _read_target(self, instance_id: str) -> RouteTarget:
        record = self._api.describe_instance(instance_id)
        if self._is_ours(record):
            return read_target(record)
        raise Refused(f"instance {instance_id} lacks the tag {self._tagging.cluster_tag().key}")

    def _prefetch_targets(self, nodes: Sequence[Node], routes: Sequence[Route]) -> None:
        """Read many of the instances that are about to get routes at once, not one by one."""
        routed = {route.node for route in routes}
        waiting = [
            instance_id
            for node in nodes
            if node.pod_cidrs and node.name not in routed
            if (instance_id := ids.instance_id_of(node.provider_id))
        ]
        found = self._api.find_instances(waiting) if len(waiting) > 1 else []
        ours = filter(self._is_ours, found)
        self._targets = {text(record.get("InstanceId")): read_target(record) for record in ours}

    def _is_ours(self, record: Json) -> bool:
        """Whether an instance is this cluster's: a kubelet may name any."""
        tag = self._tagging.required_tag()
        return tag is None or tag.is_on(read_tags(record.get("Tags")))


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
    checks = [item["SourceDestCheck"] for item in (*first[:1], record) if "SourceDestCheck" in item]
    return RouteTarget(
        instance_id=text(record.get("InstanceId")),
        interface_id=text(first[0].get("NetworkInterfaceId")) if first else "",
        has_more_interfaces=len(interfaces) > 1,
        checks_source=any(checks) or not checks,  # an answer may lack it, and none is read later
    )


def destination(table_id: str, cidr: str) -> dict[str, str]:
    """The parameters that name a route."""
    key = "DestinationIpv6CidrBlock" if ":" in cidr else "DestinationCidrBlock"
    return {"RouteTableId": table_id, key: cidr}


def is_same_network(one: str, other: str) -> bool:
    """Whether two texts name the same network."""
    return read_network(one) == read_network(other) is not None
