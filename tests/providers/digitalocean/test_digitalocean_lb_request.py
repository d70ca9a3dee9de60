"""What Services ask for: upstream's annotations, its defaults, and what is refused."""

from typing import Any

import pytest

from ccm.cloud.testkit.harness import port, service
from ccm.errors import Refused
from ccm.model.cloud import Ingress, IpMode
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.digitalocean.config import NETWORK, REGIONAL
from ccm.providers.digitalocean.lb.annotations import PREFIX, is_disowned
from ccm.providers.digitalocean.lb.request import LoadBalancerRequest, read_request

WEB = [port(80, node_port=30080), port(443, node_port=30443)]
CERTIFICATE = "892071a0-bb95-49bc-8021-3afd67a210bf"
LOCAL: Json = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}


def asked(annotations: dict[str, str] | None = None, **spec: Any) -> Service:
    named = {PREFIX + name: value for name, value in (annotations or {}).items()}
    return service("web", named, **{"ports": WEB, **spec})


def read(
    annotations: dict[str, str] | None = None,
    default: str = REGIONAL,
    certificate: str = "",
    **spec: Any,
) -> LoadBalancerRequest:
    return read_request(asked(annotations, **spec), default, "", certificate)


def rules(request: LoadBalancerRequest) -> list[tuple[str, int, str, int]]:
    keys = ("entry_protocol", "entry_port", "target_protocol", "target_port")
    found: list[Json] = request.settings["forwarding_rules"]
    return [tuple(rule[key] for key in keys) for rule in found]


def test_by_default_packets_pass_through_to_the_services_own_port() -> None:
    """DO19."""
    request = read(default=NETWORK)
    assert rules(request) == [("tcp", 80, "tcp", 80), ("tcp", 443, "tcp", 443)]
    assert request.settings["health_check"] == {
        "protocol": "http",
        "port": 10256,
        "path": "/healthz",
        "proxy_protocol": False,
        "check_interval_seconds": 3,
        "response_timeout_seconds": 5,
        "unhealthy_threshold": 3,
        "healthy_threshold": 5,
    }
    assert "sticky_sessions" not in request.settings


def test_a_network_load_balancer_needs_no_node_ports() -> None:
    bare = [{key: value for key, value in one.items() if key != "nodePort"} for one in WEB]
    assert rules(read(default=NETWORK, ports=bare))[0] == ("tcp", 80, "tcp", 80)
    with pytest.raises(Refused, match="no node port"):
        read(ports=bare)


@pytest.mark.parametrize(
    ("annotations", "certificate", "wanted"),
    [
        ({}, "", [("tcp", "tcp"), ("tcp", "tcp")]),
        ({"protocol": "http"}, "", [("http", "http"), ("http", "http")]),
        ({"http-ports": "80"}, "", [("http", "http"), ("tcp", "tcp")]),
        ({}, CERTIFICATE, [("tcp", "tcp"), ("https", "http")]),
        ({"protocol": "http"}, CERTIFICATE, [("http", "http"), ("https", "http")]),
        ({"tls-ports": "80,443"}, CERTIFICATE, [("https", "http"), ("https", "http")]),
        ({"http2-ports": "443"}, CERTIFICATE, [("tcp", "tcp"), ("http2", "http")]),
        ({"tls-passthrough": "true"}, "", [("tcp", "tcp"), ("https", "https")]),
        (
            {"tls-passthrough": "1", "http2-ports": "443"},
            "",
            [("tcp", "tcp"), ("http2", "http2")],
        ),
        (
            {"http3-port": "443"},
            CERTIFICATE,
            [("tcp", "tcp"), ("https", "http"), ("http3", "http")],
        ),
        (
            {"protocol": "http3", "http-ports": "80"},
            CERTIFICATE,
            [("http", "http"), ("https", "http"), ("http3", "http")],
        ),
        (
            {"protocol": "http3", "http-ports": "80", "http2-ports": "443"},
            CERTIFICATE,
            [("http", "http"), ("http2", "http"), ("http3", "http")],
        ),
    ],
)
def test_protocols_of_a_regional_one(
    annotations: dict[str, str], certificate: str, wanted: list[tuple[str, str]]
) -> None:
    """DO28: the targets are node ports."""
    request = read(annotations, certificate=certificate)
    assert [(entry, target) for entry, _, target, _ in rules(request)] == wanted
    assert {to for _, _, _, to in rules(request)} == {30080, 30443}
    for rule in request.settings["forwarding_rules"]:
        is_secured = rule["entry_protocol"] in ("https", "http2", "http3")
        assert (rule.get("certificate_id") == CERTIFICATE) is (is_secured and bool(certificate))


REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("DO29", {"tls-passthrough": "true"}, "has both"),
    ("DO30", {"tls-ports": "80,443", "http-ports": "80"}, "share 80"),
    ("DO34", {"healthcheck-healthy-threshold": "1"}, "give 2 to 10"),
    ("DO34", {"healthcheck-check-interval-seconds": "1"}, "give 3 to 300"),
    ("DO34", {"size-unit": "9" * 5000}, "give 1 to 100"),
    ("DO34", {"http-ports": "9" * 5000}, "give numbers of ports"),
    (
        "DO34",
        {
            "sticky-sessions-type": "cookies",
            "sticky-sessions-cookie-name": "x",
            "sticky-sessions-cookie-ttl": "0",
        },
        "give 1 to",
    ),
    ("DO34", {"sticky-sessions-type": "cookies"}, "name and ttl"),
    ("DO35", {"size-slug": "lb-small", "size-unit": "2"}, "exclude each other"),
    ("DO35", {"size-unit": "101"}, "give 1 to 100"),
    ("DO38", {"network": "INTERNAL", "network-stack": "DUALSTACK"}, "IPv4 only"),
    ("DO52", {"redirect-http-to-https": "yes"}, "give true or false"),
    ("type", {"type": "GLOBAL"}, "use REGIONAL, REGIONAL_NETWORK"),
    ("protocol", {"protocol": "quic"}, "use tcp, http, https, http2, http3"),
    ("protocol", {"protocol": "http3"}, "port 80 is https: .* has neither"),
    ("protocol", {"protocol": "http3", "tls-passthrough": "1"}, "without tls-passthrough"),
    ("ports", {"http-ports": "http"}, "give numbers of ports"),
    ("idle", {"http-idle-timeout-seconds": "10"}, "give 30 to 600"),
    ("rules", {"deny-rules": "192.0.2.1"}, "give ip:ADDRESS or cidr:NETWORK"),
    ("name", {"name": "-web"}, "give up to 255"),
    ("subnet", {"subnet-uuid": "mine"}, "not a UUID"),
    ("http3", {"http3-port": "443", "tls-passthrough": "true"}, "without tls-passthrough"),
]


@pytest.mark.parametrize(("row", "annotations", "words"), REFUSED)
def test_what_makes_no_sense_is_refused(row: str, annotations: dict[str, str], words: str) -> None:
    """DO29, DO30, DO34, DO35, DO38, DO52: before any call."""
    certificate = CERTIFICATE if row in ("DO29", "DO30") else ""
    if row == "http3":
        annotations = annotations | {"tls-ports": "80"}
    with pytest.raises(Refused, match=words):
        read(annotations, certificate=certificate)


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_booleans_are_gos(value: str) -> None:
    """DO52."""
    assert read({"enable-proxy-protocol": value}).settings["enable_proxy_protocol"] is True


def test_a_port_of_tls_without_a_certificate_is_refused() -> None:
    with pytest.raises(Refused, match=r"port 443 is https: .* has neither"):
        read({"tls-ports": "443"})


def test_a_health_check_of_ones_own_has_to_be_asked_for() -> None:
    """DO32."""
    own = {"healthcheck-port": "443", "healthcheck-path": "/up", "healthcheck-protocol": "https"}
    request = read(own)
    assert request.settings["health_check"]["port"] == 10256
    assert len([one for one in request.annotations.warnings if "override" in one]) == 3
    check = read({**own, "override-health-check": ""}).settings["health_check"]
    assert (check["protocol"], check["port"], check["path"]) == ("https", 30443, "/up")
    assert "proxy_protocol" not in check
    check = read({"override-health-check": "true"}).settings["health_check"]
    assert (check["protocol"], check["port"], check.get("path")) == ("tcp", 30080, None)
    by_http = {"override-health-check": "", "healthcheck-protocol": "http"}
    assert read(by_http).settings["health_check"]["path"] == "/", "what the API makes of none"


def test_with_a_local_policy_each_node_is_asked_for_endpoints() -> None:
    """DO33."""
    check = read(default=NETWORK, **LOCAL).settings["health_check"]
    assert (check["port"], check["path"]) == (32000, "/healthz")


@pytest.mark.parametrize(
    ("spec", "annotations", "allow"),
    [
        ({}, {}, []),
        (
            {},
            {"allow-rules": "ip:192.0.2.1, cidr:198.51.100.0/24"},
            ["cidr:198.51.100.0/24", "ip:192.0.2.1"],
        ),
        (
            {"loadBalancerSourceRanges": ["203.0.113.7/24"]},
            {"allow-rules": "ip:192.0.2.1"},
            ["cidr:203.0.113.0/24"],
        ),
        ({"loadBalancerSourceRanges": ["0.0.0.0/0"]}, {}, ["cidr:0.0.0.0/0"]),
    ],
)
def test_source_ranges_win_over_rules(
    spec: Json, annotations: dict[str, str], allow: list[str]
) -> None:
    """DO37."""
    request = read({**annotations, "deny-rules": "ip:192.0.2.9"}, **spec)
    assert request.settings["firewall"] == {"allow": allow, "deny": ["ip:192.0.2.9"]}
    is_ignored = bool(spec) and bool(annotations)
    assert (
        any("allow-rules is ignored" in one for one in request.annotations.warnings) is is_ignored
    )


def test_the_status_has_the_host_name_alone_or_both_addresses() -> None:
    """DO44."""
    record = {"ip": "203.0.113.1", "ipv6": "2604:a880::1"}
    assert read().ingress(record) == (Ingress("203.0.113.1"), Ingress("2604:a880::1"))
    assert read().ingress(record | {"ipv6": ""}) == (Ingress("203.0.113.1"),)
    named = read({"hostname": "Web.Example.com"})
    assert named.ingress(record) == (Ingress(hostname="web.example.com"),)
    proxied = read({"enable-proxy-protocol": "true"})
    assert proxied.ingress(record)[0] == Ingress("203.0.113.1", ip_mode=IpMode.PROXY)


@pytest.mark.parametrize("kind", [REGIONAL, NETWORK])
def test_udp_and_tcp_go_together(kind: str) -> None:
    """DO45: one's own health check needs a TCP port."""
    both = [port(53, "UDP", 30053), port(53, "TCP", 30053)]
    to = 53 if kind == NETWORK else 30053
    assert rules(read(default=kind, ports=both)) == [("udp", 53, "udp", to), ("tcp", 53, "tcp", to)]
    with pytest.raises(Refused, match="a port of protocol TCP"):
        read({"override-health-check": ""}, kind, ports=both[:1])
    with pytest.raises(Refused, match="port 54 of protocol TCP"):
        read({"override-health-check": "", "healthcheck-port": "54"}, kind, ports=both)


@pytest.mark.parametrize("kind", [REGIONAL, NETWORK])
def test_sctp_is_refused(kind: str) -> None:
    """DO46."""
    with pytest.raises(Refused, match="port 80 is SCTP"):
        read(default=kind, ports=[port(80, "SCTP")])


def test_what_has_no_effect_is_reported() -> None:
    request = read(
        {"algorithm": "round_robin", "sticky-sessions-type": "cookies", "colour": "red"}, NETWORK
    )
    reported = "\n".join(request.annotations.warnings)
    assert "algorithm is ignored" in reported
    assert "sticky-sessions-type is ignored: it means nothing to type REGIONAL_NETWORK" in reported
    assert "colour is ignored: it is not known" in reported


def test_disowning_is_a_boolean() -> None:
    """DO47."""
    key = "service.kubernetes.io/do-loadbalancer-disown"
    assert is_disowned(service("web", {key: "true"}))
    assert not is_disowned(service("web", {key: "0"}))
    with pytest.raises(Refused):
        is_disowned(service("web", {key: "please"}))
