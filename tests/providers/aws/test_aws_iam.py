"""The published IAM policy is enough for all that the provider does, and for nothing more."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.interface import Quota, ReportsMissingPermissions
from ccm.cloud.testkit.harness import volume
from ccm.errors import Denied
from ccm.model.cloud import Instance, VolumePlace
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.aws.api_actions import API_ACTIONS, QUOTAS
from ccm.providers.aws.iam import ACTIONS_BY_WORKER, policy
from ccm.providers.aws.provider import AwsCloud
from ccm.providers.aws.tags import TagRequest
from tests.providers.aws.world import CLUSTER, MARK, Account, asking, node_of, started

ROOT = Path(__file__).parents[3]
INSTANCES = "arn:*:ec2:*:*:instance/*"
SOURCES = ROOT / "ccm" / "providers" / "aws"


def test_the_table_has_exactly_the_calls_that_the_code_makes() -> None:
    files = [
        file for file in SOURCES.rglob("*.py") if file.name not in ("api_actions.py", "iam.py")
    ]
    code = "".join(file.read_text() for file in files)
    named = set(re.findall(r'"((?:ec2|elb|elbv2):[A-Z]\w+)"', code))
    composed = {f"ec2:{verb}SecurityGroupIngress" for verb in ("Authorize", "Revoke")}
    assert named | composed == API_ACTIONS.keys()
    assert {call.budget for call in API_ACTIONS.values()} == QUOTAS.keys()


@pytest.mark.parametrize("version", ["elb", "elbv2"])
def test_all_calls_of_one_version_of_elastic_load_balancing_are_one_class(version: str) -> None:
    assert QUOTAS[version] == Quota(per_second=10.0, burst=40)
    calls = [call for call in API_ACTIONS.values() if call.service == version]
    assert {call.budget for call in calls} == {version}


def test_every_call_is_some_workers() -> None:
    assert frozenset().union(*ACTIONS_BY_WORKER.values()) == API_ACTIONS.keys()


def test_the_published_policy_is_that_of_the_code() -> None:
    published = json.loads((ROOT / "docs" / "providers" / "aws-policy.json").read_text())
    assert published == policy()


@pytest.fixture
def user(account: Account) -> Iterator[str]:
    """An IAM user without any right; the provider acts as this one."""
    account.emulator.client("iam").create_user(UserName="ccm")
    yield "ccm"
    account.emulator.require_permission(False)


@asynccontextmanager
async def acting(
    account: Account, user: str, document: Json, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AwsCloud]:
    """A provider with the rights of this document, in an account that enforces them."""
    iam = account.emulator.client("iam")
    rights = json.dumps(document).replace(INSTANCES, "*")  # the emulator does not look at objects
    iam.put_user_policy(UserName=user, PolicyName="p", PolicyDocument=rights)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    cloud = await started(account, account.emulator.url)
    account.emulator.require_permission(True)
    try:
        yield cloud
    finally:
        account.emulator.require_permission(False)
        await cloud.close()


def services() -> list[tuple[Service, Service]]:
    """Services before and after changes that need all kinds of calls."""
    changes = {
        "cross_zone_load_balancing_enabled": "true",
        "additional_resource_tags": "team=web",
    }
    pairs = []
    for kind in ("nlb", "classic"):
        proxy = {"proxy_protocol": "*"} if kind == "classic" else {}
        before, after = asking(kind, kind, 80, 81, **proxy), asking(kind, kind, 80, 82, **changes)
        after.raw["spec"] |= {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
        pairs.append((before, after))
    return pairs


async def test_all_that_the_provider_does_works_under_exactly_this_policy(
    account: Account, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances = account.launch(2)
    disk = account.ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    document = policy(cluster_id=CLUSTER)
    async with acting(account, user, document, monkeypatch) as cloud:
        await asyncio.to_thread(do_everything, cloud, instances, disk)


def test_every_change_is_bound_to_the_tag_of_one_cluster_where_aws_can() -> None:
    conditions: dict[str, Json] = {}
    for statement in policy(cluster_id=CLUSTER)["Statement"]:
        for action in statement["Action"]:
            name, on = action.partition(":")[2], statement["Resource"].rpartition(":")[2]
            conditions.setdefault(f"{name} {on}".removesuffix(" *"), statement.get("Condition", {}))
    free = {name for name, condition in conditions.items() if not condition}
    assert {name for name in free if not name.startswith("Describe")} == {
        "CreateListener",  # a listener carries no tags of ours
        "DeleteListener",
        "ModifyListener",
        "CreateSecurityGroup",  # bound by ec2:CreateTags, which it needs
        "ModifyNetworkInterfaceAttribute",  # an instance's tags are not on its interfaces
    }
    assert conditions["CreateTags security-group/*"]["Null"] == {f"aws:RequestTag/{MARK}": "false"}
    for name in ("CreateTags instance/*", "DeleteTags instance/*"):
        assert conditions[name] == {"Null": {f"aws:ResourceTag/{MARK}": "false"}}
    assert conditions["CreateLoadBalancer"] == {"Null": {f"aws:RequestTag/{MARK}": "false"}}
    assert conditions["AuthorizeSecurityGroupIngress"] == {
        "Null": {f"aws:ResourceTag/{MARK}": "false"}
    }


def test_without_a_cluster_id_the_policy_compares_no_tags() -> None:
    assert "Tag/" not in json.dumps(policy(cluster_id=""))


async def test_all_that_is_created_or_changed_carries_the_tag_that_the_policy_compares(
    account: Account,
) -> None:
    """The emulator compares no tags, so here is what they are compared with."""
    cloud = await started(account, account.emulator.url)
    try:
        assert cloud.load_balancers
        nodes = [node_of(one) for one in account.launch(2)]
        for before, _ in services():
            await asyncio.to_thread(cloud.load_balancers.ensure, before, nodes)
    finally:
        await cloud.close()
    found = [one["Tags"] for one in described_tags(account)]
    groups = account.ec2.describe_security_groups()["SecurityGroups"]
    found += [one.get("Tags", []) for one in groups if one["IpPermissions"]]
    assert len(found) >= 5  # two balancers, two target groups, and groups of balancers and nodes
    assert all(MARK in {tag["Key"] for tag in tags} for tags in found)


def described_tags(account: Account) -> list[Json]:
    """Of all load balancers and target groups."""
    v1, v2 = account.emulator.client("elb"), account.emulator.client("elbv2")
    names = [
        one["LoadBalancerName"] for one in v1.describe_load_balancers()["LoadBalancerDescriptions"]
    ]
    arns = [one["LoadBalancerArn"] for one in v2.describe_load_balancers()["LoadBalancers"]]
    arns += [one["TargetGroupArn"] for one in v2.describe_target_groups()["TargetGroups"]]
    classic: list[Json] = v1.describe_tags(LoadBalancerNames=names)["TagDescriptions"]
    v2_tags: list[Json] = v2.describe_tags(ResourceArns=arns)["TagDescriptions"]
    return classic + v2_tags


def do_everything(cloud: AwsCloud, instances: list[Json], disk: str) -> None:
    assert cloud.instances
    assert cloud.routes
    assert cloud.volumes
    assert cloud.load_balancers
    nodes = [node_of(one, [f"10.244.{n}.0/24"]) for n, one in enumerate(instances)]
    answers = cloud.instances.describe(nodes)
    assert isinstance(answers, dict)
    assert all(isinstance(answer, Instance) for answer in answers.values())
    spec = {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": disk}}
    places = cloud.volumes.describe([volume("data", spec)])
    assert isinstance(places, dict)
    assert isinstance(places["data"], VolumePlace)
    for is_wanted in (True, False):
        asked = [TagRequest(one["InstanceId"], {"team": "web"}, is_wanted) for one in instances]
        tagged = cloud.instance_tags.describe(asked).values()
        assert all(isinstance(answer, Instance) for answer in tagged)
    for node in nodes:
        cloud.routes.create(node, node.pod_cidrs[0])
    routes = cloud.routes.list(nodes)
    assert isinstance(routes, list)
    assert [route.node for route in routes] == [node.name for node in nodes]
    for route in routes:
        cloud.routes.delete(route)
    for before, after in services():
        cloud.load_balancers.ensure(before, nodes[:1])
        cloud.load_balancers.ensure(after, nodes)
        cloud.load_balancers.update_nodes(after, nodes[1:])
        cloud.load_balancers.delete(after)


@pytest.mark.parametrize(
    "missing", ["ec2:DescribeInstances", "elasticloadbalancing:CreateTargetGroup"]
)
async def test_a_right_that_is_missing_is_reported_by_its_name(
    account: Account, user: str, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    instances = account.launch(1)
    disk = account.ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    document = policy()
    for statement in document["Statement"]:
        statement["Action"] = [one for one in statement["Action"] if one != missing]
    document["Statement"] = [one for one in document["Statement"] if one["Action"]]
    async with acting(account, user, document, monkeypatch) as cloud:
        with pytest.raises(Denied) as denied:
            await asyncio.to_thread(do_everything, cloud, instances, disk)
    assert missing.partition(":")[2] in str(denied.value)


UPSTREAMS_EC2 = """
    AuthorizeSecurityGroupIngress CreateRoute CreateSecurityGroup CreateTags DeleteRoute
    DeleteSecurityGroup DescribeAvailabilityZones DescribeInstances DescribeInstanceTopology
    DescribeRegions DescribeRouteTables DescribeSecurityGroups DescribeSubnets DescribeVolumes
    DescribeVpcs ModifyInstanceAttribute RevokeSecurityGroupIngress
"""
UPSTREAMS_ELB = """
    AddTags ApplySecurityGroupsToLoadBalancer AttachLoadBalancerToSubnets ConfigureHealthCheck
    CreateListener CreateLoadBalancer CreateLoadBalancerListeners CreateLoadBalancerPolicy
    CreateTargetGroup DeleteListener DeleteLoadBalancer DeleteLoadBalancerListeners
    DeleteTargetGroup DeregisterInstancesFromLoadBalancer DeregisterTargets DescribeListeners
    DescribeLoadBalancerAttributes DescribeLoadBalancerPolicies DescribeLoadBalancers
    DescribeTargetGroups DescribeTargetHealth DetachLoadBalancerFromSubnets ModifyListener
    ModifyLoadBalancerAttributes ModifyTargetGroup RegisterInstancesWithLoadBalancer
    RegisterTargets SetLoadBalancerPoliciesForBackendServer SetLoadBalancerPoliciesOfListener
    SetSecurityGroups
"""
UPSTREAMS = [
    *(f"ec2:{name}" for name in UPSTREAMS_EC2.split()),
    *(f"elasticloadbalancing:{name}" for name in UPSTREAMS_ELB.split()),
    "iam:CreateServiceLinkedRole",
]
"""What upstream's documentation has a control plane allow, as far as this provider goes.
https://cloud-provider-aws.sigs.k8s.io/prerequisites/
"""


def allowing(*names: str) -> Json:
    """A policy document without conditions."""
    statement = {"Effect": "Allow", "Action": list(names), "Resource": "*"}
    return {"Version": "2012-10-17", "Statement": [statement]}


async def test_upstreams_policy_is_enough_for_what_upstream_did(
    account: Account, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances = account.launch(2)
    disk = account.ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    allowed = allowing(*UPSTREAMS, "ec2:DeleteTags")  # which its tagging controller needs besides
    async with acting(account, user, allowed, monkeypatch) as cloud:
        await asyncio.to_thread(do_everything, cloud, instances, disk)
    assert account.target_groups() == []
    assert [*account.nlbs(), *account.classic_elbs()] == []
    assert {group["GroupName"] for group in account.security_groups()} == {"default", "nodes"}


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (UPSTREAMS, {"DescribeTags", "DescribeTargetGroupAttributes"}),
        ([action.iam_name for action in API_ACTIONS.values()], set[str]()),
        (
            ["elasticloadbalancing:*", "ec2:DescribeRouteTables"],
            {"DescribeAvailabilityZones", "DescribeSecurityGroups", "DescribeSubnets"},
        ),
    ],
    ids=["upstream's", "all", "few"],
)
async def test_reads_that_are_not_allowed_are_named_and_nothing_is_written(
    account: Account,
    user: str,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    missing: set[str],
) -> None:
    usual = allowing(*(action.iam_name for action in API_ACTIONS.values()), "ec2:CreateTags")
    async with acting(account, user, usual, monkeypatch) as cloud:
        assert cloud.load_balancers
        await asyncio.to_thread(cloud.load_balancers.ensure, asking("nlb"), [])
    before = [*account.nlbs(is_deep=True), *account.security_groups()]
    async with acting(account, user, allowing(*names), monkeypatch) as cloud:
        part: object = cloud.load_balancers
        assert isinstance(part, ReportsMissingPermissions)
        found = await invoke(part.missing_permissions)
    assert {name.partition(":")[2] for name in found} == missing
    assert len(found) == len(missing)
    assert [*account.nlbs(is_deep=True), *account.security_groups()] == before


def test_what_upstreams_policy_lacks_is_documented() -> None:
    lacking = {action.iam_name for action in API_ACTIONS.values()} - {*UPSTREAMS}
    text = (ROOT / "docs" / "providers" / "aws.md").read_text()
    assert all(f"`{name}`" in text for name in lacking)


async def test_an_adjustment_that_is_not_allowed_keeps_no_node_out_and_is_reported(
    account: Account, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine,) = account.launch(1)
    one = asking("nlb", target_group_attributes="deregistration_delay.timeout_seconds=5")
    async with acting(account, user, allowing(*UPSTREAMS), monkeypatch) as cloud:
        assert cloud.load_balancers
        lacking = "allow elasticloadbalancing:ModifyTargetGroupAttributes"
        with pytest.raises(Denied, match=lacking):
            await asyncio.to_thread(cloud.load_balancers.ensure, one, [node_of(machine)])
    (group,) = account.target_groups()
    assert account.targets(group) == [machine["InstanceId"]]


@pytest.mark.parametrize("kind", ["nlb", "classic"])
@pytest.mark.parametrize(
    "denied",
    [
        "ec2:DescribeSecurityGroups",
        "elasticloadbalancing:DescribeLoadBalancerAttributes",
        "elasticloadbalancing:DescribeTags",
        "elasticloadbalancing:DescribeTargetGroups",
    ],
)
async def test_a_read_that_is_denied_keeps_no_balancer_from_being_deleted(
    account: Account, user: str, monkeypatch: pytest.MonkeyPatch, kind: str, denied: str
) -> None:
    one = asking(kind)
    names = {action.iam_name for action in API_ACTIONS.values()}
    usual = allowing(*names, "ec2:CreateTags")
    async with acting(account, user, usual, monkeypatch) as cloud:
        assert cloud.load_balancers
        await asyncio.to_thread(cloud.load_balancers.ensure, one, [])
    async with acting(account, user, allowing(*(names - {denied})), monkeypatch) as cloud:
        assert cloud.load_balancers
        await asyncio.to_thread(cloud.load_balancers.delete, one)
    assert [*account.nlbs(), *account.classic_elbs()] == []
