"""Plans for classic balancers: interrupted anywhere they converge, and done they are empty."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud.testkit.harness import port, service
from ccm.errors import Refused
from ccm.providers.aws.elb import classic_plan as plans
from ccm.providers.aws.elb.annotations import CLASSIC, PREFIX
from ccm.providers.aws.elb.classic_desired import (
    PROXY_POLICY,
    TLS_POLICY,
    ClassicElb,
    ClassicListener,
    desired_classic_elb,
)
from ccm.providers.aws.elb.request import ElbHealthCheck, read_request
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import ClusterTag

SUBNETS = [Subnet(f"subnet-{zone}", zone, "", {}, True) for zone in "abc"]
NO_CHECK = ElbHealthCheck("TCP", "", "", 0, 0, 0, 0)


def wanted(
    ports: Iterable[int] = (80,),
    instances: Iterable[str] = ("i-1",),
    subnets: Iterable[int] = (0, 1),
    shift: int = 0,
    **annotations: str,
) -> ClassicElb:
    """What a Service of these ports wants; `shift` changes all node ports."""
    asked = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items() if value}
    listed = [port(number, node_port=30000 + shift + number) for number in sorted(ports)]
    request = read_request(service("web", asked, ports=listed), CLASSIC, ClusterTag("kit"))
    return desired_classic_elb(request, [SUBNETS[n] for n in subnets], ["sg-1"], instances, None)


def take(there: ClassicElb | None, action: plans.ClassicElbAction) -> ClassicElb:
    """The cloud after one action, as AWS would carry it out; refuses what AWS refuses."""
    if isinstance(action, plans.CreateLoadBalancer):
        assert there is None
        return replace(
            action.elb,
            health_check=NO_CHECK,
            attributes={},
            instances=frozenset(),
            tls_policies={},
            proxied=frozenset(),
        )
    assert there
    match action:
        case plans.CreatePolicy(name):
            return replace(there, policies=there.policies | {name})
        case plans.SetTlsPolicy(number, reference):
            assert TLS_POLICY.format(reference) in there.policies
            return replace(there, tls_policies={**there.tls_policies, number: reference})
        case plans.SetProxyProtocol(node_port, is_on):
            assert not is_on or PROXY_POLICY in there.policies
            assert node_port in {one.node_port for one in there.listeners.values()}
            proxied = there.proxied | {node_port} if is_on else there.proxied - {node_port}
            return replace(there, proxied=proxied)
    return changed(there, action)


def changed(there: ClassicElb, action: plans.ClassicElbAction) -> ClassicElb:
    match action:
        case plans.AttachSubnets(subnets):
            return replace(there, subnets=there.subnets | set(subnets))
        case plans.DetachSubnets(subnets):
            assert there.subnets > set(subnets), "the last subnet has to stay"
            return replace(there, subnets=there.subnets - set(subnets))
        case plans.ApplySecurityGroups(groups):
            return replace(there, groups=groups)
        case plans.DeleteListener(number):
            return without_listener(there, number)
        case plans.CreateListeners(listeners):
            assert not there.listeners.keys() & {one.port for one in listeners}
            new = {one.port: one for one in listeners}
            return replace(there, listeners={**there.listeners, **new})
        case plans.ConfigureHealthCheck(check):
            return replace(there, health_check=check)
        case plans.AddTags(tags):
            return replace(there, tags={**there.tags, **dict(tags)})
        case plans.ModifyAttributes(sections):
            return replace(there, attributes={**there.attributes, **sections})
        case plans.RegisterInstances(instances):
            return replace(there, instances=there.instances | set(instances))
        case plans.DeregisterInstances(instances):
            return replace(there, instances=there.instances - set(instances))
    raise AssertionError(action)


def without_listener(there: ClassicElb, number: int) -> ClassicElb:
    """A listener takes its policies with it; those of a node port that is still used stay."""
    listeners: dict[int, ClassicListener] = {
        k: v for k, v in there.listeners.items() if k != number
    }
    policies = {k: v for k, v in there.tls_policies.items() if k != number}
    used = {one.node_port for one in listeners.values()}
    return replace(there, listeners=listeners, tls_policies=policies, proxied=there.proxied & used)


def after(there: ClassicElb | None, now: ClassicElb, most: int = 1000) -> ClassicElb | None:
    """What is there once the plan for `now` was performed, or the first of its actions."""
    for step in list(plans.plan(now, there))[:most]:
        there = take(there, step)
    return there


shapes = st.builds(
    wanted,
    ports=st.sets(st.integers(80, 83), min_size=1),
    instances=st.sets(st.sampled_from(["i-1", "i-2", "i-3"])),
    subnets=st.sets(st.integers(0, 2), min_size=1),
    shift=st.sampled_from([0, 100]),
    proxy_protocol=st.sampled_from(["", "*"]),
    ssl_cert=st.sampled_from(["", "arn:1", "arn:2"]),
    ssl_negotiation_policy=st.sampled_from(["", "old", "new"]),
    connection_idle_timeout=st.sampled_from(["60", "90"]),
    additional_resource_tags=st.sampled_from(["a=1", "a=2", "b="]),
)


@given(before=shapes, now=shapes, broken_at=st.integers(0, 20))
def test_an_interrupted_plan_is_finished_by_planning_again(
    before: ClassicElb, now: ClassicElb, broken_at: int
) -> None:
    there = after(after(after(None, before, broken_at), now, broken_at), now)
    assert list(plans.plan(now, there)) == []
    assert there
    assert (there.listeners, there.subnets, there.instances, there.proxied) == (
        now.listeners, now.subnets, now.instances, now.proxied,
    )  # fmt: skip
    assert now.tls_policies.items() <= there.tls_policies.items()


def test_a_scheme_is_fixed_for_life() -> None:
    with pytest.raises(Refused, match="for its life"):
        list(plans.plan(wanted(internal="true"), after(None, wanted())))


@pytest.mark.parametrize(
    ("annotations", "protocols"),
    [
        ({}, ("TCP", "TCP")),
        ({"backend_protocol": "http"}, ("HTTP", "HTTP")),
        ({"ssl_cert": "arn:1"}, ("SSL", "TCP")),
        ({"ssl_cert": "arn:1", "backend_protocol": "http"}, ("HTTPS", "HTTP")),
        ({"ssl_cert": "arn:1", "backend_protocol": "https"}, ("HTTPS", "HTTPS")),
        ({"ssl_cert": "arn:1", "backend_protocol": "ssl"}, ("SSL", "SSL")),
        ({"ssl_cert": "arn:1", "backend_protocol": "tcp"}, ("SSL", "TCP")),
        ({"ssl_cert": "arn:1", "ssl_ports": "443"}, ("TCP", "TCP")),
        ({"ssl_cert": "arn:1", "ssl_ports": "443,tcp-80"}, ("SSL", "TCP")),
    ],
)
def test_protocols_follow_certificate_and_backend(
    annotations: dict[str, str], protocols: tuple[str, str]
) -> None:
    listener = wanted((80,), ("i-1",), (0, 1), 0, **annotations).listeners[80]
    assert (listener.protocol, listener.node_protocol) == protocols
