"""Network Load Balancers as an `ElbType`: read, planned for, and changed."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ccm.errors import Refused
from ccm.model.cloud import Balancer
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.model.service import Service
from ccm.providers.aws.client import AwsApi, retry_on
from ccm.providers.aws.elb import nlb_plan
from ccm.providers.aws.elb.annotations import NLB, Annotations
from ccm.providers.aws.elb.calls import ApiCall
from ccm.providers.aws.elb.executor import NOT_FOUND, ElbExecutor, balancer_name
from ccm.providers.aws.elb.load_balancers import ElbDependencies, NodeIngress, to_balancer
from ccm.providers.aws.elb.nlb_desired import (
    DesiredNlb,
    Nlb,
    NlbListener,
    ObservedNlb,
    TargetGroup,
    desired_nlb,
    has_rules_of,
    node_rules,
    plan_node_ingress,
    target_group_prefix,
    target_groups,
)
from ccm.providers.aws.elb.request import (
    ElbHealthCheck,
    LoadBalancerRequest,
    read_request,
    target_instances,
)
from ccm.providers.aws.security_groups import IngressRule
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import ClusterTag, Tags, is_unmarked, read_tags
from ccm.providers.aws.vpc import BackendInstance

MAX_PER_PAGE = 400
FIND = "elbv2:DescribeLoadBalancers"
TAGS = "elbv2:DescribeTags"
_NAME_FROM_UID = re.compile(r"a[0-9a-f]{31}")
ADDRESSES = ("AllocationId", "PrivateIPv4Address")
CLIENT_IP = "preserve_client_ip.enabled"
Detail = Callable[[AwsApi, ObservedNlb], ObservedNlb]


class Nlbs:
    """One load balancer a Service, with a target group for each port."""

    def __init__(self, elb: ElbDependencies) -> None:
        self._elb, self._api, self._vpc = elb, elb.api, elb.vpc

    def get(self, service: Service) -> Balancer | None:
        record = self._api.find_one(FIND, "LoadBalancers", Names=[service.default_balancer_name])
        if record is None:
            return None
        arn = text(record.get("LoadBalancerArn"))
        tags = self._elb.tags_of(service, TAGS, "ResourceArn", arn)
        return self._elb.balancer(service, text(record.get("DNSName")), tags)

    def has_leftovers(self, service: Service) -> bool:
        """As `ElbType`: the load balancer itself goes last."""
        return False

    def ensure(self, service: Service, hosts: Sequence[Node]) -> Balancer:
        """As `ElbType`; what is refused is refused before anything is changed."""
        tag = self._elb.tagging.cluster_tag()
        request = read_request(service, NLB, tag)
        self._refuse_unenforced(request)
        details = [with_listeners, with_attributes, with_targets]
        if request.annotations.text("target-group-attributes"):
            details.append(with_group_attributes)
        observed = self._describe(service, tag, details)
        if observed.nlb:
            request = request.keeping_scheme(observed.nlb.is_internal)
        subnets = self._subnets(request, tag, observed.nlb)
        backends, targets = self._backends(request.annotations, hosts, observed)
        probe = self._elb.config.shared_probe
        desired = desired_nlb(request, subnets, targets, tag.cluster_id, probe, observed.nlb)
        calls = list(nlb_plan.plan(desired, observed, self._vpc.id))
        cidrs = [subnet.cidr for subnet in subnets]
        opened = node_rules(desired, request.ranges, cidrs, request.node_health_check)
        ingress = self._node_ingress(request.name, opened)
        with request.annotations.noted():
            ingress.open(backends, tag)
            executor = self._execute(calls, observed)
            ingress.close(backends, tag)
            executor.check()
            ingress.check()
        return to_balancer(request.name, executor.hostname, request.annotations.warnings)

    def update_hosts(self, service: Service, hosts: Sequence[Node]) -> bool:
        """As `ElbType`; the rules of the nodes' groups are those for what there is."""
        tag, name = self._elb.tagging.cluster_tag(), service.default_balancer_name
        observed = self._describe(service, tag, [with_targets])
        if observed.nlb is None:
            return False
        backends, targets = self._backends(Annotations.of(service), hosts, observed)
        current = DesiredNlb(observed.nlb, observed.listeners, observed.groups)
        subnets = self._vpc.subnets()
        cidrs = [subnet.cidr for subnet in subnets if subnet.id in observed.nlb.subnets]
        opened = node_rules(current, ranges_if_valid(service), cidrs, service.health_check)
        ingress = self._node_ingress(name, opened)
        ingress.open(backends, tag)
        self._execute(nlb_plan.plan_targets(targets, observed), observed).check()
        ingress.check()
        return True

    def delete(self, service: Service) -> None:
        tag, name = self._elb.tagging.cluster_tag(), service.default_balancer_name
        details = map(if_allowed, (with_listeners, with_attributes))
        observed = self._describe(service, tag, details, needs_groups=False)
        calls = list(nlb_plan.plan_deletion(observed))
        ingress = NodeIngress(
            self._elb,
            lambda g: plan_node_ingress(g, frozenset(), name) if has_rules_of(g, name) else (),
        )
        ingress.close_everywhere(tag)
        self._execute(calls, observed)
        ingress.check()

    def _refuse_unenforced(self, request: LoadBalancerRequest) -> None:
        """Ranges are enforced by the nodes' groups, to which a client has to look like itself."""
        if not self._elb.config.manages_node_ingress:
            request.refuse_ranges("DisableSecurityGroupIngress leaves the nodes' groups alone")
        attributes = request.annotations.key_values("target-group-attributes")
        if attributes.get(CLIENT_IP, "true").lower() != "true":
            request.refuse_ranges(f"target group attribute {CLIENT_IP} hides who the client is")

    def tags_by_name(self) -> Mapping[str, Tags]:
        records = self._api.list_pages(FIND, "LoadBalancers", PageSize=MAX_PER_PAGE)
        names = {
            text(one.get("LoadBalancerArn")): text(one.get("LoadBalancerName"))
            for one in records
            if one.get("Type") == "network"
        }
        with retry_on(NOT_FOUND):
            tags = describe_tags(self._api, list(names))
        return {name: tags[arn] for arn, name in names.items()}

    def _describe(
        self,
        service: Service,
        tag: ClusterTag,
        details: Iterable[Detail],
        needs_groups: bool = True,
    ) -> ObservedNlb:
        """The load balancer and its groups, with these details."""
        names = self._group_names(service, tag)
        with retry_on(NOT_FOUND):
            if needs_groups:
                groups = list_groups(self._api, service)
            else:
                groups = self._api.read_if_allowed(list[Json](), list_groups, self._api, service)
            observed = describe_nlb(self._elb, service, groups, names)
            for add in details:
                observed = add(self._api, observed)
        return observed

    def _subnets(
        self, request: LoadBalancerRequest, tag: ClusterTag, observed: Nlb | None
    ) -> list[Subnet]:
        """Where it is to live: it stays where it is, unless the Service names subnets."""
        if observed and not request.annotations.csv("subnets"):
            return [subnet for subnet in self._vpc.subnets() if subnet.id in observed.subnets]
        return self._elb.subnets_for(request, tag, ())

    def _group_names(self, service: Service, tag: ClusterTag) -> frozenset[str]:
        """The names that its target groups have to have; none for a Service that is refused."""
        try:
            request = read_request(service, NLB, tag)
            probe = self._elb.config.shared_probe
            groups = target_groups(request, (), tag.cluster_id, probe)
            return frozenset(one.name for one in groups.values())
        except Refused:
            return frozenset()

    def _backends(
        self, annotations: Annotations, hosts: Sequence[Node], observed: ObservedNlb
    ) -> tuple[Sequence[BackendInstance], frozenset[str]]:
        groups = observed.groups.values()
        registered = frozenset[str]().union(*(group.targets for group in groups))
        wanted = target_instances(annotations, hosts)
        tag = self._elb.tagging.cluster_tag()
        return self._vpc.backends(wanted, registered, tag, only_running=True)

    def _node_ingress(self, name: str, desired: frozenset[IngressRule]) -> NodeIngress:
        return NodeIngress(self._elb, lambda group: plan_node_ingress(group, desired, name))

    def _execute(self, calls: Iterable[ApiCall], observed: ObservedNlb) -> ElbExecutor:
        arns = {name: group.arn for name, group in observed.groups.items()}
        if observed.nlb:
            arns[observed.nlb.name] = observed.arn
        executor = ElbExecutor(self._api, observed.hostname, arns)
        executor.execute(calls)
        self._vpc.forget(executor.invalid_targets)
        return executor


def ranges_if_valid(service: Service) -> tuple[str, ...]:
    """Who may come in; nobody new while the Service says it in a way that is refused."""
    try:
        return tuple(str(one) for one in service.source_ranges() if one.version == 4)
    except Refused:
        return ()


# Reading a load balancer, and all that belongs to it, from the API.


def list_groups(api: AwsApi, service: Service) -> list[Json]:
    """The target groups that could be the Service's.

    They are looked for by their names' beginning among all of the account, because one that has
    no listener, after an interruption, belongs to no load balancer.
    """
    call, name = "elbv2:DescribeTargetGroups", service.default_balancer_name
    listed = api.list_pages(call, "TargetGroups", PageSize=MAX_PER_PAGE)
    named = target_group_prefix(service.key)
    return [
        group
        for group in listed
        if text(group.get("TargetGroupName")).startswith(named) and not _serves_others(group, name)
    ]


def describe_nlb(
    elb: ElbDependencies, service: Service, listed: Iterable[Json], names: Collection[str]
) -> ObservedNlb:
    """The load balancer and its target groups; one of its name that is not ours is `Refused`.

    A group that no tag says anything of is ours when only our load balancer has it, or nobody
    and its name is one of `names`, which have a hash of the cluster's ID.

    Listeners, attributes and targets take further reads, for those who need them.
    """
    api, tag, own_name = elb.api, elb.tagging.cluster_tag(), service.default_balancer_name
    record = api.find_one(FIND, "LoadBalancers", Names=[own_name])
    arn = text((record or {}).get("LoadBalancerArn"))
    named = {text(group.get("TargetGroupArn")): group for group in listed}
    usual = tag.tags_for(service)
    unread: dict[str, Tags] = {arn: usual, **{key: {} for key in named}}
    asked = [*([arn] if arn else []), *named]
    tags = api.read_if_allowed(unread, describe_tags, api, asked)
    if record and not tag.owns_for(service, tags[arn]):
        raise Refused(f"load balancer {own_name} carries the tags of somebody else")

    def is_ours(one: str) -> bool:
        users, name = named[one].get("LoadBalancerArns") or [], text(named[one]["TargetGroupName"])
        is_its = users == [arn] or (not users and name in names)
        return tag.owns_for(service, tags[one]) or (is_unmarked(tags[one]) and is_its)

    ours = {one: named[one] for one in named if is_ours(one)}
    known = dict.fromkeys(named, usual) if tags is unread else tags
    groups = [read_group(group, known[one]) for one, group in ours.items()]
    strangers = [text(named[one].get("TargetGroupName")) for one in named.keys() - ours.keys()]
    return ObservedNlb(
        nlb=_read_nlb(record, tags[arn]) if record else None,
        listeners={},
        groups={group.name: group for group in groups},
        arn=arn,
        hostname=text((record or {}).get("DNSName")),
        strangers=frozenset(strangers),
    )


def _serves_others(group: Json, name: str) -> bool:
    """Whether only load balancers of other Services use it; their tags cost no read then."""
    users = {balancer_name(arn) for arn in group.get("LoadBalancerArns") or ()}
    return bool(users) and all(_NAME_FROM_UID.fullmatch(one) and one != name for one in users)


def if_allowed(detail: Detail) -> Detail:
    """The same, left out where it may not be read."""
    return lambda api, observed: api.read_if_allowed(observed, detail, api, observed)


def with_listeners(api: AwsApi, observed: ObservedNlb) -> ObservedNlb:
    """The same with the load balancer's listeners."""
    names = {group.arn: name for name, group in observed.groups.items()}
    call = "elbv2:DescribeListeners"
    listed = api.list_pages(call, "Listeners", LoadBalancerArn=observed.arn) if observed.arn else []
    listeners = [read_listener(record, names) for record in listed]
    return replace(observed, listeners={listener.port: listener for listener in listeners})


def with_attributes(api: AwsApi, observed: ObservedNlb) -> ObservedNlb:
    """The same with the attributes of the load balancer, which have the form of tags."""
    if observed.nlb is None:
        return observed
    answer = api.call("elbv2:DescribeLoadBalancerAttributes", LoadBalancerArn=observed.arn)
    attributes = read_tags(answer.get("Attributes"))
    return replace(observed, nlb=replace(observed.nlb, attributes=attributes))


def with_group_attributes(api: AwsApi, observed: ObservedNlb) -> ObservedNlb:
    """The same with the attributes of its groups, which take one read each."""
    groups = {}
    for name, group in observed.groups.items():
        call = "elbv2:DescribeTargetGroupAttributes"
        answer = api.read_if_allowed(Json(), api.call, call, TargetGroupArn=group.arn)
        groups[name] = replace(group, attributes=read_tags(answer.get("Attributes")))
    return replace(observed, groups=groups)


def with_targets(api: AwsApi, observed: ObservedNlb) -> ObservedNlb:
    """The same with the targets of its groups, which take one read each.

    Instances that are being deregistered are no targets any more.
    """
    groups = {}
    for name, group in observed.groups.items():
        answer = api.call("elbv2:DescribeTargetHealth", TargetGroupArn=group.arn)
        targets = [
            text(mapping(one.get("Target")).get("Id"))
            for one in objects(answer.get("TargetHealthDescriptions"))
            if mapping(one.get("TargetHealth")).get("State") != "draining"
        ]
        groups[name] = replace(group, targets=frozenset(targets))
    return replace(observed, groups=groups)


def describe_tags(api: AwsApi, arns: Sequence[str]) -> dict[str, Tags]:
    """The tags of load balancers and target groups, by ARN."""
    return api.describe_tags(TAGS, "ResourceArn", arns)


def _read_nlb(record: Json, tags: Tags) -> Nlb:
    return Nlb(
        name=text(record.get("LoadBalancerName")),
        is_internal=record.get("Scheme") == "internal",
        subnets=dict(_subnets(record)),
        groups=tuple(record.get("SecurityGroups") or ()),
        tags=tags,
        attributes={},
    )


def _subnets(record: Json) -> Iterator[tuple[str, Mapping[str, str]]]:
    for zone in objects(record.get("AvailabilityZones")):
        addresses = objects(zone.get("LoadBalancerAddresses"))
        yield (
            text(zone.get("SubnetId")),
            {name: text(one[name]) for one in addresses for name in ADDRESSES if one.get(name)},
        )


def read_listener(record: Json, names: Mapping[str, str]) -> NlbListener:
    """The listener in a record; `names` are those of target groups by ARN."""
    actions, certificates = objects(record.get("DefaultActions")), record.get("Certificates")
    target = text(actions[0].get("TargetGroupArn")) if actions else ""
    return NlbListener(
        port=int(record.get("Port", 0)),
        protocol=text(record.get("Protocol")),
        group=names.get(target, target),
        certificate=next((text(one.get("CertificateArn")) for one in objects(certificates)), ""),
        policy=text(record.get("SslPolicy")),
        alpn=next(iter(record.get("AlpnPolicy") or ()), "").replace("None", ""),
        arn=text(record.get("ListenerArn")),
    )


def read_group(record: Json, tags: Tags) -> TargetGroup:
    """The target group in a record, without what takes further reads."""
    protocol = text(record.get("HealthCheckProtocol"))
    path = text(record.get("HealthCheckPath")) if protocol in ("HTTP", "HTTPS") else ""
    return TargetGroup(
        name=text(record.get("TargetGroupName")),
        protocol=text(record.get("Protocol")),
        port=int(record.get("Port", 0)),
        health_check=ElbHealthCheck(
            protocol,
            text(record.get("HealthCheckPort")),
            path,
            int(record.get("HealthCheckIntervalSeconds", 0)),
            int(record.get("HealthCheckTimeoutSeconds", 0)),
            int(record.get("HealthyThresholdCount", 0)),
            int(record.get("UnhealthyThresholdCount", 0)),
        ),
        tags=tags,
        arn=text(record.get("TargetGroupArn")),
    )
