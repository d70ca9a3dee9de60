"""What an upstream controller left, finished or not: taken over, completed or deleted with all."""

from typing import Any

import pytest

from ccm.errors import Refused
from ccm.model.service import Service
from tests.providers.aws.world import CLUSTER, MARK, Aws, asking, node_of

LEGACY = {"KubernetesCluster": CLUSTER}
UID_TAG = "ccm-supervisor/service-uid"


def set_tags(aws: Aws, only: dict[str, str]) -> None:
    """Give all that belongs to load balancers these tags and no other, but the Service's name."""
    listed = [{"Key": key, "Value": value} for key, value in only.items()]
    gone = [MARK, UID_TAG]
    for one in aws.elbv2.describe_load_balancers()["LoadBalancers"]:
        retag_v2(aws, one["LoadBalancerArn"], listed, gone)
    for one in aws.target_groups():
        retag_v2(aws, one["TargetGroupArn"], listed, gone)
    for one in aws.classic_elbs():
        names = [one["LoadBalancerName"]]
        aws.elb.remove_tags(LoadBalancerNames=names, Tags=[{"Key": key} for key in gone])
        aws.elb.add_tags(LoadBalancerNames=names, Tags=listed)
    for group in aws.security_groups():
        if group["GroupName"].startswith("k8s-elb-"):
            aws.ec2.delete_tags(Resources=[group["GroupId"]])
            aws.ec2.create_tags(Resources=[group["GroupId"]], Tags=listed)


def retag_v2(aws: Aws, arn: str, tags: list[Any], gone: list[str]) -> None:
    aws.elbv2.remove_tags(ResourceArns=[arn], TagKeys=gone)
    aws.elbv2.add_tags(ResourceArns=[arn], Tags=tags)


async def assert_nothing_left(aws: Aws, one: Service) -> None:
    await aws.delete(one)
    assert [*aws.nlbs(), *aws.classic_elbs(), *aws.target_groups()] == []
    groups = {group["GroupName"]: group for group in aws.security_groups()}
    assert groups.keys() == {"default", "nodes"}
    assert groups["nodes"]["IpPermissions"] == []


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_what_has_the_legacy_tag_is_ours(aws: Aws, kind: str) -> None:
    first, second = map(node_of, aws.launch(2))
    one = asking(kind)
    await aws.ensure(one, [first])
    set_tags(aws, LEGACY)
    await aws.update_nodes(one, [second])
    await aws.ensure(one, [second])
    await assert_nothing_left(aws, one)


@pytest.mark.parametrize("kind", ["nlb", "classic"])
@pytest.mark.parametrize(
    "tags",
    [
        {"KubernetesCluster": "other"},
        {"KubernetesCluster": CLUSTER, "kubernetes.io/cluster/other": "owned"},
        {"KubernetesCluster": CLUSTER, MARK: "shared"},
    ],
)
async def test_a_legacy_tag_that_another_contradicts_says_nothing(
    aws: Aws, kind: str, tags: dict[str, str]
) -> None:
    one = asking(kind)
    await aws.ensure(one)
    set_tags(aws, tags)
    for act in (aws.ensure(one), aws.delete(one)):
        with pytest.raises(Refused, match="carries the tags of another owner"):
            await act


async def half_made(aws: Aws, one: Service, parts: int) -> None:
    """A load balancer whose maker was broken off: without targets, listener or target group."""
    await aws.ensure(one)
    set_tags(aws, {MARK: "owned"})
    (nlb,) = aws.elbv2.describe_load_balancers()["LoadBalancers"]
    (group,) = aws.target_groups()
    if parts < 2:
        arn = nlb["LoadBalancerArn"]
        (listener,) = aws.elbv2.describe_listeners(LoadBalancerArn=arn)["Listeners"]
        aws.elbv2.delete_listener(ListenerArn=listener["ListenerArn"])
        arn = group["TargetGroupArn"]
        aws.elbv2.delete_target_group(TargetGroupArn=arn)
    if parts == 1:
        aws.elbv2.create_target_group(
            Name=group["TargetGroupName"],
            Protocol="TCP",
            Port=group["Port"],
            VpcId=aws.vpc,
            TargetType="instance",
        )


@pytest.mark.parametrize("parts", [0, 1, 2])
@pytest.mark.parametrize("is_wanted", [True, False])
async def test_a_half_made_balancer_is_finished_or_deleted_with_all(
    aws: Aws, parts: int, is_wanted: bool
) -> None:
    """Older ones tag a target group only after they made it."""
    (machine,) = aws.launch()
    one = asking("nlb")
    await half_made(aws, one, parts)
    if is_wanted:
        await aws.ensure(one, [node_of(machine)])
        (group,) = aws.target_groups()
        assert aws.targets(group) == [machine["InstanceId"]]
        aws.proxy.reset()
        await aws.ensure(one, [node_of(machine)])
        assert aws.proxy.writes() == []
    await assert_nothing_left(aws, one)


async def test_an_untagged_security_group_of_the_balancers_name_is_taken(aws: Aws) -> None:
    one = asking("classic")
    aws.make_group(f"k8s-elb-{one.default_balancer_name}")
    await aws.ensure(one, [node_of(made) for made in aws.launch()])
    (balancer,) = aws.classic_elbs()
    assert len(balancer["Instances"]) == 1
    await assert_nothing_left(aws, one)
