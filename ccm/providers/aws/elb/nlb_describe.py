"""Reading all that there is of one Service's Network Load Balancer."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ccm.errors import Refused
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.service import Service
from ccm.providers.aws.client import AwsApi, AwsError
from ccm.providers.aws.elb.nlb_desired import (
    Nlb,
    NlbListener,
    ObservedNlb,
    TargetGroup,
    target_group_prefix,
)
from ccm.providers.aws.elb.request import ElbHealthCheck, load_balancer_name
from ccm.providers.aws.tags import ClusterTag, Tags, read_tags

MAX_PER_PAGE = 400
MAX_ARNS_PER_CALL = 20
_NAME_FROM_UID = re.compile(r"a[0-9a-f]{31}")


def find_nlb(api: AwsApi, name: str) -> Json | None:
    """The record of the load balancer with this name, whoever owns it."""
    try:
        found = api.list_pages("elbv2:DescribeLoadBalancers", "LoadBalancers", Names=[name])
    except AwsError as error:
        if error.code == "LoadBalancerNotFound":
            return None
        raise
    return found[0] if found else None


def describe_nlb(api: AwsApi, service: Service, tag: ClusterTag) -> ObservedNlb:
    """The load balancer and its target groups; one of its name that is not ours is `Refused`.

    Listeners, attributes and targets take further reads, for those who need them.

    Target groups are looked for by their names' beginning among all of the account, because one
    that has no listener, after an interruption, belongs to no load balancer.
    """
    own_name, call = load_balancer_name(service), "elbv2:DescribeTargetGroups"
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
    names = {one: text(group.get("TargetGroupName")) for one, group in ours.items()}
    strangers = [text(named[one].get("TargetGroupName")) for one in named.keys() - ours.keys()]
    return ObservedNlb(
        nlb=_read_nlb(record, tags[arn]) if record else None,
        arn=arn,
        hostname=text((record or {}).get("DNSName")),
        listeners={},
        listener_arns={},
        groups={names[one]: _read_group(group, tags[one]) for one, group in ours.items()},
        group_arns={name: one for one, name in names.items()},
        strangers=frozenset(strangers),
    )


def balancer_name(arn: str) -> str:
    """The name in `arn:…:loadbalancer/net/<name>/<id>`."""
    return arn.rpartition("/")[0].rpartition("/")[2]


def _serves_others(group: Json, name: str) -> bool:
    """Whether only load balancers of other Services use it; their tags cost no read then."""
    users = {balancer_name(arn) for arn in group.get("LoadBalancerArns") or ()}
    return bool(users) and all(_NAME_FROM_UID.fullmatch(one) and one != name for one in users)


def with_listeners(api: AwsApi, observed: ObservedNlb) -> ObservedNlb:
    """The same with the load balancer's listeners."""
    names = {arn: name for name, arn in observed.group_arns.items()}
    call = "elbv2:DescribeListeners"
    listed = api.list_pages(call, "Listeners", LoadBalancerArn=observed.arn) if observed.arn else []
    records = {int(record.get("Port", 0)): record for record in listed}
    return replace(
        observed,
        listeners={port: _read_listener(one, names) for port, one in records.items()},
        listener_arns={port: text(one.get("ListenerArn")) for port, one in records.items()},
    )


def with_attributes(api: AwsApi, observed: ObservedNlb) -> ObservedNlb:
    """The same with the attributes of the load balancer."""
    if observed.nlb is None:
        return observed
    answer = api.call("elbv2:DescribeLoadBalancerAttributes", LoadBalancerArn=observed.arn)
    attributes = _read_attributes(answer.get("Attributes"))
    return replace(observed, nlb=replace(observed.nlb, attributes=attributes))


def with_group_attributes(api: AwsApi, observed: ObservedNlb) -> ObservedNlb:
    """The same with the attributes of its groups, which take one read each."""

    def complete(group: TargetGroup, arn: str) -> TargetGroup:
        answer = api.call("elbv2:DescribeTargetGroupAttributes", TargetGroupArn=arn)
        return replace(group, attributes=_read_attributes(answer.get("Attributes")))

    return _with_groups(observed, complete)


def with_targets(api: AwsApi, observed: ObservedNlb) -> ObservedNlb:
    """The same with the targets of its groups, which take one read each.

    Instances that are being deregistered are no targets any more.
    """

    def complete(group: TargetGroup, arn: str) -> TargetGroup:
        answer = api.call("elbv2:DescribeTargetHealth", TargetGroupArn=arn)
        targets = frozenset(
            text(mapping(one.get("Target")).get("Id"))
            for one in objects(answer.get("TargetHealthDescriptions"))
            if mapping(one.get("TargetHealth")).get("State") != "draining"
        )
        return replace(group, targets=targets)

    return _with_groups(observed, complete)


def _with_groups(
    observed: ObservedNlb, complete: Callable[[TargetGroup, str], TargetGroup]
) -> ObservedNlb:
    arns = observed.group_arns
    groups = {name: complete(group, arns[name]) for name, group in observed.groups.items()}
    return replace(observed, groups=groups)


def describe_tags(api: AwsApi, arns: Sequence[str]) -> dict[str, Tags]:
    """The tags of load balancers and target groups, by ARN; many to a call."""
    found: dict[str, Tags] = {arn: {} for arn in arns}
    for at in range(0, len(arns), MAX_ARNS_PER_CALL):
        batch = list(arns[at : at + MAX_ARNS_PER_CALL])
        answer = api.call("elbv2:DescribeTags", ResourceArns=batch)
        for one in objects(answer.get("TagDescriptions")):
            found[text(one.get("ResourceArn"))] = read_tags(one.get("Tags"))
    return found


def _read_attributes(listed: object) -> dict[str, str]:
    return {text(one.get("Key")): text(one.get("Value")) for one in objects(listed)}


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


def _read_listener(record: Json, names: Mapping[str, str]) -> NlbListener:
    actions, certificates = objects(record.get("DefaultActions")), record.get("Certificates")
    target = text(actions[0].get("TargetGroupArn")) if actions else ""
    return NlbListener(
        port=int(record.get("Port", 0)),
        protocol=text(record.get("Protocol")),
        group=names.get(target, target),
        certificate=next((text(one.get("CertificateArn")) for one in objects(certificates)), ""),
        policy=text(record.get("SslPolicy")),
        alpn=next(iter(record.get("AlpnPolicy") or ()), "").replace("None", ""),
    )


def _read_group(record: Json, tags: Tags) -> TargetGroup:
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
    )
