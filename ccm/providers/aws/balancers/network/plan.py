"""What turns a network load balancer into what it has to be; nothing in here acts.

Whatever is to be used is made before it is used, and given up before it is taken away. A crash
between two actions is safe: planning again from what is then there yields the remaining ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ccm.errors import Refused
from ccm.providers.aws.balancers.network.state import (
    Listener,
    NetworkBalancer,
    Seen,
    TargetGroup,
    Wanted,
    differing,
)

REGISTER_AT_ONCE = 100
PROTECTION = "deletion_protection.enabled"


@dataclass(frozen=True, slots=True)
class CreateBalancer:
    balancer: NetworkBalancer


@dataclass(frozen=True, slots=True)
class DeleteBalancer:
    name: str


@dataclass(frozen=True, slots=True)
class SetSubnets:
    balancer: NetworkBalancer


@dataclass(frozen=True, slots=True)
class SetGroups:
    """Replace the balancer's own security groups."""

    balancer: NetworkBalancer


@dataclass(frozen=True, slots=True)
class SetTags:
    """Add or change tags; `group` is the name of a target group, empty for the balancer."""

    group: str
    tags: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SetAttributes:
    """As `SetTags`, for attributes."""

    group: str
    attributes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CreateGroup:
    group: TargetGroup


@dataclass(frozen=True, slots=True)
class SetCheck:
    group: TargetGroup


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    name: str


@dataclass(frozen=True, slots=True)
class Register:
    group: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deregister:
    group: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateListener:
    listener: Listener


@dataclass(frozen=True, slots=True)
class SetListener:
    listener: Listener


@dataclass(frozen=True, slots=True)
class DeleteListener:
    port: int


Action = (
    CreateBalancer
    | DeleteBalancer
    | SetSubnets
    | SetGroups
    | SetTags
    | SetAttributes
    | CreateGroup
    | SetCheck
    | DeleteGroup
    | Register
    | Deregister
    | CreateListener
    | SetListener
    | DeleteListener
)


def plan(wanted: Wanted, seen: Seen) -> Iterator[Action]:
    """Yield what makes `seen` what is wanted; raises `Refused` for what cannot be changed."""
    for name in sorted(wanted.groups.keys() & seen.strangers):
        raise Refused(f"target group {name} carries the tags of somebody else, or lost its own")
    yield from _plan_balancer(wanted.balancer, seen.balancer)
    for name, group in sorted(wanted.groups.items()):
        yield from _plan_group(group, seen.groups.get(name))
    yield from _plan_listeners(wanted, seen)
    for name in sorted(seen.groups.keys() - wanted.groups.keys()):
        yield DeleteGroup(name)


def plan_targets(targets: frozenset[str], seen: Seen) -> Iterator[Action]:
    """Yield what gives all target groups these targets and changes nothing else."""
    for name, group in sorted(seen.groups.items()):
        yield from _plan_targets(name, targets, group.targets)


def plan_deletion(seen: Seen) -> Iterator[Action]:
    """Yield what takes all away; while anything is left, the balancer is there and tells of it.

    Raises `Refused` for a protected balancer before anything of it is gone.
    """
    if seen.balancer and seen.balancer.attributes.get(PROTECTION) == "true":
        raise Refused(f"balancer {seen.balancer.name} has deletion protection: take it off first")
    for port in sorted(seen.listeners):
        yield DeleteListener(port)
    for name in sorted(seen.groups):
        yield DeleteGroup(name)
    if seen.balancer:
        yield DeleteBalancer(seen.balancer.name)


def _plan_balancer(wanted: NetworkBalancer, seen: NetworkBalancer | None) -> Iterator[Action]:
    if seen is None:
        yield CreateBalancer(wanted)
        attributes = differing(wanted.attributes, {})
    else:
        _check_fixed(wanted, seen)
        if seen.subnets.keys() != wanted.subnets.keys():
            yield SetSubnets(wanted)
        if wanted.groups and set(wanted.groups) != set(seen.groups):
            yield SetGroups(wanted)
        if tags := differing(wanted.tags, seen.tags):
            yield SetTags("", _items(tags))
        attributes = differing(wanted.attributes, seen.attributes)
    if attributes:
        yield SetAttributes("", _items(attributes))


def _check_fixed(wanted: NetworkBalancer, seen: NetworkBalancer) -> None:
    again = "delete the Service and create it again to have it otherwise"
    if wanted.is_internal != seen.is_internal:
        kind = "internal" if seen.is_internal else "internet-facing"
        raise Refused(f"balancer {seen.name} is {kind} for its life: {again}")
    if bool(wanted.groups) != bool(seen.groups):
        has = "has" if seen.groups else "has no"
        raise Refused(f"balancer {seen.name} {has} security groups for its life: {again}")
    for subnet, allocation in wanted.subnets.items():
        there = seen.subnets.get(subnet)
        if there and there != allocation:
            raise Refused(f"balancer {seen.name} has {there} in {subnet} for its life: {again}")


def _plan_group(wanted: TargetGroup, seen: TargetGroup | None) -> Iterator[Action]:
    if seen is None:
        yield CreateGroup(wanted)
        attributes = differing(wanted.attributes, {})
    else:
        if seen.check != wanted.check:
            yield SetCheck(wanted)
        if tags := differing(wanted.tags, seen.tags):
            yield SetTags(wanted.name, _items(tags))
        attributes = differing(wanted.attributes, seen.attributes)
    if attributes:
        yield SetAttributes(wanted.name, _items(attributes))
    yield from _plan_targets(wanted.name, wanted.targets, seen.targets if seen else frozenset())


def _plan_targets(
    name: str, wanted: frozenset[str], seen: frozenset[str]
) -> Iterator[Register | Deregister]:
    """Those that are gone go first: a target group has room for so many."""
    for verb, targets in ((Deregister, seen - wanted), (Register, wanted - seen)):
        ordered = sorted(targets)
        for at in range(0, len(ordered), REGISTER_AT_ONCE):
            yield verb(name, tuple(ordered[at : at + REGISTER_AT_ONCE]))


def _plan_listeners(wanted: Wanted, seen: Seen) -> Iterator[Action]:
    for port in sorted(seen.listeners.keys() - wanted.listeners.keys()):
        yield DeleteListener(port)
    for port, listener in sorted(wanted.listeners.items()):
        there = seen.listeners.get(port)
        if there is None:
            yield CreateListener(listener)
        elif not _can_become(there, listener):
            yield DeleteListener(port)
            yield CreateListener(listener)
        elif not _is_like(there, listener):
            yield SetListener(listener)


def _can_become(seen: Listener, wanted: Listener) -> bool:
    """Whether AWS changes the protocol in place: it does so between TCP and TLS."""
    is_plain = {seen.protocol, wanted.protocol} <= {"TCP", "TLS"}
    return seen.protocol == wanted.protocol or is_plain


def _is_like(seen: Listener, wanted: Listener) -> bool:
    policies = ("", seen.policy)
    fixed = ("port", "protocol", "group", "certificate", "alpn")
    same = all(getattr(seen, name) == getattr(wanted, name) for name in fixed)
    return same and wanted.policy in policies


def _items(values: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))
