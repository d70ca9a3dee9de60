"""Reading a Network Load Balancer and all that belongs to it from ELB's API, version 2."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ccm.errors import Refused
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.service import Service
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.elb.executor import balancer_name
from ccm.providers.aws.elb.nlb_desired import (
    Nlb,
    NlbListener,
    ObservedNlb,
    TargetGroup,
    target_group_prefix,
)
from ccm.providers.aws.elb.request import ElbHealthCheck
from ccm.providers.aws.tags import ClusterTag, Tags, read_tags

MAX_PER_PAGE = 400
_NAME_FROM_UID = re.compile(r"a[0-9a-f]{31}")


def find_nlb(api: AwsApi, name: str) -> Json | None:
    """The record of the load balancer with this name, whoever owns it."""
    return api.find_one("elbv2:DescribeLoadBalancers", "LoadBalancers", Names=[name])


def describe_nlb(api: AwsApi, service: Service, tag: ClusterTag) -> ObservedNlb:
    """The load balancer and its target groups; one of its name that is not ours is `Refused`.

    Listeners, attributes and targets take further reads, for those who need them.

    Target groups are looked for by their names' beginning among all of the account, because one
    that has no listener, after an interruption, belongs to no load balancer.
    """
    own_name, call = service.default_balancer_name, "elbv2:DescribeTargetGroups"
    record = find_nlb(api, own_name)
    named = {
        text(group.get("TargetGroupArn")): group
        for group in api.list_pages(call, "TargetGroups", PageSize=MAX_PER_PAGE)
        if text(group.get("TargetGroupName")).startswith(target_group_prefix(service.key))
    }
    arn = text((record or {}).get("LoadBalancerArn"))
    asked = [one for one, group in named.items() if not _serves_others(group, own_name)]
    tags = describe_tags(api, [*([arn] if arn else []), *asked])
    if record and not tag.owns_for(service, tags[arn]):
        raise Refused(f"load balancer {own_name} carries the tags of somebody else")
    ours = {one: named[one] for one in asked if tag.owns_for(service, tags[one])}
    groups = [read_group(group, tags[one]) for one, group in ours.items()]
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
        answer = api.call("elbv2:DescribeTargetGroupAttributes", TargetGroupArn=group.arn)
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
    return api.describe_tags("elbv2:DescribeTags", "ResourceArn", arns)


def _read_nlb(record: Json, tags: Tags) -> Nlb:
    return Nlb(
        name=text(record.get("LoadBalancerName")),
        is_internal=record.get("Scheme") == "internal",
        subnets=dict(_subnets(record)),
        groups=tuple(record.get("SecurityGroups") or ()),
        tags=tags,
        attributes={},
    )


def _subnets(record: Json) -> Iterator[tuple[str, str]]:
    for zone in objects(record.get("AvailabilityZones")):
        addresses = objects(zone.get("LoadBalancerAddresses"))
        allocations = [text(one["AllocationId"]) for one in addresses if one.get("AllocationId")]
        yield text(zone.get("SubnetId")), next(iter(allocations), "")


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
