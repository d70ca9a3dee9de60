"""The cluster's VPC as load balancers need it: subnets, and the security groups of nodes."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from ccm.cloud.gate import for_all
from ccm.cloud.lookup import MAX_LOST, batches
from ccm.cloud.newest import MOST_KEPT
from ccm.cloud.shared_read import KEPT_RETRY, SharedBlockingLock
from ccm.errors import CloudError, Refused
from ccm.model.objects import Json, objects, objects_with, text
from ccm.providers.aws.client import (
    ID_MALFORMED,
    ID_NOT_FOUND,
    MAX_FILTER_VALUES,
    AwsApi,
    call_without_wrong_ids,
)
from ccm.providers.aws.security_groups import SecurityGroup, read_security_group
from ccm.providers.aws.subnets import Subnet, amount_of, read_subnets
from ccm.providers.aws.tags import ClusterTag, Tags, read_tags

log = logging.getLogger(__name__)

INSTANCE_CACHE_TTL = 600.0  # seconds for which the security groups of an instance are cached
OPENED_TTL = 600.0  # the same for which groups are opened for load balancers
FIND_INTERVAL = 30.0  # seconds between two questions for the VPC's ID
NEW_INSTANCE_CACHE_TTL = 2.0  # the same where it is about to join a load balancer
ZONE_CACHE_TTL = 3600.0  # seconds for which zones are cached: one answer may be wrong
GONE_STATES = ("shutting-down", "terminated")
REGULAR_ZONE = "availability-zone"


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone; its ID means the same place in every account, `is_regular` no Local Zone and such."""

    id: str
    is_regular: bool


class Zones:
    """Zones by name, all read again after a while, and for one that is not known yet."""

    def __init__(self, api: AwsApi) -> None:
        self._api = api
        self._zones: Mapping[str, Zone] = {}
        self._read_at = float("-inf")
        self._lock = Lock()

    def by_name(self, names: Collection[str]) -> Mapping[str, Zone]:
        """At least those of `names` that AWS knows; raises when they could not be read.

        Those that are known count while reads fail.
        """
        with self._lock, for_all():
            is_known = bool(self._zones) and {*names} <= self._zones.keys()
            if not is_known or time.monotonic() - self._read_at > ZONE_CACHE_TTL:
                try:
                    self._zones, self._read_at = self._read(), time.monotonic()
                except CloudError:
                    if not is_known:
                        raise
                    self._read_at = time.monotonic() - ZONE_CACHE_TTL + KEPT_RETRY
            return self._zones

    def _read(self) -> Mapping[str, Zone]:
        answer = self._api.call("ec2:DescribeAvailabilityZones", AllAvailabilityZones=True)
        records = objects(answer.get("AvailabilityZones"))
        return {text(record.get("ZoneName")): _read_zone(record) for record in records}


@dataclass(frozen=True, slots=True)
class BackendInstance:
    """An instance that may stand behind a load balancer."""

    id: str
    is_running: bool
    groups: tuple[str, ...]
    tags: Tags
    has_primary_ipv6: bool


class Vpc:
    """Reads of one VPC, cached for a short while: many Services ask the same."""

    def __init__(
        self,
        api: AwsApi,
        vpc_id: str,
        subnet_cache_ttl: float,
        find_id: Callable[[], str] | None = None,
    ) -> None:
        """`find_id` asks once more where nothing has said the ID so far."""
        self._api, self._id, self._subnet_cache_ttl = api, vpc_id, subnet_cache_ttl
        self._find_id, self._find_at = find_id, float("-inf")
        self._lock = Lock()
        self._subnets: Sequence[Subnet] = ()
        self._subnets_read_at = float("-inf")
        self._instances: dict[str, tuple[float, BackendInstance | None]] = {}
        """By ID, with when each was read; None for one that EC2 does not have."""
        self._warned_of: set[str] = set()
        self.zones = Zones(api)
        self.ingress_lock = SharedBlockingLock()
        """Held from reading rules of the nodes' groups to changing them."""
        self._opened, self._listed_at = set[str](), float("-inf")
        """Groups that may have such rules, and when all were listed: one answer may lack some."""

    @property
    def id(self) -> str:
        if not self._id and self._find_id and time.monotonic() >= self._find_at:
            self._find_at = time.monotonic() + FIND_INTERVAL
            self._id = self._find_id()
        if not self._id:
            raise Refused("the VPC is not known: set VPC in the cloud-config")
        return self._id

    def subnets(self, in_use: Collection[str] = (), *, is_fresh: bool = False) -> Sequence[Subnet]:
        """All subnets of the VPC, read again if they have to be `is_fresh`; raises where those
        `in_use`, which cannot be gone, are not all listed: what load balancers have would go with
        what a list lacks.
        """
        with self._lock, for_all():
            if is_fresh or time.monotonic() - self._subnets_read_at > self._subnet_cache_ttl:
                found = self._read_subnets()
                if found != self._subnets:  # one answer may lack a part, or mix some up
                    again = self._read_subnets()
                    is_as_much = amount_of(again) == amount_of(found)
                    known = _by_id(found), _by_id(self._subnets)  # EC2 lists them in any order
                    if is_as_much and _by_id(again) not in known:
                        raise CloudError("ec2:DescribeSubnets: two answers differ")
                    found = max(again, found, key=amount_of)
                self._subnets, self._subnets_read_at = found, time.monotonic()
            if lost := {*in_use} - {subnet.id for subnet in self._subnets}:
                self._subnets_read_at = float("-inf")
                raise CloudError(f"EC2 does not list {', '.join(sorted(lost))}, which is in use")
            return self._subnets

    def _read_subnets(self) -> Sequence[Subnet]:
        listed = self._list_own("ec2:DescribeSubnets", "Subnets")
        tables = self._list_own("ec2:DescribeRouteTables", "RouteTables")
        subnets = read_subnets(listed, tables)
        zones = self.zones.by_name({subnet.zone for subnet in subnets})
        special = {name for name, zone in zones.items() if not zone.is_regular}
        return [replace(s, is_regular=s.zone not in special) for s in subnets]

    def backends(
        self,
        wanted: Collection[str],
        registered: frozenset[str],
        tag: ClusterTag,
        only_running: bool = False,
        needs_ipv6: bool = False,
    ) -> tuple[Sequence[BackendInstance], frozenset[str]]:
        """Our instances as EC2 has them, and the IDs of those to have behind a load balancer.

        A new one has to exist, or even to run or have a primary IPv6 address, and to carry the
        cluster's tag, for a kubelet may name any. One that is registered stays unless it is another
        cluster's.
        """
        read = self._read_instances(registered & set(wanted), set(wanted) - registered, tag)
        found = [item for item in read if tag.is_on(item.tags)]
        foreign = {item.id for item in read if tag.is_foreign(item.tags)}
        untagged = {item.id for item in read if not tag.is_on(item.tags)}
        self._warn({item: CloudError(f"it lacks the tag {tag.key}") for item in untagged})
        ready = {item.id for item in found if item.is_running or not only_running}
        if needs_ipv6:
            lacking = {item.id for item in found if not item.has_primary_ipv6} - registered
            self._warn({item: CloudError("it has no primary IPv6 address") for item in lacking})
            ready -= lacking
        return found, frozenset(ready | (registered & set(wanted)) - foreign)

    def forget(self, instance_ids: Iterable[str]) -> None:
        """Have these instances read again: they are not what they were."""
        with self._lock:
            for instance_id in instance_ids:
                self._instances.pop(instance_id, None)

    def _read_instances(
        self, known: Set[str], new: Set[str], tag: ClusterTag
    ) -> Sequence[BackendInstance]:
        """Those of the instances that exist; what is cached costs no read.

        One that is `new` to a load balancer is read again, once for all that it joins at a time; so
        is one that EC2 does not have.
        """
        instance_ids = known | new
        with self._lock, for_all():
            now = time.monotonic()
            ttls = {True: NEW_INSTANCE_CACHE_TTL, False: INSTANCE_CACHE_TTL}
            cached = {
                key: (at, instance)
                for key, (at, instance) in self._instances.items()
                if now - at < ttls[instance is None or key in new]
            }
            missing = sorted(instance_ids - cached.keys())
            read = map(_read_instance, self._find_instances(missing, new, tag))
            found, now = {item.id: item for item in read if item}, time.monotonic()
            self._instances = cached | {key: (now, found.get(key)) for key in missing}
            instances = (self._instances[key][1] for key in sorted(instance_ids))
            return [instance for instance in instances if instance]

    def _find_instances(
        self, instance_ids: Sequence[str], new: Collection[str], tag: ClusterTag
    ) -> Iterable[Json]:
        """Records of those that exist. Of `new` ones that one answer lacks, or has without our tag,
        another kind of read decides: nothing would have them looked for again. So it does of those
        that are called another cluster's, and would leave.
        """
        found = {
            text(item.get("InstanceId")): item for item in self._api.find_instances(instance_ids)
        }
        tags = {key: read_tags(item.get("Tags")) for key, item in found.items()}
        odd = {*new} - {key for key in tags if tag.is_on(tags[key])}
        odd |= {key for key in tags if tag.is_foreign(tags[key])}
        doubted = [item for item in instance_ids if item in odd][:MAX_LOST]
        again, _ = call_without_wrong_ids(
            (ID_NOT_FOUND, ID_MALFORMED),
            doubted,
            lambda left: self._api.describe_instances(InstanceIds=left),
        )
        return (found | {text(item.get("InstanceId")): item for item in again or ()}).values()

    def security_groups(self, name: str = "") -> list[SecurityGroup]:
        """All groups in the VPC, from all pages; only those of a name if one is given."""
        filters = [{"Name": "vpc-id", "Values": [self.id]}]
        if name:
            filters.append({"Name": "group-name", "Values": [name]})
        found = self._describe_groups(Filters=filters)
        return [group for group in found if name in ("", group.name)]

    def groups_with(self, ids: Collection[str]) -> list[SecurityGroup]:
        """Those with these IDs that are there."""
        return [
            group
            for some in batches(sorted(ids), MAX_FILTER_VALUES)
            for group in self._describe_groups(Filters=[{"Name": "group-id", "Values": [*some]}])
            if group.id in some
        ]

    def groups_without(self, instance_ids: Collection[str], among: Collection[str]) -> set[str]:
        """The groups `among` these that none of the instances is in."""
        used = set[str]()
        for some in batches(sorted(among), MAX_FILTER_VALUES):
            filters = [{"Name": "instance.group-id", "Values": [*some]}]
            found = map(_read_instance, self._api.describe_instances(Filters=filters))
            used.update(*(item.groups for item in found if item and item.id in instance_ids))
        return {*among} - used

    def node_groups(
        self, instances: Sequence[BackendInstance], tag: ClusterTag
    ) -> tuple[list[SecurityGroup], list[SecurityGroup]]:
        """For each instance the group that is opened for load balancers, every group once; and all
        that were opened for any, and have none of the instances. `ingress_lock` is held.

        A group that carries another cluster's tag, and not ours, is never opened.
        An instance for which that is ambiguous is left out; `CloudError` when all of them are.
        """
        if not instances or time.monotonic() - self._listed_at > OPENED_TTL:
            listed = self._api.read_if_allowed(list[SecurityGroup](), self.security_groups)
            own_or_none = (group for group in listed if not tag.is_foreign(group.tags))
            self._opened |= {group.id for group in own_or_none if group.is_opened}
            self._listed_at = time.monotonic()
        own = {group for item in instances for group in item.groups}
        self.forget(item.id for item in instances if not item.groups)  # each has one
        found = {group.id: group for group in self.groups_with(own | self._opened)}
        if lost := own - found.keys():
            self.forget(item.id for item in instances)
            raise CloudError(f"EC2 does not list {', '.join(sorted(lost))}, which instances have")
        self._opened &= found.keys()  # an answer may have made up any number
        known = {key: group for key, group in found.items() if not tag.is_foreign(group.tags)}
        chosen, ambiguous = set[str](), dict[str, CloudError]()
        for instance in instances:
            try:
                chosen.add(_group_to_open(instance, known, tag))
            except CloudError as error:
                ambiguous[instance.id] = error
        if ambiguous and not chosen:
            raise next(iter(ambiguous.values()))
        self._warn(ambiguous)
        self._opened |= chosen
        return [known[key] for key in sorted(chosen)], [known[key] for key in known.keys() - own]

    def _list_own(self, call: str, member: str) -> list[Json]:
        """What is in this VPC, also where the filter is lost."""
        in_vpc = [{"Name": "vpc-id", "Values": [self.id]}]
        return objects_with(self._api.list_pages(call, member, Filters=in_vpc), "VpcId", self.id)

    def _describe_groups(self, **parameters: Any) -> list[SecurityGroup]:
        call = "ec2:DescribeSecurityGroups"
        records = self._api.list_pages(call, "SecurityGroups", **parameters)
        return [read_security_group(record) for record in records]

    def _warn(self, ambiguous: Mapping[str, CloudError]) -> None:
        """Warn of instances that are not opened, once each; their health checks keep them out."""
        for instance_id in ambiguous.keys() - self._warned_of:
            extra = {"instance": instance_id, "why": str(ambiguous[instance_id])}
            log.warning("instance not opened for load balancers", extra=extra)
        kept = self._warned_of if len(self._warned_of) < MOST_KEPT else set()
        self._warned_of = kept | ambiguous.keys()


def _group_to_open(
    instance: BackendInstance, known: Mapping[str, SecurityGroup], tag: ClusterTag
) -> str:
    """The group with the cluster's tag, or the only one (upstream's rule)."""
    groups = [group for group in instance.groups if group in known]
    tagged = [group for group in groups if tag.is_on(known[group].tags)]
    candidates = tagged or groups
    if len(candidates) != 1:
        kind = "tagged" if tagged else "untagged"
        raise CloudError(
            f"instance {instance.id} has {len(candidates)} {kind} security groups: tag exactly one"
            f" of them with {tag.key}"
        )
    return candidates[0]


def _read_instance(record: Json) -> BackendInstance | None:
    state = text((record.get("State") or {}).get("Name"))
    if state in GONE_STATES:
        return None
    groups = objects(record.get("SecurityGroups"))
    if not groups:
        interfaces = objects(record.get("NetworkInterfaces"))[:1]
        groups = [group for item in interfaces for group in objects(item.get("Groups"))]
    return BackendInstance(
        text(record.get("InstanceId")),
        state in ("running", "pending"),
        tuple(text(group.get("GroupId")) for group in groups),
        read_tags(record.get("Tags")),
        any(
            address.get("IsPrimaryIpv6") is True
            for interface in objects(record.get("NetworkInterfaces"))
            for address in objects(interface.get("Ipv6Addresses"))
        ),
    )


def _by_id(subnets: Sequence[Subnet]) -> Mapping[str, Subnet]:
    return {subnet.id: subnet for subnet in subnets}


def _read_zone(record: Json) -> Zone:
    zone_type = text(record.get("ZoneType")) or REGULAR_ZONE
    return Zone(text(record.get("ZoneId")), zone_type == REGULAR_ZONE)
