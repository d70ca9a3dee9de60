"""Load balancers of both IP families, and targets of IPv6: what is asked for and what can be."""

import re
from typing import Any

import pytest

from ccm.cloud.testkit.harness import port, service
from ccm.errors import Denied, Refused
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.aws.elb.annotations import PREFIX
from tests.providers.aws.proxy import Refusal, Request
from tests.providers.aws.world import Aws, node_of

MANAGED = "NLBSecurityGroupMode = Managed"
SINGLE: Json = {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
PREFERRED: Json = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}
REQUIRED: Json = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
ONLY_IPV6: Json = {"ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"}
UDP: Json = {"ports": [port(53, "UDP", 30053)]}
LIMITED: Json = {"loadBalancerSourceRanges": ["192.0.2.0/24"]}
BOTH_LIMITED: Json = {"loadBalancerSourceRanges": ["192.0.2.0/24", "2001:db8::/32"]}
ONE_LIMITED: Json = {"loadBalancerSourceRanges": ["0.0.0.0/0", "2001:db8::/32"]}
ADDRESS_TYPE = "ip-address-type"


def asking(spec: Json, **annotations: str) -> Service:
    asked = {"type": "nlb"} | {key.replace("_", "-"): value for key, value in annotations.items()}
    given = {PREFIX + key: value for key, value in asked.items() if value}
    return service("web", given, **spec)


def families(aws: Aws) -> tuple[str, set[str]]:
    """Of the only load balancer and of its target groups."""
    (nlb,) = aws.nlbs()
    assert len(aws.target_groups()) == len(nlb["groups"])
    return nlb["IpAddressType"], {group["IpAddressType"] for group in aws.target_groups()}


def sources(aws: Aws, name: str = "nodes") -> set[tuple[str, int, str]]:
    """Protocol, port and source of each rule of the nodes' group, or another's."""
    (group,) = [one for one in aws.security_groups() if one["GroupName"].startswith(name)]
    return {
        (rule["IpProtocol"], rule["FromPort"], source.get("CidrIp") or source["CidrIpv6"])
        for rule in group["IpPermissions"]
        for source in [*rule["IpRanges"], *rule.get("Ipv6Ranges", [])]
    }


@pytest.mark.parametrize(
    ("spec", "annotated", "wanted"),
    [
        (SINGLE, "", "ipv4"),
        (PREFERRED, "", "dualstack"),
        (REQUIRED, "", "dualstack"),
        (SINGLE, "dualstack", "dualstack"),
        (PREFERRED, "ipv4", "ipv4"),
        (PREFERRED | UDP, "", "ipv4"),
        (PREFERRED | LIMITED, "", "ipv4"),
        (PREFERRED, "both", "dualstack"),
    ],
)
async def test_a_new_one_is_of_the_families_that_are_asked_for(
    aws: Aws, spec: Json, annotated: str, wanted: str
) -> None:
    aws.add_ipv6()
    nodes = [node_of(one) for one in aws.launch()]
    one = asking(spec, ip_address_type=annotated)
    made = await aws.ensure(one, nodes)
    assert families(aws) == (wanted, {"ipv4"})
    assert [way.hostname for way in made.ingress] == [nlb["DNSName"] for nlb in aws.nlbs()]
    assert bool(made.warnings) is (annotated == "both")
    aws.proxy.reset()
    await aws.ensure(one, nodes)
    assert aws.proxy.writes() == []


@pytest.mark.parametrize("spec", [PREFERRED, REQUIRED, ONLY_IPV6])
@pytest.mark.parametrize("lacking", ["network", "route", "one"])
async def test_without_ipv6_in_its_subnets_it_is_of_ipv4_or_refused_with_what_is_lacking(
    aws: Aws, spec: Json, lacking: str
) -> None:
    first, second, third = aws.public.values()
    if lacking != "network":
        aws.add_ipv6(lacking != "route", only=[first, second] if lacking == "one" else [])
    if spec == PREFERRED:
        await aws.ensure(asking(spec))
        assert families(aws)[0] == "ipv4"
        return
    reported = {
        "network": f"without an IPv6 network: {first}, {second}, {third}",
        "route": f"without a route for ::/0 to an internet gateway: {first}",
        "one": f"without an IPv6 network: {third};",
    }
    with pytest.raises(Refused, match=reported[lacking]):
        await aws.ensure(asking(spec))
    assert aws.proxy.writes() == []


async def test_an_internal_one_needs_no_route_to_the_internet(aws: Aws) -> None:
    aws.add_ipv6(is_reached=False)
    await aws.ensure(asking(REQUIRED, internal="true"))
    assert families(aws) == ("dualstack", {"ipv4"})


@pytest.mark.parametrize(
    ("before", "after", "annotated", "wanted", "is_reported"),
    [
        (SINGLE, PREFERRED, "", "ipv4", True),  # as on taking over from upstream
        (SINGLE, PREFERRED, "dualstack", "dualstack", False),
        (SINGLE, REQUIRED, "", "dualstack", False),
        (REQUIRED, SINGLE, "", "ipv4", False),
        (REQUIRED, SINGLE, "dualstack", "dualstack", False),
        (REQUIRED, PREFERRED, "ipv4", "ipv4", False),
        (REQUIRED, PREFERRED, "", "dualstack", False),
        (REQUIRED, REQUIRED, "ipv4", "dualstack", True),
    ],
)
async def test_one_that_is_there_changes_when_that_is_required_or_annotated(
    aws: Aws, before: Json, after: Json, annotated: str, wanted: str, is_reported: bool
) -> None:
    aws.add_ipv6()
    await aws.ensure(asking(before))
    one = asking(after, ip_address_type=annotated)
    aws.proxy.reset()
    made = await aws.ensure(one)
    assert families(aws) == (wanted, {"ipv4"})
    assert bool(made.warnings) is is_reported
    was = "ipv4" if before == SINGLE else "dualstack"
    writes = ["elbv2:SetIpAddressType"] if wanted != was else []
    is_tagged = before == SINGLE and wanted == "dualstack"
    assert aws.proxy.writes() == ["elbv2:AddTags"] * is_tagged + writes
    aws.proxy.reset()
    await aws.ensure(one)
    assert aws.proxy.writes() == []


async def test_what_was_made_of_both_families_by_hand_stays_so(aws: Aws) -> None:
    aws.add_ipv6()
    await aws.ensure(asking(SINGLE))
    (nlb,) = aws.nlbs()
    arn = nlb["LoadBalancerArn"]
    aws.elbv2.set_ip_address_type(LoadBalancerArn=arn, IpAddressType="dualstack")
    aws.proxy.reset()
    await aws.ensure(asking(SINGLE))
    assert aws.proxy.writes() == []


@pytest.mark.parametrize(
    ("spec", "has_ipv6", "reported"),
    [
        (SINGLE, False, "without an IPv6 network"),
        (SINGLE | UDP, True, "UDP needs IPv4"),
        (SINGLE | LIMITED, True, "source ranges would not be enforced"),
    ],
)
async def test_an_annotation_that_upstream_ignored_stops_no_service_that_is_served(
    aws: Aws, spec: Json, has_ipv6: bool, reported: str
) -> None:
    """It is that of the AWS Load Balancer Controller. A new one is refused."""
    if has_ipv6:
        aws.add_ipv6()
    await aws.ensure(asking(spec))
    one = asking(spec, ip_address_type="dualstack")
    aws.proxy.reset()
    made = await aws.ensure(one)
    assert reported in made.warnings[0]
    assert aws.proxy.writes() == []
    await aws.delete(one)
    with pytest.raises(Refused):
        await aws.ensure(one)


async def test_one_without_the_right_to_change_it_is_reported_and_all_else_is_done(
    aws: Aws,
) -> None:
    aws.add_ipv6()
    await aws.ensure(asking(SINGLE))
    (machine,) = aws.launch()
    denied = aws.proxy.fault("SetIpAddressType", Refusal(403, "AccessDenied"))
    with denied, pytest.raises(Denied, match="allow elasticloadbalancing:SetIpAddressType"):
        await aws.ensure(asking(REQUIRED), [node_of(machine)])
    (group,) = aws.target_groups()
    assert aws.targets(group) == [machine["InstanceId"]]


async def test_a_denial_is_reported_and_not_what_aws_refuses_for_it_injected(aws: Aws) -> None:
    """Listeners of one of IPv4 cannot lead to targets of IPv6."""
    aws.add_ipv6()
    await aws.ensure(asking(SINGLE))
    denied = aws.proxy.fault("SetIpAddressType", Refusal(403, "AccessDenied"))
    refused = aws.proxy.fault("ModifyListener", Refusal(400, "InvalidConfigurationRequest"))
    with denied, refused, pytest.raises(Denied, match="allow elasticloadbalancing:SetIpAddressTyp"):
        await aws.ensure(asking(ONLY_IPV6))


@pytest.mark.parametrize("spec", [REQUIRED, ONLY_IPV6])
async def test_udp_is_refused_with_ipv6(aws: Aws, spec: Json) -> None:
    aws.add_ipv6()
    with pytest.raises(Refused, match="UDP needs IPv4"):
        await aws.ensure(asking(spec | UDP))
    assert aws.proxy.writes() == []


# Types.


async def test_without_a_type_it_is_an_nlb_that_can_do_what_is_required(aws: Aws) -> None:
    aws.add_ipv6()
    await aws.ensure(asking(REQUIRED, type=""))
    assert families(aws)[0] == "dualstack"


async def test_a_classic_one_is_not_replaced_for_ipv6_unless_a_type_is_said(aws: Aws) -> None:
    aws.add_ipv6()
    await aws.ensure(asking(SINGLE, type=""))
    aws.proxy.reset()
    for kind, reported in (
        ("", "annotate .*type: nlb for a new one"),
        ("elb", "is of IPv4: annotate"),
    ):
        with pytest.raises(Refused, match=reported):
            await aws.ensure(asking(REQUIRED, type=kind))
    assert aws.proxy.writes() == []
    await aws.ensure(asking(REQUIRED))
    assert not list(aws.classic_elbs())


# Who may come in.


@pytest.mark.parametrize(
    "spec",
    [
        REQUIRED | LIMITED,
        REQUIRED | BOTH_LIMITED,
        REQUIRED | ONE_LIMITED,
        ONLY_IPV6 | LIMITED,
    ],
)
async def test_source_ranges_are_refused_where_nodes_cannot_tell_who_comes(
    aws: Aws, spec: Json
) -> None:
    """Clients of one family come with the load balancer's address, which has to come in."""
    aws.add_ipv6()
    with pytest.raises(Refused, match="would not be enforced: nodes cannot distinguish"):
        await aws.ensure(asking(spec))
    assert aws.proxy.writes() == []


async def test_source_ranges_of_ipv6_are_refused_for_one_of_ipv4(aws: Aws) -> None:
    await aws.start(MANAGED)
    for spec in (SINGLE, PREFERRED):
        with pytest.raises(Refused, match="2001:db8::/32: the load balancer is of IPv4"):
            await aws.ensure(asking(spec | BOTH_LIMITED))
    assert aws.proxy.writes() == []


async def test_its_own_group_lets_in_both_families(aws: Aws) -> None:
    await aws.start(MANAGED)
    aws.add_ipv6()
    nodes = [node_of(one) for one in aws.launch()]
    await aws.ensure(asking(PREFERRED), nodes)
    icmp = {("icmp", 3, "0.0.0.0/0"), ("icmpv6", 2, "::/0")}
    assert sources(aws, "k8s-") == {("tcp", 80, "0.0.0.0/0"), ("tcp", 80, "::/0"), *icmp}
    assert {one for one in sources(aws) if one[0] == "tcp"} == {("tcp", 30080, "0.0.0.0/0")}
    await aws.ensure(asking(PREFERRED | ONE_LIMITED), nodes)
    assert {one for one in sources(aws, "k8s-") if one[0] == "tcp"} == {
        ("tcp", 80, "0.0.0.0/0"),
        ("tcp", 80, "2001:db8::/32"),
    }
    await aws.ensure(asking(PREFERRED | BOTH_LIMITED), nodes)
    icmp = {("icmp", 3, "192.0.2.0/24"), ("icmpv6", 2, "2001:db8::/32")}
    clients = {("tcp", 80, "192.0.2.0/24"), ("tcp", 80, "2001:db8::/32")}
    assert sources(aws, "k8s-") == clients | icmp
    subnets = {f"10.0.{16 * number}.0/20" for number in (0, 2, 4)}  # clients of IPv6
    opened = {("tcp", 30080, source) for source in {"192.0.2.0/24", *subnets}}
    assert {one for one in sources(aws) if one[0] == "tcp"} == opened
    aws.proxy.reset()
    await aws.ensure(asking(PREFERRED | BOTH_LIMITED), nodes)
    await aws.update_nodes(asking(PREFERRED | BOTH_LIMITED), nodes)
    assert aws.proxy.writes() == []
    await aws.delete(asking(PREFERRED))
    assert sources(aws) == set()


async def test_health_checks_on_another_port_leave_clients_of_the_other_family_in(aws: Aws) -> None:
    await aws.start(MANAGED)
    aws.add_ipv6()
    nodes = [node_of(one) for one in aws.launch()]
    await aws.ensure(asking(PREFERRED | LIMITED, healthcheck_port="10256"), nodes)
    assert {("tcp", 30080, "10.0.0.0/20"), ("tcp", 10256, "10.0.0.0/20")} <= sources(aws)


# Targets of IPv6, of which the emulator does not know which address is the primary one.


def with_primary_addresses(aws: Aws, *machines: Json) -> None:
    """Each an IPv6 address, which EC2's answers call the primary one."""
    for number, machine in enumerate(machines, 5):
        aws.ec2.assign_ipv6_addresses(
            NetworkInterfaceId=machine["NetworkInterfaces"][0]["NetworkInterfaceId"],
            Ipv6Addresses=[f"2001:db8:1234:1a00::{number}"],
        )

    def rewrite(request: Request, answer: bytes) -> bytes:
        pattern = rb"<isPrimaryIpv6>\w+</isPrimaryIpv6>"
        return re.sub(pattern, b"<isPrimaryIpv6>true</isPrimaryIpv6>", answer)

    aws.proxy.rewrite = rewrite


def behind(aws: Aws) -> list[set[str]]:
    return [set(aws.targets(group)) for group in aws.target_groups()]


async def test_a_service_of_ipv6_has_targets_of_ipv6_injected(aws: Aws) -> None:
    aws.add_ipv6()
    first, second, lacking = aws.launch(3)
    with_primary_addresses(aws, first, second)
    one = asking(ONLY_IPV6)
    made = await aws.ensure(one, [node_of(first), node_of(lacking)])
    assert families(aws) == ("dualstack", {"ipv6"})
    assert behind(aws) == [{first["InstanceId"]}]
    assert f"{lacking['InstanceId']} left out" in made.warnings[0]
    tcp = {one for one in sources(aws) if one[0] == "tcp"}
    assert tcp == {("tcp", 30080, "::/0")}
    assert ("icmpv6", 2, "::/0") in sources(aws)
    await aws.update_nodes(one, [node_of(second), node_of(lacking)])
    assert behind(aws) == [{second["InstanceId"]}]
    aws.proxy.requests = []
    await aws.ensure(one, [node_of(second), node_of(lacking)])
    assert aws.proxy.writes() == []
    await aws.delete(one)
    assert sources(aws) == set()


async def test_without_a_node_that_can_be_one_it_is_refused(aws: Aws) -> None:
    aws.add_ipv6()
    with pytest.raises(Refused, match="no node has one: targets of IPv6 need a primary IPv6"):
        await aws.ensure(asking(ONLY_IPV6), [node_of(one) for one in aws.launch()])
    assert aws.proxy.writes() == []
    await aws.ensure(asking(ONLY_IPV6))


async def test_a_change_of_the_targets_family_is_made_in_place_injected(aws: Aws) -> None:
    aws.add_ipv6()
    (machine,) = aws.launch()
    with_primary_addresses(aws, machine)
    nodes: list[Any] = [node_of(machine)]
    for spec, wanted in (
        (SINGLE, ("ipv4", {"ipv4"})),
        (ONLY_IPV6, ("dualstack", {"ipv6"})),
        (SINGLE, ("ipv4", {"ipv4"})),
    ):
        await aws.ensure(asking(spec), nodes)
        assert families(aws) == wanted
        assert behind(aws) == [{machine["InstanceId"]}]
    assert len({nlb["LoadBalancerArn"] for nlb in aws.nlbs()}) == 1
