"""Routes to pod networks in the route tables of the cluster, the same routes in all of them."""

from collections.abc import Sequence
from typing import Any

from ccm.errors import CloudError, Refused
from ccm.model.cloud import Route
from ccm.model.objects import Json, Node, objects, text
from ccm.providers.aws import ids
from ccm.providers.aws.client import AwsApi, AwsError
from ccm.providers.aws.route_tables import (
    RouteTarget,
    destination,
    is_same_network,
    merge_entries,
    read_target,
    route_entries,
    table_ids,
)
from ccm.providers.aws.tags import LEGACY_CLUSTER_TAG, ClusterTagging, read_tags

TABLE_FULL = "RouteLimitExceeded"
ALREADY_EXISTS = "RouteAlreadyExists"
TABLE_NOT_FOUND = "InvalidRouteTableID.NotFound"
NOT_FOUND = ("InvalidRoute.NotFound", TABLE_NOT_FOUND)
QUOTA_REMEDY = "raise the quota 'Routes per route table' (50 by default, 1,000 at the most)"


class AwsRoutes:
    """Routes by instance. Tables are the configured one, or all that carry the cluster's tag."""

    def __init__(self, api: AwsApi, tagging: ClusterTagging, table_id: str) -> None:
        self._api, self._tagging, self._table_id = api, tagging, table_id
        self._targets: dict[str, RouteTarget] = {}  # of Nodes without a route, when last listed
        self._table_ids: list[str] = []  # when last listed

    def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
        """Our routes; one that is not in all tables is left out if its own Node has to have it."""
        tables = self._tables()
        self._table_ids = table_ids(tables)
        entries = [entry for table in tables for entry in route_entries(table)]
        by_instance = {ids.instance_id_of(n.provider_id): n for n in nodes if n.provider_id}
        by_instance.pop("", None)
        routes = list(merge_entries(entries, by_instance, len(tables)))
        self._prefetch_targets(nodes, routes)
        return routes

    def create(self, node: Node, cidr: str) -> None:
        """As the interface; the check of source addresses of the instance is turned off."""
        instance_id = ids.instance_id_of(node.provider_id)
        if not instance_id or node.is_foreign(ids.SCHEME):
            raise Refused(f"node {node.name} has no instance")
        tables = self._table_ids or table_ids(self._tables())
        target = self._targets.pop(instance_id, None) or self._read_target(instance_id)
        self._disable_source_check(target)
        for table_id in tables:
            self._create_in(table_id, cidr, target)

    def delete(self, route: Route) -> None:
        """Delete the route from each table that its ID names."""
        for table_id in route.id.partition("@")[0].split(","):
            where = {"RouteTableId": table_id, **destination(route.cidr)}
            try:
                self._api.call("ec2:DeleteRoute", **where)
            except AwsError as error:
                if error.code not in NOT_FOUND:
                    raise

    def _tables(self) -> Sequence[Json]:
        """The tables whose routes are ours; `Refused` when there is none."""
        if self._table_id:
            return self._describe_tables(RouteTableIds=[self._table_id])
        tag = self._tagging.cluster_tag()
        filters = [{"Name": "tag-key", "Values": [tag.key, LEGACY_CLUSTER_TAG]}]
        tables = self._describe_tables(Filters=filters)
        ours = [table for table in tables if tag.is_on(read_tags(table.get("Tags")))]
        if not ours:
            raise Refused(f"no route table carries the tag {tag.key}: tag one or set RouteTableID")
        return ours

    def _describe_tables(self, **parameters: Any) -> Sequence[Json]:
        return self._api.list_pages("ec2:DescribeRouteTables", "RouteTables", **parameters)

    def _create_in(self, table_id: str, cidr: str, target: RouteTarget) -> None:
        """Add the route without asking first; what is in the way is looked at only then."""
        where = {"RouteTableId": table_id, **destination(cidr)}
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
            where = {"RouteTableId": table_id, **destination(cidr)}
            self._api.call("ec2:ReplaceRoute", **where, **target.parameters)
        elif found.instance_id != target.instance_id:
            taken = found.instance_id or "something else than an instance"
            raise Refused(f"{table_id} has a route for {cidr} already, to {taken}")

    def _table(self, table_id: str) -> Json:
        (table, *_) = self._describe_tables(RouteTableIds=[table_id])
        return table

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
        for record in self._api.describe_instances(InstanceIds=[instance_id]):
            return read_target(record)
        raise CloudError(f"EC2's answer leaves {instance_id} out")

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
        self._targets = {text(record.get("InstanceId")): read_target(record) for record in found}
