"""Security groups that are made for NLBs: `NLBSecurityGroupMode = Managed`, as upstream's."""

import asyncio
from typing import Any

import pytest

from ccm.cloud.testkit.harness import port, service
from ccm.errors import CloudError, Refused, RetryAfter
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.aws.elb.annotations import PREFIX
from ccm.providers.aws.elb.nlb_ingress import CLIENT_RULE
from ccm.providers.aws.elb.own_groups import nlb_group_name
from tests.providers.aws.proxy import Refusal, Request
from tests.providers.aws.world import MARK, Aws, node_of
from tests.support.deadlines import timeout

MANAGED = "NLBSecurityGroupMode = Managed"
EVERYBODY = "0.0.0.0/0"


@pytest.fixture
async def managed(aws: Aws) -> Aws:
    await aws.start(MANAGED)
    return aws


def asking(annotations: dict[str, str] | None = None, **spec: Any) -> Service:
    asked = {"type": "nlb", **(annotations or {})}
    return service("web", {PREFIX + key: value for key, value in asked.items()}, **spec)


OWN = nlb_group_name(asking(), "test")


def groups(aws: Aws) -> dict[str, Json]:
    return {group["GroupName"]: group for group in aws.security_groups()}


def attached(aws: Aws) -> list[str]:
    """The names of the security groups of the only load balancer."""
    (nlb,) = aws.nlbs()
    names = {group["GroupId"]: name for name, group in groups(aws).items()}
    return [names[one] for one in nlb.get("SecurityGroups", [])]


async def ensure_two(aws: Aws) -> Service:
    """Two Services with one node port, which becomes the other's when the first one goes."""
    nodes = [node_of(one) for one in aws.launch()]
    other = service("other", {f"{PREFIX}type": "nlb"}, ports=[port(81)])
    await aws.ensure(asking(), nodes)
    await aws.ensure(other, nodes)
    return other


def rules(aws: Aws, name: str = OWN) -> set[tuple[str, int, int, str]]:
    return {
        (one["IpProtocol"], one["FromPort"], one["ToPort"], each["CidrIp"])
        for one in groups(aws)[name]["IpPermissions"]
        for each in one["IpRanges"]
    }


@pytest.mark.parametrize(
    ("cluster", "namespace", "name", "uid", "wanted"),
    [
        (
            *("kubernetes", "default", "web", "0a1b2c3d-0000-4000-8000-00000000000a"),
            "k8s-default-web-6e584000cf",
        ),
        ("kit", "kube-system", "my-long-service", "u", "k8s-kubesyst-mylongse-fee48d4612"),
    ],
)
def test_the_name_is_upstreams(
    cluster: str, namespace: str, name: str, uid: str, wanted: str
) -> None:
    one = Service({"metadata": {"name": name, "namespace": namespace, "uid": uid}})
    assert nlb_group_name(one, cluster) == wanted


async def test_an_nlb_gets_a_group_that_follows_the_service_and_goes_with_it(managed: Aws) -> None:
    nodes = [node_of(one) for one in managed.launch()]
    one = asking(ports=[port(80), port(53, "UDP", 30053)])
    await managed.ensure(one, nodes)
    assert attached(managed) == [OWN]
    assert {MARK: "owned"}.items() <= {
        t["Key"]: t["Value"] for t in groups(managed)[OWN]["Tags"]
    }.items()
    icmp = ("icmp", 3, 4, EVERYBODY)
    assert rules(managed) == {("tcp", 80, 80, EVERYBODY), ("udp", 53, 53, EVERYBODY), icmp}
    assert ("tcp", 30080, 30080, EVERYBODY) in rules(managed, "nodes")
    managed.proxy.reset()
    await managed.ensure(one, nodes)
    assert managed.proxy.writes() == []
    await managed.ensure(asking(loadBalancerSourceRanges=["192.0.2.0/24"]), nodes)
    assert rules(managed) == {("tcp", 80, 80, "192.0.2.0/24"), ("icmp", 3, 4, "192.0.2.0/24")}
    await managed.delete(one)
    assert set(groups(managed)) == {"default", "nodes"}
    assert rules(managed, "nodes") == set()


async def test_a_node_port_that_becomes_another_services_stays_open_for_it(aws: Aws) -> None:
    """AWS has one rule for both, with the description of the one that came first."""
    other = await ensure_two(aws)
    await aws.delete(asking())
    assert ("tcp", 30080, 30080, EVERYBODY) in rules(aws, "nodes")
    await aws.delete(other)
    assert rules(aws, "nodes") == set()


@pytest.mark.parametrize("held", ["ModifyListener", "elbv2:DeleteLoadBalancer"])
async def test_a_node_port_that_another_service_gets_during_a_change_stays_open(
    aws: Aws, held: str
) -> None:
    """What is closed is planned by what others have by then."""
    nodes = [node_of(one) for one in aws.launch()]
    await aws.ensure(asking(), nodes)
    changed = asking(ports=[port(80, node_port=30090)])
    with aws.proxy.holding(held) as is_held:
        leaving = aws.ensure(changed, nodes) if held == "ModifyListener" else aws.delete(asking())
        task = asyncio.create_task(leaving)
        assert await asyncio.to_thread(is_held.wait, timeout())
        await aws.ensure(service("other", {f"{PREFIX}type": "nlb"}, ports=[port(81)]), nodes)
    await task
    assert ("tcp", 30080, 30080, EVERYBODY) in rules(aws, "nodes")


async def test_a_node_port_that_became_another_services_is_closed_with_it_after_a_restart(
    aws: Aws,
) -> None:
    """Else it stays open for whichever Service gets it next, however few may reach that."""
    other = await ensure_two(aws)
    await aws.delete(asking())
    await aws.start()
    await aws.delete(other)
    assert rules(aws, "nodes") == set()


@pytest.mark.parametrize("stays", [False, True])
async def test_who_may_not_describe_rules_closes_what_became_another_services_injected(
    aws: Aws, stays: bool
) -> None:
    """As with upstream's policy, until the process ends."""
    other = await ensure_two(aws)
    with aws.proxy.fault(
        "UpdateSecurityGroupRuleDescriptionsIngress", Refusal(403, "UnauthorizedOperation")
    ):
        if stays:
            (machine,) = aws.launch()
            await aws.ensure(asking(ports=[port(80, node_port=30090)]), [node_of(machine)])
        else:
            await aws.delete(asking())
    assert ("tcp", 30080, 30080, EVERYBODY) in rules(aws, "nodes")
    await aws.delete(other)
    assert ("tcp", 30080, 30080, EVERYBODY) not in rules(aws, "nodes")
    await aws.delete(asking())
    assert rules(aws, "nodes") == set()


async def test_a_port_of_health_checks_that_is_given_up_is_closed(aws: Aws) -> None:
    """Else one Service after another has what the group has room for, and ports of the Nodes."""
    nodes = [node_of(one) for one in aws.launch()]
    await aws.ensure(service("other", {f"{PREFIX}type": "nlb"}, ports=[port(81)]), nodes)
    before = rules(aws, "nodes")
    for number in (22, 10250):
        await aws.ensure(asking({"healthcheck-port": str(number)}, ports=[port(80)]), nodes)
        opened = {first for _, first, _, _ in rules(aws, "nodes") - before}
        assert number in opened
    assert 22 not in opened
    await aws.start()
    await aws.delete(asking())
    assert rules(aws, "nodes") == before


async def test_a_port_of_health_checks_stays_until_no_service_has_it(aws: Aws) -> None:
    nodes = [node_of(one) for one in aws.launch()]
    checked = {f"{PREFIX}type": "nlb", f"{PREFIX}healthcheck-port": "22"}
    other = service("other", checked, ports=[port(81, node_port=30081)])
    await aws.ensure(asking({"healthcheck-port": "22"}), nodes)
    await aws.ensure(other, nodes)
    await aws.delete(asking())
    assert 22 in {first for _, first, _, _ in rules(aws, "nodes")}
    await aws.start()
    await aws.delete(other)
    assert rules(aws, "nodes") == set()


async def test_a_rule_of_another_cluster_stays_though_ours_is_the_same(aws: Aws) -> None:
    """Where both have their nodes in one group."""
    nodes = [node_of(one) for one in aws.launch()]
    note = {"CidrIp": EVERYBODY, "Description": f"{CLIENT_RULE}=a0"}
    aws.ec2.authorize_security_group_ingress(
        GroupId=aws.nodes_group,
        IpPermissions=[
            {"IpProtocol": "tcp", "FromPort": 30080, "ToPort": 30080, "IpRanges": [note]}
        ],
    )
    await aws.ensure(asking(), nodes)
    await aws.delete(asking())
    assert ("tcp", 30080, 30080, EVERYBODY) in rules(aws, "nodes")


async def test_an_nlb_that_was_made_without_groups_stays_so(aws: Aws) -> None:
    await aws.ensure(asking())
    await aws.start(MANAGED)
    aws.proxy.reset()
    await aws.ensure(asking())
    assert aws.proxy.writes() == []
    await aws.delete(asking())
    assert not list(aws.nlbs())


async def test_a_group_that_is_given_takes_the_place_of_its_own_and_back(managed: Aws) -> None:
    given = asking({"security-groups": managed.make_group("mine")})
    for one, names in ((asking(), [OWN]), (given, ["mine"]), (asking(), [OWN]), (given, ["mine"])):
        await managed.ensure(one)
        assert attached(managed) == names
        assert set(groups(managed)) == {"default", "nodes", "mine", *names}
    await managed.delete(given)
    assert set(groups(managed)) == {"default", "nodes", "mine"}


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_the_tags_of_a_tenant_are_on_no_security_group(managed: Aws, kind: str) -> None:
    """Others find groups by tags, and open the nodes with them."""
    key = "karpenter.sh/discovery"
    await managed.ensure(asking({"type": kind, "additional-resource-tags": f"{key}=kit"}))
    assert key in str([*managed.nlbs(is_deep=True), *managed.classic_elbs(is_deep=True)])
    assert len(groups(managed)) == 3
    assert key not in str(groups(managed))


async def test_a_group_that_was_added_by_hand_stays(managed: Aws) -> None:
    await managed.ensure(asking())
    (nlb,) = managed.nlbs()
    both = [*nlb["SecurityGroups"], managed.make_group("mine")]
    arn = nlb["LoadBalancerArn"]
    managed.elbv2.set_security_groups(LoadBalancerArn=arn, SecurityGroups=both)
    managed.proxy.reset()
    await managed.ensure(asking())
    assert managed.proxy.writes() == []


async def test_its_group_is_kept_when_the_mode_is_not_asked_for_any_more(managed: Aws) -> None:
    await managed.ensure(asking())
    await managed.start()
    await managed.ensure(asking(ports=[port(81)]))
    assert attached(managed) == [OWN]
    assert ("tcp", 81, 81, EVERYBODY) in rules(managed)
    await managed.delete(asking())
    assert set(groups(managed)) == {"default", "nodes"}


@pytest.mark.parametrize(
    ("config", "annotations"),
    [
        ("DisableSecurityGroupIngress = true", {}),
        ("", {"target-group-attributes": "preserve_client_ip.enabled=false"}),
    ],
)
async def test_its_own_group_enforces_source_ranges_that_nodes_cannot(
    aws: Aws, config: str, annotations: dict[str, str]
) -> None:
    await aws.start(f"{MANAGED}\n{config}")
    one = asking(annotations, loadBalancerSourceRanges=["192.0.2.0/24"])
    await aws.ensure(one)
    assert ("tcp", 80, 80, "192.0.2.0/24") in rules(aws)
    given = asking(
        {**annotations, "security-groups": aws.make_group("mine")},
        loadBalancerSourceRanges=["192.0.2.0/24"],
    )
    aws.proxy.reset()
    with pytest.raises(Refused, match="would not be enforced"):
        await aws.ensure(given)
    assert aws.proxy.writes() == []


async def test_what_upstream_made_is_taken_as_it_is(managed: Aws) -> None:
    """Its group has the cluster's tag and none of the Service."""
    await managed.ensure(asking())
    ours = [{"Key": key} for key in ("kubernetes.io/service-name", "ccm-supervisor/service-uid")]
    managed.ec2.delete_tags(Resources=[groups(managed)[OWN]["GroupId"]], Tags=ours)
    managed.proxy.reset()
    await managed.ensure(asking())
    assert managed.proxy.writes() == []
    await managed.delete(asking())
    assert set(groups(managed)) == {"default", "nodes"}


@pytest.mark.parametrize("key", ["kubernetes.io/cluster/other", "elbv2.k8s.aws/cluster"])
async def test_a_group_of_its_name_that_is_someone_elses_is_left_alone(
    managed: Aws, key: str
) -> None:
    """The AWS Load Balancer Controller has the same names for its groups."""
    managed.tag(managed.make_group(OWN), key)
    with pytest.raises(Refused, match=f"security group {OWN} carries the tags"):
        await managed.ensure(asking())
    await managed.delete(asking())
    assert managed.proxy.writes() == []


@pytest.mark.parametrize("config", [MANAGED, ""])
async def test_a_group_in_use_is_deleted_later_injected(managed: Aws, config: str) -> None:
    """Also where the mode is not asked for any more, when no load balancer tells of it."""
    await managed.ensure(asking())
    await managed.start(config)
    in_use = Refusal(400, "DependencyViolation")
    with managed.proxy.fault("DeleteSecurityGroup", in_use), pytest.raises(RetryAfter):
        await managed.delete(asking())
    assert not list(managed.nlbs())
    if config:
        await managed.ensure(service("web", {PREFIX + "type": "classic"}))  # deletes leftovers
    else:
        await managed.delete(asking())
    assert OWN not in groups(managed)


@pytest.mark.parametrize("broken_at", range(8))
async def test_an_interruption_anywhere_is_finished_later_injected(
    managed: Aws, broken_at: int
) -> None:
    """One write is lost, on the way to the load balancer and on the way back."""
    given = asking({"security-groups": managed.make_group("mine")})
    for act in (lambda: managed.ensure(asking()), lambda: managed.ensure(given)):
        await interrupted(managed, act, broken_at)
    await interrupted(managed, lambda: managed.ensure(asking()), broken_at)
    assert attached(managed) == [OWN]
    await interrupted(managed, lambda: managed.delete(asking()), broken_at)
    assert set(groups(managed)) == {"default", "nodes", "mine"}
    assert not [*managed.nlbs(), *managed.target_groups()]


@pytest.mark.parametrize("broken_at", range(10))
async def test_an_interrupted_change_of_type_is_finished_later_injected(
    managed: Aws, broken_at: int
) -> None:
    classic = service("web", {PREFIX + "type": "classic"})
    nodes = [node_of(one) for one in managed.launch()]
    await managed.ensure(asking(), nodes)
    await interrupted(managed, lambda: managed.ensure(classic, nodes), broken_at)
    assert not [*managed.nlbs(), *managed.target_groups()]
    assert OWN not in groups(managed)
    opened = groups(managed)["nodes"]["IpPermissions"]
    assert [rule["IpProtocol"] for rule in opened] == ["-1"]  # for the classic one


async def interrupted(aws: Aws, act: Any, broken_at: int) -> None:
    """Act with one write that fails, then again without."""
    writes: list[str] = []

    def fail(request: Request) -> Refusal | None:
        if request.is_write:
            writes.append(request.name)
        return Refusal(500, "InternalError") if len(writes) == broken_at + 1 else None

    aws.proxy.rule = fail
    try:
        await act()
    except CloudError:
        aws.proxy.reset()
        await act()
    aws.proxy.reset()
