"""What turns a Classic Load Balancer into what it has to be; nothing in here acts.

A crash between two actions is safe: planning again from what is then there yields the remaining
ones. Actions are named after the calls that perform them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ccm.errors import Refused
from ccm.providers.aws.elb.classic_desired import (
    PROXY_POLICY,
    TLS_POLICY,
    AttributeSections,
    ClassicElb,
    ClassicListener,
    differing_sections,
)
from ccm.providers.aws.elb.request import ElbHealthCheck
from ccm.providers.aws.tags import Tags

MAX_INSTANCES_PER_CALL = 100
AWS_HEALTH_CHECK = ElbHealthCheck("", "", "", interval=30, timeout=5, healthy=10, unhealthy=2)
"""What AWS sets by itself, on a port of its own choice; never what is desired."""


@dataclass(frozen=True, slots=True)
class CreateLoadBalancer:
    """With listeners, subnets, groups and tags; everything else is set afterwards."""

    elb: ClassicElb


@dataclass(frozen=True, slots=True)
class AttachSubnets:
    """Subnets that are missing, by ID."""

    subnets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DetachSubnets:
    """Subnets that are not wanted, by ID."""

    subnets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApplySecurityGroups:
    """Replace all security groups, by ID."""

    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteListener:
    """The listener at one port."""

    port: int


@dataclass(frozen=True, slots=True)
class CreateListeners:
    """Listeners at ports that have none."""

    listeners: tuple[ClassicListener, ...]


@dataclass(frozen=True, slots=True)
class CreatePolicy:
    """A policy with one attribute; `kind` is AWS's type of policies."""

    name: str
    kind: str
    attribute: str
    value: str


@dataclass(frozen=True, slots=True)
class SetTlsPolicy:
    """The policy of one listener."""

    port: int
    reference: str


@dataclass(frozen=True, slots=True)
class SetProxyProtocol:
    """Send the client's address to a node port, or do so no longer."""

    node_port: int
    is_on: bool


@dataclass(frozen=True, slots=True)
class ConfigureHealthCheck:
    """Replace the health check."""

    health_check: ElbHealthCheck


@dataclass(frozen=True, slots=True)
class AddTags:
    """Add or change tags."""

    tags: Tags


@dataclass(frozen=True, slots=True)
class ModifyAttributes:
    """Replace these sections of the attributes."""

    sections: AttributeSections


@dataclass(frozen=True, slots=True)
class RegisterInstances:
    """Instances to have behind the load balancer, by ID."""

    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeregisterInstances:
    """Instances that are to be behind it no longer, by ID."""

    instances: tuple[str, ...]


PolicyAction = CreatePolicy | SetTlsPolicy | SetProxyProtocol
ClassicElbAction = (
    CreateLoadBalancer
    | AttachSubnets
    | DetachSubnets
    | ApplySecurityGroups
    | DeleteListener
    | CreateListeners
    | PolicyAction
    | ConfigureHealthCheck
    | AddTags
    | ModifyAttributes
    | RegisterInstances
    | DeregisterInstances
)


def plan(desired: ClassicElb, observed: ClassicElb | None) -> Iterator[ClassicElbAction]:
    """Yield what makes it as desired; raises `Refused` for what is fixed for its life."""
    elb = observed or replace(
        desired,
        health_check=AWS_HEALTH_CHECK,
        attributes={},
        instances=frozenset(),
        tls_policies={},
        proxied=frozenset(),
    )
    if observed is None:
        yield CreateLoadBalancer(desired)
    if desired.is_internal != elb.is_internal:
        kind = "internal" if elb.is_internal else "internet-facing"
        raise Refused(
            f"load balancer {elb.name} is {kind} for its life: delete the Service and create it"
            " again to have it otherwise"
        )
    yield from _plan_subnets(desired.subnets, elb.subnets)
    if set(desired.groups) != set(elb.groups):
        yield ApplySecurityGroups(desired.groups)
    yield from _plan_listeners(desired, elb)
    yield from _plan_policies(desired, elb)
    if desired.health_check != elb.health_check:
        yield ConfigureHealthCheck(desired.health_check)
    tags = {key: value for key, value in desired.tags.items() if elb.tags.get(key) != value}
    if tags:
        yield AddTags(tags)
    if sections := differing_sections(desired.attributes, elb.attributes):
        yield ModifyAttributes(sections)
    yield from plan_instances(desired.instances, elb.instances)


def plan_instances(
    desired: frozenset[str], observed: frozenset[str]
) -> Iterator[RegisterInstances | DeregisterInstances]:
    """Yield what puts these instances behind the load balancer, new ones first."""
    changes = (RegisterInstances, desired - observed), (DeregisterInstances, observed - desired)
    for action, instances in changes:
        ordered = sorted(instances)
        for at in range(0, len(ordered), MAX_INSTANCES_PER_CALL):
            yield action(tuple(ordered[at : at + MAX_INSTANCES_PER_CALL]))


def _plan_subnets(desired: frozenset[str], observed: frozenset[str]) -> Iterator[ClassicElbAction]:
    """A zone has one subnet, so the old one goes first; but one has to stay all the time."""
    steps: list[ClassicElbAction] = []
    if surplus := observed - desired:
        steps.append(DetachSubnets(tuple(sorted(surplus))))
    if missing := desired - observed:
        steps.append(AttachSubnets(tuple(sorted(missing))))
    yield from steps if observed & desired else reversed(steps)


def _plan_listeners(desired: ClassicElb, elb: ClassicElb) -> Iterator[ClassicElbAction]:
    """A listener cannot be changed: it is deleted and created anew."""
    for port, listener in sorted(elb.listeners.items()):
        if desired.listeners.get(port) != listener:
            yield DeleteListener(port)
    missing = [
        listener
        for port, listener in sorted(desired.listeners.items())
        if elb.listeners.get(port) != listener
    ]
    if missing:
        yield CreateListeners(tuple(missing))


def _plan_policies(desired: ClassicElb, elb: ClassicElb) -> Iterator[PolicyAction]:
    for reference in sorted(set(desired.tls_policies.values())):
        name, kind = TLS_POLICY.format(reference), "SSLNegotiationPolicyType"
        if name not in elb.policies:
            yield CreatePolicy(name, kind, "Reference-Security-Policy", reference)
    for port, reference in sorted(desired.tls_policies.items()):
        is_new = elb.listeners.get(port) != desired.listeners[port]
        if is_new or elb.tls_policies.get(port) != reference:
            yield SetTlsPolicy(port, reference)
    if desired.proxied and PROXY_POLICY not in elb.policies:
        yield CreatePolicy(PROXY_POLICY, "ProxyProtocolPolicyType", "ProxyProtocol", "true")
    for node_port in sorted(desired.proxied - elb.proxied):
        yield SetProxyProtocol(node_port, True)
    used = {listener.node_port for listener in desired.listeners.values()}
    for node_port in sorted((elb.proxied - desired.proxied) & used):
        yield SetProxyProtocol(node_port, False)
