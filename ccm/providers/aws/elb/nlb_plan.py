"""What turns a Network Load Balancer into what it has to be; nothing in here acts.

Whatever is to be used is created before it is used, and given up before it is deleted. A crash
between two calls is safe: planning again from what is then there yields the remaining ones.
"""

from collections.abc import Iterator
from dataclasses import replace

from ccm.errors import Refused
from ccm.model.objects import Json
from ccm.providers.aws.elb.calls import ApiCall, Arn, instance_calls
from ccm.providers.aws.elb.nlb_desired import (
    DesiredNlb,
    Nlb,
    NlbListener,
    ObservedNlb,
    TargetGroup,
    differing,
)
from ccm.providers.aws.elb.request import DUALSTACK, IPV4, IPV6
from ccm.providers.aws.tags import tag_list


def plan(desired: DesiredNlb, observed: ObservedNlb, vpc_id: str) -> Iterator[ApiCall]:
    """Yield what makes it as desired; raises `Refused` for what cannot be changed."""
    for name in sorted(desired.groups.keys() & observed.foreign_groups):
        raise Refused(f"target group {name} carries the tags of another owner, or lost its own")
    loses_ipv6 = bool(observed.nlb and _loses_ipv6(desired.nlb, observed.nlb))
    yield from _plan_nlb(desired.nlb, observed.nlb)
    if observed.nlb and not loses_ipv6:
        yield from _plan_place(desired.nlb, observed.nlb)
    for name, group in sorted(desired.groups.items()):
        yield from _plan_group(group, observed.groups.get(name), vpc_id)
    yield from _plan_listeners(desired, observed)
    for name in sorted(observed.groups.keys() - desired.groups.keys()):
        yield _group_deletion(name)
    if observed.nlb and loses_ipv6:  # once no target group is of IPv6
        yield from _plan_place(desired.nlb, observed.nlb)


def plan_targets(targets: frozenset[str], observed: ObservedNlb) -> Iterator[ApiCall]:
    """Yield what gives all target groups these targets and changes nothing else."""
    for _, group in sorted(observed.groups.items()):
        yield from _plan_targets(targets, group)


def plan_deletion(observed: ObservedNlb) -> Iterator[ApiCall]:
    """Yield what deletes the load balancer, whose listeners go with it.

    It is the first to go: AWS refuses to delete one that is protected, and then nothing is gone.
    """
    if observed.nlb:
        yield ApiCall("elbv2:DeleteLoadBalancer", {"LoadBalancerArn": Arn(observed.nlb.name)})


def plan_group_deletion(observed: ObservedNlb) -> Iterator[ApiCall]:
    """Yield what deletes the target groups, by whose names all that is left is found: the last."""
    return map(_group_deletion, sorted(observed.groups))


def _plan_nlb(desired: Nlb, observed: Nlb | None) -> Iterator[ApiCall]:
    current = observed or replace(desired, attributes={})
    own = {"LoadBalancerArn": Arn(desired.name)}
    subnets = {"SubnetMappings": _subnet_mappings(desired)}
    groups = {"SecurityGroups": list(desired.groups)} if desired.groups else {}
    if observed is None:
        scheme = "internal" if desired.is_internal else "internet-facing"
        usual = {"Name": desired.name, "Type": "network", "Scheme": scheme}
        if desired.address_type == DUALSTACK:
            usual["IpAddressType"] = DUALSTACK
        tags = {"Tags": tag_list(desired.tags)}
        yield ApiCall("elbv2:CreateLoadBalancer", {**usual, **subnets, **groups, **tags})
    if desired.groups and set(desired.groups) != set(current.groups):
        yield ApiCall("elbv2:SetSecurityGroups", {**own, **groups})
    yield from _plan_tags(desired, current)
    if changed := _changed_attributes(desired, current):
        yield ApiCall("elbv2:ModifyLoadBalancerAttributes", {**own, **changed})


def _plan_place(desired: Nlb, current: Nlb) -> Iterator[ApiCall]:
    """The subnets and the IP address type; with IPv6 all the subnets need an IPv6 network."""
    own = {"LoadBalancerArn": Arn(desired.name)}
    steps: list[ApiCall] = []
    if current.subnets.keys() != desired.subnets.keys():
        subnets = {"SubnetMappings": _subnet_mappings(desired)}
        steps.append(ApiCall("elbv2:SetSubnets", {**own, **subnets}))
    if current.address_type != desired.address_type:
        kind = {"IpAddressType": desired.address_type}
        steps.append(ApiCall("elbv2:SetIpAddressType", {**own, **kind}))
    yield from reversed(steps) if _loses_ipv6(desired, current) else steps


def _loses_ipv6(desired: Nlb, current: Nlb) -> bool:
    return (current.address_type, desired.address_type) == (DUALSTACK, IPV4)


def _plan_tags(desired: Nlb | TargetGroup, observed: Nlb | TargetGroup) -> Iterator[ApiCall]:
    if tags := differing(desired.tags, observed.tags):
        named = {"ResourceArns": [Arn(desired.name)]}
        yield ApiCall("elbv2:AddTags", {**named, "Tags": tag_list(tags)})


def _changed_attributes(desired: Nlb | TargetGroup, observed: Nlb | TargetGroup) -> Json:
    """The attributes to set, which have the form of tags."""
    changed = differing(desired.attributes, observed.attributes)
    return {"Attributes": tag_list(changed)} if changed else {}


def _plan_group(
    desired: TargetGroup, observed: TargetGroup | None, vpc_id: str
) -> Iterator[ApiCall]:
    current = observed or replace(desired, attributes={}, targets=frozenset())
    own = {"TargetGroupArn": Arn(desired.name)}
    if observed is None:
        where = {"VpcId": vpc_id, "TargetType": "instance"}
        if desired.family == IPV6:
            where["IpAddressType"] = IPV6
        usual = {"Name": desired.name, "Protocol": desired.protocol, "Port": desired.port}
        tags = {"Tags": tag_list(desired.tags)}
        made = {**usual, **where, **_health_check(desired), **tags}
        yield ApiCall("elbv2:CreateTargetGroup", made)
    if current.health_check != desired.health_check:
        yield ApiCall("elbv2:ModifyTargetGroup", {**own, **_health_check(desired)})
    yield from _plan_tags(desired, current)
    if changed := _changed_attributes(desired, current):
        yield ApiCall("elbv2:ModifyTargetGroupAttributes", {**own, **changed})
    yield from _plan_targets(desired.targets, current)


def _plan_targets(desired: frozenset[str], group: TargetGroup) -> Iterator[ApiCall]:
    """Those that are gone go first: a target group has room for so many."""
    for name, targets in (
        ("elbv2:DeregisterTargets", group.targets - desired),
        ("elbv2:RegisterTargets", desired - group.targets),
    ):
        which = {"TargetGroupArn": Arn(group.name)}
        yield from instance_calls(name, which, "Targets", "Id", targets)


def _plan_listeners(desired: DesiredNlb, observed: ObservedNlb) -> Iterator[ApiCall]:
    for port in sorted(observed.listeners.keys() - desired.listeners.keys()):
        yield _listener_deletion(observed.listeners[port])
    for port, listener in sorted(desired.listeners.items()):
        current, parameters = observed.listeners.get(port), _listener(listener)
        creation = {"LoadBalancerArn": Arn(desired.nlb.name), **parameters}
        if current is None:
            yield ApiCall("elbv2:CreateListener", creation)
        elif not _can_become(current, listener):
            yield _listener_deletion(current)
            yield ApiCall("elbv2:CreateListener", creation)
        elif _with_any(listener, current) != current:
            yield ApiCall("elbv2:ModifyListener", {"ListenerArn": current.arn, **parameters})


def _with_any(desired: NlbListener, observed: NlbListener) -> NlbListener:
    """What is desired; where anything will do, it is what there is."""
    alpn = {"": observed.alpn, "None": ""}.get(desired.alpn, desired.alpn)
    return replace(desired, policy=desired.policy or observed.policy, alpn=alpn)


def _can_become(observed: NlbListener, desired: NlbListener) -> bool:
    """Whether AWS changes the protocol in place: it does so between TCP and TLS."""
    is_plain = {observed.protocol, desired.protocol} <= {"TCP", "TLS"}
    return observed.protocol == desired.protocol or is_plain


def _listener_deletion(listener: NlbListener) -> ApiCall:
    return ApiCall("elbv2:DeleteListener", {"ListenerArn": listener.arn})


def _group_deletion(name: str) -> ApiCall:
    return ApiCall("elbv2:DeleteTargetGroup", {"TargetGroupArn": Arn(name)})


def _listener(listener: NlbListener) -> Json:
    parameters: Json = {
        "Port": listener.port,
        "Protocol": listener.protocol,
        "DefaultActions": [{"Type": "forward", "TargetGroupArn": Arn(listener.group)}],
    }
    if listener.certificate:
        parameters["Certificates"] = [{"CertificateArn": listener.certificate}]
    if listener.policy:
        parameters["SslPolicy"] = listener.policy
    if listener.alpn:
        parameters["AlpnPolicy"] = [listener.alpn]
    return parameters


def _subnet_mappings(nlb: Nlb) -> list[dict[str, str]]:
    return [{"SubnetId": subnet, **address} for subnet, address in nlb.subnets.items()]


def _health_check(group: TargetGroup) -> Json:
    check = group.health_check
    return {
        "HealthCheckProtocol": check.protocol,
        "HealthCheckPort": check.port,
        "HealthCheckIntervalSeconds": check.interval,
        "HealthCheckTimeoutSeconds": check.timeout,
        "HealthyThresholdCount": check.healthy,
        "UnhealthyThresholdCount": check.unhealthy,
        **({"HealthCheckPath": check.path} if check.path else {}),
    }
