"""The cluster's VPC as balancers need it: subnets, and the security groups of nodes."""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from ccm.errors import CloudError, Refused
from ccm.model.objects import Json, objects, text
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.failures import AwsError
from ccm.providers.aws.instances import BATCH, PAGE, describe_instances
from ccm.providers.aws.security_groups import Group, read_group
from ccm.providers.aws.subnets import Subnet, read_subnets
from ccm.providers.aws.tags import Mark
from ccm.providers.aws.zones import Zones

log = logging.getLogger(__name__)

SUBNETS_FOR = 60.0  # seconds for which the layout of the VPC is remembered
HOSTS_FOR = 600.0  # seconds for which it is remembered which groups an instance has


@dataclass(frozen=True, slots=True)
class Host:
    """An instance that may stand behind a balancer, as it was read at `at`."""

    id: str
    is_running: bool
    groups: tuple[str, ...]
    at: float


class Network:
    """Reads of one VPC, kept for a short while: many Services ask the same."""

    def __init__(self, api: AwsApi, vpc: str) -> None:
        self._api, self._vpc = api, vpc
        self._lock = Lock()
        self._subnets: Sequence[Subnet] = ()
        self._subnets_at = float("-inf")
        self._hosts: dict[str, Host] = {}
        self._told: set[str] = set()
        self._zones = Zones(api)
        self.rules = Lock()  # held from reading rules of the nodes' groups to changing them

    @property
    def vpc(self) -> str:
        if not self._vpc:
            raise Refused("the VPC is not known: set VPC in the cloud-config")
        return self._vpc

    def subnets(self) -> Sequence[Subnet]:
        """All subnets of the VPC."""
        with self._lock:
            if time.monotonic() - self._subnets_at > SUBNETS_FOR:
                in_vpc = [{"Name": "vpc-id", "Values": [self.vpc]}]
                subnets = self._api.pages("ec2:DescribeSubnets", "Subnets", Filters=in_vpc)
                tables = self._api.pages("ec2:DescribeRouteTables", "RouteTables", Filters=in_vpc)
                self._subnets = self._with_zones(read_subnets(subnets, tables))
                self._subnets_at = time.monotonic()
            return self._subnets

    def _with_zones(self, subnets: Sequence[Subnet]) -> Sequence[Subnet]:
        """The same with what AWS says of their zones."""
        zones = self._zones.named({subnet.zone for subnet in subnets})
        if isinstance(zones, CloudError):
            raise zones
        odd = {name for name, zone in zones.items() if not zone.is_regular}
        return [replace(subnet, is_regular=subnet.zone not in odd) for subnet in subnets]

    def hosts(self, instance_ids: Collection[str]) -> Sequence[Host]:
        """Those of the instances that exist; what is remembered costs no read."""
        with self._lock:
            old = time.monotonic() - HOSTS_FOR
            known = {one: host for one, host in self._hosts.items() if host.at > old}
            unknown = sorted(set(instance_ids) - known.keys())
            for at in range(0, len(unknown), BATCH):
                known |= self._read_hosts(unknown[at : at + BATCH])
            self._hosts = known
            return [known[one] for one in sorted(set(instance_ids)) if one in known]

    def read_anew(self, instance_ids: Collection[str], new: Iterable[str]) -> Sequence[Host]:
        """As `hosts`, with the `new` ones among them read now."""
        self.forget(new)
        return self.hosts(instance_ids)

    def forget(self, instance_ids: Iterable[str]) -> None:
        """Have these instances read again: they are not what they were."""
        with self._lock:
            for one in instance_ids:
                self._hosts.pop(one, None)

    def _read_hosts(self, instance_ids: Sequence[str]) -> Mapping[str, Host]:
        filters = [{"Name": "instance-id", "Values": list(instance_ids)}]
        records = describe_instances(self._api, Filters=filters, MaxResults=PAGE)
        hosts = map(_read_host, records)
        return {host.id: host for host in hosts if host}

    def groups(self, **question: Any) -> list[Group]:
        """Security groups by `GroupIds` or `Filters`, from all pages."""
        records = self._api.pages("ec2:DescribeSecurityGroups", "SecurityGroups", **question)
        return [read_group(record) for record in records]

    def groups_in_vpc(self, **filters: Sequence[str]) -> list[Group]:
        named = {"vpc_id": [self.vpc], **filters}
        listed = [
            {"Name": name.replace("_", "-"), "Values": list(values)}
            for name, values in named.items()
        ]
        return self.groups(Filters=listed)

    def node_groups(self, hosts: Sequence[Host], mark: Mark) -> list[Group]:
        """For each host the group that is opened for balancers, every group once.

        A host for which that is not clear is left out; `CloudError` when it is clear for none.
        """
        ids = sorted({group for host in hosts for group in host.groups})
        known = {group.id: group for group in self._groups_of(hosts, ids)}
        chosen, odd = set(), dict[str, CloudError]()
        for host in hosts:
            try:
                chosen.add(_group_to_open(host, known, mark))
            except CloudError as error:
                odd[host.id] = error
        if odd and not chosen:
            raise next(iter(odd.values()))
        self._tell(odd)
        return [known[group] for group in sorted(chosen)]

    def _tell(self, odd: Mapping[str, CloudError]) -> None:
        """Warn of instances that are not opened, once each; their health checks keep them out."""
        for instance_id in odd.keys() - self._told:
            extra = {"instance": instance_id, "why": str(odd[instance_id])}
            log.warning("instance not opened for balancers", extra=extra)
        self._told |= odd.keys()

    def _groups_of(self, hosts: Sequence[Host], ids: Sequence[str]) -> list[Group]:
        try:
            return self.groups(GroupIds=ids) if ids else []
        except AwsError as error:
            if error.code == "InvalidGroup.NotFound":
                self.forget(host.id for host in hosts)
            raise


def _group_to_open(host: Host, known: Mapping[str, Group], mark: Mark) -> str:
    """The group with the cluster's tag, or the only one (upstream's rule)."""
    tagged = [one for one in host.groups if one in known and mark.is_on(known[one].tags)]
    candidates = tagged or [one for one in host.groups if one in known]
    if len(candidates) != 1:
        kind = "tagged" if tagged else "untagged"
        raise CloudError(
            f"instance {host.id} has {len(candidates)} {kind} security groups: tag exactly one of "
            f"them with {mark.key}"
        )
    return candidates[0]


def _read_host(record: Json) -> Host | None:
    state = text((record.get("State") or {}).get("Name"))
    if state in ("terminated", "shutting-down"):
        return None
    groups = objects(record.get("SecurityGroups"))
    if not groups:
        interfaces = objects(record.get("NetworkInterfaces"))[:1]
        groups = [group for one in interfaces for group in objects(one.get("Groups"))]
    return Host(
        text(record.get("InstanceId")),
        state in ("running", "pending"),
        tuple(text(group.get("GroupId")) for group in groups),
        time.monotonic(),
    )
