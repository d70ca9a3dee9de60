"""Plans for classic balancers: interrupted anywhere they converge, and done they are empty."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud.testkit.harness import port, service
from ccm.model.objects import Json
from ccm.providers.aws.elb import classic_plan as plans
from ccm.providers.aws.elb.annotations import CLASSIC, PREFIX
from ccm.providers.aws.elb.calls import ApiCall
from ccm.providers.aws.elb.classic import read_elb
from ccm.providers.aws.elb.classic_desired import ClassicElb, desired_classic_elb
from ccm.providers.aws.elb.request import read_request
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import ClusterTag, read_tags, tag_list

SUBNETS = [Subnet(f"subnet-{zone}", zone, "", {}, True) for zone in "abc"]
CHECK_NUMBERS = ("Interval", "Timeout", "HealthyThreshold", "UnhealthyThreshold")


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


def take(there: Json | None, call: ApiCall) -> Json:
    """The load balancer's records after one call, as AWS would carry it out."""
    given = dict(call.parameters)
    if call.name == "elb:CreateLoadBalancer":
        assert there is None
        tags, listeners = given.pop("Tags"), given.pop("Listeners")
        described = [{"Listener": one, "PolicyNames": []} for one in listeners]
        check = {"Target": "TCP:1", **dict.fromkeys(CHECK_NUMBERS, 0)}
        return {"Tags": tags, "ListenerDescriptions": described, "HealthCheck": check, **given}
    assert there
    match call.name:
        case "elb:AddTags":
            return {**there, "Tags": tag_list(read_tags(there["Tags"]) | read_tags(given["Tags"]))}
        case "elb:ModifyLoadBalancerAttributes":
            before, changes = there.get("Attributes", {}), given["LoadBalancerAttributes"]
            return {**there, "Attributes": {**before, **changes}}
        case "elb:AttachLoadBalancerToSubnets":
            return {**there, "Subnets": [*there["Subnets"], *given["Subnets"]]}
        case "elb:DetachLoadBalancerFromSubnets":
            left = [one for one in there["Subnets"] if one not in given["Subnets"]]
            assert left, "the last subnet has to stay"
            return {**there, "Subnets": left}
        case "elb:RegisterInstancesWithLoadBalancer":
            return {**there, "Instances": [*there.get("Instances", ()), *given["Instances"]]}
        case "elb:DeregisterInstancesFromLoadBalancer":
            left = [one for one in there["Instances"] if one not in given["Instances"]]
            return {**there, "Instances": left}
        case "elb:ConfigureHealthCheck" | "elb:ApplySecurityGroupsToLoadBalancer":
            return {**there, **given}
        case "elb:CreateLoadBalancerListeners" | "elb:DeleteLoadBalancerListeners":
            return with_listeners(there, given)
    return with_policies(there, call.name, given)


def with_listeners(there: Json, given: Json) -> Json:
    """A listener takes its policies with it; those of a node port that is still used stay."""
    gone, new = given.get("LoadBalancerPorts", ()), given.get("Listeners", ())
    left = [
        one
        for one in there["ListenerDescriptions"]
        if one["Listener"]["LoadBalancerPort"] not in gone
    ]
    ports = [one["Listener"]["LoadBalancerPort"] for one in left]
    assert not {one["LoadBalancerPort"] for one in new} & set(ports)
    left += [{"Listener": one, "PolicyNames": []} for one in new]
    used = {one["Listener"]["InstancePort"] for one in left}
    servers = there.get("BackendServerDescriptions", ())
    servers = [one for one in servers if one["InstancePort"] in used]
    return {**there, "ListenerDescriptions": left, "BackendServerDescriptions": servers}


def with_policies(there: Json, name: str, given: Json) -> Json:
    policies = there.get("Policies", {}).get("OtherPolicies", [])
    listeners = [dict(one) for one in there["ListenerDescriptions"]]
    if name == "elb:SetLoadBalancerListenerSSLCertificate":
        number = given["LoadBalancerPort"]
        (one,) = [one for one in listeners if one["Listener"]["LoadBalancerPort"] == number]
        assert one["Listener"]["SSLCertificateId"], "it has one to change"
        certificate = {"SSLCertificateId": given["SSLCertificateId"]}
        one["Listener"] = {**one["Listener"], **certificate}
        return {**there, "ListenerDescriptions": listeners}
    if name == "elb:CreateLoadBalancerPolicy":
        return {**there, "Policies": {"OtherPolicies": [*policies, given["PolicyName"]]}}
    names = given["PolicyNames"]
    assert set(names) <= set(policies)
    if name == "elb:SetLoadBalancerPoliciesOfListener":
        number = given["LoadBalancerPort"]
        (one,) = [one for one in listeners if one["Listener"]["LoadBalancerPort"] == number]
        one["PolicyNames"] = names
        return {**there, "ListenerDescriptions": listeners}
    assert name == "elb:SetLoadBalancerPoliciesForBackendServer"
    number = given["InstancePort"]
    assert number in {one["Listener"]["InstancePort"] for one in listeners}
    servers = there.get("BackendServerDescriptions", ())
    servers = [one for one in servers if one["InstancePort"] != number]
    server = {"InstancePort": number, "PolicyNames": names}
    return {**there, "BackendServerDescriptions": [*servers, server]}


def observed(there: Json | None) -> ClassicElb | None:
    return read_elb(there, read_tags(there["Tags"]), there.get("Attributes", {})) if there else None


def after(there: Json | None, now: ClassicElb, most: int = 1000) -> Json | None:
    """What is there once the plan for `now` was performed, or the first of its calls."""
    for step in list(plans.plan(now, observed(there)))[:most]:
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
    there = observed(after(after(after(None, before, broken_at), now, broken_at), now))
    assert list(plans.plan(now, there)) == []
    assert there
    assert (there.listeners, there.subnets, there.instances, there.proxied) == (
        now.listeners, now.subnets, now.instances, now.proxied,
    )  # fmt: skip
    assert now.tls_policies.items() <= there.tls_policies.items()


def test_a_certificate_changes_in_place() -> None:
    """Never is the port without a listener, whatever AWS thinks of the new certificate."""
    there = observed(after(None, wanted(ssl_cert="arn:1", ssl_negotiation_policy="old")))
    now = wanted(ssl_cert="arn:2", ssl_negotiation_policy="old")
    names = [call.name for call in plans.plan(now, there)]
    assert names == ["elb:SetLoadBalancerListenerSSLCertificate"]


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
