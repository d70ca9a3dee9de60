"""What turns a Network Load Balancer into what it has to be; nothing in here acts.

Whatever is to be used is created before it is used, and given up before it is deleted. A crash
between two actions is safe: planning again from what is then there yields the remaining ones.
Actions are named after the calls that perform them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ccm.errors import Refused
from ccm.providers.aws.elb.nlb_desired import (
    DesiredNlb,
    Nlb,
    NlbListener,
    ObservedNlb,
    TargetGroup,
    differing,
)
from ccm.providers.aws.tags import Tags

MAX_TARGETS_PER_CALL = 100
PROTECTION = "deletion_protection.enabled"


@dataclass(frozen=True, slots=True)
class CreateLoadBalancer:
    """With subnets, security groups and tags; attributes are set afterwards."""

    nlb: Nlb


@dataclass(frozen=True, slots=True)
class DeleteLoadBalancer:
    """The load balancer itself; listeners and target groups are deleted before."""

    name: str


@dataclass(frozen=True, slots=True)
class SetSubnets:
    """Replace the subnets."""

    nlb: Nlb


@dataclass(frozen=True, slots=True)
class SetSecurityGroups:
    """Replace the load balancer's own security groups."""

    nlb: Nlb


@dataclass(frozen=True, slots=True)
class AddTags:
    """Add or change tags; `group` is the name of a target group, empty for the load balancer."""

    group: str
    tags: Tags


@dataclass(frozen=True, slots=True)
class ModifyAttributes:
    """As `AddTags`, for attributes."""

    group: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CreateTargetGroup:
    """Without attributes and targets."""

    group: TargetGroup


@dataclass(frozen=True, slots=True)
class ModifyTargetGroup:
    """Replace the health check."""

    group: TargetGroup


@dataclass(frozen=True, slots=True)
class DeleteTargetGroup:
    """The target group of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class RegisterTargets:
    """Instances to have in a target group, by ID."""

    group: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeregisterTargets:
    """Instances that are to be in it no longer, by ID."""

    group: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateListener:
    """A listener at a port that has none."""

    listener: NlbListener


@dataclass(frozen=True, slots=True)
class ModifyListener:
    """Replace all that can be changed in a listener."""

    listener: NlbListener


@dataclass(frozen=True, slots=True)
class DeleteListener:
    """The listener at one port."""

    port: int


ListenerAction = CreateListener | ModifyListener | DeleteListener
TargetGroupAction = (
    CreateTargetGroup | ModifyTargetGroup | DeleteTargetGroup | RegisterTargets | DeregisterTargets
)
NlbAction = (
    CreateLoadBalancer
    | DeleteLoadBalancer
    | SetSubnets
    | SetSecurityGroups
    | AddTags
    | ModifyAttributes
    | TargetGroupAction
    | ListenerAction
)


def plan(desired: DesiredNlb, observed: ObservedNlb) -> Iterator[NlbAction]:
    """Yield what makes it as desired; raises `Refused` for what cannot be changed."""
    for name in sorted(desired.groups.keys() & observed.strangers):
        raise Refused(f"target group {name} carries the tags of somebody else, or lost its own")
    yield from _plan_nlb(desired.nlb, observed.nlb)
    for name, group in sorted(desired.groups.items()):
        yield from _plan_group(group, observed.groups.get(name))
    yield from _plan_listeners(desired, observed)
    for name in sorted(observed.groups.keys() - desired.groups.keys()):
        yield DeleteTargetGroup(name)


def plan_targets(targets: frozenset[str], observed: ObservedNlb) -> Iterator[NlbAction]:
    """Yield what gives all target groups these targets and changes nothing else."""
    for name, group in sorted(observed.groups.items()):
        yield from _plan_targets(name, targets, group.targets)


def plan_deletion(observed: ObservedNlb) -> Iterator[NlbAction]:
    """Yield what deletes all; the load balancer, by which the rest is found, goes last.

    Raises `Refused` for a protected load balancer before anything of it is gone.
    """
    if observed.nlb and observed.nlb.attributes.get(PROTECTION) == "true":
        raise Refused(
            f"load balancer {observed.nlb.name} has deletion protection: take it off first"
        )
    for port in sorted(observed.listeners):
        yield DeleteListener(port)
    for name in sorted(observed.groups):
        yield DeleteTargetGroup(name)
    if observed.nlb:
        yield DeleteLoadBalancer(observed.nlb.name)


def _plan_nlb(desired: Nlb, observed: Nlb | None) -> Iterator[NlbAction]:
    there = observed or replace(desired, attributes={})
    if observed is None:
        yield CreateLoadBalancer(desired)
    _check_fixed(desired, there)
    if there.subnets.keys() != desired.subnets.keys():
        yield SetSubnets(desired)
    if desired.groups and set(desired.groups) != set(there.groups):
        yield SetSecurityGroups(desired)
    yield from _plan_details("", desired, there)


def _plan_details(
    group: str, desired: Nlb | TargetGroup, observed: Nlb | TargetGroup
) -> Iterator[AddTags | ModifyAttributes]:
    if tags := differing(desired.tags, observed.tags):
        yield AddTags(group, tags)
    if attributes := differing(desired.attributes, observed.attributes):
        yield ModifyAttributes(group, attributes)


def _check_fixed(desired: Nlb, observed: Nlb) -> None:
    again = "delete the Service and create it again to have it otherwise"
    if desired.is_internal != observed.is_internal:
        kind = "internal" if observed.is_internal else "internet-facing"
        raise Refused(f"load balancer {observed.name} is {kind} for its life: {again}")
    if bool(desired.groups) != bool(observed.groups):
        has = "has" if observed.groups else "has no"
        raise Refused(f"load balancer {observed.name} {has} security groups for its life: {again}")
    for subnet, allocation in desired.subnets.items():
        there = observed.subnets.get(subnet)
        if there and there != allocation:
            raise Refused(
                f"load balancer {observed.name} has {there} in {subnet} for its life: {again}"
            )


def _plan_group(desired: TargetGroup, observed: TargetGroup | None) -> Iterator[NlbAction]:
    there = observed or replace(desired, attributes={}, targets=frozenset())
    if observed is None:
        yield CreateTargetGroup(desired)
    if there.health_check != desired.health_check:
        yield ModifyTargetGroup(desired)
    yield from _plan_details(desired.name, desired, there)
    yield from _plan_targets(desired.name, desired.targets, there.targets)


def _plan_targets(
    name: str, desired: frozenset[str], observed: frozenset[str]
) -> Iterator[RegisterTargets | DeregisterTargets]:
    """Those that are gone go first: a target group has room for so many."""
    changes = (DeregisterTargets, observed - desired), (RegisterTargets, desired - observed)
    for action, targets in changes:
        ordered = sorted(targets)
        for at in range(0, len(ordered), MAX_TARGETS_PER_CALL):
            yield action(name, tuple(ordered[at : at + MAX_TARGETS_PER_CALL]))


def _plan_listeners(desired: DesiredNlb, observed: ObservedNlb) -> Iterator[NlbAction]:
    for port in sorted(observed.listeners.keys() - desired.listeners.keys()):
        yield DeleteListener(port)
    for port, listener in sorted(desired.listeners.items()):
        there = observed.listeners.get(port)
        if there is None:
            yield CreateListener(listener)
        elif not _can_become(there, listener):
            yield DeleteListener(port)
            yield CreateListener(listener)
        elif replace(there, policy="") != replace(listener, policy="") or (
            listener.policy not in ("", there.policy)
        ):
            yield ModifyListener(listener)


def _can_become(observed: NlbListener, desired: NlbListener) -> bool:
    """Whether AWS changes the protocol in place: it does so between TCP and TLS."""
    is_plain = {observed.protocol, desired.protocol} <= {"TCP", "TLS"}
    return observed.protocol == desired.protocol or is_plain
