"""Balancers against the emulator: what annotations make of them, and the faults that moto lacks."""

import asyncio
import re
from typing import Any, cast

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.interface import SelectsNodesByLabel
from ccm.cloud.testkit.harness import port, service
from ccm.errors import CloudError, ImplementedElsewhere, NoRoom, Refused, RetryAfter
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.aws import client
from ccm.providers.aws.elb.annotations import PREFIX
from tests.providers.aws.proxy import Fault, Refusal, Request
from tests.providers.aws.world import ZONES, Account, Aws, node_of
from tests.support.deadlines import timeout

LOCAL: Json = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
NLB = {"type": "nlb"}


def asking(annotations: dict[str, str] | None = None, name: str = "web", **spec: Any) -> Service:
    """A Service with these annotations, whose names are without their prefix."""
    given = {PREFIX + key: value for key, value in (annotations or {}).items()}
    return service(name, given, **spec)


def classic(account: Account) -> Json:
    """The only classic balancer, with its attributes."""
    (one,) = account.classic_elbs(is_deep=True)
    return {**one, **one["attributes"]}


def network(account: Account) -> Json:
    """The only network balancer, with its attributes, listeners and target groups."""
    (one,) = account.nlbs(is_deep=True)
    attributes = {item["Key"]: item["Value"] for item in one["attributes"]}
    return {**one, "attributes": attributes, "groups": account.target_groups()}


def groups(account: Account) -> dict[str, Json]:
    return {group["GroupName"]: group for group in account.security_groups()}


@pytest.mark.parametrize("kind", ["classic", "nlb"])
async def test_where_there_are_many_each_balancer_is_read_by_its_name(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    services = [asking({"type": kind}, name) for name in ("one", "another")]
    for each in services:
        await aws.ensure(each)
    monkeypatch.setattr(client, "MAX_LISTED", 1)
    aws.proxy.requests.clear()
    balancers = aws.cloud.load_balancers
    assert balancers
    found = [await invoke(balancers.get, each) for each in services]
    assert [one and one.name for one in found] == [one.default_balancer_name for one in services]
    named = [
        name
        for request in aws.proxy.requests
        for key, name in request.parameters.items()
        if request.operation == "DescribeLoadBalancers" and "Names." in key
    ]
    assert named == [one.default_balancer_name for one in services]


async def test_a_classic_balancer_is_as_upstream_makes_it(aws: Aws) -> None:
    (made,) = aws.launch()
    one = asking({}, loadBalancerSourceRanges=["192.0.2.0/24"])
    await aws.ensure(one, [node_of(made)])
    there = classic(aws)
    assert there["LoadBalancerName"] == "a" + one.uid.replace("-", "")[:31]
    assert there["Scheme"] == "internet-facing"
    assert set(there["Subnets"]) == set(aws.public.values())
    check = {"Interval": 10, "Timeout": 5, "HealthyThreshold": 2, "UnhealthyThreshold": 6}
    assert there["HealthCheck"] == {"Target": "TCP:30080", **check}
    own = groups(aws)[f"k8s-elb-{there['LoadBalancerName']}"]
    assert there["SecurityGroups"] == [own["GroupId"]]
    allowed = {
        (p["IpProtocol"], p["FromPort"], p["ToPort"], p["IpRanges"][0]["CidrIp"])
        for p in own["IpPermissions"]
    }
    assert allowed == {("tcp", 80, 80, "192.0.2.0/24"), ("icmp", 3, 4, "192.0.2.0/24")}
    (opened,) = groups(aws)["nodes"]["IpPermissions"]
    assert opened["UserIdGroupPairs"][0]["GroupId"] == own["GroupId"]


CLASSIC = [
    ({"internal": "true"}, "Scheme", "internal"),
    ({"internal": "0.0.0.0/0"}, "Scheme", "internal"),
    ({"internal": "false"}, "Scheme", "internet-facing"),
    ({"scheme": "internal"}, "Scheme", "internal"),
    ({"cross-zone-load-balancing-enabled": "true"}, "CrossZoneLoadBalancing", {"Enabled": True}),
    ({"connection-idle-timeout": "90"}, "ConnectionSettings", {"IdleTimeout": 90}),
    (
        {"connection-draining-enabled": "true", "connection-draining-timeout": "60"},
        "ConnectionDraining",
        {"Enabled": True, "Timeout": 60},
    ),
    (
        {
            "access-log-enabled": "true",
            "access-log-emit-interval": "5",
            "access-log-s3-bucket-name": "logs",
            "access-log-s3-bucket-prefix": "web",
        },
        "AccessLog",
        {"Enabled": True, "EmitInterval": 5, "S3BucketName": "logs", "S3BucketPrefix": "web"},
    ),
    ({"subnets": f"public-{ZONES[1]}"}, "AvailabilityZones", None),
]


@pytest.mark.parametrize(("annotations", "field", "value"), CLASSIC)
async def test_an_annotation_makes_a_classic_balancer_so(
    aws: Aws, annotations: dict[str, str], field: str, value: Any
) -> None:
    await aws.ensure(asking(annotations))
    there = classic(aws)
    if value is None:
        assert there["Subnets"] == [aws.public[ZONES[1]]]
    else:
        assert there[field] == value


NETWORK = [
    ({"cross-zone-load-balancing-enabled": "true"}, "load_balancing.cross_zone.enabled", "true"),
    (
        {"access-log-enabled": "true", "access-log-s3-bucket-name": "logs"},
        "access_logs.s3.bucket",
        "logs",
    ),
    ({"attributes": "deletion_protection.enabled=true"}, "deletion_protection.enabled", "true"),
]


@pytest.mark.parametrize(("annotations", "attribute", "value"), NETWORK)
async def test_an_annotation_makes_a_network_balancer_so(
    aws: Aws, annotations: dict[str, str], attribute: str, value: str
) -> None:
    await aws.ensure(asking(NLB | annotations))
    assert network(aws)["attributes"][attribute] == value


async def test_a_certificate_makes_a_tls_listener(aws: Aws) -> None:
    acm = aws.emulator.client("acm")
    arn = acm.request_certificate(DomainName="example.com")["CertificateArn"]
    asked = NLB | {"ssl-cert": arn, "ssl-ports": "443", "backend-protocol": "ssl"}
    await aws.ensure(asking(asked, ports=[port(80), port(443, node_port=30443)]))
    there = network(aws)
    protocols = {listener["Port"]: listener["Protocol"] for listener in there["listeners"]}
    assert protocols == {80: "TCP", 443: "TLS"}
    assert {group["Port"]: group["Protocol"] for group in there["groups"]} == {
        30080: "TCP",
        30443: "TLS",
    }


async def test_health_checks_are_upstreams_unless_annotations_say_otherwise(aws: Aws) -> None:
    fields = ("Protocol", "Port", "Path", "IntervalSeconds", "TimeoutSeconds")

    def check() -> list[Any]:
        (group,) = network(aws)["groups"]
        return [group.get(f"HealthCheck{name}") for name in fields]

    await aws.ensure(asking(NLB))
    assert check() == ["TCP", "traffic-port", None, 30, 10]
    await aws.ensure(asking(NLB, **LOCAL))
    assert check() == ["HTTP", "32000", "/healthz", 10, 10]
    own = {"healthcheck-protocol": "HTTPS", "healthcheck-port": "8443", "healthcheck-path": "/ok"}
    await aws.ensure(asking(NLB | own))
    assert check() == ["HTTPS", "8443", "/ok", 30, 10]


async def test_only_nodes_with_the_labels_are_targets(aws: Aws) -> None:
    machines = aws.launch(3)
    nodes = [node_of(machine) for machine in machines]
    labels: tuple[dict[str, str], ...] = ({"pool": "web", "x": ""}, {"pool": "web"}, {"x": ""})
    for node, labelled in zip(nodes, labels, strict=True):
        node.raw["metadata"]["labels"] = labelled
    asked = asking({"target-node-labels": "pool=web,x="})
    await aws.ensure(asked, nodes)
    ids = [instance["InstanceId"] for instance in classic(aws)["Instances"]]
    assert ids == [machines[0]["InstanceId"]]
    chooser = cast(SelectsNodesByLabel, aws.cloud.load_balancers)
    assert set(chooser.selector_labels(asked)) == {"pool", "x"}


async def test_given_security_groups_replace_its_own_and_the_nodes_are_shared(aws: Aws) -> None:
    made = aws.make_group("mine")
    nodes = [node_of(aws.launch()[0])]
    first = asking({"security-groups": made}, "one")
    second = asking({"security-groups": made}, "two")
    await aws.ensure(asking({}, "one"), nodes)
    await aws.ensure(first, nodes)
    assert classic(aws)["SecurityGroups"] == [made]
    assert set(groups(aws)) == {"default", "nodes", "mine"}
    await aws.ensure(second, nodes)
    for one, left in ((first, 1), (second, 0)):
        await aws.delete(one)
        assert len(groups(aws)["nodes"]["IpPermissions"]) == left
    assert set(groups(aws)) == {"default", "nodes", "mine"}


async def test_nodes_are_closed_to_a_given_group_that_the_last_one_to_have_it_gives_up(
    aws: Aws,
) -> None:
    """AWS has one rule for both, which is described as that of the one that is gone."""
    nodes = [node_of(aws.launch()[0])]
    given = {"security-groups": aws.make_group("mine")}
    await aws.ensure(asking(given, "one"), nodes)
    await aws.ensure(asking(given, "two"), nodes)
    await aws.delete(asking(given, "one"))
    assert len(groups(aws)["nodes"]["IpPermissions"]) == 1
    other = asking({"security-groups": aws.make_group("other")}, "two")
    await aws.ensure(other, nodes)
    await aws.delete(other)
    assert groups(aws)["nodes"]["IpPermissions"] == []


@pytest.mark.parametrize(
    ("refused", "is_closed"),
    [("CreateLoadBalancerListeners", True), ("ApplySecurityGroupsToLoadBalancer", False)],
)
async def test_what_a_change_that_fails_has_given_up_is_closed_and_nothing_else_injected(
    aws: Aws, refused: str, is_closed: bool
) -> None:
    """The next try does not see any more that the load balancer had it."""
    nodes = [node_of(aws.launch()[0])]
    mine, other = aws.make_group("mine"), aws.make_group("other")
    for name in ("one", "two"):
        await aws.ensure(asking({"security-groups": mine}, name), nodes)
    await aws.delete(asking({"security-groups": mine}, "one"))
    changed = asking({"security-groups": other}, "two", ports=[port(81, node_port=30081)])
    with aws.proxy.fault(refused, Refusal(400, "ValidationError")), pytest.raises(CloudError):
        await aws.ensure(changed, nodes)
    opened = {
        pair["GroupId"]
        for permission in groups(aws)["nodes"]["IpPermissions"]
        for pair in permission["UserIdGroupPairs"]
    }
    assert opened == ({other} if is_closed else {mine, other})


async def test_nodes_stay_open_to_a_given_group_that_the_last_one_leaves_while_another_is_made(
    aws: Aws,
) -> None:
    await aws.start(f"ElbSecurityGroup = {aws.make_group('mine')}")
    nodes = [node_of(aws.launch()[0])]
    await aws.ensure(asking({}, "one"), nodes)
    with aws.proxy.holding("elb:CreateLoadBalancer") as held:
        making = asyncio.create_task(aws.ensure(asking({}, "two"), nodes))
        assert await asyncio.to_thread(held.wait, timeout())
        await aws.delete(asking({}, "one"))
    await making
    assert len(groups(aws)["nodes"]["IpPermissions"]) == 1
    await aws.delete(asking({}, "two"))
    assert groups(aws)["nodes"]["IpPermissions"] == []


async def test_nodes_are_left_alone_when_the_configuration_says_so(aws: Aws) -> None:
    await aws.start("DisableSecurityGroupIngress = true")
    nodes = [node_of(aws.launch()[0])]
    for one in (asking({}), asking(NLB, "other")):
        await aws.ensure(one, nodes)
        assert groups(aws)["nodes"]["IpPermissions"] == []
        await aws.delete(one)


async def test_another_type_replaces_the_balancer(aws: Aws) -> None:
    await aws.ensure(asking({}))
    await aws.ensure(asking(NLB))
    assert network(aws)
    assert not list(aws.classic_elbs())
    assert set(groups(aws)) == {"default", "nodes"}


async def test_without_tagged_subnets_the_configured_one_is_used(aws: Aws) -> None:
    aws.untag(*aws.public.values(), *aws.private.values())
    await aws.start(f"SubnetID = {aws.public[ZONES[2]]}")
    await aws.ensure(asking({}))
    assert classic(aws)["Subnets"] == [aws.public[ZONES[2]]]


async def test_subnets_are_one_a_zone_by_role_and_tag(aws: Aws) -> None:
    """Of another cluster's none, of the others the one with the role's tag."""
    ec2, zone = aws.ec2, ZONES[0]
    (table,) = ec2.describe_route_tables(
        Filters=[{"Name": "association.subnet-id", "Values": [aws.public[zone]]}]
    )["RouteTables"]
    for number, tag in enumerate(("", "kubernetes.io/cluster/other")):
        made = aws.make_subnet(f"10.0.{128 + number}.0/24", zone)
        ec2.associate_route_table(RouteTableId=table["RouteTableId"], SubnetId=made)
        if tag:
            aws.tag(made, tag)
    await aws.ensure(asking(NLB))
    zones = network(aws)["AvailabilityZones"]
    assert {one["SubnetId"] for one in zones} == set(aws.public.values())


RANGES: Json = {"loadBalancerSourceRanges": ["198.51.100.0/24"]}
UNENFORCED = [
    ("", {"security-groups": "sg-1"}, "the rules of sg-1 are not ours to change"),
    ("ElbSecurityGroup = sg-2", {}, "the rules of sg-2 are not ours to change"),
    ("DisableSecurityGroupIngress = true", NLB, "leaves the nodes' groups alone"),
    (
        "",
        NLB | {"target-group-attributes": "preserve_client_ip.enabled=false"},
        "hides who the client is",
    ),
]


@pytest.mark.parametrize(("config", "annotations", "reported"), UNENFORCED)
async def test_source_ranges_that_nothing_would_enforce_are_refused(
    aws: Aws, config: str, annotations: dict[str, str], reported: str
) -> None:
    await aws.start(config)
    with pytest.raises(Refused, match=f"198.51.100.0/24 would not be enforced: .*{reported}"):
        await aws.ensure(asking(annotations, **RANGES))
    assert aws.proxy.writes() == []


REFUSED = [
    ({"target-group-attributes": "x=1"}, {}, "is not for a load balancer of type classic"),
    (NLB | {"extra-security-groups": "sg-1"}, {}, "is not for a load balancer of type nlb"),
    ({"proxy-protocol": "80"}, {}, r"give \*"),
    ({"connection-idle-timeout": "soon"}, {}, "a number from 1 to 4000"),
    ({"access-log-enabled": "true"}, {}, "the name of a bucket"),
    ({"additional-resource-tags": "kubernetes.io/cluster/kit=x"}, {}, "it without"),
    ({"additional-resource-tags": "kubernetes.io/cluster/theirs=owned"}, {}, "it without"),
    ({"additional-resource-tags": "KubernetesCluster=theirs"}, {}, "it without"),
    ({"subnets": "nowhere"}, {}, "no subnet of the VPC is called 'nowhere'"),
    (NLB | {"eip-allocations": "eip-1"}, {}, "3, one for each of"),
    (NLB | {"private-ipv4-addresses": "10.0.0.5"}, {}, "3, one for each of"),
    ({}, {"loadBalancerIP": "192.0.2.1"}, "use eip-allocations"),
    ({}, {"sessionAffinity": "ClientIP"}, "not supported"),
    ({"type": "elb"}, {"ipFamilies": ["IPv6"]}, "the load balancer is of IPv4: annotate .*: nlb"),
    ({}, {"loadBalancerSourceRanges": ["2001:db8::/32"]}, "of IPv4"),
    ({}, {"ports": [{"port": 80, "protocol": "TCP"}]}, "has no node port"),
    ({"type": "classic"}, {"ports": [port(53, "UDP")]}, "has TCP only"),
    (NLB, {"ports": [port(53, "UDP", 30053), port(53, "TCP", 30054)]}, "the same nodePort"),
    (NLB, {"ports": [port(53, "SCTP")]}, "use TCP or UDP"),
]


@pytest.mark.parametrize(("annotations", "spec", "reported"), REFUSED)
async def test_what_cannot_be_honoured_is_refused_before_anything_is_written(
    aws: Aws, annotations: dict[str, str], spec: Json, reported: str
) -> None:
    with pytest.raises(Refused, match=reported):
        await aws.ensure(asking(annotations, **spec))
    assert aws.proxy.writes() == []


@pytest.mark.parametrize("kind", ["external", "nlb-ip"])
async def test_balancers_of_the_other_controller_are_left_to_it(aws: Aws, kind: str) -> None:
    with pytest.raises(ImplementedElsewhere):
        await aws.ensure(asking({"type": kind}))
    assert aws.proxy.requests == []


# Faults that moto lacks, injected.


async def test_a_target_group_in_use_is_deleted_later_injected(aws: Aws) -> None:
    one = asking(NLB)
    await aws.ensure(one)
    in_use = Refusal(400, "ResourceInUse")
    with aws.proxy.fault("DeleteTargetGroup", in_use), pytest.raises(RetryAfter):
        await aws.delete(one)
    await aws.delete(one)
    assert not aws.target_groups()


@pytest.mark.parametrize("annotations", [{}, NLB])
async def test_an_answer_without_its_instances_takes_none_away_injected(
    aws: Aws, annotations: dict[str, str]
) -> None:
    nodes = [node_of(machine) for machine in aws.launch(2)]
    for is_lied_to in (False, True):
        await aws.start()  # one that remembers nothing
        if is_lied_to:
            aws.proxy.reset()
            aws.proxy.rewrite = lambda request, answer: re.sub(
                rb"<reservationSet>.*</reservationSet>", b"<reservationSet/>", answer, flags=re.S
            )
        await aws.ensure(asking(annotations), nodes)
        await aws.update_nodes(asking(annotations), nodes)
    assert aws.proxy.counted()["ec2:DescribeInstances"] > 0
    assert aws.proxy.writes() == []


@pytest.mark.parametrize("annotations", [{}, NLB])
async def test_an_instance_that_is_not_taken_keeps_no_other_out_injected(
    aws: Aws, annotations: dict[str, str]
) -> None:
    good, bad = aws.launch(2)
    codes = {"RegisterTargets": "InvalidTarget", "RegisterInstances": "InvalidInstance"}

    def refuse(request: Request) -> Fault | None:
        for operation, code in codes.items():
            values = request.parameters.values()
            if request.operation.startswith(operation) and bad["InstanceId"] in values:
                return Refusal(400, code, f"'{bad['InstanceId']}' cannot be registered")
        return None

    aws.proxy.rule = refuse
    await aws.ensure(asking(annotations), [node_of(good), node_of(bad)])
    if annotations:
        (group,) = network(aws)["groups"]
        found = aws.targets(group)
    else:
        found = [one["InstanceId"] for one in classic(aws)["Instances"]]
    assert found == [good["InstanceId"]]


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("elbv2:CreateLoadBalancer", "DuplicateLoadBalancerName"),
        ("CreateTargetGroup", "DuplicateTargetGroupName"),
        ("CreateListener", "DuplicateListener"),
    ],
)
async def test_what_appeared_meanwhile_is_looked_at_again_injected(
    aws: Aws, operation: str, code: str
) -> None:
    with aws.proxy.fault(operation, Refusal(400, code)), pytest.raises(RetryAfter):
        await aws.ensure(asking(NLB))
    await aws.ensure(asking(NLB))


async def test_a_full_security_group_is_explained_injected(aws: Aws) -> None:
    nodes = [node_of(aws.launch()[0])]
    full = Refusal(400, "RulesPerSecurityGroupLimitExceeded")
    refused = pytest.raises(NoRoom, match="raise the quota")
    with aws.proxy.fault("AuthorizeSecurityGroupIngress", full), refused:
        await aws.ensure(asking(NLB), nodes)
