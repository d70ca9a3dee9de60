"""Which changes of a Service concern its balancer (rows ST1…ST9), and status (SH8…SH10)."""

from typing import Any

import pytest

from ccm.model.cloud import Ingress, IpMode
from ccm.model.objects import Json
from workers.service.concerns import LAST_APPLIED, concerns, ingress_json, same_ingress

from .objects import (
    Tweak,
    annotated,
    finalized,
    port,
    service,
    spec,
    typed,
    with_status,
    with_uid,
)


def ports(*several: Json) -> Tweak:
    return spec(ports=list(several))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [typed("ClusterIP")], id="ST1"),
        pytest.param([ports(port(80))], [ports(port(81))], id="ST2"),
        pytest.param([], [spec(externalIPs=["192.0.2.7"])], id="ST3"),
        pytest.param([], [with_uid("other")], id="ST4"),
        pytest.param(
            [spec(externalTrafficPolicy="Cluster")],
            [spec(externalTrafficPolicy="Local")],
            id="ST5",
        ),
        pytest.param(
            [ports(port(80, targetPort=80))], [ports(port(80, targetPort="http"))], id="ST6"
        ),
        pytest.param([spec(ipFamilies=["IPv4"])], [spec(ipFamilies=["IPv4", "IPv6"])], id="ST8"),
        pytest.param([ports(port(80))], [ports(port(80, appProtocol="h2c"))], id="ST9"),
        pytest.param([ports(port(80))], [ports(port(80, "UDP"))], id="protocol"),
        pytest.param([ports(port(80))], [ports(port(80, nodePort=31000))], id="nodePort"),
        pytest.param([ports(port(80))], [ports(port(80, name="http"))], id="port-name"),
        pytest.param([], [spec(loadBalancerClass="mine")], id="class"),
        pytest.param([], [spec(loadBalancerSourceRanges=["10.0.0.0/8"])], id="source-ranges"),
        pytest.param([], [spec(loadBalancerIP="192.0.2.1")], id="requested-ip"),
        pytest.param([], [spec(sessionAffinity="ClientIP")], id="affinity"),
        pytest.param(
            [],
            [spec(sessionAffinityConfig={"clientIP": {"timeoutSeconds": 5}})],
            id="affinity-time",
        ),
        pytest.param([], [spec(healthCheckNodePort=30100)], id="health-check"),
        pytest.param([], [annotated({"any": "thing"})], id="annotation"),
    ],
)
def test_a_change_that_concerns_the_balancer(before: list[Tweak], after: list[Tweak]) -> None:
    assert concerns(service(*before)) != concerns(service(*after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            [ports(port(80)), spec(ipFamilies=["IPv4"])],
            [ports(port(80)), spec(ipFamilies=["IPv4"])],
            id="ST7",
        ),
        pytest.param([], [finalized, with_status("192.0.2.1")], id="finalizer-and-status"),
        pytest.param([], [spec(clusterIP="10.96.0.1", selector={"a": "b"})], id="not-our-fields"),
        pytest.param([], [annotated({LAST_APPLIED: "{}"})], id="kubectl-apply"),
        pytest.param([ports(port(80), port(81))], [ports(port(81), port(80))], id="order-of-ports"),
        pytest.param([], [spec(loadBalancerSourceRanges=[])], id="empty-and-missing"),
        pytest.param(
            [spec(externalIPs=["192.0.2.1", "192.0.2.2"])],
            [spec(externalIPs=["192.0.2.2", "192.0.2.1"])],
            id="order-of-external-ips",
        ),
    ],
)
def test_a_change_that_does_not(before: list[Tweak], after: list[Tweak]) -> None:
    assert concerns(service(*before)) == concerns(service(*after))


def ip(address: str, **more: Any) -> Json:
    return {"ip": address, **more}


PORTS = [{"port": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("wanted", "stored", "expected"),
    [
        pytest.param([], [], True, id="SH8-empty"),
        pytest.param([ip("1.2.3.4")], [ip("1.2.3.4")], True, id="SH8-same"),
        pytest.param([ip("1.2.3.4")], [ip("1.2.3.5")], False, id="SH8-other"),
        pytest.param([ip("1.2.3.4")], [], False, id="SH8-missing"),
        pytest.param([], [ip("1.2.3.4")], False, id="SH8-surplus"),
        pytest.param([ip("1.2.3.4", ipMode="VIP")], [ip("1.2.3.4")], False, id="SH9-mode"),
        pytest.param([ip("1.2.3.4")], [ip("1.2.3.4", ipMode="Proxy")], False, id="SH9-proxy"),
        # Deliberate difference: VIP is what the API server itself fills in.
        pytest.param([ip("1.2.3.4")], [ip("1.2.3.4", ipMode="VIP")], True, id="SH9-default"),
        pytest.param([ip("1.2.3.4")], [ip("1.2.3.4", ports=PORTS)], False, id="SH9-ports"),
        pytest.param([ip("1.2.3.4", ports=PORTS)], [ip("1.2.3.4", ports=PORTS)], True, id="SH10"),
    ],
)
def test_when_a_status_says_what_it_should(
    wanted: list[Json], stored: list[Json], expected: bool
) -> None:
    assert same_ingress(wanted, stored) is expected


def test_an_ip_mode_goes_with_an_ip_only() -> None:
    ways = [
        Ingress(ip="192.0.2.1", ip_mode=IpMode.PROXY),
        Ingress(ip="192.0.2.2"),
        Ingress(hostname="lb.example", ip_mode=IpMode.VIP),
    ]
    assert ingress_json(ways) == [
        {"ip": "192.0.2.1", "ipMode": "Proxy"},
        {"ip": "192.0.2.2"},
        {"hostname": "lb.example"},
    ]
