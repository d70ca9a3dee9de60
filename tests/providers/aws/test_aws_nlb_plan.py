"""Plans for network balancers: interrupted anywhere they converge, and done they are empty."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud.testkit.harness import port, service
from ccm.model.objects import Json
from ccm.providers.aws.config import SharedProbe
from ccm.providers.aws.elb import nlb_ingress as rules
from ccm.providers.aws.elb import nlb_plan as plans
from ccm.providers.aws.elb.annotations import NLB, PREFIX
from ccm.providers.aws.elb.calls import ApiCall, Arn
from ccm.providers.aws.elb.nlb_desired import (
    DesiredNlb,
    Nlb,
    NlbListener,
    ObservedNlb,
    TargetGroup,
    desired_nlb,
)
from ccm.providers.aws.elb.nlb_reads import read_group, read_listener
from ccm.providers.aws.elb.request import DUALSTACK, IPV4, IPV6, read_request
from ccm.providers.aws.security_groups import IngressChange, IngressRule, SecurityGroup
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import ClusterTag, read_tags

NOTHING = ObservedNlb(None, {}, {})
SUBNETS = [
    Subnet(f"subnet-{zone}", zone, f"10.0.{n}.0/24", {}, True) for n, zone in enumerate("ab")
]
DELAY = "deregistration_delay.timeout_seconds"
LOCAL = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}


def wanted(
    ports: Iterable[int] = (80,),
    targets: Iterable[str] = ("i-1",),
    subnets: int = 2,
    is_local: bool = False,
    address_type: str = IPV4,
    **annotations: str,
) -> DesiredNlb:
    """What a Service of these ports wants; node ports follow from the ports."""
    asked = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    spec: Json = dict(LOCAL) if is_local else {}
    if address_type == IPV6:  # of the targets: the load balancer is then of both
        spec["ipFamilies"], address_type = ["IPv6"], DUALSTACK
    one = service("web", asked, ports=[port(p, node_port=30000 + p) for p in ports], **spec)
    request = replace(read_request(one, NLB, ClusterTag("kit")), address_type=address_type)
    return desired_nlb(request, SUBNETS[:subnets], targets, "kit", None)


def take(there: ObservedNlb, call: ApiCall) -> ObservedNlb:
    """The cloud after one call, as AWS would carry it out; refuses what AWS refuses."""
    name, given = call.name.removeprefix("elbv2:"), with_names(call.parameters)
    if name == "CreateLoadBalancer":
        assert there.nlb is None
        tags, is_internal = read_tags(given["Tags"]), given["Scheme"] == "internal"
        new = Nlb(given["Name"], is_internal, {}, tuple(given.get("SecurityGroups", ())), tags, {})
        return replace(there, nlb=changed(new, given))
    if name == "DeleteLoadBalancer":
        assert there.nlb
        return replace(there, nlb=None, listeners={})
    if name.endswith("Listener"):
        return replace(there, listeners=take_listener(there, name, given))
    if name.endswith("TargetGroup"):
        return replace(there, groups=take_group(there, name, given))
    (of, *_) = given.get("ResourceArns") or [given.get("TargetGroupArn", "")]
    if of in there.groups:
        group = changed(there.groups[of], given)
        if name.endswith("Targets"):
            targets = {target["Id"] for target in given["Targets"]}
            left = group.targets | targets if name == "RegisterTargets" else group.targets - targets
            group = replace(group, targets=left)
        return replace(there, groups={**there.groups, of: group})
    assert there.nlb
    has_ipv6 = IPV6 in {group.family for group in there.groups.values()}
    assert given.get("IpAddressType") != IPV4 or not has_ipv6, "IPv6 targets need both families"
    return replace(there, nlb=changed(there.nlb, given))


def with_names(value: Any) -> Any:
    """The parameters of a call with names for ARNs: here these are the same."""
    match value:
        case Arn(name):
            return name
        case list():
            return [with_names(one) for one in value]
        case dict():
            return {key: with_names(one) for key, one in value.items()}
    return value


def changed(there: Any, given: Json) -> Any:
    """A load balancer or target group with what was given in a call."""
    if "SubnetMappings" in given:
        subnets = {m.pop("SubnetId"): m for m in map(dict, given["SubnetMappings"])}
        there = replace(there, subnets=subnets)
    if "IpAddressType" in given:
        there = replace(there, address_type=given["IpAddressType"])
    for field, key in (("tags", "Tags"), ("attributes", "Attributes")):
        there = replace(there, **{field: getattr(there, field) | read_tags(given.get(key, []))})
    return there


def take_listener(there: ObservedNlb, name: str, given: Json) -> dict[int, NlbListener]:
    listeners = dict(there.listeners)
    if name == "DeleteListener":
        del listeners[int(given["ListenerArn"])]
        return listeners
    one = read_listener({**given, "ListenerArn": str(given["Port"])}, {})
    assert (one.port in listeners) is (name == "ModifyListener")
    assert there.nlb
    assert there.groups[one.group].family == IPV4 or there.nlb.address_type == DUALSTACK
    return {**listeners, one.port: one}


def take_group(there: ObservedNlb, name: str, given: Json) -> dict[str, TargetGroup]:
    of = given.get("TargetGroupArn") or given["Name"]
    others = {key: group for key, group in there.groups.items() if key != of}
    assert (of in there.groups) is (name != "CreateTargetGroup")
    if name == "DeleteTargetGroup":
        assert all(one.group != of for one in there.listeners.values()), "in use"
        return others
    read = read_group({"TargetGroupName": of, **given}, read_tags(given.get("Tags")))
    if name == "ModifyTargetGroup":
        read = replace(there.groups[of], health_check=read.health_check)
    return {**others, of: read}


def after(observed: ObservedNlb, now: DesiredNlb | None, most: int = 1000) -> ObservedNlb:
    """What there is once the plan for `now` was performed, or the first of its calls."""
    deletion = chain(plans.plan_deletion(observed), plans.plan_group_deletion(observed))
    steps = plans.plan(now, observed, "vpc-1") if now else deletion
    for step in list(steps)[:most]:
        observed = take(observed, step)
    return observed


def names_of(now: DesiredNlb, observed: ObservedNlb) -> list[str]:
    return [call.name for call in plans.plan(now, observed, "vpc-1")]


shapes = st.builds(
    wanted,
    ports=st.sets(st.integers(80, 83), min_size=1),
    targets=st.sets(st.sampled_from(["i-1", "i-2", "i-3"])),
    subnets=st.integers(1, 2),
    is_local=st.booleans(),
    cross_zone_load_balancing_enabled=st.sampled_from(["true", "false"]),
    additional_resource_tags=st.sampled_from(["a=1", "a=2", "b="]),
    target_group_attributes=st.sampled_from([f"{DELAY}=1", f"{DELAY}=2", ""]),
    address_type=st.sampled_from([IPV4, DUALSTACK, IPV6]),
    healthcheck_interval=st.sampled_from(["10", "30"]),
)


@given(before=shapes, now=shapes, broken_at=st.integers(0, 30))
def test_an_interrupted_plan_is_finished_by_planning_again(
    before: DesiredNlb, now: DesiredNlb, broken_at: int
) -> None:
    observed = after(after(after(NOTHING, before, broken_at), now, broken_at), now)
    assert names_of(now, observed) == []
    assert observed.listeners == now.listeners
    assert observed.groups.keys() == now.groups.keys()
    assert observed.nlb
    assert observed.nlb.address_type == now.nlb.address_type


@given(shape=shapes, broken_at=st.integers(0, 10))
def test_an_interrupted_deletion_is_finished_by_planning_again(
    shape: DesiredNlb, broken_at: int
) -> None:
    observed = after(after(NOTHING, shape), None, broken_at)
    assert observed.groups or not observed.nlb, "what is left could not be found any more"
    observed = after(observed, None)
    assert (observed.nlb, observed.groups, observed.listeners) == (None, {}, {})


def test_a_certificate_changes_the_listener_in_place() -> None:
    plain, tls = wanted(), wanted(ssl_cert="arn:1")
    observed = after(NOTHING, plain)
    assert names_of(tls, observed) == ["elbv2:ModifyListener"]
    observed = after(observed, tls)
    assert replace(observed.listeners[80], arn="") == tls.listeners[80]
    with_policy = wanted(ssl_cert="arn:1", ssl_negotiation_policy="strict")
    assert names_of(with_policy, observed) == ["elbv2:ModifyListener"]


@pytest.mark.parametrize(
    ("first", "second", "calls"),
    [
        ("HTTP2Only", "", 0),
        ("HTTP2Only", "None", 1),
        ("", "None", 0),
        ("None", "HTTP2Only", 1),
        ("HTTP2Only", "http2only", 0),
    ],
)
def test_an_alpn_policy_that_no_one_asks_for_stays(first: str, second: str, calls: int) -> None:
    observed = after(NOTHING, wanted(ssl_cert="arn:1", alpn_policy=first))
    now = wanted(ssl_cert="arn:1", alpn_policy=second)
    assert names_of(now, observed) == ["elbv2:ModifyListener"] * calls
    assert names_of(now, after(observed, now)) == []


FIXED: list[tuple[dict[str, str], dict[str, str], str]] = [
    ({}, {"security-groups": "sg-1"}, "security-groups"),
    ({"security-groups": "sg-1"}, {}, ""),
    ({"eip-allocations": "eip-1,eip-2"}, {"eip-allocations": "eip-1,eip-2"}, ""),
    ({"eip-allocations": "eip-1,eip-2"}, {"eip-allocations": "eip-3,eip-2"}, "eip-allocations"),
    ({"eip-allocations": "eip-1,eip-2"}, {"eip-allocations": "eip-1"}, ""),
    ({"eip-allocations": "eip-1,eip-2"}, {}, ""),
    (
        {"private-ipv4-addresses": "10.0.0.5,10.0.1.5", "internal": "true"},
        {"private-ipv4-addresses": "10.0.0.6,10.0.1.6", "internal": "true"},
        "private-ipv4-addresses",
    ),
]


@pytest.mark.parametrize(("first", "second", "ignored"), FIXED)
def test_what_is_fixed_for_its_life_stays(
    first: dict[str, str], second: dict[str, str], ignored: str
) -> None:
    observed = after(NOTHING, asked(first)[0])
    again, warnings = asked(second, observed.nlb)
    assert names_of(again, observed) == []
    assert [name.partition(" is ignored")[0] for name in warnings] == [
        f"annotation {PREFIX}{name}" for name in ignored.split()
    ]


def test_a_subnet_that_is_named_moves_it_and_another_does_not() -> None:
    both = after(NOTHING, asked({"eip-allocations": "eip-1,eip-2"})[0])
    assert names_of(asked({}, both.nlb, SUBNETS[:1])[0], both) == []
    named, _ = asked({"subnets": "subnet-a"}, both.nlb, SUBNETS[:1])
    assert names_of(named, both) == ["elbv2:SetSubnets"]
    assert named.nlb.subnets == {"subnet-a": {"AllocationId": "eip-1"}}


def asked(
    annotations: dict[str, str], there: Nlb | None = None, subnets: Sequence[Subnet] = SUBNETS
) -> tuple[DesiredNlb, tuple[str, ...]]:
    """What a Service with these annotations wants, and what of them has no effect."""
    one = service("web", {PREFIX + key: value for key, value in annotations.items()})
    request = read_request(one, NLB, ClusterTag("kit"))
    desired = desired_nlb(request, subnets, ("i-1",), "kit", None, there)
    return desired, request.annotations.warnings


# Rules in the nodes' group, which several balancers share.

PROBE = SharedProbe()


def apply(group: SecurityGroup, changes: Iterable[IngressChange]) -> SecurityGroup:
    """The group after the changes; AWS refuses a rule that is there and one that is not."""
    for change in changes:
        if change.action == "Authorize":
            assert not group.rules & set(change.rules)
            group = replace(group, rules=group.rules | set(change.rules))
        elif change.action == "Describe":
            assert group.rules >= set(change.rules)
            group = replace(group, rules=(group.rules - set(change.rules)) | set(change.rules))
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
    return rules.node_rules(there, ["0.0.0.0/0"], ["10.0.0.0/24"], None, probe)


def name_in(wanted_rules: frozenset[IngressRule]) -> str:
    return next(
        rule.description.partition("=")[2] for rule in wanted_rules if "=" in rule.description
    )


class Counted(IngressRule):
    """A rule that counts how often it is gone through to be put into another set."""

    hashed = 0

    def __hash__(self) -> int:
        Counted.hashed += 1
        return hash(self.source)


def test_rules_of_others_are_looked_up_and_not_gone_through() -> None:
    """A thousand Services of 1,000 rules, which AWS refuses, took half a second of each change."""
    others = {"two": frozenset(Counted("tcp", n, n, "10.0.0.0/8") for n in range(9))}
    group, Counted.hashed = SecurityGroup("sg-1", "nodes", {}, opened("one", 80)), 0
    owner = rules.Owner("one", others=others)
    assert list(rules.plan_node_ingress(group, opened("one", 80), owner))
    assert not Counted.hashed


@pytest.mark.parametrize(("probe", "check_port"), [(None, ""), (PROBE, ""), (None, "10256")])
def test_a_shared_rule_stays_until_the_last_balancer_goes(
    probe: SharedProbe | None, check_port: str
) -> None:
    theirs = IngressRule("tcp", 22, 22, "10.9.0.0/16", "ssh")
    group = SecurityGroup("sg-1", "nodes", {}, frozenset({theirs}))
    first, second = (opened(n, p, probe, check_port) for n, p in (("one", 80), ("two", 81)))
    for one in (first, second):
        group = apply(group, rules.plan_node_ingress(group, one, rules.Owner(name_in(one))))
        assert list(rules.plan_node_ingress(group, one, rules.Owner(name_in(one)))) == []
    leaving = rules.Owner(name_in(first), others={name_in(second): second})
    group = apply(group, rules.plan_node_ingress(group, frozenset(), leaving))
    assert second <= group.rules
    assert any(rule.description == rules.MTU_RULE for rule in group.rules)
    group = apply(group, rules.plan_node_ingress(group, frozenset(), rules.Owner(name_in(second))))
    assert group.rules == {theirs}
