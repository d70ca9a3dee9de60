"""What turns a classic load balancer into what it has to be; nothing in here acts.

A crash between two actions is safe: planning again from what is then there yields the remaining
ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ccm.errors import Refused
from ccm.providers.aws.balancers.classic.state import (
    PROXY_POLICY,
    TLS_POLICY,
    ClassicBalancer,
    Listener,
    Seen,
    differing,
)
from ccm.providers.aws.balancers.request import Check

REGISTER_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Create:
    """With listeners, subnets, groups and tags; everything else is set afterwards."""

    balancer: ClassicBalancer


@dataclass(frozen=True, slots=True)
class AttachSubnets:
    subnets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DetachSubnets:
    subnets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetGroups:
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteListener:
    port: int


@dataclass(frozen=True, slots=True)
class CreateListeners:
    listeners: tuple[Listener, ...]


@dataclass(frozen=True, slots=True)
class CreateTlsPolicy:
    """A policy that stands for one of AWS's own, by that one's name."""

    reference: str


@dataclass(frozen=True, slots=True)
class CreateProxyPolicy:
    """The policy that sends the client's address on."""


@dataclass(frozen=True, slots=True)
class SetTlsPolicy:
    port: int
    reference: str


@dataclass(frozen=True, slots=True)
class SetProxied:
    """Send the client's address to a node port, or do so no longer."""

    node_port: int
    is_on: bool


@dataclass(frozen=True, slots=True)
class SetCheck:
    check: Check


@dataclass(frozen=True, slots=True)
class SetTags:
    tags: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SetAttributes:
    """The named sections become those of `balancer`."""

    balancer: ClassicBalancer
    sections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Register:
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deregister:
    instances: tuple[str, ...]


PolicyAction = CreateTlsPolicy | CreateProxyPolicy | SetTlsPolicy | SetProxied
Action = (
    Create
    | AttachSubnets
    | DetachSubnets
    | SetGroups
    | DeleteListener
    | CreateListeners
    | PolicyAction
    | SetCheck
    | SetTags
    | SetAttributes
    | Register
    | Deregister
)


def plan(wanted: ClassicBalancer, seen: Seen) -> Iterator[Action]:
    """Yield what makes `seen` what is wanted; raises `Refused` for what is fixed for its life."""
    there = seen.balancer
    if there is None:
        yield Create(wanted)
        yield from _plan_policies(wanted, Seen(None))
        yield SetCheck(wanted.check)
        if sections := differing(wanted.attributes, {}):
            yield SetAttributes(wanted, tuple(sections))
    else:
        yield from _plan_changes(wanted, there, seen)
    present = there.instances if there else frozenset()
    yield from plan_instances(wanted.instances, present)


def plan_instances(wanted: frozenset[str], seen: frozenset[str]) -> Iterator[Register | Deregister]:
    """Yield what puts these instances behind the balancer, new ones first."""
    for verb, instances in ((Register, wanted - seen), (Deregister, seen - wanted)):
        ordered = sorted(instances)
        for at in range(0, len(ordered), REGISTER_AT_ONCE):
            yield verb(tuple(ordered[at : at + REGISTER_AT_ONCE]))


def _plan_changes(wanted: ClassicBalancer, there: ClassicBalancer, seen: Seen) -> Iterator[Action]:
    if wanted.is_internal != there.is_internal:
        kind = "internal" if there.is_internal else "internet-facing"
        raise Refused(
            f"balancer {there.name} is {kind} for its life: delete the Service and create it again"
            " to have it otherwise"
        )
    yield from _plan_subnets(wanted.subnets, there.subnets)
    if set(wanted.groups) != set(there.groups):
        yield SetGroups(wanted.groups)
    yield from _plan_listeners(wanted, there)
    yield from _plan_policies(wanted, seen)
    if wanted.check != there.check:
        yield SetCheck(wanted.check)
    tags = {key: value for key, value in wanted.tags.items() if there.tags.get(key) != value}
    if tags:
        yield SetTags(tuple(sorted(tags.items())))
    if sections := differing(wanted.attributes, there.attributes):
        yield SetAttributes(wanted, tuple(sections))


def _plan_subnets(wanted: frozenset[str], seen: frozenset[str]) -> Iterator[Action]:
    """A zone has one subnet, so the old one goes first; but one has to stay all the time."""
    steps: list[Action] = []
    if surplus := seen - wanted:
        steps.append(DetachSubnets(tuple(sorted(surplus))))
    if missing := wanted - seen:
        steps.append(AttachSubnets(tuple(sorted(missing))))
    yield from steps if seen & wanted else reversed(steps)


def _plan_listeners(wanted: ClassicBalancer, there: ClassicBalancer) -> Iterator[Action]:
    """A listener cannot be changed: it is taken away and made anew."""
    for port, listener in sorted(there.listeners.items()):
        if wanted.listeners.get(port) != listener:
            yield DeleteListener(port)
    missing = [
        listener
        for port, listener in sorted(wanted.listeners.items())
        if there.listeners.get(port) != listener
    ]
    if missing:
        yield CreateListeners(tuple(missing))


def _plan_policies(wanted: ClassicBalancer, seen: Seen) -> Iterator[PolicyAction]:
    there = seen.balancer
    for reference in sorted(set(wanted.tls_policies.values())):
        if TLS_POLICY.format(reference) not in seen.policies:
            yield CreateTlsPolicy(reference)
    for port, reference in sorted(wanted.tls_policies.items()):
        is_new = there is None or there.listeners.get(port) != wanted.listeners[port]
        if is_new or (there and there.tls_policies.get(port) != reference):
            yield SetTlsPolicy(port, reference)
    proxied = there.proxied if there else frozenset()
    if wanted.proxied and PROXY_POLICY not in seen.policies:
        yield CreateProxyPolicy()
    for node_port in sorted(wanted.proxied - proxied):
        yield SetProxied(node_port, True)
    used = {listener.node_port for listener in wanted.listeners.values()}
    for node_port in sorted((proxied - wanted.proxied) & used):
        yield SetProxied(node_port, False)
