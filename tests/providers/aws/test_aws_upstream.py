"""Clusters in which upstream's controller worked before: their Services and what they have."""

from typing import Any, cast

import pytest

from ccm.cloud.dry_run import Changes, ReadingGate, record_changes
from ccm.cloud.gate import WorkerGate
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import port, service
from ccm.errors import CloudError
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.aws.config import AwsTimings
from ccm.providers.aws.elb.annotations import PREFIX
from tests.providers.aws.proxy import Fault, Refusal, Request
from tests.providers.aws.world import MARK, ZONES, Aws, node_of

WEB = [{**port(80), "name": "http"}, {**port(443, node_port=30443), "name": "https"}]


def asking(annotations: dict[str, str], **spec: Any) -> Service:
    """A Service with these annotations, whose names are without their prefix."""
    given = {PREFIX + key: value for key, value in annotations.items()}
    return service("web", given, **{"ports": WEB, **spec})


def certificate(aws: Aws) -> str:
    acm = aws.emulator.client("acm")
    return str(acm.request_certificate(DomainName="example.com")["CertificateArn"])


def ignored(warnings: tuple[str, ...]) -> list[str]:
    """The annotations that warnings name, without their prefix."""
    return [one.removeprefix(f"annotation {PREFIX}").partition(" ")[0] for one in warnings]


def protocols(aws: Aws) -> dict[int, tuple[str, str]]:
    """What each port of the only load balancer speaks, and what is behind it."""
    found: dict[int, tuple[str, str]] = {}
    for elb in aws.classic_elbs():
        for one in (description["Listener"] for description in elb["ListenerDescriptions"]):
            found[one["LoadBalancerPort"]] = one["Protocol"], one["InstanceProtocol"]
    for nlb in aws.nlbs():
        for one in nlb["listeners"]:
            group = nlb["groups"][one["DefaultActions"][0]["TargetGroupArn"]]
            found[one["Port"]] = one["Protocol"], group["Protocol"]
    return found


PASTED: list[tuple[dict[str, str], Json, dict[int, tuple[str, str]], list[str]]] = [
    (  # an ingress controller behind an NLB that ends TLS
        {
            "type": "nlb",
            "ssl-ports": "https",
            "cross-zone-load-balancing-enabled": "true",
            "connection-idle-timeout": "60",
            "backend-protocol": "tcp",
        },
        {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000},
        {80: ("TCP", "TCP"), 443: ("TLS", "TCP")},
        ["connection-idle-timeout"],
    ),
    (  # the same from a chart's values, with what was meant for a classic one
        {
            "type": "nlb",
            "ssl-ports": "443",
            "backend-protocol": "http",
            "proxy-protocol": "*",
            "connection-draining-enabled": "True",
        },
        {},
        {80: ("TCP", "TCP"), 443: ("TLS", "TCP")},
        ["backend-protocol", "connection-draining-enabled", "proxy-protocol"],
    ),
    (  # a classic one, with TLS on both of its sides: moto knows one protocol for both
        {
            "type": "elb",
            "ssl-ports": "https",
            "backend-protocol": "https",
            "connection-idle-timeout": "3600",
            "connection-draining-enabled": "1",
        },
        {},
        {80: ("TCP", "TCP"), 443: ("HTTPS", "HTTPS")},
        [],
    ),
    (  # made for the AWS Load Balancer Controller, which is not there
        {
            "type": "nlb",
            "nlb-target-type": "instance",
            "ip-address-type": "ipv4",
            "name": "web",
            "ssl-ports": "443",
            "healthcheck-success-codes": "200",
            "manage-backend-security-group-rules": "true",
        },
        {},
        {80: ("TCP", "TCP"), 443: ("TLS", "TCP")},
        [
            "healthcheck-success-codes",
            "manage-backend-security-group-rules",
            "name",
            "nlb-target-type",
        ],
    ),
]


@pytest.mark.parametrize(("annotations", "spec", "spoken", "reported"), PASTED)
async def test_a_manifest_that_people_paste_gets_its_balancer(
    aws: Aws,
    annotations: dict[str, str],
    spec: Json,
    spoken: dict[int, tuple[str, str]],
    reported: list[str],
) -> None:
    one = asking(annotations | {"ssl-cert": certificate(aws)}, **spec)
    nodes = [node_of(aws.launch()[0])]
    made = await aws.ensure(one, nodes)
    assert protocols(aws) == spoken
    assert ignored(made.warnings) == reported
    aws.proxy.reset()
    assert await aws.ensure(one, nodes) == made
    assert aws.proxy.writes() == []


@pytest.mark.parametrize("kind", ["nlb", "elb"])
async def test_a_dry_run_tells_what_has_no_effect(aws: Aws, kind: str) -> None:
    await aws.start(gate=ReadingGate(cast(WorkerGate, KitGate(10.0))))
    changes: Changes = {}
    record_changes(aws.cloud, changes)
    made = await aws.ensure(asking({"type": kind, "no-such": "x"}))
    assert ignored(made.warnings) == ["no-such"]
    assert [change["does"] for change in changes.values()] == ["create"]
    assert aws.proxy.writes() == []


@pytest.mark.parametrize("kind", ["nlb", "elb"])
async def test_another_scheme_is_reported_and_the_balancer_stays(aws: Aws, kind: str) -> None:
    await aws.ensure(asking({"type": kind}))
    aws.proxy.reset()
    again = await aws.ensure(asking({"type": kind, "internal": "true"}))
    assert "the load balancer is internet-facing, which cannot be changed" in again.warnings[0]
    assert aws.proxy.writes() == []


async def test_target_group_attributes_that_were_set_by_hand_stay(aws: Aws) -> None:
    one = asking({"type": "nlb"})
    await aws.ensure(one)
    by_hand = {"proxy_protocol_v2.enabled": "true", "deregistration_delay.timeout_seconds": "5"}
    for group in aws.target_groups():
        aws.elbv2.modify_target_group_attributes(
            TargetGroupArn=group["TargetGroupArn"],
            Attributes=[{"Key": key, "Value": value} for key, value in by_hand.items()],
        )
    aws.proxy.reset()
    await aws.ensure(one)
    assert aws.proxy.writes() == []
    delay = "deregistration_delay.timeout_seconds=9"
    await aws.ensure(asking({"type": "nlb", "target-group-attributes": delay}))
    (nlb,) = aws.nlbs(is_deep=True)
    for listed in nlb["group_attributes"]:
        found = {item["Key"]: item["Value"] for item in listed}
        assert found["proxy_protocol_v2.enabled"] == "true"
        assert found["deregistration_delay.timeout_seconds"] == "9"


async def test_a_network_balancer_stays_in_its_subnets_until_others_are_named(aws: Aws) -> None:
    await aws.start(timings=AwsTimings(subnet_cache_ttl=0.0))
    aws.untag(aws.public[ZONES[2]])
    aws.tag(aws.public[ZONES[2]], "kubernetes.io/cluster/other")
    one = asking({"type": "nlb"})
    await aws.ensure(one)
    there = {aws.public[zone] for zone in ZONES[:2]}

    def subnets() -> set[str]:
        (nlb,) = aws.nlbs()
        return {zone["SubnetId"] for zone in nlb["AvailabilityZones"]}

    assert subnets() == there
    aws.tag(aws.public[ZONES[2]], MARK)
    (table,) = aws.ec2.describe_route_tables(
        Filters=[{"Name": "association.subnet-id", "Values": [aws.public[ZONES[0]]]}]
    )["RouteTables"]
    aws.ec2.delete_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0")
    aws.proxy.reset()
    await aws.ensure(one)
    assert aws.proxy.writes() == []
    await aws.ensure(asking({"type": "nlb", "subnets": ",".join(aws.public.values())}))
    assert subnets() == set(aws.public.values())


@pytest.mark.parametrize("code", ["CertificateNotFound", "InternalFailure"])
async def test_a_first_certificate_that_is_not_taken_leaves_the_listener_injected(
    aws: Aws, code: str
) -> None:
    await aws.ensure(asking({}))
    before = protocols(aws)
    first = {"ssl-cert": certificate(aws), "backend-protocol": "ssl"}
    bad = Refusal(400, code)

    def refuse(request: Request) -> Fault | None:
        is_tls = first["ssl-cert"] in request.parameters.values()
        return bad if request.operation == "CreateLoadBalancerListeners" and is_tls else None

    aws.proxy.rule = refuse
    with pytest.raises(CloudError):
        await aws.ensure(asking(first))
    assert protocols(aws) == before
    aws.proxy.rule = lambda request: None
    await aws.ensure(asking(first))
    assert protocols(aws) == {80: ("SSL", "SSL"), 443: ("SSL", "SSL")}


async def test_a_certificate_that_is_not_taken_leaves_the_listener_injected(aws: Aws) -> None:
    first, second = certificate(aws), certificate(aws)

    def asking_for(arn: str) -> Service:
        return asking({"ssl-cert": arn, "backend-protocol": "ssl"})

    await aws.ensure(asking_for(first))
    before = protocols(aws)
    refused = Refusal(400, "CertificateNotFound")
    with (
        aws.proxy.fault("SetLoadBalancerListenerSSLCertificate", refused),
        pytest.raises(CloudError),
    ):
        await aws.ensure(asking_for(second))
    assert protocols(aws) == before
    await aws.ensure(asking_for(second))
    (elb,) = aws.classic_elbs()
    listed = [one["Listener"]["SSLCertificateId"] for one in elb["ListenerDescriptions"]]
    assert listed == [second, second]
