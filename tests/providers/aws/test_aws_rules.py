"""Rules of the nodes' security group: how many load balancers fit in, and what a full one stops."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeVar

import pytest

from ccm.cloud import gate
from ccm.cloud.gate import current_priority, with_priority
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import port, service
from ccm.decide.budget import Priority
from ccm.errors import NoRoom, Refused
from ccm.model.objects import Json
from ccm.providers.aws.elb.annotations import NLB
from ccm.providers.aws.elb.nlb_desired import desired_nlb
from ccm.providers.aws.elb.nlb_ingress import HEALTH_RULE, node_rules
from ccm.providers.aws.elb.request import read_request
from ccm.providers.aws.security_groups import IngressRule
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import ClusterTag
from tests.providers.aws.proxy import Refusal
from tests.providers.aws.world import Aws, asking, node_of
from tests.support.running import long

T = TypeVar("T")

FULL = 60  # rules in a group by default, which the emulator enforces
SUBNET = Subnet("subnet-a", "zone-a", "10.0.0.0/24", {}, True)
EVERYBODY = "0.0.0.0/0"


def health_rules(protocols: str, check_port: str, *ranges: str) -> set[IngressRule]:
    """Those of a Service with one port, 80, of these protocols."""
    ports = [port(80, node_port=30080, protocol=one) for one in protocols.split("_")]
    annotations = {"service.beta.kubernetes.io/aws-load-balancer-healthcheck-port": check_port}
    one = service("web", annotations if check_port else {}, ports=ports)
    request = read_request(one, NLB, ClusterTag("kit"))
    desired = desired_nlb(request, [SUBNET], (), "kit", None)
    rules = node_rules(desired, ranges, [SUBNET.cidr], None, None)
    return {rule for rule in rules if rule.description.startswith(HEALTH_RULE)}


@pytest.mark.parametrize(
    ("protocols", "check_port", "ranges", "wanted"),
    [
        ("TCP", "", [EVERYBODY], 0),
        ("TCP", "", ["192.0.2.0/24", "10.0.0.0/8"], 0),
        ("TCP", "", ["192.0.2.0/24"], 1),
        ("TCP", "", ["10.0.0.0/28"], 1),  # a part of the subnet
        ("TCP", "30080", [EVERYBODY], 0),
        ("TCP", "10256", [EVERYBODY], 1),
        ("UDP", "", [EVERYBODY], 1),
        ("TCP_UDP", "", [EVERYBODY], 0),
    ],
)
def test_health_checks_take_no_rule_where_clients_may_do_the_same(
    protocols: str, check_port: str, ranges: list[str], wanted: int
) -> None:
    assert len(health_rules(protocols, check_port, *ranges)) == wanted


def fill(aws: Aws, room: int = 0, group: str = "") -> None:
    """Leave the nodes' group, or another one, room for so many rules."""
    rules = [{"CidrIp": f"192.0.2.{number}/32"} for number in range(FULL - room)]
    permission = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": rules}
    to = {"GroupId": group or aws.nodes_group, "IpPermissions": [permission]}
    aws.ec2.authorize_security_group_ingress(**to)


def rules(aws: Aws) -> list[tuple[int, str]]:
    """Port and source of each rule of the nodes' group."""
    answer = aws.ec2.describe_security_groups(GroupIds=[aws.nodes_group])
    permissions = answer["SecurityGroups"][0]["IpPermissions"]
    return [(one["FromPort"], each["CidrIp"]) for one in permissions for each in one["IpRanges"]]


def behind(aws: Aws, kind: str) -> Iterator[set[str]]:
    """The instances behind each load balancer."""
    if kind == "classic":
        for one in aws.classic_elbs():
            yield {instance["InstanceId"] for instance in one["Instances"]}
    else:
        for group in aws.target_groups():
            yield set(aws.targets(group))


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_a_full_group_keeps_no_dead_node_in_and_no_new_one_out(aws: Aws, kind: str) -> None:
    dead, new = aws.launch(2)
    fill(aws)
    one = asking(kind)
    with pytest.raises(NoRoom, match=aws.nodes_group):
        await aws.ensure(one, [node_of(dead)])
    assert list(behind(aws, kind)) == [{dead["InstanceId"]}]
    with pytest.raises(NoRoom, match=aws.nodes_group):
        await aws.update_nodes(one, [node_of(new)])
    assert list(behind(aws, kind)) == [{new["InstanceId"]}]
    await aws.delete(one)
    assert len(rules(aws)) == FULL


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_a_node_whose_group_is_full_keeps_no_service_from_its_load_balancer(
    aws: Aws, kind: str
) -> None:
    """A kubelet may name an instance of the cluster that has another group than the nodes."""
    (honest,), other = aws.launch(), aws.make_group("other")
    (named,) = aws.launch(SecurityGroupIds=[other])
    fill(aws, group=other)
    nodes = [node_of(honest), node_of(named)]
    made = await aws.ensure(asking(kind), nodes)
    assert made.ingress
    assert f"security group {other} has no room" in made.warnings[0]
    (group,) = aws.ec2.describe_security_groups(GroupIds=[aws.nodes_group])["SecurityGroups"]
    assert group["IpPermissions"], "the other node is open"
    with pytest.raises(Refused, match=other):
        await aws.update_nodes(asking(kind), nodes)
    await aws.ensure(asking(kind), nodes[:1])
    with pytest.raises(NoRoom, match=other):
        await aws.ensure(asking(kind), nodes[1:])


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_rules_that_may_not_be_changed_keep_no_node_out_injected(aws: Aws, kind: str) -> None:
    (machine,) = aws.launch()
    denied = Refusal(403, "UnauthorizedOperation")
    one = asking(kind)
    await aws.ensure(one)
    with (
        aws.proxy.fault("AuthorizeSecurityGroupIngress", denied),
        pytest.raises(Exception, match="ec2:AuthorizeSecurityGroupIngress"),
    ):
        await aws.update_nodes(one, [node_of(machine)])
    assert list(behind(aws, kind)) == [{machine["InstanceId"]}]


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_an_update_for_a_group_that_may_not_be_changed_is_not_tried_for_ever_injected(
    aws: Aws, kind: str
) -> None:
    """What is refused is followed by a change of the load balancer, which warns."""
    (honest,), other = aws.launch(), aws.make_group("other")
    (named,) = aws.launch(SecurityGroupIds=[other])
    nodes = [node_of(honest), node_of(named)]
    await aws.ensure(asking(kind), nodes[:1])
    with aws.proxy.fault("AuthorizeSecurityGroupIngress", Refusal(403, "UnauthorizedOperation")):
        with pytest.raises(Refused, match="ec2:AuthorizeSecurityGroupIngress"):
            await aws.update_nodes(asking(kind), nodes)
        made = await aws.ensure(asking(kind), nodes)
    assert "ec2:AuthorizeSecurityGroupIngress" in made.warnings[0]


async def test_rules_that_are_given_up_make_room_for_those_wanted(aws: Aws) -> None:
    """As with a load balancer whose port changes, in a group that has no room for both."""
    nodes = [node_of(one) for one in aws.launch()]
    fill(aws, room=2)
    one = asking("nlb", "web", 80)
    await aws.ensure(one, nodes)
    one.raw["spec"]["ports"][0]["nodePort"] = 30081
    await aws.ensure(one, nodes)
    assert (30081, EVERYBODY) in rules(aws)
    assert len(rules(aws)) == FULL


async def test_new_nodes_are_opened_for_no_node_port_that_the_service_gave_up(aws: Aws) -> None:
    """As where it is refused since, and the worker starts again: the port may be another's."""
    one = asking("nlb", "web", 80, 81)
    await aws.ensure(one)
    one.raw["spec"]["ports"][0]["nodePort"] = 30090
    await aws.start()
    await aws.update_nodes(one, [node_of(aws.launch()[0])])
    assert {number for number, _ in rules(aws)} == {3, 30081}


async def test_a_balancer_without_nodes_leaves_them_closed(aws: Aws) -> None:
    """Its node port may be another Service's soon, as where AWS protects it from deletion."""
    (machine,) = aws.launch()
    one = asking("nlb")
    await aws.ensure(one, [node_of(machine)])
    assert (30080, EVERYBODY) in rules(aws)
    await aws.update_nodes(one, [])
    assert [*behind(aws, "nlb"), *rules(aws)] == [set()]
    await aws.ensure(asking("nlb", "other"), [node_of(machine)])
    await aws.delete(asking("nlb", "other"))
    assert rules(aws) == []
    await aws.update_nodes(one, [node_of(machine)])
    assert (30080, EVERYBODY) in rules(aws)


class NotingGate(KitGate):
    """How urgent each call was, and in whose turn."""

    def __init__(self) -> None:
        super().__init__(10.0)
        self.seen: dict[str, set[tuple[Priority, str]]] = defaultdict(set)

    def call_blocking(
        self, operation: str, budget: str, function: Callable[[], T], *, is_write: bool
    ) -> T:
        self.seen[operation].add((current_priority(), gate._owner.get()))
        return super().call_blocking(operation, budget, function, is_write=is_write)


async def test_rules_of_nodes_are_changed_in_no_namespaces_turn(aws: Aws) -> None:
    """All others wait for it, however much the namespace asks for."""
    noting = NotingGate()
    await aws.start(gate=noting)
    nodes = [node_of(one) for one in aws.launch()]
    with with_priority(Priority.REFRESH, "theirs"):
        await aws.ensure(asking("nlb"), nodes)
    assert noting.seen["CreateLoadBalancer"] == {(Priority.REFRESH, "theirs")}
    assert noting.seen["AuthorizeSecurityGroupIngress"] == {(Priority.LB_ENSURE, "")}


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_what_is_read_for_all_is_read_in_no_namespaces_turn(aws: Aws, kind: str) -> None:
    """Who asks first holds the lock, in which all others wait for the same."""
    noting = NotingGate()
    await aws.start(gate=noting)
    nodes = [node_of(one) for one in aws.launch()]
    with with_priority(Priority.REFRESH, "theirs"):
        await aws.ensure(asking(kind), nodes)
    for call in ("DescribeInstances", "DescribeSubnets", "DescribeRouteTables"):
        assert noting.seen[call] == {(Priority.LB_ENSURE, "")}, call


async def fill_with_nlbs(aws: Aws, nodes: list[Json], most: int) -> int:
    """Make so many NLBs; how many of them got their rules."""
    opened = 0
    for number in range(most):
        try:
            await aws.ensure(asking("nlb", f"web-{number}", number + 1), [*map(node_of, nodes)])
        except NoRoom:
            continue
        opened += 1
    return opened


@long
async def test_a_group_serves_as_many_balancers_as_it_has_room_for_rules(aws: Aws) -> None:
    """One each, and one for all."""
    assert await fill_with_nlbs(aws, aws.launch(), FULL) == FULL - 1
    assert len(rules(aws)) == FULL


@long
@pytest.mark.timeout(3600)
async def test_five_hundred_balancers_have_the_right_targets_with_rules_or_without(
    aws: Aws,
) -> None:
    first, second = aws.launch(2)
    assert await fill_with_nlbs(aws, [first], 500) == FULL - 1
    assert list(behind(aws, "nlb")) == [{first["InstanceId"]}] * 500
    refused = count()
    for number in range(500):
        try:
            await aws.update_nodes(asking("nlb", f"web-{number}", number + 1), [node_of(second)])
        except NoRoom:
            next(refused)
    assert next(refused) == 500 - (FULL - 1)
    assert list(behind(aws, "nlb")) == [{second["InstanceId"]}] * 500
