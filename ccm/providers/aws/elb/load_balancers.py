"""The load balancers of AWS as the controllers see them: of the type that a Service asks for."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from ccm.cloud.gate import for_all
from ccm.errors import CloudError, Denied, NoRoom, Refused, RetryAfter
from ccm.model.cloud import Balancer, Ingress, OwnedBalancer
from ccm.model.objects import Json, Node
from ccm.model.service import Feature, Service
from ccm.providers.aws.client import AwsApi, AwsError, NotAllowed
from ccm.providers.aws.config import AwsConfig, AwsTimings
from ccm.providers.aws.elb.annotations import (
    CLASSIC,
    NLB,
    PREFIX,
    PRIVILEGED,
    Annotations,
    load_balancer_type,
)
from ccm.providers.aws.elb.request import LoadBalancerRequest, label_selector, read_request
from ccm.providers.aws.rights import missing_permissions
from ccm.providers.aws.security_groups import (
    ALL_PROTOCOLS,
    IngressChange,
    IngressRule,
    SecurityGroup,
)
from ccm.providers.aws.subnets import Subnet, discover_subnets, named_subnets
from ccm.providers.aws.tags import SERVICE_TAG, SERVICE_UID_TAG, ClusterTag, ClusterTagging, Tags
from ccm.providers.aws.vpc import BackendInstance, Vpc

GROUP_FULL = "RulesPerSecurityGroupLimitExceeded"
RACES = ("InvalidPermission.Duplicate", "InvalidPermission.NotFound")
_CALLS = {
    "Authorize": "ec2:AuthorizeSecurityGroupIngress",
    "Revoke": "ec2:RevokeSecurityGroupIngress",
    "Describe": "ec2:UpdateSecurityGroupRuleDescriptionsIngress",
}
HOSTNAME_RETRY = 5.0  # seconds until a load balancer without a host name is read again


class ElbType(Protocol):
    """One type of load balancer; the methods are as those of `LoadBalancers`."""

    def get(self, service: Service) -> Balancer | None: ...

    def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer: ...

    def update_nodes(self, service: Service, nodes: Sequence[Node]) -> bool:
        """Replace the nodes; False when there is no such load balancer."""
        ...

    def delete(self, service: Service) -> None: ...

    def has_leftovers(self, service: Service) -> bool:
        """Whether `delete` would delete anything when the load balancer itself is gone."""
        ...

    def tags_by_name(self) -> Mapping[str, Tags]:
        """The tags of all load balancers of this type."""
        ...


NO_CLUSTER = ClusterTag("")  # whose a Service is does not count for what it asks for


class AwsLoadBalancers:
    """A Service has one load balancer; one of another type goes as soon as that is there."""

    supported_features = frozenset(
        {Feature.UDP, Feature.MIXED_PROTOCOLS, Feature.SOURCE_RANGES, Feature.DUAL_STACK}
    )
    privileged_annotations = frozenset(PREFIX + name for name in PRIVILEGED)

    def __init__(
        self, types: Mapping[str, ElbType], elb: "ElbDependencies", default_type: str
    ) -> None:
        self._types, self._default_type = types, default_type
        self._api, self._tagging = elb.api, elb.tagging

    def name_for(self, service: Service) -> str:
        return service.default_balancer_name

    def selector_labels(self, service: Service) -> Collection[str]:
        try:
            return label_selector(Annotations.of(service)).keys()
        except Refused:
            return ()

    def check_service(self, service: Service) -> None:
        elb_type = load_balancer_type(service, self._default_type)
        read_request(service, elb_type, NO_CLUSTER)

    def get(self, service: Service) -> Balancer | None:
        found = (elb_type.get(service) for elb_type in self._types.values())
        return next((balancer for balancer in found if balancer), None)

    def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        wanted = load_balancer_type(service, self._default_type)
        is_default = wanted == NLB and not service.annotations.get(f"{PREFIX}type")
        if is_default and service.requires_ipv6 and self._types[CLASSIC].get(service):
            raise Refused(
                "spec.ipFamilies: its Classic Load Balancer is of IPv4; annotate"
                f" {PREFIX}type: {NLB} for a new one, which has another host name"
            )
        balancer = self._types[wanted].ensure(service, nodes)
        for name, elb_type in self._types.items():
            if name != wanted and (elb_type.get(service) or elb_type.has_leftovers(service)):
                elb_type.delete(service)
        return balancer

    def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None:
        updated = [elb_type.update_nodes(service, nodes) for elb_type in self._types.values()]
        if not any(updated):
            raise Refused(f"there is no load balancer {service.default_balancer_name}")

    def delete(self, service: Service) -> None:
        for elb_type in self._types.values():
            elb_type.delete(service)

    def missing_permissions(self) -> Sequence[str]:
        return missing_permissions(self._api)

    def owned(self) -> Sequence[OwnedBalancer]:
        tag = self._tagging.cluster_tag()
        return [
            OwnedBalancer(name, tags.get(SERVICE_UID_TAG, ""), tags[SERVICE_TAG])
            for elb_type in self._types.values()
            for name, tags in elb_type.tags_by_name().items()
            if tag.owns(tags) and SERVICE_TAG in tags
        ]


@dataclass(frozen=True, slots=True)
class ElbDependencies:
    """What every type of load balancer works with."""

    api: AwsApi
    vpc: Vpc
    tagging: ClusterTagging
    config: AwsConfig
    timings: AwsTimings
    cluster_name: str  # of the flag --cluster-name

    def balancer(self, service: Service, hostname: str, tags: Tags) -> Balancer | None:
        """The load balancer with the Service's name; None when these tags are not ours."""
        is_ours = self.tagging.cluster_tag().owns_for(service, tags)
        return to_balancer(service.default_balancer_name, hostname) if is_ours else None

    def tags_of(self, service: Service, call: str, key: str, name: str) -> Tags:
        """The tags of the Service's load balancer, named as `key` says.

        Where they may not be read, its name has to do: it is made from the Service's UID.
        """
        ours: dict[str, Tags] = {name: self.tagging.cluster_tag().tags_for(service)}
        return self.api.read_if_allowed(ours, self.api.describe_tags, call, key, [name])[name]

    def security_groups(self) -> list[SecurityGroup]:
        """All of the VPC; none where they may not be read."""
        nothing = list[SecurityGroup]()
        return self.api.read_if_allowed(nothing, self.vpc.security_groups)

    def subnets_for(
        self, request: LoadBalancerRequest, tag: ClusterTag, in_use: Collection[str]
    ) -> list[Subnet]:
        """Where the load balancer is to live; `in_use` are the subnets that it lives in.

        Before it leaves one of them, the VPC is read again: one answer may have lacked a route.
        """
        with suppress(Refused):
            chosen = self._choose_subnets(request, tag, in_use, self.vpc.subnets(in_use))
            if {*in_use} <= {subnet.id for subnet in chosen}:
                return chosen
        return self._choose_subnets(request, tag, in_use, self.vpc.subnets(in_use, is_fresh=True))

    def _choose_subnets(
        self,
        request: LoadBalancerRequest,
        tag: ClusterTag,
        in_use: Collection[str],
        subnets: Sequence[Subnet],
    ) -> list[Subnet]:
        names = request.annotations.csv("subnets")
        is_tagged = any(tag.is_on(subnet.tags) for subnet in subnets)
        if not names and not is_tagged and self.config.subnet_id:
            names = [self.config.subnet_id]
        if names:
            return named_subnets(subnets, names)
        return discover_subnets(subnets, tag, request.is_internal, in_use)


def to_balancer(name: str, hostname: str, warnings: tuple[str, ...] = ()) -> Balancer:
    """The load balancer for the Service's status; it may take minutes until its name resolves."""
    if not hostname:
        raise RetryAfter(f"load balancer {name} has no host name yet", HOSTNAME_RETRY)
    return Balancer(name, (Ingress(hostname=hostname),), warnings)


# The security groups of nodes, opened for load balancers.


Plan = Callable[[SecurityGroup, bool], Iterable[IngressChange]]
"""What one group needs changed; it is open where it has nodes of the load balancer."""


class NodeIngress:
    """The rules of one load balancer in nodes' groups, opened before it works and closed after.

    What fails stands in the way of nothing else: a full group does not keep nodes in a load
    balancer or out of it. `check` reports it in the end. Any kubelet may name an instance whose
    group is full, or may not be changed.
    """

    def __init__(self, elb: ElbDependencies, plan: Plan, tag: ClusterTag) -> None:
        self._api, self._vpc, self._plan, self._tag = elb.api, elb.vpc, plan, tag
        self._is_managed = elb.config.manages_node_ingress
        self._instances: Sequence[BackendInstance] = ()
        self._chosen = set[str]()  # IDs of the groups of the nodes
        self._surplus = set[str]()  # IDs of those with rules that are not wanted
        self._failures: dict[str, CloudError] = {}
        """The first of each group that is full or may not be changed; of all else, under ""."""

    def open(self, instances: Sequence[BackendInstance]) -> None:
        """Authorize what is missing for these instances."""
        self._instances = instances

        def groups() -> Iterable[SecurityGroup]:
            chosen, others = self._vpc.node_groups(instances, self._tag)
            self._chosen |= {group.id for group in chosen}
            return [*chosen, *others]

        self._change(True, groups)

    def close(self) -> None:
        """Revoke what is no longer wanted, if `open` saw any; then there may be room for more."""
        if not (own := self._surplus & self._chosen):
            return
        former, self._failures = self._failures, {}
        self._change(False, lambda: self._vpc.groups_with(own))
        if former:
            self.open(self._instances)

    def close_left(self, targets: Collection[str]) -> None:
        """Revoke all in groups without nodes, if `open` saw any.

        Another kind of read has to show none of the `targets` in them: answers lack instances.
        """
        left = self._surplus - self._chosen
        if not left or (targets and not self._chosen):
            return
        with self._kept():
            unused = self._vpc.groups_without(targets, left) if targets else left
            self._change(False, lambda: self._vpc.groups_with(unused))

    def close_everywhere(self, groups: Iterable[SecurityGroup]) -> None:
        """Revoke in all of the groups but another cluster's; those with rules are read again."""
        with self._kept():
            ours = [group for group in groups if not self._tag.is_foreign(group.tags)]
            if ids := [group.id for group in ours if self._planned(group)]:
                self._change(False, lambda: self._vpc.groups_with(ids))

    def why_partly(self) -> list[str]:
        """Why some of the groups are not open, where others are; raises what else failed."""
        if "" in self._failures or self._failures.keys() >= self._chosen:
            for _, failure in sorted(self._failures.items()):
                raise failure
        return [*map(str, self._failures.values())]

    def check(self) -> None:
        """The same, but raises `Refused` for such a group: a change that warns of it follows."""
        for why in self.why_partly():
            raise Refused(why)

    def _change(self, opens: bool, groups: Callable[[], Iterable[SecurityGroup]]) -> None:
        if not self._is_managed:
            return
        with self._vpc.ingress_lock, for_all(), self._kept():
            planned = [change for group in groups() for change in self._planned(group)]
            if opens:
                self._surplus = {it.group_id for it in planned if it.action != "Authorize"}
            for change in planned:
                if (change.action == "Authorize") == opens:
                    with self._kept(change.group_id if opens else ""):
                        change_ingress(self._api, change)

    def _planned(self, group: SecurityGroup) -> list[IngressChange]:
        is_open = group.id in self._chosen
        planned = self._plan(group, is_open)
        return [change for change in planned if is_open or change.action != "Authorize"]

    @contextmanager
    def _kept(self, group_id: str = "") -> Iterator[None]:
        try:
            yield
        except CloudError as error:
            key = group_id if isinstance(error, Refused | Denied) else ""
            self._failures.setdefault(key, error)


def change_ingress(api: AwsApi, change: IngressChange) -> None:
    """Make one call; a race with another writer is a `CloudError`, to be planned again.

    Upstream's policy does not allow to describe rules, which is done without then.
    """
    permissions = ip_permissions(change.rules)
    try:
        api.call(_CALLS[change.action], GroupId=change.group_id, IpPermissions=permissions)
    except NotAllowed:
        if change.action != "Describe":
            raise
    except AwsError as error:
        if error.code == GROUP_FULL:
            raise NoRoom(
                f"security group {change.group_id} has no room for {len(change.rules)} more rules:"
                " raise the quota 'Inbound or outbound rules per security group', or set"
                " DisableSecurityGroupIngress"
            ) from error
        if error.code in RACES:
            raise CloudError(str(error)) from error
        raise


def ip_permissions(rules: Iterable[IngressRule]) -> list[Json]:
    """The rules as EC2's `IpPermissions`; sources of the same ports together."""
    sources: Mapping[tuple[str, int, int], Json] = defaultdict(dict)
    for rule in rules:
        member, name = _source_fields(rule.source)
        described = {"Description": rule.description} if rule.description else {}
        key = rule.protocol, rule.first, rule.last
        sources[key].setdefault(member, []).append({name: rule.source, **described})
    permissions: list[Json] = []
    for (protocol, first, last), members in sources.items():
        ports: Json = {} if protocol == ALL_PROTOCOLS else {"FromPort": first, "ToPort": last}
        permissions.append({"IpProtocol": protocol, **ports, **members})
    return permissions


def _source_fields(source: str) -> tuple[str, str]:
    if source.startswith("sg-"):
        return "UserIdGroupPairs", "GroupId"
    return ("Ipv6Ranges", "CidrIpv6") if ":" in source else ("IpRanges", "CidrIp")
