"""Reading all that there is of one Service's network load balancer."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ccm.errors import Refused
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.service import Service
from ccm.providers.aws.balancers.network.desired import name_prefix
from ccm.providers.aws.balancers.network.state import (
    Listener,
    NetworkBalancer,
    Seen,
    TargetGroup,
)
from ccm.providers.aws.balancers.request import Check, is_marked, name_of
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.failures import AwsError
from ccm.providers.aws.tags import Mark, Tags, read_tags

PAGE = 400
TAGS_AT_ONCE = 20
ABSENT = "LoadBalancerNotFound"
_NAME_FROM_UID = re.compile(r"a[0-9a-f]{31}")


def find_balancer(api: AwsApi, name: str) -> Json | None:
    """The record of the balancer with this name, whoever owns it."""
    try:
        found = api.pages("elbv2:DescribeLoadBalancers", "LoadBalancers", Names=[name])
    except AwsError as error:
        if error.code == ABSENT:
            return None
        raise
    return found[0] if found else None


def read(api: AwsApi, service: Service, mark: Mark) -> Seen:
    """The balancer and its target groups; one of the right name that is not ours is `Refused`.

    Listeners, attributes and targets take further reads, for those who need them.

    Target groups are looked for by their names' beginning among all of the account, because one
    that has no listener, after an interruption, belongs to no balancer.
    """
    record = find_balancer(api, name_of(service))
    named = {
        text(group.get("TargetGroupArn")): group
        for group in api.pages("elbv2:DescribeTargetGroups", "TargetGroups", PageSize=PAGE)
        if text(group.get("TargetGroupName")).startswith(name_prefix(service.key))
    }
    arn = text((record or {}).get("LoadBalancerArn"))
    asked = [one for one, group in named.items() if not _serves_others(group, name_of(service))]
    tags = read_all_tags(api, [*([arn] if arn else []), *asked])
    if record and not is_marked(service, mark, tags[arn]):
        raise Refused(f"balancer {name_of(service)} carries the tags of somebody else")
    ours = {one: named[one] for one in asked if is_marked(service, mark, tags[one])}
    names = {one: text(group.get("TargetGroupName")) for one, group in ours.items()}
    strangers = [text(named[one].get("TargetGroupName")) for one in named.keys() - ours.keys()]
    return Seen(
        balancer=_balancer(record, tags[arn]) if record else None,
        arn=arn,
        hostname=text((record or {}).get("DNSName")),
        listeners={},
        listener_arns={},
        groups={names[one]: _group(group, tags[one]) for one, group in ours.items()},
        group_arns={name: one for one, name in names.items()},
        strangers=frozenset(strangers),
    )


def balancer_name(arn: str) -> str:
    """The name in `arn:…:loadbalancer/net/<name>/<id>`."""
    return arn.rpartition("/")[0].rpartition("/")[2]


def _serves_others(group: Json, name: str) -> bool:
    """Whether it stands behind balancers of other Services only; their tags cost no read then."""
    users = {balancer_name(arn) for arn in group.get("LoadBalancerArns") or ()}
    return bool(users) and all(_NAME_FROM_UID.fullmatch(one) and one != name for one in users)


def with_listeners(api: AwsApi, seen: Seen) -> Seen:
    """The same with the balancer's listeners."""
    names = {arn: name for name, arn in seen.group_arns.items()}
    listeners = list(_listeners(api, seen.arn)) if seen.arn else []
    return replace(
        seen,
        listeners={port: _listener(one, names) for port, one in listeners},
        listener_arns={port: text(one.get("ListenerArn")) for port, one in listeners},
    )


def with_attributes(api: AwsApi, seen: Seen) -> Seen:
    """The same with the attributes of the balancer."""
    if seen.balancer is None:
        return seen
    answer = api.call("elbv2:DescribeLoadBalancerAttributes", LoadBalancerArn=seen.arn)
    attributes = read_attributes(answer.get("Attributes"))
    return replace(seen, balancer=replace(seen.balancer, attributes=attributes))


def with_group_attributes(api: AwsApi, seen: Seen) -> Seen:
    """The same with the attributes of its groups, which take one read each."""
    groups = {
        name: replace(group, attributes=_group_attributes(api, seen.group_arns[name]))
        for name, group in seen.groups.items()
    }
    return replace(seen, groups=groups)


def with_targets(api: AwsApi, seen: Seen) -> Seen:
    """The same with the targets of its groups, which take one read each."""
    groups = {
        name: replace(group, targets=_targets(api, seen.group_arns[name]))
        for name, group in seen.groups.items()
    }
    return replace(seen, groups=groups)


def read_all_tags(api: AwsApi, arns: Sequence[str]) -> dict[str, Tags]:
    """The tags of balancers and target groups, many to a call."""
    found: dict[str, Tags] = {arn: {} for arn in arns}
    for at in range(0, len(arns), TAGS_AT_ONCE):
        answer = api.call("elbv2:DescribeTags", ResourceArns=list(arns[at : at + TAGS_AT_ONCE]))
        for one in objects(answer.get("TagDescriptions")):
            found[text(one.get("ResourceArn"))] = read_tags(one.get("Tags"))
    return found


def read_attributes(listed: object) -> dict[str, str]:
    return {text(one.get("Key")): text(one.get("Value")) for one in objects(listed)}


def _balancer(record: Json, tags: Tags) -> NetworkBalancer:
    return NetworkBalancer(
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
        yield text(zone.get("SubnetId")), next(_allocations(addresses), "")


def _allocations(addresses: Iterable[Json]) -> Iterator[str]:
    return (text(one["AllocationId"]) for one in addresses if one.get("AllocationId"))


def _listeners(api: AwsApi, arn: str) -> Iterator[tuple[int, Json]]:
    for one in api.pages("elbv2:DescribeListeners", "Listeners", LoadBalancerArn=arn):
        yield int(one.get("Port", 0)), one


def _listener(record: Json, names: Mapping[str, str]) -> Listener:
    actions, certificates = objects(record.get("DefaultActions")), record.get("Certificates")
    target = text(actions[0].get("TargetGroupArn")) if actions else ""
    return Listener(
        port=int(record.get("Port", 0)),
        protocol=text(record.get("Protocol")),
        group=names.get(target, target),
        certificate=next((text(one.get("CertificateArn")) for one in objects(certificates)), ""),
        policy=text(record.get("SslPolicy")),
        alpn=next(iter(record.get("AlpnPolicy") or ()), "").replace("None", ""),
    )


def _group(record: Json, tags: Tags) -> TargetGroup:
    protocol = text(record.get("HealthCheckProtocol"))
    path = text(record.get("HealthCheckPath")) if protocol in ("HTTP", "HTTPS") else ""
    return TargetGroup(
        name=text(record.get("TargetGroupName")),
        protocol=text(record.get("Protocol")),
        port=int(record.get("Port", 0)),
        check=Check(
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


def _group_attributes(api: AwsApi, arn: str) -> dict[str, str]:
    answer = api.call("elbv2:DescribeTargetGroupAttributes", TargetGroupArn=arn)
    return read_attributes(answer.get("Attributes"))


def _targets(api: AwsApi, arn: str) -> frozenset[str]:
    """The registered instances; those that are being deregistered are none any more."""
    answer = api.call("elbv2:DescribeTargetHealth", TargetGroupArn=arn)
    return frozenset(
        text(mapping(one.get("Target")).get("Id"))
        for one in objects(answer.get("TargetHealthDescriptions"))
        if mapping(one.get("TargetHealth")).get("State") != "draining"
    )
