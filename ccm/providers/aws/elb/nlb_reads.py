"""Reading a Network Load Balancer, and all that belongs to it, from the API."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ccm.errors import Refused
from ccm.model.objects import Json, mapping, objects, objects_with, text
from ccm.model.service import Service
from ccm.providers.aws.client import MAX_LISTED, AwsApi
from ccm.providers.aws.elb.executor import balancer_name
from ccm.providers.aws.elb.load_balancers import ElbDependencies
from ccm.providers.aws.elb.nlb_desired import (
    Nlb,
    NlbListener,
    ObservedNlb,
    TargetGroup,
    target_group_prefix,
)
from ccm.providers.aws.elb.request import IPV4, ElbHealthCheck
from ccm.providers.aws.tags import Tags, is_unmarked, read_tags

FIND = "elbv2:DescribeLoadBalancers"
TAGS = "elbv2:DescribeTags"
_NAME_FROM_UID = re.compile(r"a[0-9a-f]{31}")
ADDRESSES = ("AllocationId", "PrivateIPv4Address")
Detail = Callable[[AwsApi, ObservedNlb], ObservedNlb]


def list_groups(api: AwsApi, service: Service) -> list[Json]:
    """The target groups that could be the Service's.

    They are looked for by their names' beginning among all of the account, because one that has
    no listener, after an interruption, belongs to no load balancer.
    """
    call, name = "elbv2:DescribeTargetGroups", service.default_balancer_name
    listed = api.list_pages(call, "TargetGroups", PageSize=MAX_LISTED)
    named = target_group_prefix(service.key)
    return [
        group
        for group in listed
        if text(group.get("TargetGroupName")).startswith(named) and not _serves_others(group, name)
    ]


def find_nlb(api: AwsApi, name: str) -> Json | None:
    """The record of the load balancer with this name, of any owner."""
    return api.find_balancer(FIND, "LoadBalancers", "Names", name)


def describe_nlb(
    elb: ElbDependencies, service: Service, listed: Iterable[Json], names: Collection[str]
) -> ObservedNlb:
    """The load balancer and its target groups; one of its name that is not ours is `Refused`.

    A group without a telling tag is ours when only our load balancer has it, or no one
    and its name is one of `names`, which have a hash of the cluster's ID.

    Listeners, attributes and targets take further reads, for those who need them.
    """
    api, tag, own_name = elb.api, elb.tagging.cluster_tag(), service.default_balancer_name
    record = find_nlb(api, own_name)
    arn = text((record or {}).get("LoadBalancerArn"))
    named = {text(group.get("TargetGroupArn")): group for group in listed}
    usual = tag.tags_for(service)
    unread: dict[str, Tags] = {arn: usual, **{key: {} for key in named}}
    asked = [*([arn] if arn else []), *named]
    tags = api.read_if_allowed(unread, describe_tags, api, asked)
    if record and not tag.owns_for(service, tags[arn]):
        raise Refused(f"load balancer {own_name} carries the tags of another owner")

    def is_ours(item: str) -> bool:
        users, name = (
            named[item].get("LoadBalancerArns") or [],
            text(named[item]["TargetGroupName"]),
        )
        is_its = users == [arn] or (not users and name in names)
        return tag.owns_for(service, tags[item]) or (is_unmarked(tags[item]) and is_its)

    ours = {item: named[item] for item in named if is_ours(item)}
    known = dict.fromkeys(named, usual) if tags is unread else tags
    groups = [read_group(group, known[item]) for item, group in ours.items()]
    unmarked = [text(named[item].get("TargetGroupName")) for item in named.keys() - ours.keys()]
    return ObservedNlb(
        nlb=_read_nlb(record, tags[arn]) if record else None,
        listeners={},
        groups={group.name: group for group in groups},
        arn=arn,
        hostname=text((record or {}).get("DNSName")),
        foreign_groups=frozenset(unmarked),
    )


def _serves_others(group: Json, name: str) -> bool:
    """Whether only load balancers of other Services use it; their tags cost no read then."""
    users = {balancer_name(arn) for arn in group.get("LoadBalancerArns") or ()}
    return bool(users) and all(_NAME_FROM_UID.fullmatch(user) and user != name for user in users)


def with_listeners(api: AwsApi, observed: ObservedNlb) -> ObservedNlb:
    """The same with the load balancer's listeners."""
    names = {group.arn: name for name, group in observed.groups.items()}
    call = "elbv2:DescribeListeners"
    listed = api.list_pages(call, "Listeners", LoadBalancerArn=observed.arn) if observed.arn else []
    own = objects_with(listed, "LoadBalancerArn", observed.arn)
    listeners = [read_listener(record, names) for record in own]
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
            text(mapping(record.get("Target")).get("Id"))
            for record in objects(answer.get("TargetHealthDescriptions"))
            if mapping(record.get("TargetHealth")).get("State") != "draining"
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
        address_type=text(record.get("IpAddressType")) or IPV4,
    )


def _subnets(record: Json) -> Iterator[tuple[str, Mapping[str, str]]]:
    for zone in objects(record.get("AvailabilityZones")):
        addresses = objects(zone.get("LoadBalancerAddresses"))
        yield (
            text(zone.get("SubnetId")),
            {
                name: text(address[name])
                for address in addresses
                for name in ADDRESSES
                if address.get(name)
            },
        )


def read_listener(record: Json, names: Mapping[str, str]) -> NlbListener:
    """The listener in a record; `names` are those of target groups by ARN."""
    actions, certificates = objects(record.get("DefaultActions")), record.get("Certificates")
    target = text(actions[0].get("TargetGroupArn")) if actions else ""
    return NlbListener(
        port=int(record.get("Port", 0)),
        protocol=text(record.get("Protocol")),
        group=names.get(target, target),
        certificate=next((text(item.get("CertificateArn")) for item in objects(certificates)), ""),
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
        family=text(record.get("IpAddressType")) or IPV4,
        arn=text(record.get("TargetGroupArn")),
    )
