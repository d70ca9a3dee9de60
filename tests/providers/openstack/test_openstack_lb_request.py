"""What Services ask of Octavia: names, annotations with upstream's meaning, and what is refused."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from ccm.cloud.testkit.harness import port, service
from ccm.cloud.testkit.test_untrusted import CPU_SECONDS
from ccm.errors import Refused
from ccm.model.service import Service
from ccm.providers.openstack.config import BalancerClass, BalancerSection
from ccm.providers.openstack.ids import Cluster
from ccm.providers.openstack.lb.annotations import INTERNAL, PREFIX, PRIVILEGED
from ccm.providers.openstack.lb.load_balancers import SELECTOR_READ, OctaviaLoadBalancers
from ccm.providers.openstack.lb.names import Names, Role
from ccm.providers.openstack.lb.octavia import check_not_others
from ccm.providers.openstack.lb.plan import creation
from ccm.providers.openstack.lb.request import LoadBalancerRequest, Member, read_request

CLUSTER = Cluster("kubernetes")
UUID = "0c53e86e-091b-4dae-867f-6071db6564ff"
LOCAL: dict[str, Any] = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
REF = f"https://barbican/v1/containers/{UUID}"


def request_of(
    asked: Service, config: BalancerSection | None = None, **classes: BalancerClass
) -> LoadBalancerRequest:
    return read_request(asked, config or BalancerSection(), classes, CLUSTER)


def annotated(annotations: Mapping[str, str], **spec: Any) -> Service:
    return service("web", {PREFIX + key: value for key, value in annotations.items()}, **spec)


def listeners(asked: Service, config: BalancerSection | None = None) -> list[Any]:
    request = request_of(asked, config)
    member = frozenset({Member("node-1", "10.0.0.5", 30080)})
    return list(request.listeners({port.node_port: member for _, port in request.ports}))


def test_names_are_upstreams_and_marks_are_of_the_service() -> None:
    names = Names("kubernetes", "default", "web", UUID)
    assert names.balancer == "kube_service_kubernetes_default_web"
    assert names.child("pool", 1) == "pool_1_kube_service_kubernetes_default_web"
    assert names.security_group == f"lb-sg-{UUID}-default-web"
    assert names.floating_ip == (
        f"Floating IP for Kubernetes external service default/web from cluster kubernetes ({UUID})"
    )
    assert names.tags(Role.OWNER)[1:] == [
        f"kubernetes-service-uid={UUID}",
        "kubernetes-cluster=kubernetes",
    ]


@pytest.mark.parametrize(
    ("uid", "tags", "is_other", "is_left"),
    [
        ("one", ["kubernetes-cluster-uid=one"], False, True),
        ("one", ["kubernetes-cluster-uid=two"], True, False),
        ("one", [], False, True),
        ("", ["kubernetes-cluster-uid=two"], False, False),
        ("", [], False, True),
        ("one", ["kubernetes-service-uid=gone"], False, False),
    ],
)
def test_of_two_clusters_with_one_name_the_uid_tells_whose_it_is(
    uid: str, tags: list[str], is_other: bool, is_left: bool
) -> None:
    names = Names.of(service(), Cluster("kubernetes", uid))
    record = {"id": "lb", "tags": ["kubernetes-cluster=kubernetes", *tags]}
    assert names.is_of_another_cluster(record) == is_other
    assert names.is_left_behind(record) == is_left
    if is_other or is_left:
        check_not_others(names, [record])
    else:
        with pytest.raises(Refused, match="no mark of this Service"):
            check_not_others(names, [record])


def test_long_names_are_cut_and_still_marked() -> None:
    """OS77."""
    names = Names("c" * 250, "default", "web", UUID)
    texts = [names.balancer, names.child("listener", 0), names.floating_ip, names.description]
    assert {len(text) for text in texts} == {255}
    assert names.is_marked({"description": names.floating_ip})


def test_a_whole_load_balancer_is_one_request() -> None:
    asked = service(ports=[port(80), port(53, "UDP", 30053)])
    call = creation(Names.of(asked, CLUSTER), listeners(asked), {"vip_subnet_id": "s"}, True)
    assert call.body
    made = call.body["loadbalancer"]
    assert made["description"] == "Kubernetes external service default/web from cluster kubernetes"
    web, dns = made["listeners"]
    assert web == {
        "name": "listener_0_kube_service_kubernetes_default_web",
        "protocol": "TCP",
        "protocol_port": 80,
        "tags": [made["name"], f"kubernetes-service-uid={asked.uid}"],
        "connection_limit": -1,
        "timeout_client_data": 50000,
        "timeout_member_connect": 5000,
        "timeout_member_data": 50000,
        "timeout_tcp_inspect": 0,
        "allowed_cidrs": ["0.0.0.0/0"],
        "default_pool": {
            "name": "pool_0_kube_service_kubernetes_default_web",
            "protocol": "TCP",
            "lb_algorithm": "ROUND_ROBIN",
            "members": [{"name": "node-1", "address": "10.0.0.5", "protocol_port": 30080}],
        },
    }
    assert dns["default_pool"]["protocol"] == "UDP"


@pytest.mark.parametrize(
    ("annotations", "protocols"),
    [
        ({}, ("TCP", "TCP")),
        ({"proxy-protocol": "true"}, ("TCP", "PROXY")),
        ({"proxy-protocol": "v2"}, ("TCP", "PROXYV2")),
        ({"x-forwarded-for": "true"}, ("HTTP", "HTTP")),
        ({"default-tls-container-ref": REF}, ("TERMINATED_HTTPS", "HTTP")),
        (
            {"default-tls-container-ref": REF, "proxy-protocol": "v1"},
            ("TERMINATED_HTTPS", "PROXY"),
        ),
    ],
)
def test_annotations_decide_the_protocols(
    annotations: Mapping[str, str], protocols: tuple[str, str]
) -> None:
    """OS35."""
    web, dns = listeners(annotated(annotations, ports=[port(80), port(53, "UDP", 30053)]))
    assert (web.protocol, web.pool.protocol) == protocols
    assert (dns.protocol, dns.pool.protocol) == ("UDP", "UDP")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (service(ports=[]), "no ports"),
        (service(ports=[port(80, "DCCP")]), "DCCP"),
        (annotated({"class": "gold"}), "gold"),
        (annotated({"proxy-protocol": "v1", "x-forwarded-for": "true"}), "exclude"),
        (annotated({"subnet-id": "../servers"}), "give an ID"),
        (annotated({"load-balancer-id": "a/b"}), "give an ID"),
        (annotated({"default-tls-container-ref": "secret"}), "Barbican"),
        (service(loadBalancerSourceRanges=["fd00::/8"]), "IPv4"),
    ],
)
def test_what_nothing_can_be_made_of_is_refused(asked: Service, why: str) -> None:
    """OS36, OS55, OS56, OS66."""
    with pytest.raises(Refused, match=why):
        request_of(asked)


@pytest.mark.parametrize(
    ("asked", "warning"),
    [
        (annotated({"connection-limit": "many"}), "connection-limit"),
        (annotated({"lb-method": "FASTEST"}), "FASTEST"),
        (annotated({"x-forwarded-for": "yes"}), "yes"),
        (annotated({"timeout-client-data": "-1"}), "timeout-client-data"),
        (annotated({"made-up": "1"}), "made-up"),
        (annotated({"enable-health-monitor": "false"}, **LOCAL), "enable-health-monitor"),
        (annotated({"proxy-protocol": "v1"}, ports=[port(53, "UDP")]), "not TCP"),
        (service("web", {INTERNAL: "yes"}), INTERNAL),
        (service(loadBalancerSourceRanges=["10.0.0.0/8", "fd00::/8"]), "fd00::/8"),
        (service(ports=[port(80), {"port": 81, "protocol": "TCP"}]), "81"),
        (annotated({"health-monitor-timeout": "9"}, **LOCAL), "not less than its delay"),
    ],
)
def test_what_has_no_effect_is_reported(asked: Service, warning: str) -> None:
    """OS52, OS56, OS57, OS110."""
    reported = request_of(asked).annotations.warnings
    assert len(reported) == 1
    assert warning in reported[0]


@pytest.mark.parametrize(
    ("asked", "config", "expected"),
    [
        (service(), BalancerSection(), None),
        (service(), BalancerSection(create_monitor=True), ("TCP", 0)),
        (
            service(ports=[port(53, "UDP")]),
            BalancerSection(create_monitor=True),
            ("UDP-CONNECT", 0),
        ),
        (annotated({"enable-health-monitor": "true"}), BalancerSection(), ("TCP", 0)),
        (service(**LOCAL), BalancerSection(), ("HTTP", 32000)),
        (service(**LOCAL), BalancerSection(lb_provider="ovn"), ("TCP", 0)),
    ],
)
def test_monitors_are_made_where_traffic_would_be_lost_without(
    asked: Service, config: BalancerSection, expected: tuple[str, int] | None
) -> None:
    """OS50, OS103."""
    request = request_of(asked, config)
    (listener,) = listeners(asked, config)
    check = request.health_check
    found = listener.pool.monitor
    check_port = check.port if check and request.has_node_check else 0
    assert (found and (found.type, check_port)) == expected


CLASS = BalancerClass(subnet_id="of-class", floating_subnet="gold*")


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, ("configured", "configured", "floating-id", "")),
        ({"subnet-id": "mine"}, ("mine", "configured", "floating-id", "")),
        ({"class": "gold"}, ("of-class", "configured", "", "gold*")),
        ({"member-subnet-id": "m"}, ("configured", "m", "floating-id", "")),
        ({"floating-subnet": "x"}, ("configured", "configured", "", "x")),
    ],
)
def test_the_place_is_of_the_class_the_annotations_or_the_configuration(
    annotations: Mapping[str, str], expected: tuple[str, str, str, str]
) -> None:
    config = BalancerSection(subnet_id="configured", floating_subnet_id="floating-id")
    place = request_of(annotated(annotations), config, gold=CLASS).place
    found = place.subnet_id, place.member_subnet_id
    assert (*found, place.floating_subnet_id, place.floating_subnet) == expected


def test_an_empty_annotation_stands_against_the_configuration() -> None:
    config = BalancerSection(floating_network_id="configured")
    asked = annotated({"floating-network-id": ""})
    assert request_of(asked, config).place.floating_network_id == ""


def test_annotations_that_name_things_in_the_cloud_may_be_restricted() -> None:
    named = {name for name in PRIVILEGED if name.endswith("-id")}
    assert named == {
        "subnet-id", "network-id", "member-subnet-id", "port-id",
        "floating-network-id", "floating-subnet-id", "flavor-id",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("annotations", "config", "expected"),
    [
        ({}, BalancerSection(), [("203.0.113.9", "", "VIP")]),
        ({"hostname": "a.example"}, BalancerSection(), [("", "a.example", None)]),
        ({"proxy-protocol": "v1"}, BalancerSection(), [("203.0.113.9", "", "Proxy")]),
        (
            {"proxy-protocol": "v1"},
            BalancerSection(enable_ingress_hostname=True),
            [("", "203.0.113.9.nip.io", None)],
        ),
    ],
)
def test_the_status_says_how_the_load_balancer_is_reached(
    annotations: Mapping[str, str], config: BalancerSection, expected: list[object]
) -> None:
    found = request_of(annotated(annotations), config).ingress(["203.0.113.9"])
    assert [(one.ip, one.hostname, one.ip_mode) for one in found] == expected


def test_labels_without_number_cost_no_time() -> None:
    """Each start, and each new leader, reads those of all Services before anything is done."""
    nothing: Any = None
    balancers = OctaviaLoadBalancers(nothing, BalancerSection(), {}, CLUSTER)
    endless = annotated({"node-selector": "pool=web," + ",".join(map(str, range(40_000)))})
    began = time.process_time()
    for _ in range(100):
        labels = balancers.selector_labels(endless)
        assert "pool" in labels
        assert len(labels) < SELECTOR_READ
    assert time.process_time() - began < CPU_SECONDS
