"""Which Services are work, which Nodes are backends, what is written (SV12, SN16…, ST…, SH8…)."""

from typing import Any

import pytest

from ccm.errors import KubernetesError
from ccm.model.cloud import Balancer, Ingress, IpMode
from ccm.model.objects import Json
from ccm.model.service import (
    FINALIZER,
    LAST_APPLIED_ANNOTATION,
    UPSTREAM_FINALIZERS,
    Feature,
    Service,
    relevant_spec,
    same_ingress,
)
from tests.support.cluster import patched
from tests.support.nodes import PROVIDER_IDS, Tweak, labelled, with_finalizer, with_provider_id
from workers.service.backends import EXCLUDE_LABEL, Backends, may_be_backend
from workers.service.plan import (
    AddFinalizer,
    Capabilities,
    DeleteBalancer,
    Done,
    RemoveFinalizer,
    ServiceWrite,
    SetStatus,
    patch_for,
    plan,
    wants_balancer,
)
from workers.service.state import ServiceState, ingress_of

from .objects import (
    EXCLUDED,
    NO_PROVIDER_ID,
    NOT_READY,
    TO_BE_DELETED,
    annotated,
    being_deleted,
    finalized,
    node,
    port,
    ready,
    service,
    spec,
    typed,
    with_status,
    with_taint,
    with_uid,
)


@pytest.mark.parametrize(
    ("tweaks", "expected"),
    [
        pytest.param([], False, id="SV12-no-finalizer"),
        pytest.param([finalized], False, id="SV12-finalizer"),
        pytest.param([finalized, typed("NodePort")], True, id="SV12-finalizer-and-NodePort"),
        pytest.param([finalized, being_deleted], True, id="SV12-finalizer-and-deletion"),
        pytest.param([being_deleted], False, id="SV12-deletion-only"),
    ],
)
def test_what_needs_cleanup(tweaks: list[Tweak], expected: bool) -> None:
    supported = Capabilities((), list(Feature))
    step = plan(service(*tweaks), Backends((), frozenset()), ServiceState(), supported, 0.0)
    assert isinstance(step, DeleteBalancer) is expected


@pytest.mark.parametrize(
    ("tweaks", "classes", "expected"),
    [
        ([], (), True),
        ([], ("mine",), True),
        ([spec(loadBalancerClass="mine")], ("mine", "also"), True),
        ([spec(loadBalancerClass="mine")], (), False),
        ([spec(loadBalancerClass="theirs")], ("mine",), False),
        ([spec(loadBalancerClass="")], (), False),
        ([typed("NodePort")], (), False),
        ([typed("NodePort"), spec(loadBalancerClass="mine")], ("mine",), False),
    ],
)
def test_who_wants_a_balancer_of_ours(
    tweaks: list[Tweak], classes: tuple[str, ...], expected: bool
) -> None:
    assert wants_balancer(service(*tweaks), classes) is expected


@pytest.mark.parametrize(
    ("tweak", "message"),
    [
        (spec(loadBalancerClass="theirs"), "left alone: loadBalancerClass theirs is not ours"),
        (typed("NodePort"), "needs no load balancer of ours"),
    ],
)
def test_why_a_service_has_no_balancer_of_ours_is_reported(tweak: Tweak, message: str) -> None:
    step = plan(
        service(tweak), Backends((), frozenset()), ServiceState(), Capabilities((), ()), 0.0
    )
    assert step == Done(message)


def bare(raw: dict[str, object]) -> None:
    raw.update(spec={"providerID": "fake://1"}, status={})


@pytest.mark.parametrize(
    ("tweaks", "expected"),
    [
        # Readiness is no predicate: upstream defines one that only its tests use.
        pytest.param([bare], True, id="SN16-empty"),
        pytest.param([ready("True")], True, id="SN16-ready"),
        pytest.param([ready("True"), NO_PROVIDER_ID], False, id="SN16-no-provider-id"),
        pytest.param([NOT_READY], True, id="SN16-not-ready"),
        pytest.param([EXCLUDED], False, id="SN17-empty"),
        pytest.param([labelled({EXCLUDE_LABEL: "false"})], True, id="SN17-false"),
        pytest.param([labelled({EXCLUDE_LABEL: "0"})], True, id="zero"),
        pytest.param([labelled({EXCLUDE_LABEL: "no"})], False, id="not-a-boolean"),
        pytest.param([labelled({EXCLUDE_LABEL: "true"})], False, id="true"),
        pytest.param([TO_BE_DELETED], False, id="SN18-autoscaler"),
        pytest.param([with_taint("other")], True, id="other-taint"),
        pytest.param([being_deleted], False, id="being-deleted"),
        pytest.param([with_provider_id("other://1")], False, id="of-another-cloud"),
    ],
)
def test_who_may_be_a_backend(tweaks: list[Tweak], expected: bool) -> None:
    assert may_be_backend(node("n1", *tweaks), PROVIDER_IDS) is expected


# --- what of a Service is relevant


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
    assert relevant_spec(service(*before)) != relevant_spec(service(*after))


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
        pytest.param([], [annotated({LAST_APPLIED_ANNOTATION: "{}"})], id="kubectl-apply"),
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
    assert relevant_spec(service(*before)) == relevant_spec(service(*after))


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
    ways = (
        Ingress(ip="192.0.2.1", ip_mode=IpMode.PROXY),
        Ingress(ip="192.0.2.2"),
        Ingress(hostname="lb.example", ip_mode=IpMode.VIP),
    )
    assert ingress_of(Balancer("web", ways)) == [
        {"ip": "192.0.2.1", "ipMode": "Proxy"},
        {"ip": "192.0.2.2"},
        {"hostname": "lb.example"},
    ]


# --- what is written


INGRESS: list[Json] = [{"ip": "192.0.2.1"}]


def after(write: ServiceWrite, found: Service | None = None) -> Service:
    return Service(patched((found or write.service).raw, patch_for(write).operations))


@pytest.mark.parametrize("others", [[], ["foo"], ["foo", "bar"]])
def test_finalizers_of_others_stay(others: list[str]) -> None:
    before = service(*map(with_finalizer, others))
    added = after(AddFinalizer(before))
    assert added.finalizers == [*others, FINALIZER]
    assert after(RemoveFinalizer(added)).finalizers == others


@pytest.mark.parametrize("theirs", UPSTREAM_FINALIZERS)
def test_finalizers_of_upstreams_provider_go_with_ours(theirs: str) -> None:
    before = service(with_finalizer(FINALIZER), with_finalizer(theirs), with_finalizer("foo"))
    assert after(RemoveFinalizer(before)).finalizers == ["foo"]


@pytest.mark.parametrize("ingress", [INGRESS, []])
@pytest.mark.parametrize("tweaks", [[], [with_status("198.51.100.1")]])
def test_a_status_is_replaced_or_cleared(tweaks: list[Tweak], ingress: list[Json]) -> None:
    write = SetStatus(service(*tweaks), ingress)
    assert patch_for(write).path.endswith("/services/web/status")
    assert after(write).ingress == ingress


@pytest.mark.parametrize("before", [{}, {"team": "blue"}, {"cloud.example/address": "?"}])
def test_annotations_for_others_are_written_with_the_status(before: dict[str, str]) -> None:
    written = {"cloud.example/address": "192.0.2.1"}
    found = after(SetStatus(service(annotated(before)), [{"hostname": "shop.example"}], written))
    assert found.ingress == [{"hostname": "shop.example"}]
    assert found.annotations == before | written


@pytest.mark.parametrize(
    ("seen", "meanwhile", "write"),
    [
        ([], [with_uid("another")], AddFinalizer),
        ([], [with_finalizer("theirs")], AddFinalizer),
        ([with_finalizer("theirs")], [], AddFinalizer),
        ([finalized], [finalized, with_finalizer("theirs")], RemoveFinalizer),
        ([finalized], [], RemoveFinalizer),
        pytest.param(
            [typed("ClusterIP"), finalized], [finalized], RemoveFinalizer, id="typed-back"
        ),
        ([], [with_status("198.51.100.1")], SetStatus),
        ([with_status("198.51.100.1")], [], SetStatus),
        ([], [with_uid("another")], SetStatus),
    ],
)
def test_a_write_planned_against_another_state_is_refused(
    seen: list[Tweak], meanwhile: list[Tweak], write: type[ServiceWrite]
) -> None:
    planned = SetStatus(service(*seen), INGRESS) if write is SetStatus else write(service(*seen))  # type: ignore[call-arg]
    with pytest.raises(KubernetesError) as refusal:
        after(planned, service(*meanwhile))
    assert refusal.value.status == 422
