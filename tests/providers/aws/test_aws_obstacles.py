"""Balancers with something of someone else's in the way, and accounts that are full."""

import asyncio
import re
from contextlib import suppress
from typing import Any

import pytest

from ccm.cloud.gate import invoke
from ccm.errors import CloudError, NoRoom, Refused, RetryAfter
from ccm.providers.aws import vpc
from ccm.providers.aws.config import AwsTimings
from tests.providers.aws.proxy import Refusal, Request
from tests.providers.aws.world import MARK, ZONES, Aws, asking, node_of
from tests.support.deadlines import timeout

IN_USE = Refusal(400, "ResourceInUse")


async def test_a_target_group_that_lost_its_tags_is_reported_and_left_alone(aws: Aws) -> None:
    one = asking("nlb")
    await aws.ensure(one)
    (group,) = aws.target_groups()
    aws.elbv2.remove_tags(ResourceArns=[group["TargetGroupArn"]], TagKeys=[MARK])
    aws.proxy.reset()
    with pytest.raises(Refused, match=f"target group {group['TargetGroupName']} carries the tags"):
        await aws.ensure(one)
    assert aws.proxy.writes() == []


async def test_a_full_target_group_keeps_the_balancer_from_nothing_else_injected(aws: Aws) -> None:
    """As with more nodes than a target group has room for."""
    nodes = [node_of(made) for made in aws.launch(2)]
    one = asking("nlb", "web", 80, 81)
    full = Refusal(400, "TooManyTargets")
    with (
        aws.proxy.fault("RegisterTargets", full),
        pytest.raises(NoRoom, match="target-node-labels"),
    ):
        await aws.ensure(one, nodes)
    assert [one["Port"] for nlb in aws.nlbs() for one in nlb["listeners"]] == [80, 81]
    await aws.ensure(one, nodes)


async def test_a_target_that_cannot_be_taken_out_keeps_no_other_in_injected(aws: Aws) -> None:
    machines = aws.launch(3)
    odd = machines[0]["InstanceId"]
    one = asking("nlb")
    await aws.ensure(one, [*map(node_of, machines)])

    def refuse(request: Request) -> Refusal | None:
        is_odd = request.operation == "DeregisterTargets" and odd in request.parameters.values()
        return Refusal(400, "InvalidTarget", f"'{odd}' is not valid") if is_odd else None

    aws.proxy.rule = refuse
    await aws.update_nodes(one, [node_of(machines[1])])
    (group,) = aws.target_groups()
    assert set(aws.targets(group)) == {odd, machines[1]["InstanceId"]}


async def test_a_protected_balancer_keeps_all_its_parts(aws: Aws) -> None:
    one = asking("nlb", attributes="deletion_protection.enabled=true")
    await aws.ensure(one, [node_of(aws.launch()[0])])
    there = [*aws.nlbs(is_deep=True)], aws.security_groups()
    aws.proxy.reset()
    with pytest.raises(Refused, match="deletion protection"):
        await aws.delete(one)
    assert aws.proxy.writes() == ["elbv2:DeleteLoadBalancer"]
    assert ([*aws.nlbs(is_deep=True)], aws.security_groups()) == there


async def test_a_protected_balancer_gives_up_its_backends_whatever_is_annotated(aws: Aws) -> None:
    """As the worker asks it to, where it leads to a node port that is another Service's by now."""
    protected = {"attributes": "deletion_protection.enabled=true"}
    await aws.ensure(asking("nlb", **protected), [node_of(aws.launch()[0])])
    (group,) = aws.target_groups()
    assert aws.targets(group)
    labels = {"target-node-labels": ",".join(map("l{}=x".format, range(60)))}
    await aws.update_nodes(asking("nlb", **protected, **labels), [])
    assert not aws.targets(group)


async def test_a_target_group_that_another_balancer_uses_is_reported_injected(aws: Aws) -> None:
    one, elbv2 = asking("nlb"), aws.elbv2
    await aws.ensure(one)
    (group,) = aws.target_groups()
    theirs = elbv2.create_load_balancer(
        Name="theirs", Type="network", Subnets=list(aws.public.values())
    )["LoadBalancers"][0]
    forward: list[Any] = [{"Type": "forward", "TargetGroupArn": group["TargetGroupArn"]}]
    elbv2.create_listener(
        LoadBalancerArn=theirs["LoadBalancerArn"], Protocol="TCP", Port=1, DefaultActions=forward
    )
    with (
        aws.proxy.fault("DeleteTargetGroup", IN_USE),
        pytest.raises(CloudError, match="theirs") as e,
    ):
        await aws.delete(one)
    assert not isinstance(e.value, RetryAfter)


async def test_a_security_group_that_other_rules_name_is_reported_injected(aws: Aws) -> None:
    one = asking("classic")
    await aws.ensure(one)
    (balancer,) = aws.classic_elbs()
    theirs = aws.make_group("db")
    source = [{"GroupId": balancer["SecurityGroups"][0]}]
    aws.ec2.authorize_security_group_ingress(
        GroupId=theirs,
        IpPermissions=[
            {"IpProtocol": "tcp", "FromPort": 5432, "ToPort": 5432, "UserIdGroupPairs": source}
        ],
    )
    in_use = Refusal(400, "DependencyViolation")
    reported = pytest.raises(CloudError, match=f"rules of {theirs}")
    with aws.proxy.fault("DeleteSecurityGroup", in_use), reported as failed:
        await aws.delete(one)
    assert not isinstance(failed.value, RetryAfter)


async def test_a_security_group_in_use_is_deleted_later_and_reported_after_a_while_injected(
    aws: Aws,
) -> None:
    """A network interface of someone else's may have it, which no rule shows."""
    limit = timeout(1.0)
    await aws.start(timings=AwsTimings(group_in_use_timeout=limit))
    one = asking("classic")
    await aws.ensure(one)
    with aws.proxy.fault("DeleteSecurityGroup", Refusal(400, "DependencyViolation")):
        with pytest.raises(RetryAfter):
            await aws.delete(one)
        assert len(aws.security_groups()) == 3
        await asyncio.sleep(limit)  # the fault, not a wait
        with pytest.raises(CloudError, match="something that is not ours") as failed:
            await aws.delete(one)
    assert not isinstance(failed.value, RetryAfter)
    await aws.delete(one)
    assert {group["GroupName"] for group in aws.security_groups()} == {"default", "nodes"}


async def test_a_security_group_that_is_used_again_is_waited_for_again_injected(aws: Aws) -> None:
    """What it was in use by for a while was its own load balancer."""
    limit = timeout(1.0)
    await aws.start(timings=AwsTimings(group_in_use_timeout=limit))
    own, given = asking("classic"), asking("classic", security_groups=aws.make_group("mine"))
    await aws.ensure(own)
    with aws.proxy.fault("DeleteSecurityGroup", Refusal(400, "DependencyViolation")):
        with pytest.raises(RetryAfter):
            await aws.ensure(given)
        await aws.ensure(own)
        await asyncio.sleep(limit)  # the fault, not a wait
        with pytest.raises(RetryAfter):
            await aws.ensure(given)


async def test_a_balancer_that_an_endpoint_service_uses_is_reported_injected(aws: Aws) -> None:
    one = asking("nlb")
    await aws.ensure(one)
    reported = pytest.raises(CloudError, match="associated with another service")
    used = Refusal(400, "ResourceInUse", "it is associated with another service")
    with aws.proxy.fault("elbv2:DeleteLoadBalancer", used), reported as failed:
        await aws.delete(one)
    assert not isinstance(failed.value, RetryAfter)
    await aws.delete(one)


async def test_other_services_target_groups_cost_no_reads(aws: Aws) -> None:
    """Names are cut: those of all Services of one team may begin alike."""
    elbv2 = aws.elbv2
    theirs = elbv2.create_load_balancer(
        Name="a" + "0" * 31, Type="network", Subnets=list(aws.public.values())
    )["LoadBalancers"][0]["LoadBalancerArn"]
    for number in range(1, 41):
        group = elbv2.create_target_group(
            Name=f"k8s-default-gatewayt-{number:010}", Protocol="TCP", Port=1, VpcId=aws.vpc
        )["TargetGroups"][0]["TargetGroupArn"]
        forward: list[Any] = [{"Type": "forward", "TargetGroupArn": group}]
        elbv2.create_listener(
            LoadBalancerArn=theirs, Protocol="TCP", Port=number, DefaultActions=forward
        )
    one = asking("nlb", "gateway-tenant-1")
    await aws.ensure(one)
    aws.proxy.reset()
    await aws.ensure(one)
    assert aws.proxy.counted()["elbv2:DescribeTags"] == 1


async def test_a_change_of_nodes_reads_of_a_balancer_only_what_it_needs(aws: Aws) -> None:
    """Three reads, and one for each port: with many Services every one of them counts."""
    first, second = map(node_of, aws.launch(2))
    one = asking("nlb", "web", 80, 81)
    await aws.ensure(one, [first])
    aws.proxy.reset()
    await aws.update_nodes(one, [first, second])
    counted = aws.proxy.counted()
    assert sum(n for name, n in counted.items() if name.startswith("elbv2:Describe")) == 5
    assert [name for name in aws.proxy.writes() if name.startswith("elbv2:")] == [
        "elbv2:RegisterTargets"
    ] * 2


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_one_node_with_two_tagged_groups_keeps_no_other_out(
    aws: Aws, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    other = aws.make_group("other")
    aws.tag(other, value="shared")
    (good,) = aws.launch()
    (odd,) = aws.launch(SecurityGroupIds=[aws.nodes_group, other])
    nodes = [node_of(good), node_of(odd)]
    one = asking(kind)
    with pytest.raises(CloudError, match="tag exactly one"):
        await aws.ensure(one, nodes[1:])
    await aws.ensure(one, nodes)
    await aws.ensure(one, nodes)
    found = aws.ec2.describe_security_groups(GroupIds=[aws.nodes_group])["SecurityGroups"]
    assert found[0]["IpPermissions"]
    reported = [record for record in caplog.records if record.name.endswith("aws.vpc")]
    assert [record.__dict__["instance"] for record in reported] == [odd["InstanceId"]]


OTHER = "kubernetes.io/cluster/other"


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_another_clusters_instance_and_security_group_are_left_alone(
    aws: Aws, kind: str
) -> None:
    theirs_group = aws.make_group("theirs")
    aws.tag(theirs_group, OTHER)
    marked = [{"ResourceType": "instance", "Tags": [{"Key": OTHER, "Value": "owned"}]}]
    (ours,) = aws.launch()
    (theirs,) = aws.launch(SecurityGroupIds=[theirs_group], TagSpecifications=marked)
    (between,) = aws.launch(SecurityGroupIds=[theirs_group])
    one = asking(kind)
    await aws.ensure(one, [node_of(ours), node_of(theirs), node_of(between)])
    await aws.update_nodes(one, [node_of(theirs), node_of(ours)])
    (found,) = aws.classic_elbs() if kind == "classic" else aws.target_groups()
    if kind == "classic":
        registered = {instance["InstanceId"] for instance in found["Instances"]}
    else:
        registered = set(aws.targets(found))
    assert registered == {ours["InstanceId"]}
    await aws.delete(one)
    (group,) = aws.ec2.describe_security_groups(GroupIds=[theirs_group])["SecurityGroups"]
    assert group["IpPermissions"] == []


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_a_local_zone_gets_no_part_of_a_balancer_unless_named_injected(
    aws: Aws, kind: str
) -> None:
    """Its subnets are in the same VPC; balancers of the region cannot be there."""
    regular = b"<zoneType>availability-zone</zoneType>"

    def with_a_local_zone(request: Request, answer: bytes) -> bytes:
        before, name, after = answer.partition(ZONES[2].encode())
        local = after.replace(regular, b"<zoneType>local-zone</zoneType>", 1)
        is_zones = request.operation == "DescribeAvailabilityZones"
        return before + name + local if is_zones else answer

    aws.proxy.rewrite = with_a_local_zone
    await aws.ensure(asking(kind))
    await aws.ensure(asking(kind, "named", subnets=f"public-{ZONES[2]}"))
    found = [set(one["Subnets"]) for one in aws.classic_elbs()] + [
        {zone["SubnetId"] for zone in one["AvailabilityZones"]} for one in aws.nlbs()
    ]
    first, second, third = (aws.public[zone] for zone in ZONES)
    assert sorted(found, key=len) == [{third}, {first, second}]


@pytest.mark.parametrize("part", ["reservationSet", "tagSet"])
@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_an_instance_that_one_answer_lacks_joins_all_the_same_injected(
    aws: Aws, kind: str, part: str
) -> None:
    """No change of its Node would bring it in later: it was behind nothing for half an hour."""
    (first, second), one, odd = aws.launch(2), asking(kind), list[bytes]()
    await aws.ensure(one, [node_of(first)])

    def lacking(request: Request, answer: bytes) -> bytes:
        if request.operation != "DescribeInstances" or odd:
            return answer
        odd.append(answer)
        full = rf"<{part}>.*?</{part}>".encode()
        return re.sub(full, f"<{part}/>".encode(), answer, flags=re.DOTALL)

    aws.proxy.rewrite = lacking
    await aws.update_nodes(one, [node_of(first), node_of(second)])
    assert second["InstanceId"].encode() in odd[0]
    (found,) = aws.classic_elbs() if kind == "classic" else aws.target_groups()
    listed = [it["InstanceId"] for it in found.get("Instances", ())]
    behind = listed if kind == "classic" else aws.targets(found)
    assert {*behind} == {first["InstanceId"], second["InstanceId"]}


async def test_zones_that_cannot_be_read_move_no_balancer_injected(aws: Aws) -> None:
    unread = Refusal(500, "InternalError")
    with aws.proxy.fault("DescribeAvailabilityZones", unread), pytest.raises(CloudError):
        await aws.ensure(asking("nlb"))
    assert aws.proxy.writes() == []
    await aws.ensure(asking("nlb"))


async def test_a_wrong_answer_about_zones_counts_for_a_while_injected(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm.providers.aws.vpc.ZONE_CACHE_TTL", 0.0)
    await aws.start(timings=AwsTimings(subnet_cache_ttl=0.0))
    aws.proxy.rewrite = lambda _, answer: answer.replace(b">availability-zone<", b">local-zone<")
    with pytest.raises(Refused, match="no public subnet"):
        await aws.ensure(asking("nlb"))
    aws.proxy.reset()
    assert (await aws.ensure(asking("nlb"))).ingress


async def test_a_machine_forwards_although_one_answer_lacks_whether_it_does_injected(
    aws: Aws,
) -> None:
    """Its pods were cut off for good: no later read looks at it."""
    (made,) = aws.launch()
    node = node_of(made, ["10.244.0.0/24"])

    def lacking(request: Request, answer: bytes) -> bytes:
        if request.operation != "DescribeInstances":
            return answer
        return re.sub(rb"<sourceDestCheck>\w+</sourceDestCheck>", b"", answer)

    aws.proxy.rewrite = lacking
    await aws.create_route(node)
    aws.proxy.reset()
    assert aws.instance(made["InstanceId"])["SourceDestCheck"] is False


async def test_a_new_balancer_is_in_a_zone_that_one_list_lacks_injected(aws: Aws) -> None:
    """It was in all others for good, and Nodes of that zone behind none."""
    odd = list[bytes]()

    def lacking(request: Request, answer: bytes) -> bytes:
        if request.operation != "DescribeSubnets" or odd:
            return answer
        odd.append(answer)
        return answer.replace(f"{aws.public[ZONES[0]]}</subnetId>".encode(), b"</subnetId>")

    aws.proxy.rewrite = lacking
    await aws.ensure(asking("nlb"))
    assert aws.public[ZONES[0]].encode() in odd[0]
    (nlb,) = aws.nlbs()
    assert {zone["ZoneName"] for zone in nlb["AvailabilityZones"]} == {*ZONES}


@pytest.mark.parametrize("which", [1, 2])
async def test_a_subnet_that_one_answer_mixes_up_opens_no_node_injected(
    aws: Aws, which: int
) -> None:
    """Health checks come from the subnets: the Nodes were open to the range that one had for it."""
    count = 0

    def mixed_up(request: Request, answer: bytes) -> bytes:
        nonlocal count
        count += request.operation == "DescribeSubnets"
        is_it = request.operation == "DescribeSubnets" and count == which
        return re.sub(rb"<cidrBlock>[^<]*<", b"<cidrBlock>0.0.0.0/0<", answer) if is_it else answer

    aws.proxy.rewrite = mixed_up
    nodes = [node_of(made) for made in aws.launch(1)]
    asked = asking("nlb")
    asked.raw["spec"]["loadBalancerSourceRanges"] = ["192.0.2.0/24"]
    with suppress(CloudError):
        await aws.ensure(asked, nodes)
    assert count >= which
    assert "0.0.0.0/0" not in str([group["IpPermissions"] for group in aws.security_groups()])


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_instances_without_groups_in_one_answer_are_read_again_injected(
    aws: Aws, kind: str
) -> None:
    """No change of any Service with them was whole for ten minutes."""
    nodes, odd = [node_of(made) for made in aws.launch(2)], list[bytes]()
    await aws.ensure(asking(kind), nodes)
    await aws.start()

    def lacking(request: Request, answer: bytes) -> bytes:
        if request.operation != "DescribeInstances" or odd:
            return answer
        odd.append(answer)
        return re.sub(rb"<groupSet>.*?</groupSet>", b"", answer, flags=re.DOTALL)

    aws.proxy.rewrite = lacking
    with pytest.raises(CloudError, match="has 0 untagged security groups"):
        await aws.ensure(asking(kind), nodes)
    await aws.ensure(asking(kind), nodes)


async def test_groups_that_one_answer_mixes_up_have_no_other_one_deleted_injected(aws: Aws) -> None:
    """A person's, which nothing uses at the moment, went with the load balancer."""
    theirs = aws.make_group("theirs")
    await aws.ensure(asking("classic"))
    (own,) = (one["GroupId"] for one in aws.security_groups() if "k8s-elb" in one["GroupName"])
    answers = list[bytes]()

    def mix_up(request: Request, answer: bytes) -> bytes:
        if request.operation != "DescribeSecurityGroups" or answers:
            return answer
        answers.append(answer)
        names = {own.encode(): theirs.encode(), theirs.encode(): own.encode()}
        return re.sub(b"|".join(names), lambda match: names[match[0]], answer)

    aws.proxy.rewrite = mix_up
    with pytest.raises(CloudError, match="two answers differ"):
        await aws.delete(asking("classic"))
    assert theirs in {one["GroupId"] for one in aws.security_groups()}
    await aws.delete(asking("classic"))
    left = {one["GroupId"] for one in aws.security_groups()}
    assert (theirs in left, own in left) == (True, False)


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_a_new_subnet_does_not_move_a_balancer(aws: Aws, kind: str) -> None:
    """One subnet is as good as the other: that in use stays, whichever sorts first."""
    await aws.start(timings=AwsTimings(subnet_cache_ttl=0.0))
    one = asking(kind, internal="true")
    await aws.ensure(one)
    for number in range(8):  # one of them sorts first, most likely
        made = aws.make_subnet(f"10.0.{200 + number}.0/24", ZONES[0])
        for key in (MARK, "kubernetes.io/role/internal-elb"):
            aws.tag(made, key, "1")
    aws.proxy.reset()
    with suppress(Refused):
        await aws.ensure(one)
    assert aws.proxy.writes() == []


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_what_vanished_meanwhile_is_looked_at_again_injected(aws: Aws, kind: str) -> None:
    one = asking(kind)
    await aws.ensure(one)
    assert aws.cloud.load_balancers
    gone = Refusal(400, "LoadBalancerNotFound")
    for act in (aws.cloud.load_balancers.get, aws.cloud.load_balancers.delete):
        with aws.proxy.fault("DescribeTags", gone), pytest.raises(RetryAfter):
            await invoke(act, one)


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_a_node_without_an_instance_costs_no_read_a_service(
    aws: Aws, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet may name any, and one that is terminated is named for a while."""
    monkeypatch.setattr("ccm.providers.aws.vpc.NEW_INSTANCE_CACHE_TTL", 600.0)
    (machine,) = aws.launch()
    nodes = [node_of(machine), node_of(machine | {"InstanceId": "i-0123456789abcdef0"})]
    await aws.ensure(asking(kind), nodes)
    aws.proxy.reset()
    await aws.update_nodes(asking(kind), nodes)
    assert "ec2:DescribeInstances" not in aws.proxy.counted()


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_a_group_is_open_while_a_node_is_in_it(
    aws: Aws, kind: str, is_restarted: bool
) -> None:
    """A kubelet may claim an instance for a while: its group stayed open until the Service went."""
    one, other, group = asking(kind), asking(kind, "other", 81), aws.make_group("claimed")
    nodes = [node_of(aws.launch()[0]), node_of(aws.launch(SecurityGroupIds=[group])[0])]
    for each in (one, other):
        await aws.ensure(each, nodes)
    if is_restarted:
        await aws.start()
        await aws.ensure(one, nodes[:1])
    else:
        await aws.update_nodes(one, nodes[:1])
    assert opened_by(aws, "claimed") == {"other"}
    await aws.update_nodes(other, nodes[:1])
    assert opened_by(aws, "claimed") == set()
    await aws.update_nodes(one, nodes)
    assert opened_by(aws, "claimed") == {"web"}


@pytest.mark.parametrize("leaves", ["one", "all"])
@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_a_group_that_the_first_answer_of_a_process_lacks_is_closed_injected(
    aws: Aws, kind: str, leaves: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its instance may be no Node's any more: the group stayed open until the Service went."""
    one, group = asking(kind), aws.make_group("claimed")
    nodes = [node_of(aws.launch()[0]), node_of(aws.launch(SecurityGroupIds=[group])[0])]
    await aws.ensure(one, nodes)
    await aws.start()
    mark, lacks = one.default_balancer_name.encode(), list[bytes]()

    def lacking(request: Request, answer: bytes) -> bytes:
        is_list = "vpc-id" in request.parameters.values()
        if request.operation != "DescribeSecurityGroups" or not is_list or lacks:
            return answer
        lacks.append(answer)
        return re.sub(rb"kubernetes.io/rule/", b"", answer)

    aws.proxy.rewrite = lacking
    await aws.update_nodes(one, nodes[:1])
    assert mark in lacks[0]
    monkeypatch.setattr(vpc, "OPENED_TTL", 0.0)
    await aws.update_nodes(one, nodes[:1] if leaves == "one" else [])
    assert opened_by(aws, "claimed") == set()


async def test_groups_that_one_answer_made_up_cost_no_later_call_injected(aws: Aws) -> None:
    """Each was asked for with each change of all Services, in a lock, until a restart."""
    one, group = asking("nlb"), aws.make_group("claimed")
    nodes = [node_of(aws.launch(SecurityGroupIds=[group])[0]) for _ in range(2)]
    await aws.ensure(one, nodes)
    aws.proxy.reset()
    await aws.update_nodes(one, nodes[:1])
    usual, made_up = aws.proxy.counted()["ec2:DescribeSecurityGroups"], list[bytes]()
    await aws.start()

    def adding(request: Request, answer: bytes) -> bytes:
        is_list = "vpc-id" in request.parameters.values()
        if request.operation != "DescribeSecurityGroups" or not is_list or made_up:
            return answer
        form = rb"<item><groupId>%s</groupId>.*?</ipPermissions></item>" % group.encode()
        if (opened := re.search(form, answer)) and b"kubernetes.io/rule/" in opened[0]:
            ids = (b"sg-%017x" % at for at in range(1000))
            made_up.extend(opened[0].replace(group.encode(), item) for item in ids)
        end = b"</securityGroupInfo>"
        return answer.replace(end, b"".join(made_up) + end)

    aws.proxy.rewrite = adding
    await aws.update_nodes(one, nodes)
    assert made_up
    aws.proxy.reset()
    await aws.update_nodes(one, nodes[:1])
    assert aws.proxy.counted()["ec2:DescribeSecurityGroups"] <= usual


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_no_group_is_closed_by_an_answer_that_lacks_its_instances_injected(
    aws: Aws, kind: str
) -> None:
    one, group = asking(kind), aws.make_group("second")
    nodes = [node_of(aws.launch()[0]), node_of(aws.launch(SecurityGroupIds=[group])[0])]
    await aws.ensure(one, nodes)
    await aws.start()
    lost, lacks = nodes[1].provider_id[-19:].encode(), list[bytes]()

    def lacking(request: Request, answer: bytes) -> bytes:
        if request.operation == "DescribeInstances" and not lacks:
            lacks.append(answer)
            return answer.replace(lost, b"i-0123456789abcdef0")
        return answer

    aws.proxy.rewrite = lacking
    await aws.update_nodes(one, nodes)
    assert lost in lacks[0]
    assert opened_by(aws, "second") == opened_by(aws, "nodes")


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_a_group_of_instances_that_ended_costs_no_read_each_time(aws: Aws, kind: str) -> None:
    one, group = asking(kind), aws.make_group("former")
    nodes = [node_of(aws.launch()[0]), node_of(aws.launch(SecurityGroupIds=[group])[0])]
    await aws.ensure(one, nodes)
    aws.ec2.terminate_instances(InstanceIds=[nodes[1].provider_id[-19:]])
    reads = list[int]()
    for _ in range(3):
        aws.proxy.reset()
        await aws.update_nodes(one, nodes[:1])
        reads.append(aws.proxy.counted().get("ec2:DescribeInstances", 0))
    assert reads[0] > reads[1] == reads[2]
    assert opened_by(aws, "former") == set()


def opened_by(aws: Aws, group: str) -> set[str]:
    """The names of the Services for which a group is open."""
    names = {asking("nlb", name).default_balancer_name: name for name in ("web", "other")}
    rules = str(
        [one["IpPermissions"] for one in aws.security_groups() if one["GroupName"] == group]
    )
    return {name for balancer, name in names.items() if balancer in rules}


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_an_instance_that_one_answer_calls_another_clusters_stays_injected(
    aws: Aws, kind: str
) -> None:
    """No change of its Node would bring it back: it was behind nothing for half an hour."""
    machines, one, odd = aws.launch(2), asking(kind), list[bytes]()
    nodes = [*map(node_of, machines)]
    await aws.ensure(one, nodes)
    await aws.start()  # one that remembers nothing

    def mixed_up(request: Request, answer: bytes) -> bytes:
        if request.operation != "DescribeInstances" or odd:
            return answer
        odd.append(answer)
        return answer.replace(MARK.encode(), b"kubernetes.io/cluster/other")

    aws.proxy.rewrite = mixed_up
    await aws.update_nodes(one, nodes)
    assert odd
    (found,) = aws.classic_elbs() if kind == "classic" else aws.target_groups()
    listed = [it["InstanceId"] for it in found.get("Instances", ())]
    behind = listed if kind == "classic" else aws.targets(found)
    assert {*behind} == {it["InstanceId"] for it in machines}
