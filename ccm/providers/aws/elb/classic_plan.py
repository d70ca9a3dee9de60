"""What turns a Classic Load Balancer into what it has to be; nothing in here acts.

A crash between two calls is safe: planning again from what is then there yields the remaining ones.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ccm.model.objects import Json
from ccm.providers.aws.elb.calls import ApiCall, instance_calls
from ccm.providers.aws.elb.classic_desired import (
    PROXY_POLICY,
    TLS_POLICY,
    ClassicElb,
    ClassicListener,
    differing_sections,
)
from ccm.providers.aws.elb.request import ElbHealthCheck
from ccm.providers.aws.tags import tag_list

AWS_HEALTH_CHECK = ElbHealthCheck("", "", "", interval=30, timeout=5, healthy=10, unhealthy=2)
"""What AWS sets by itself, on a port of its own choice; never what is desired."""


def plan(desired: ClassicElb, observed: ClassicElb | None) -> Iterator[ApiCall]:
    """Yield what makes it as desired, but for the scheme, which cannot be changed."""
    elb = observed or replace(
        desired,
        health_check=AWS_HEALTH_CHECK,
        attributes={},
        instances=frozenset(),
        tls_policies={},
        proxied=frozenset(),
    )
    if observed is None:
        yield _creation(desired)
    yield from _plan_subnets(desired, elb)
    if set(desired.groups) != set(elb.groups):
        groups = list(desired.groups)
        yield _call(elb, "elb:ApplySecurityGroupsToLoadBalancer", SecurityGroups=groups)
    yield from _plan_listeners(desired, elb)
    yield from _plan_tls_policies(desired, elb)
    yield from _plan_proxy_protocol(desired, elb)
    if desired.health_check != elb.health_check:
        check = _health_check_parameters(desired.health_check)
        yield _call(elb, "elb:ConfigureHealthCheck", HealthCheck=check)
    tags = {key: value for key, value in desired.tags.items() if elb.tags.get(key) != value}
    if tags:
        names = [elb.name]
        yield ApiCall("elb:AddTags", {"LoadBalancerNames": names, "Tags": tag_list(tags)})
    if sections := differing_sections(desired.attributes, elb.attributes):
        yield _call(elb, "elb:ModifyLoadBalancerAttributes", LoadBalancerAttributes=sections)
    yield from plan_instances(elb, desired.instances)


def plan_instances(elb: ClassicElb, desired: frozenset[str]) -> Iterator[ApiCall]:
    """Yield what puts these instances behind the load balancer, new ones first."""
    for name, instances in (
        ("elb:RegisterInstancesWithLoadBalancer", desired - elb.instances),
        ("elb:DeregisterInstancesFromLoadBalancer", elb.instances - desired),
    ):
        which = {"LoadBalancerName": elb.name}
        yield from instance_calls(name, which, "Instances", "InstanceId", instances)


def _plan_subnets(desired: ClassicElb, elb: ClassicElb) -> Iterator[ApiCall]:
    """A zone has one subnet, so the old one goes first; but one has to stay all the time."""
    steps: list[ApiCall] = []
    if surplus := sorted(elb.subnets - desired.subnets):
        steps.append(_call(elb, "elb:DetachLoadBalancerFromSubnets", Subnets=surplus))
    if missing := sorted(desired.subnets - elb.subnets):
        steps.append(_call(elb, "elb:AttachLoadBalancerToSubnets", Subnets=missing))
    yield from steps if elb.subnets & desired.subnets else reversed(steps)


def _plan_listeners(desired: ClassicElb, elb: ClassicElb) -> Iterator[ApiCall]:
    """Of a listener only the certificate can be changed; else it is deleted and recreated.

    What AWS does not take, a certificate say, leaves the old one in its place.
    """
    for port, listener in sorted(elb.listeners.items()):
        if _is_recertified(listener, desired.listeners.get(port)):
            certificate = desired.listeners[port].certificate
            name = "elb:SetLoadBalancerListenerSSLCertificate"
            yield _call(elb, name, LoadBalancerPort=port, SSLCertificateId=certificate)
        elif desired.listeners.get(port) != listener:
            yield _call(elb, "elb:DeleteLoadBalancerListeners", LoadBalancerPorts=[port])
    missing = [
        listener
        for port, listener in sorted(desired.listeners.items())
        if _is_created(elb.listeners.get(port), listener)
    ]
    name = "elb:CreateLoadBalancerListeners"
    replaced = [elb.listeners[item.port] for item in missing if item.port in elb.listeners]
    undo = _call(elb, name, Listeners=_listed(replaced)) if replaced else None
    if missing:
        yield replace(_call(elb, name, Listeners=_listed(missing)), undo=undo)


def _is_created(observed: ClassicListener | None, desired: ClassicListener) -> bool:
    return observed is None or (observed != desired and not _is_recertified(observed, desired))


def _is_recertified(observed: ClassicListener, desired: ClassicListener | None) -> bool:
    """Whether they differ by their certificates alone."""
    if desired is None or not observed.certificate or not desired.certificate:
        return False
    return desired != observed == replace(desired, certificate=observed.certificate)


def _plan_tls_policies(desired: ClassicElb, elb: ClassicElb) -> Iterator[ApiCall]:
    for reference in sorted(set(desired.tls_policies.values())):
        name, kind = TLS_POLICY.format(reference), "SSLNegotiationPolicyType"
        if name not in elb.policies:
            yield _policy(elb, name, kind, "Reference-Security-Policy", reference)
    for port, reference in sorted(desired.tls_policies.items()):
        current, wanted = elb.listeners.get(port), desired.listeners[port]
        if _is_created(current, wanted) or elb.tls_policies.get(port) != reference:
            yield _call(
                elb,
                "elb:SetLoadBalancerPoliciesOfListener",
                LoadBalancerPort=port,
                PolicyNames=[TLS_POLICY.format(reference)],
            )


def _plan_proxy_protocol(desired: ClassicElb, elb: ClassicElb) -> Iterator[ApiCall]:
    if desired.proxied and PROXY_POLICY not in elb.policies:
        kind = "ProxyProtocolPolicyType"
        yield _policy(elb, PROXY_POLICY, kind, "ProxyProtocol", "true")
    used = {listener.node_port for listener in desired.listeners.values()}
    for node_ports, names in (
        (desired.proxied - elb.proxied, [PROXY_POLICY]),
        ((elb.proxied - desired.proxied) & used, []),
    ):
        for node_port in sorted(node_ports):
            yield _call(
                elb,
                "elb:SetLoadBalancerPoliciesForBackendServer",
                InstancePort=node_port,
                PolicyNames=names,
            )


def _creation(elb: ClassicElb) -> ApiCall:
    """With listeners, subnets, groups and tags; everything else is set afterwards."""
    return _call(
        elb,
        "elb:CreateLoadBalancer",
        Listeners=_listed(elb.listeners.values()),
        Subnets=sorted(elb.subnets),
        SecurityGroups=list(elb.groups),
        Tags=tag_list(elb.tags),
        **({"Scheme": "internal"} if elb.is_internal else {}),
    )


def _policy(elb: ClassicElb, name: str, kind: str, attribute: str, value: str) -> ApiCall:
    """A policy with one attribute; `kind` is AWS's type of policies."""
    return _call(
        elb,
        "elb:CreateLoadBalancerPolicy",
        PolicyName=name,
        PolicyTypeName=kind,
        PolicyAttributes=[{"AttributeName": attribute, "AttributeValue": value}],
    )


def _call(elb: ClassicElb, name: str, **parameters: Any) -> ApiCall:
    return ApiCall(name, {"LoadBalancerName": elb.name, **parameters})


def _listed(listeners: Iterable[ClassicListener]) -> list[Json]:
    return [
        {
            "Protocol": listener.protocol,
            "LoadBalancerPort": listener.port,
            "InstanceProtocol": listener.node_protocol,
            "InstancePort": listener.node_port,
            **({"SSLCertificateId": listener.certificate} if listener.certificate else {}),
        }
        for listener in listeners
    ]


def _health_check_parameters(check: ElbHealthCheck) -> Json:
    return {
        "Target": f"{check.protocol}:{check.port}{check.path}",
        "Interval": check.interval,
        "Timeout": check.timeout,
        "HealthyThreshold": check.healthy,
        "UnhealthyThreshold": check.unhealthy,
    }
