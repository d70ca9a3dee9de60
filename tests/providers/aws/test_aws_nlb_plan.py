"""Plans for network balancers: interrupted anywhere they converge, and done they are empty."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud.testkit.harness import port, service
from ccm.errors import Refused
from ccm.providers.aws.config import SharedProbe
from ccm.providers.aws.elb import nlb_desired as rules
from ccm.providers.aws.elb import nlb_plan as plans
from ccm.providers.aws.elb.annotations import NLB, PREFIX
from ccm.providers.aws.elb.nlb_desired import (
    DesiredNlb,
    Nlb,
    NlbListener,
    ObservedNlb,
    TargetGroup,
    desired_nlb,
)
from ccm.providers.aws.elb.request import read_request
from ccm.providers.aws.security_groups import IngressChange, IngressRule, SecurityGroup
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import ClusterTag

NOTHING = ObservedNlb(None, {}, {})
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
) -> DesiredNlb:
    """What a Service of these ports wants; node ports follow from the ports."""
    asked = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    spec = LOCAL if is_local else {}
    one = service("web", asked, ports=[port(p, node_port=30000 + p) for p in ports], **spec)
    request = read_request(one, NLB, ClusterTag("kit"))
    return desired_nlb(request, SUBNETS[:subnets], targets, "kit", None)


def take(observed: ObservedNlb, action: plans.NlbAction) -> ObservedNlb:
    """The cloud after one action, as AWS would carry it out; refuses what AWS refuses."""
    match action:
        case plans.CreateLoadBalancer(new):
            assert observed.nlb is None
            return replace(observed, nlb=replace(new, attributes={}))
        case plans.DeleteLoadBalancer():
            assert observed.nlb
            return replace(observed, nlb=None, listeners={})
        case plans.CreateListener() | plans.ModifyListener() | plans.DeleteListener():
            return replace(observed, listeners=take_listener(observed, action))
        case (
            plans.AddTags("")
            | plans.ModifyAttributes("")
            | plans.SetSubnets()
            | plans.SetSecurityGroups()
        ):
            assert observed.nlb
            return replace(observed, nlb=changed(observed.nlb, action))
    return replace(observed, groups=take_group(observed, action))


def changed(there: Nlb, action: plans.NlbAction) -> Nlb:
    match action:
        case plans.SetSubnets(new) | plans.SetSecurityGroups(new):
            return replace(there, subnets=new.subnets, groups=new.groups)
        case plans.AddTags(_, tags):
            return replace(there, tags={**there.tags, **dict(tags)})
        case plans.ModifyAttributes(_, values):
            return replace(there, attributes={**there.attributes, **dict(values)})
    raise AssertionError(action)


def take_listener(observed: ObservedNlb, action: plans.NlbAction) -> dict[int, NlbListener]:
    listeners = dict(observed.listeners)
    match action:
        case plans.CreateListener(listener):
            assert observed.nlb
            assert listener.port not in listeners
            assert listener.group in observed.groups
            listeners[listener.port] = listener
        case plans.ModifyListener(listener):
            assert listener.group in observed.groups
            listeners[listener.port] = listener
        case plans.DeleteListener(number):
            del listeners[number]
    return listeners


def take_group(observed: ObservedNlb, action: plans.NlbAction) -> dict[str, TargetGroup]:
    groups = dict(observed.groups)
    match action:
        case plans.CreateTargetGroup(group):
            assert group.name not in groups
            groups[group.name] = replace(group, attributes={}, targets=frozenset())
        case plans.ModifyTargetGroup(group):
            groups[group.name] = replace(groups[group.name], health_check=group.health_check)
        case plans.AddTags(name, tags):
            groups[name] = replace(groups[name], tags={**groups[name].tags, **dict(tags)})
        case plans.ModifyAttributes(name, values):
            attributes = {**groups[name].attributes, **dict(values)}
            groups[name] = replace(groups[name], attributes=attributes)
        case plans.DeleteTargetGroup(name):
            assert all(one.group != name for one in observed.listeners.values()), "in use"
            del groups[name]
        case plans.RegisterTargets(name, targets):
            groups[name] = replace(groups[name], targets=groups[name].targets | set(targets))
        case plans.DeregisterTargets(name, targets):
            groups[name] = replace(groups[name], targets=groups[name].targets - set(targets))
    return groups


def after(observed: ObservedNlb, now: DesiredNlb | None, most: int = 1000) -> ObservedNlb:
    """What there is once the plan for `now` was performed, or the first of its actions."""
    steps = plans.plan(now, observed) if now else plans.plan_deletion(observed)
    for step in list(steps)[:most]:
        observed = take(observed, step)
    return observed


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
    before: DesiredNlb, now: DesiredNlb, broken_at: int
) -> None:
    observed = after(after(after(NOTHING, before, broken_at), now, broken_at), now)
    assert list(plans.plan(now, observed)) == []
    assert observed.listeners == now.listeners
    assert observed.groups.keys() == now.groups.keys()


@given(shape=shapes, broken_at=st.integers(0, 10))
def test_an_interrupted_deletion_is_finished_by_planning_again(
    shape: DesiredNlb, broken_at: int
) -> None:
    observed = after(after(NOTHING, shape), None, broken_at)
    left = observed.groups or observed.listeners
    assert not left or observed.nlb, "what is left could not be found any more"
    observed = after(observed, None)
    assert (observed.nlb, observed.groups, observed.listeners) == (None, {}, {})


def test_a_certificate_changes_the_listener_in_place() -> None:
    plain, tls = wanted(), wanted(ssl_cert="arn:1")
    observed = after(NOTHING, plain)
    assert list(plans.plan(tls, observed)) == [plans.ModifyListener(tls.listeners[80])]
    observed = after(observed, tls)
    with_policy = wanted(ssl_cert="arn:1", ssl_negotiation_policy="strict")
    assert [*map(type, plans.plan(with_policy, observed))] == [plans.ModifyListener]


@pytest.mark.parametrize(
    "other",
    [
        {"internal": "true"},
        {"security_groups": "sg-1"},
    ],
)
def test_what_is_fixed_is_refused(other: dict[str, str]) -> None:
    observed = after(NOTHING, wanted())
    with pytest.raises(Refused, match="for its life"):
        list(plans.plan(wanted((80,), ("i-1",), 2, False, **other), observed))


def test_an_address_that_a_zone_has_is_fixed() -> None:
    first = wanted(eip_allocations="eip-1,eip-2")
    observed = after(NOTHING, first)
    assert list(plans.plan(first, observed)) == []
    with pytest.raises(Refused, match="has eip-1 in subnet-a for its life"):
        list(plans.plan(wanted(eip_allocations="eip-3,eip-2"), observed))


# Rules in the nodes' group, which several balancers share.

PROBE = SharedProbe()


def apply(group: SecurityGroup, changes: Iterable[IngressChange]) -> SecurityGroup:
    """The group after the changes; AWS refuses a rule that is there and one that is not."""
    for change in changes:
        if change.action == "Authorize":
            assert not group.rules & set(change.rules)
            group = replace(group, rules=group.rules | set(change.rules))
        else:
            assert group.rules >= set(change.rules)
            group = replace(group, rules=group.rules - set(change.rules))
    return group


def opened(
    name: str, number: int, probe: SharedProbe | None = None, check_port: str = ""
) -> frozenset[IngressRule]:
    asked = {PREFIX + "healthcheck-port": check_port} if check_port else {}
    one = service(name, asked, ports=[port(number, node_port=30000 + number)])
    request = read_request(one, NLB, ClusterTag("kit"))
    there = desired_nlb(request, SUBNETS, (), "kit", probe)
    return rules.node_rules(there, ["0.0.0.0/0"], ["10.0.0.0/24"], request.node_health_check)


def name_in(wanted_rules: frozenset[IngressRule]) -> str:
    return next(
        rule.description.partition("=")[2] for rule in wanted_rules if "=" in rule.description
    )


@pytest.mark.parametrize(("probe", "check_port"), [(None, ""), (PROBE, ""), (None, "10256")])
def test_a_shared_rule_stays_until_the_last_balancer_goes(
    probe: SharedProbe | None, check_port: str
) -> None:
    theirs = IngressRule("tcp", 22, 22, "10.9.0.0/16", "ssh")
    group = SecurityGroup("sg-1", "nodes", {}, frozenset({theirs}))
    first, second = (opened(n, p, probe, check_port) for n, p in (("one", 80), ("two", 81)))
    for one in (first, second):
        group = apply(group, rules.plan_node_ingress(group, one, name_in(one)))
        assert list(rules.plan_node_ingress(group, one, name_in(one))) == []
    group = apply(group, rules.plan_node_ingress(group, frozenset(), name_in(first)))
    assert second <= group.rules
    assert any(rule.description == rules.MTU_RULE for rule in group.rules)
    group = apply(group, rules.plan_node_ingress(group, frozenset(), name_in(second)))
    assert group.rules == {theirs}
