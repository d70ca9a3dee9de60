"""Routes to pod networks in the cluster's route tables; to each machine the same in all of them."""

from collections.abc import Sequence
from typing import Any

from ccm.errors import CloudError, Refused
from ccm.model.cloud import Route
from ccm.model.node import Node
from ccm.model.objects import Json, objects, text
from ccm.providers.aws import ids
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.failures import AwsError
from ccm.providers.aws.instances import BATCH, PAGE, describe_instances
from ccm.providers.aws.route_tables import (
    Target,
    destination,
    entries_of,
    ids_of,
    merge,
    read_target,
    same,
)
from ccm.providers.aws.tags import Ownership, read_tags

FULL = "RouteLimitExceeded"
EXISTS = "RouteAlreadyExists"
NO_TABLE = "InvalidRouteTableID.NotFound"
ABSENT = ("InvalidRoute.NotFound", NO_TABLE)
REMEDY = "raise the quota 'Routes per route table' (50 by default, 1,000 at the most)"


class AwsRoutes:
    """Routes by instance. Tables are the configured one, or all that carry the cluster's tag."""

    def __init__(self, api: AwsApi, ownership: Ownership, table_id: str) -> None:
        self._api, self._ownership, self._table_id = api, ownership, table_id
        self._targets: dict[str, Target] = {}  # of Nodes without a route, when last listed
        self._table_ids: list[str] = []  # when last listed

    def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
        """Our routes; one that is not in all tables is left out if its own Node has to have it."""
        tables = self._tables()
        self._table_ids = ids_of(tables)
        entries = [entry for table in tables for entry in entries_of(table)]
        names = {ids.instance_id_of(node.provider_id): node for node in nodes if node.provider_id}
        names.pop("", None)
        routes = list(merge(entries, names, len(tables)))
        self._look_ahead(nodes, routes)
        return routes

    def create(self, node: Node, cidr: str) -> None:
        instance_id = ids.instance_id_of(node.provider_id)
        if not instance_id or node.is_foreign(ids.SCHEME):
            raise Refused(f"node {node.name} has no instance")
        table_ids = self._table_ids or ids_of(self._tables())
        target = self._targets.pop(instance_id, None) or self._read_target(instance_id)
        self._stop_source_check(target)
        for table_id in table_ids:
            self._create_in(table_id, cidr, target)

    def delete(self, route: Route) -> None:
        for table_id in route.id.partition("@")[0].split(","):
            try:
                where = {"RouteTableId": table_id, **destination(route.cidr)}
                self._api.call("ec2:DeleteRoute", **where)
            except AwsError as error:
                if error.code not in ABSENT:
                    raise

    def _tables(self) -> Sequence[Json]:
        """The tables whose routes are ours; `Refused` when there is none."""
        if self._table_id:
            return self._describe_tables(RouteTableIds=[self._table_id])
        mark = self._ownership.mark()
        filters = [{"Name": "tag-key", "Values": [mark.key, "KubernetesCluster"]}]
        tables = self._describe_tables(Filters=filters)
        ours = [table for table in tables if mark.is_on(read_tags(table.get("Tags")))]
        if not ours:
            raise Refused(f"no route table carries the tag {mark.key}: tag one or set RouteTableID")
        return ours

    def _describe_tables(self, **question: Any) -> Sequence[Json]:
        return self._api.pages("ec2:DescribeRouteTables", "RouteTables", **question)

    def _create_in(self, table_id: str, cidr: str, target: Target) -> None:
        """Add the route without asking first; what is in the way is looked at only then."""
        where = {"RouteTableId": table_id, **destination(cidr)}
        try:
            self._api.call("ec2:CreateRoute", **where, **target.parameters)
        except AwsError as error:
            if error.code == EXISTS:
                self._adopt(table_id, cidr, target)
            elif error.code == FULL:
                used = len(objects(self._table(table_id).get("Routes")))
                full = f"route table {table_id} is full with {used} routes: {REMEDY}"
                raise Refused(full) from error
            elif error.code == NO_TABLE:
                self._table_ids = []
                raise CloudError(f"{error}: looked for again") from error
            else:
                raise

    def _adopt(self, table_id: str, cidr: str, target: Target) -> None:
        """Return if the route in the way is the very same; turn one that leads nowhere."""
        entries = entries_of(self._table(table_id), every=True)
        there = next((entry for entry in entries if same(entry.cidr, cidr)), None)
        if there is None:
            raise CloudError(f"{table_id} has a route for {cidr}, but does not list it")
        if there.is_blackhole:
            where = {"RouteTableId": table_id, **destination(cidr)}
            self._api.call("ec2:ReplaceRoute", **where, **target.parameters)
        elif there.instance_id != target.instance_id:
            taken = there.instance_id or "something else than an instance"
            raise Refused(f"{table_id} has a route for {cidr} already, to {taken}")

    def _table(self, table_id: str) -> Json:
        (table, *_) = self._describe_tables(RouteTableIds=[table_id])
        return table

    def _stop_source_check(self, target: Target) -> None:
        """Packets of pods come with addresses that are not the interface's own."""
        if not target.checks_source:
            return
        off = {"SourceDestCheck": {"Value": False}}
        if target.has_more_interfaces:
            interface = {"NetworkInterfaceId": target.interface_id}
            self._api.call("ec2:ModifyNetworkInterfaceAttribute", **interface, **off)
        else:
            instance = {"InstanceId": target.instance_id}
            self._api.call("ec2:ModifyInstanceAttribute", **instance, **off)

    def _read_target(self, instance_id: str) -> Target:
        for record in describe_instances(self._api, InstanceIds=[instance_id]):
            return read_target(record)
        raise CloudError(f"EC2's answer leaves {instance_id} out")

    def _look_ahead(self, nodes: Sequence[Node], routes: Sequence[Route]) -> None:
        """Read many of the instances that are about to get routes at once, not one by one."""
        routed = {route.node for route in routes}
        waiting = [
            instance_id
            for node in nodes
            if node.pod_cidrs and node.name not in routed
            if (instance_id := ids.instance_id_of(node.provider_id))
        ]
        targets: dict[str, Target] = {}
        if len(waiting) > 1:
            for at in range(0, len(waiting), BATCH):
                filters = [{"Name": "instance-id", "Values": waiting[at : at + BATCH]}]
                for record in describe_instances(self._api, Filters=filters, MaxResults=PAGE):
                    targets[text(record.get("InstanceId"))] = read_target(record)
        self._targets = targets
