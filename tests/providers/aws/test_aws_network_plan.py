"""Plans for network balancers: interrupted anywhere they converge, and done they are empty."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud.testkit.objects import port, service
from ccm.errors import Refused
from ccm.providers.aws.annotations import NETWORK, PREFIX
from ccm.providers.aws.balancers.network import plan as plans
from ccm.providers.aws.balancers.network import rules
from ccm.providers.aws.balancers.network.desired import desired
from ccm.providers.aws.balancers.network.state import (
    Listener,
    NetworkBalancer,
    Seen,
    TargetGroup,
    Wanted,
)
from ccm.providers.aws.balancers.request import read_request
from ccm.providers.aws.config import SharedProbe
from ccm.providers.aws.security_groups import Authorize, Group, Rule, RuleChange
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import Mark

NOTHING = Seen(None, "", "", {}, {}, {}, {})
SUBNETS = [
    Subnet(f"subnet-{zone}", zone, f"10.0.{n}.0/24", {}, True) for n, zone in enumerate("ab")
]
LOCAL = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}


def wanted(
    ports: Iterable[int] = (80,),
    targets: Iterable[str] = ("i-1",),
    subnets: int = 2,
    is_local: bool = False,
    **annotations: str,
) -> Wanted:
    """What a Service of these ports wants; node ports follow from the ports."""
    asked = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    spec = LOCAL if is_local else {}
    one = service("web", asked, ports=[port(p, node_port=30000 + p) for p in ports], **spec)
    request = read_request(one, NETWORK, Mark("kit"))
    return desired(request, SUBNETS[:subnets], targets, "kit", None)


def take(seen: Seen, action: plans.Action) -> Seen:
    """The cloud after one action, as AWS would carry it out; refuses what AWS refuses."""
    match action:
        case plans.CreateBalancer(new):
            assert seen.balancer is None
            return replace(seen, balancer=replace(new, attributes={}))
        case plans.DeleteBalancer():
            assert seen.balancer
            return replace(seen, balancer=None, listeners={})
        case plans.CreateListener() | plans.SetListener() | plans.DeleteListener():
            return replace(seen, listeners=take_listener(seen, action))
        case plans.SetTags("") | plans.SetAttributes("") | plans.SetSubnets() | plans.SetGroups():
            assert seen.balancer
            return replace(seen, balancer=changed(seen.balancer, action))
    return replace(seen, groups=take_group(seen, action))


def changed(there: NetworkBalancer, action: plans.Action) -> NetworkBalancer:
    match action:
        case plans.SetSubnets(new) | plans.SetGroups(new):
            return replace(there, subnets=new.subnets, groups=new.groups)
        case plans.SetTags(_, tags):
            return replace(there, tags={**there.tags, **dict(tags)})
        case plans.SetAttributes(_, values):
            return replace(there, attributes={**there.attributes, **dict(values)})
    raise AssertionError(action)


def take_listener(seen: Seen, action: plans.Action) -> dict[int, Listener]:
    listeners = dict(seen.listeners)
    match action:
        case plans.CreateListener(listener):
            assert seen.balancer
            assert listener.port not in listeners
            assert listener.group in seen.groups
            listeners[listener.port] = listener
        case plans.SetListener(listener):
            assert listener.group in seen.groups
            listeners[listener.port] = listener
        case plans.DeleteListener(number):
            del listeners[number]
    return listeners


def take_group(seen: Seen, action: plans.Action) -> dict[str, TargetGroup]:
    groups = dict(seen.groups)
    match action:
        case plans.CreateGroup(group):
            assert group.name not in groups
            groups[group.name] = replace(group, attributes={}, targets=frozenset())
        case plans.SetCheck(group):
            groups[group.name] = replace(groups[group.name], check=group.check)
        case plans.SetTags(name, tags):
            groups[name] = replace(groups[name], tags={**groups[name].tags, **dict(tags)})
        case plans.SetAttributes(name, values):
            attributes = {**groups[name].attributes, **dict(values)}
            groups[name] = replace(groups[name], attributes=attributes)
        case plans.DeleteGroup(name):
            assert all(one.group != name for one in seen.listeners.values()), "in use"
            del groups[name]
        case plans.Register(name, targets):
            groups[name] = replace(groups[name], targets=groups[name].targets | set(targets))
        case plans.Deregister(name, targets):
            groups[name] = replace(groups[name], targets=groups[name].targets - set(targets))
    return groups


def after(seen: Seen, steps: Iterable[plans.Action], most: int = 1000) -> Seen:
    for _, step in zip(range(most), steps, strict=False):
        seen = take(seen, step)
    return seen


shapes = st.builds(
    wanted,
    ports=st.sets(st.integers(80, 83), min_size=1),
    targets=st.sets(st.sampled_from(["i-1", "i-2", "i-3"])),
    subnets=st.integers(1, 2),
    is_local=st.booleans(),
    cross_zone_load_balancing_enabled=st.sampled_from(["true", "false"]),
    additional_resource_tags=st.sampled_from(["a=1", "a=2", "b="]),
    target_group_attributes=st.sampled_from(["x=1", "x=2"]),
    healthcheck_interval=st.sampled_from(["10", "30"]),
)


@given(before=shapes, now=shapes, broken_at=st.integers(0, 30))
def test_an_interrupted_plan_is_finished_by_planning_again(
    before: Wanted, now: Wanted, broken_at: int
) -> None:
    seen = after(NOTHING, list(plans.plan(before, NOTHING)), broken_at)
    seen = after(seen, list(plans.plan(now, seen)), broken_at)
    seen = after(seen, list(plans.plan(now, seen)))
    assert list(plans.plan(now, seen)) == []
    assert seen.listeners == now.listeners
    assert seen.groups.keys() == now.groups.keys()


@given(shape=shapes, broken_at=st.integers(0, 10))
def test_an_interrupted_deletion_is_finished_by_planning_again(
    shape: Wanted, broken_at: int
) -> None:
    seen = after(NOTHING, list(plans.plan(shape, NOTHING)))
    seen = after(seen, list(plans.plan_deletion(seen)), broken_at)
    left = seen.groups or seen.listeners
    assert not left or seen.balancer, "what is left could not be found any more"
    seen = after(seen, list(plans.plan_deletion(seen)))
    assert (seen.balancer, seen.groups, seen.listeners) == (None, {}, {})


def test_a_certificate_changes_the_listener_in_place() -> None:
    plain, tls = wanted(), wanted(ssl_cert="arn:1")
    seen = after(NOTHING, list(plans.plan(plain, NOTHING)))
    assert list(plans.plan(tls, seen)) == [plans.SetListener(tls.listeners[80])]
    seen = after(seen, list(plans.plan(tls, seen)))
    with_policy = wanted(ssl_cert="arn:1", ssl_negotiation_policy="strict")
    assert [*map(type, plans.plan(with_policy, seen))] == [plans.SetListener]


@pytest.mark.parametrize(
    "other",
    [
        {"internal": "true"},
        {"security_groups": "sg-1"},
    ],
)
def test_what_is_fixed_is_refused(other: dict[str, str]) -> None:
    seen = after(NOTHING, list(plans.plan(wanted(), NOTHING)))
    with pytest.raises(Refused, match="for its life"):
        list(plans.plan(wanted((80,), ("i-1",), 2, False, **other), seen))


def test_an_address_that_a_zone_has_is_fixed() -> None:
    first = wanted(eip_allocations="eip-1,eip-2")
    seen = after(NOTHING, list(plans.plan(first, NOTHING)))
    assert list(plans.plan(first, seen)) == []
    with pytest.raises(Refused, match="has eip-1 in subnet-a for its life"):
        list(plans.plan(wanted(eip_allocations="eip-3,eip-2"), seen))


# Rules in the nodes' group, which several balancers share.

PROBE = SharedProbe()


def apply(group: Group, changes: Iterable[RuleChange]) -> Group:
    """The group after the changes; AWS refuses a rule that is there and one that is not."""
    for change in changes:
        if isinstance(change, Authorize):
            assert not group.rules & set(change.rules)
            group = replace(group, rules=group.rules | set(change.rules))
        else:
            assert group.rules >= set(change.rules)
            group = replace(group, rules=group.rules - set(change.rules))
    return group


def opened(
    name: str, number: int, probe: SharedProbe | None = None, check_port: str = ""
) -> frozenset[Rule]:
    asked = {PREFIX + "healthcheck-port": check_port} if check_port else {}
    one = service(name, asked, ports=[port(number, node_port=30000 + number)])
    request = read_request(one, NETWORK, Mark("kit"))
    there = desired(request, SUBNETS, (), "kit", probe)
    return rules.node_rules(there, ["0.0.0.0/0"], ["10.0.0.0/24"], request.node_check)


def name_in(wanted_rules: frozenset[Rule]) -> str:
    return next(rule.note.partition("=")[2] for rule in wanted_rules if "=" in rule.note)


@pytest.mark.parametrize(("probe", "check_port"), [(None, ""), (PROBE, ""), (None, "10256")])
def test_a_shared_rule_stays_until_the_last_balancer_goes(
    probe: SharedProbe | None, check_port: str
) -> None:
    theirs = Rule("tcp", 22, 22, "10.9.0.0/16", "ssh")
    group = Group("sg-1", "nodes", {}, frozenset({theirs}))
    first, second = (opened(n, p, probe, check_port) for n, p in (("one", 80), ("two", 81)))
    for one in (first, second):
        group = apply(group, rules.rule_changes(group, one, name_in(one)))
        assert list(rules.rule_changes(group, one, name_in(one))) == []
    group = apply(group, rules.rule_changes(group, frozenset(), name_in(first)))
    assert second <= group.rules
    assert any(rule.note == rules.MTU for rule in group.rules)
    group = apply(group, rules.rule_changes(group, frozenset(), name_in(second)))
    assert group.rules == {theirs}
