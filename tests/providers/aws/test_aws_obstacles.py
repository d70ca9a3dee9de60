"""Balancers with something of somebody else's in the way, and accounts that are full."""

from contextlib import suppress
from typing import Any

import pytest

from ccm.cloud.gate import invoke
from ccm.errors import CloudError, NoRoom, Refused, RetryAfter
from ccm.providers.aws import vpc
from ccm.providers.aws.elb import classic
from ccm.providers.aws.provider import AwsCloud
from tests.providers.aws.proxy import Proxy, Refusal, Request
from tests.providers.aws.world import MARK, ZONES, Account, asking, delete, ensure, node_of

IN_USE = Refusal(400, "ResourceInUse")


async def test_a_target_group_that_lost_its_tags_is_told_and_left_alone(
    cloud: AwsCloud, account: Account, proxy: Proxy
) -> None:
    one = asking("nlb")
    await ensure(cloud, one)
    (group,) = account.target_groups()
    account.emulator.client("elbv2").remove_tags(
        ResourceArns=[group["TargetGroupArn"]], TagKeys=[MARK]
    )
    proxy.reset()
    with pytest.raises(Refused, match=f"target group {group['TargetGroupName']} carries the tags"):
        await ensure(cloud, one)
    assert proxy.writes() == []


async def test_a_full_target_group_keeps_the_balancer_from_nothing_else_injected(
    cloud: AwsCloud, account: Account, proxy: Proxy
) -> None:
    """As with more nodes than a target group has room for."""
    nodes = [node_of(made) for made in account.launch(2)]
    one = asking("nlb", "web", 80, 81)
    full = Refusal(400, "TooManyTargets")
    with proxy.fault("RegisterTargets", full), pytest.raises(NoRoom, match="target-node-labels"):
        await ensure(cloud, one, nodes)
    assert [one["Port"] for nlb in account.nlbs() for one in nlb["listeners"]] == [80, 81]
    await ensure(cloud, one, nodes)


async def test_a_target_that_cannot_be_taken_out_keeps_no_other_in_injected(
    cloud: AwsCloud, account: Account, proxy: Proxy
) -> None:
    machines = account.launch(3)
    odd = machines[0]["InstanceId"]
    one = asking("nlb")
    await ensure(cloud, one, [*map(node_of, machines)])

    def refuse(request: Request) -> Refusal | None:
        is_odd = request.operation == "DeregisterTargets" and odd in request.parameters.values()
        return Refusal(400, "InvalidTarget", f"'{odd}' is not valid") if is_odd else None

    proxy.rule = refuse
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.update_hosts, one, [node_of(machines[1])])
    (group,) = account.target_groups()
    health = account.emulator.client("elbv2").describe_target_health(
        TargetGroupArn=group["TargetGroupArn"]
    )["TargetHealthDescriptions"]
    left = {t["Target"]["Id"] for t in health if t["TargetHealth"]["State"] != "draining"}
    assert left == {odd, machines[1]["InstanceId"]}


async def test_a_protected_balancer_keeps_all_its_parts(
    cloud: AwsCloud, account: Account, proxy: Proxy
) -> None:
    one = asking("nlb", attributes="deletion_protection.enabled=true")
    await ensure(cloud, one, [node_of(account.launch()[0])])
    proxy.reset()
    with pytest.raises(Refused, match="deletion protection"):
        await delete(cloud, one)
    assert proxy.writes() == []


async def test_a_target_group_that_another_balancer_uses_is_told_injected(
    cloud: AwsCloud, account: Account, proxy: Proxy
) -> None:
    one, elbv2 = asking("nlb"), account.emulator.client("elbv2")
    await ensure(cloud, one)
    (group,) = account.target_groups()
    theirs = elbv2.create_load_balancer(
        Name="theirs", Type="network", Subnets=list(account.public.values())
    )["LoadBalancers"][0]
    forward: list[Any] = [{"Type": "forward", "TargetGroupArn": group["TargetGroupArn"]}]
    elbv2.create_listener(
        LoadBalancerArn=theirs["LoadBalancerArn"], Protocol="TCP", Port=1, DefaultActions=forward
    )
    with proxy.fault("DeleteTargetGroup", IN_USE), pytest.raises(CloudError, match="theirs") as e:
        await delete(cloud, one)
    assert not isinstance(e.value, RetryAfter)


async def test_a_security_group_that_other_rules_name_is_told_injected(
    cloud: AwsCloud, account: Account, proxy: Proxy
) -> None:
    one, ec2 = asking("classic"), account.ec2
    await ensure(cloud, one)
    (balancer,) = account.emulator.client("elb").describe_load_balancers()[
        "LoadBalancerDescriptions"
    ]
    theirs = ec2.create_security_group(GroupName="db", Description="db", VpcId=account.vpc)
    source = [{"GroupId": balancer["SecurityGroups"][0]}]
    ec2.authorize_security_group_ingress(
        GroupId=theirs["GroupId"],
        IpPermissions=[
            {"IpProtocol": "tcp", "FromPort": 5432, "ToPort": 5432, "UserIdGroupPairs": source}
        ],
    )
    in_use = Refusal(400, "DependencyViolation")
    told = pytest.raises(CloudError, match=f"rules of {theirs['GroupId']}")
    with proxy.fault("DeleteSecurityGroup", in_use), told as failed:
        await delete(cloud, one)
    assert not isinstance(failed.value, RetryAfter)


async def test_a_security_group_in_use_is_deleted_later_and_told_after_a_while_injected(
    cloud: AwsCloud, account: Account, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network interface of somebody else's may have it, which no rule shows."""
    one = asking("classic")
    await ensure(cloud, one)
    with proxy.fault("DeleteSecurityGroup", Refusal(400, "DependencyViolation")):
        with pytest.raises(RetryAfter):
            await delete(cloud, one)
        assert len(account.security_groups()) == 3
        monkeypatch.setattr(classic, "GROUP_IN_USE_TIMEOUT", 0.0)
        with pytest.raises(CloudError, match="something that is not ours") as failed:
            await delete(cloud, one)
    assert not isinstance(failed.value, RetryAfter)
    await delete(cloud, one)
    assert {group["GroupName"] for group in account.security_groups()} == {"default", "nodes"}


async def test_a_balancer_that_an_endpoint_service_uses_is_told_injected(
    cloud: AwsCloud, proxy: Proxy
) -> None:
    one = asking("nlb")
    await ensure(cloud, one)
    told = pytest.raises(CloudError, match="associated with another service")
    used = Refusal(400, "ResourceInUse", "it is associated with another service")
    with proxy.fault("elbv2:DeleteLoadBalancer", used), told as failed:
        await delete(cloud, one)
    assert not isinstance(failed.value, RetryAfter)
    await delete(cloud, one)


async def test_other_services_target_groups_cost_no_reads(
    cloud: AwsCloud, account: Account, proxy: Proxy
) -> None:
    """Names are cut: those of all Services of one team may begin alike."""
    elbv2 = account.emulator.client("elbv2")
    theirs = elbv2.create_load_balancer(
        Name="a" + "0" * 31, Type="network", Subnets=list(account.public.values())
    )["LoadBalancers"][0]["LoadBalancerArn"]
    for number in range(1, 41):
        group = elbv2.create_target_group(
            Name=f"k8s-default-gatewayt-{number:010}", Protocol="TCP", Port=1, VpcId=account.vpc
        )["TargetGroups"][0]["TargetGroupArn"]
        forward: list[Any] = [{"Type": "forward", "TargetGroupArn": group}]
        elbv2.create_listener(
            LoadBalancerArn=theirs, Protocol="TCP", Port=number, DefaultActions=forward
        )
    one = asking("nlb", "gateway-tenant-1")
    await ensure(cloud, one)
    proxy.reset()
    await ensure(cloud, one)
    assert proxy.counted()["elbv2:DescribeTags"] == 1


async def test_a_change_of_nodes_reads_of_a_balancer_only_what_it_needs(
    cloud: AwsCloud, account: Account, proxy: Proxy
) -> None:
    """Three reads, and one for each port: with many Services every one of them counts."""
    first, second = map(node_of, account.launch(2))
    one = asking("nlb", "web", 80, 81)
    await ensure(cloud, one, [first])
    proxy.reset()
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.update_hosts, one, [first, second])
    counted = proxy.counted()
    assert sum(n for name, n in counted.items() if name.startswith("elbv2:Describe")) == 5
    assert [name for name in proxy.writes() if name.startswith("elbv2:")] == [
        "elbv2:RegisterTargets"
    ] * 2


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_one_node_with_two_tagged_groups_keeps_no_other_out(
    cloud: AwsCloud, account: Account, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    other = account.ec2.create_security_group(
        GroupName="other", Description="other", VpcId=account.vpc
    )["GroupId"]
    account.ec2.create_tags(Resources=[other], Tags=[{"Key": MARK, "Value": "shared"}])
    (good,) = account.launch()
    (odd,) = account.launch(SecurityGroupIds=[account.nodes_group, other])
    nodes = [node_of(good), node_of(odd)]
    one = asking(kind)
    await ensure(cloud, one, nodes)
    await ensure(cloud, one, nodes)
    found = account.ec2.describe_security_groups(GroupIds=[account.nodes_group])["SecurityGroups"]
    assert found[0]["IpPermissions"]
    told = [record for record in caplog.records if record.name.endswith("aws.vpc")]
    assert [record.__dict__["instance"] for record in told] == [odd["InstanceId"]]


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_a_local_zone_gets_no_part_of_a_balancer_unless_named_injected(
    cloud: AwsCloud, account: Account, proxy: Proxy, kind: str
) -> None:
    """Its subnets are in the same VPC; balancers of the region cannot be there."""
    regular = b"<zoneType>availability-zone</zoneType>"

    def with_a_local_zone(request: Request, answer: bytes) -> bytes:
        before, name, after = answer.partition(ZONES[2].encode())
        local = after.replace(regular, b"<zoneType>local-zone</zoneType>", 1)
        is_zones = request.operation == "DescribeAvailabilityZones"
        return before + name + local if is_zones else answer

    proxy.rewrite = with_a_local_zone
    await ensure(cloud, asking(kind))
    await ensure(cloud, asking(kind, "named", subnets=f"public-{ZONES[2]}"))
    elb, elbv2 = account.emulator.client("elb"), account.emulator.client("elbv2")
    found = [
        set(one["Subnets"]) for one in elb.describe_load_balancers()["LoadBalancerDescriptions"]
    ] + [
        {zone["SubnetId"] for zone in one["AvailabilityZones"]}
        for one in elbv2.describe_load_balancers()["LoadBalancers"]
    ]
    first, second, third = (account.public[zone] for zone in ZONES)
    assert sorted(found, key=len) == [{third}, {first, second}]


async def test_zones_that_cannot_be_read_move_no_balancer_injected(
    cloud: AwsCloud, proxy: Proxy
) -> None:
    unread = Refusal(500, "InternalError")
    with proxy.fault("DescribeAvailabilityZones", unread), pytest.raises(CloudError):
        await ensure(cloud, asking("nlb"))
    assert proxy.writes() == []
    await ensure(cloud, asking("nlb"))


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_a_new_subnet_does_not_move_a_balancer(
    cloud: AwsCloud, account: Account, proxy: Proxy, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One subnet is as good as the other: that in use stays, whichever sorts first."""
    monkeypatch.setattr(vpc, "SUBNET_CACHE_TTL", 0.0)
    one, ec2, zone = asking(kind, internal="true"), account.ec2, ZONES[0]
    await ensure(cloud, one)
    for number in range(8):  # one of them sorts first, most likely
        made = ec2.create_subnet(
            VpcId=account.vpc, CidrBlock=f"10.0.{200 + number}.0/24", AvailabilityZone=zone
        )["Subnet"]["SubnetId"]
        tags = [{"Key": key, "Value": "1"} for key in (MARK, "kubernetes.io/role/internal-elb")]
        ec2.create_tags(Resources=[made], Tags=tags)
    proxy.reset()
    with suppress(Refused):
        await ensure(cloud, one)
    assert proxy.writes() == []
