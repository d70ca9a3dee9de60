"""What controllers and providers read of a Service (rows SH1…SH7)."""

from collections.abc import Callable

import pytest

from ccm.errors import Refused
from ccm.model.objects import project
from ccm.model.service import (
    FINALIZER,
    MOST_RANGES,
    SOURCE_RANGES,
    Feature,
    HealthCheck,
    Service,
    admits_everybody,
)
from tests.support.nodes import Tweak, with_finalizer
from workers.service.controller import PROJECTIONS

from .objects import annotated, port, service, spec, typed


def as_annotation(*ranges: str) -> Tweak:
    return annotated({SOURCE_RANGES: ",".join(ranges)})


def as_spec(*ranges: str) -> Tweak:
    return spec(loadBalancerSourceRanges=list(ranges))


Given = Callable[..., Tweak]
BOTH = pytest.mark.parametrize("given", [as_annotation, as_spec])


def shown(tweaked: Service) -> set[str]:
    return {str(network) for network in tweaked.source_ranges()}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param("10.0.0.1/33", id="SH1-length"),
        pytest.param("foo.bar", id="SH1-text"),
        pytest.param("10.0.0.1/32,", id="SH1-comma"),
        "10.0.0.1",
        "10.0.0.0/255.0.0.0",
        "10.0.0.1/-1",
        "256.0.0.1/8",
        "fe80::1%eth0/64",
        "/",
        "10.0.0.0/٨",
    ],
)
@BOTH
def test_what_is_not_a_network_is_refused_with_an_example(entry: str, given: Given) -> None:
    with pytest.raises(Refused, match=r"not valid .*for example 10\.0\.0\.0/24"):
        service(given(entry)).source_ranges()


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        pytest.param(["192.168.0.1/32"], {"192.168.0.1/32"}, id="SH2-once"),
        pytest.param(["192.168.0.1/32"] * 2, {"192.168.0.1/32"}, id="SH2-twice"),
        (["10.1.2.3/8"], {"10.0.0.0/8"}),
        (["010.0.0.0/08"], {"10.0.0.0/8"}),
        ([" 10.0.0.0/8 "], {"10.0.0.0/8"}),
        (["2001:db8::1/32", "10.0.0.0/8"], {"2001:db8::/32", "10.0.0.0/8"}),
    ],
)
@BOTH
def test_networks_are_normalised(ranges: list[str], expected: set[str], given: Given) -> None:
    assert shown(service(given(*ranges))) == expected


def test_more_networks_than_any_cloud_takes_are_refused_unread() -> None:
    many = [f"10.{number >> 8}.{number & 255}.0/24" for number in range(MOST_RANGES + 1)]
    assert len(shown(service(as_spec(*many[1:])))) == MOST_RANGES
    with pytest.raises(Refused, match="more than 5000 networks are given"):
        service(as_spec(*many)).source_ranges()


def test_more_rules_than_any_cloud_takes_are_refused() -> None:
    many = [f"10.{number >> 8}.{number & 255}.0/24" for number in range(MOST_RANGES)]
    ports = [port(number) for number in range(1, 22)]
    assert len(shown(service(as_spec(*many), spec(ports=ports[1:])))) == MOST_RANGES
    with pytest.raises(Refused, match="5000 source ranges for 21 ports are more than 100000 rules"):
        service(as_spec(*many), spec(ports=ports)).source_ranges()


@pytest.mark.parametrize(
    "tweaks", [pytest.param([], id="SH3"), [as_annotation(" ")], [as_spec(), as_annotation()]]
)
def test_without_ranges_everyone_is_admitted(tweaks: list[Tweak]) -> None:
    assert shown(service(*tweaks)) == {"0.0.0.0/0"}
    assert admits_everybody(service(*tweaks).source_ranges())


def test_the_spec_goes_before_the_annotation() -> None:
    both = service(as_spec("10.0.0.0/8"), as_annotation("nonsense"))
    assert shown(both) == {"10.0.0.0/8"}


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        pytest.param(["10.0.0.1/32"], False, id="SH4-one"),
        pytest.param(["0.0.0.0/0"], True, id="SH4-all"),
        pytest.param(["192.168.0.1/32", "0.0.0.0/0"], True, id="SH4-one-and-all"),
        pytest.param(["::/0"], False, id="SH4-v6"),
    ],
)
def test_who_is_admitted(ranges: list[str], expected: bool) -> None:
    assert admits_everybody(service(as_spec(*ranges)).source_ranges()) is expected


local, cluster = spec(externalTrafficPolicy="Local"), spec(externalTrafficPolicy="Cluster")


@pytest.mark.parametrize(
    ("tweaks", "is_local_only", "needs_health_check"),
    [
        pytest.param([typed("ClusterIP")], False, False, id="SH5-SH6-ClusterIP"),
        pytest.param([typed("NodePort"), local], True, False, id="SH5-NodePort-Local"),
        pytest.param([cluster], False, False, id="SH5-SH6-LoadBalancer-Cluster"),
        pytest.param([local], True, True, id="SH5-SH6-LoadBalancer-Local"),
    ],
)
def test_local_traffic(tweaks: list[Tweak], is_local_only: bool, needs_health_check: bool) -> None:
    tweaked = service(*tweaks, spec(healthCheckNodePort=30100))
    assert tweaked.is_local_only is is_local_only
    assert tweaked.needs_health_check is needs_health_check
    expected = HealthCheck(30100, "/healthz") if needs_health_check else None
    assert tweaked.health_check == expected


def test_without_a_port_there_is_no_health_check() -> None:
    assert service(local).health_check is None
    assert service(local, spec(healthCheckNodePort=0)).health_check is None


@pytest.mark.parametrize(
    ("finalizers", "expected"),
    [
        pytest.param([], False, id="SH7-none"),
        pytest.param(["theirs"], False, id="SH7-unrelated"),
        pytest.param(["theirs", FINALIZER], True, id="SH7-ours"),
    ],
)
def test_whether_it_has_our_finalizer(finalizers: list[str], expected: bool) -> None:
    tweaked = service(*(with_finalizer(name) for name in finalizers))
    assert tweaked.has_finalizer is expected


@pytest.mark.parametrize(
    ("tweaks", "expected"),
    [
        ([], set()),
        ([spec(ports=[port(53, "UDP")])], {Feature.UDP}),
        (
            [spec(ports=[port(53, "UDP"), port(53)])],
            {Feature.UDP, Feature.MIXED_PROTOCOLS},
        ),
        ([as_spec("10.0.0.0/8")], {Feature.SOURCE_RANGES}),
        ([as_spec("10.0.0.0/8", "0.0.0.0/0")], set()),
        ([spec(sessionAffinity="None")], set()),
        ([spec(sessionAffinity="ClientIP")], {Feature.SESSION_AFFINITY}),
        ([spec(loadBalancerIP="192.0.2.1")], {Feature.FIXED_IP}),
        ([spec(ipFamilies=["IPv4"], ipFamilyPolicy="RequireDualStack")], set()),
        (
            [spec(ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="RequireDualStack")],
            {Feature.DUAL_STACK},
        ),
        ([spec(ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="PreferDualStack")], set()),
    ],
)
def test_what_not_every_cloud_can_do(tweaks: list[Tweak], expected: set[Feature]) -> None:
    assert service(*tweaks).features() == expected


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": None, "spec": None, "status": None},
        {"metadata": {"finalizers": [1, {}]}, "spec": {"ports": [None]}, "status": []},
        {"spec": {"loadBalancerSourceRanges": "x", "healthCheckNodePort": "y", "ipFamilies": 7}},
    ],
)
def test_an_odd_object_is_read_leniently(raw: dict[str, object]) -> None:
    odd = Service(raw)
    assert (odd.finalizers, odd.ports, odd.ingress, odd.health_check) == ([], [], [], None)
    assert odd.features() == set()


def test_what_a_provider_reads_of_a_service_is_delivered() -> None:
    """Its labels too, by which one of several load balancers may be chosen."""
    (paths,) = (item.paths for item in PROJECTIONS if item.kind == Service.KIND)
    meta = {"name": "web", "namespace": "default", "uid": "u", "labels": {"tier": "fast"}}
    raw = {"metadata": {**meta, "annotations": {"a": "b"}, "managedFields": [{}]}}
    assert project(raw, paths)["metadata"] == {**meta, "annotations": {"a": "b"}}
