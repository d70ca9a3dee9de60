"""What annotations mean, value by value: as to upstream's controller, without any cloud."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from ccm.cloud.testkit.harness import port, service
from ccm.cloud.testkit.test_untrusted import CPU_SECONDS
from ccm.errors import ImplementedElsewhere, Refused
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.aws.config import SharedProbe
from ccm.providers.aws.elb.annotations import (
    BOOLEANS,
    CLASSIC,
    MOST_PAIRS,
    MOST_TEXT,
    NLB,
    PREFIX,
    SUPPORTED_ANNOTATIONS,
    Annotations,
    load_balancer_type,
)
from ccm.providers.aws.elb.classic_desired import ClassicElb, desired_classic_elb
from ccm.providers.aws.elb.load_balancers import AwsLoadBalancers
from ccm.providers.aws.elb.nlb_desired import DesiredNlb, desired_nlb
from ccm.providers.aws.elb.request import read_request, target_instances
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import ClusterTag

SUBNETS = [Subnet("subnet-a", "a", "10.0.0.0/24", {}, True)]
PORTS = [port(80), port(443, node_port=30443)]


def classic(
    asked: Mapping[str, str], probe: SharedProbe | None = None, **spec: Any
) -> tuple[ClassicElb, Mapping[str, str]]:
    """What a Service with these annotations gets, and why some of them have no effect."""
    one = service("web", {PREFIX + k: v for k, v in asked.items()}, **{"ports": PORTS, **spec})
    request = read_request(one, CLASSIC, ClusterTag("kit"))
    elb = desired_classic_elb(request, SUBNETS, ["sg-1"], (), probe)
    return elb, request.annotations.ignored


def network(
    asked: Mapping[str, str], probe: SharedProbe | None = None, **spec: Any
) -> tuple[DesiredNlb, Mapping[str, str]]:
    """As `classic`, for an NLB."""
    one = service("web", {PREFIX + k: v for k, v in asked.items()}, **{"ports": PORTS, **spec})
    request = read_request(one, NLB, ClusterTag("kit"))
    return desired_nlb(request, SUBNETS, (), "kit", probe), request.annotations.ignored


IGNORED: list[tuple[str, dict[str, str], list[str]]] = [
    ("both", {"no-such": "x"}, ["no-such"]),
    ("both", {"nlb-target-type": "ip", "name": "x"}, ["name", "nlb-target-type"]),
    ("both", {"internal": "", "ssl-cert": " "}, ["internal", "ssl-cert"]),
    ("both", {"healthcheck-path": "/x"}, ["healthcheck-path"]),
    ("both", {"scheme": "private"}, ["scheme"]),
    ("both", {"scheme": "internal", "internal": "false"}, ["scheme"]),
    ("both", {"scheme": "internal", "internal": "true"}, []),
    ("both", {"additional-resource-tags": "=x,a=1"}, ["additional-resource-tags"]),
    ("both", {"additional-resource-tags": "a=b=c"}, ["additional-resource-tags"]),
    ("both", {"additional-resource-tags": "a=b=,c,d="}, []),
    ("both", {"ssl-cert": "arn:1", "ssl-ports": "443, 80"}, ["ssl-ports"]),
    ("both", {"ssl-cert": "arn:1", "ssl-ports": f"443,{'9' * 5000}"}, ["ssl-ports"]),
    (CLASSIC, {"type": "alb"}, ["type"]),
    (CLASSIC, {"type": "elb"}, []),
    (CLASSIC, {"eip-allocations": "eip-1"}, ["eip-allocations"]),
    (CLASSIC, {"private-ipv4-addresses": "10.0.0.1"}, ["private-ipv4-addresses"]),
    (CLASSIC, {"alpn-policy": "None"}, ["alpn-policy"]),
    (CLASSIC, {"backend-protocol": "grpc"}, ["backend-protocol"]),
    (CLASSIC, {"target-group-attributes": ""}, ["target-group-attributes"]),
    (NLB, {"proxy-protocol": "*"}, ["proxy-protocol"]),
    (NLB, {"proxy-protocol": "80"}, ["proxy-protocol"]),
    (NLB, {"connection-idle-timeout": "soon"}, ["connection-idle-timeout"]),
    (NLB, {"backend-protocol": "http"}, ["backend-protocol"]),
    (NLB, {"ssl-cert": "arn:1", "alpn-policy": "h3"}, ["alpn-policy"]),
]


@pytest.mark.parametrize(("kind", "asked", "names"), IGNORED)
def test_what_upstream_ignores_is_ignored_and_reported(
    kind: str, asked: dict[str, str], names: list[str]
) -> None:
    for name, read in ((CLASSIC, classic), (NLB, network)):
        if kind in ("both", name):
            assert sorted(read(asked)[1]) == names


REFUSED: list[tuple[str, dict[str, str], str]] = [
    (CLASSIC, {"target-group-attributes": "a=1"}, "not for a load balancer of type classic"),
    (CLASSIC, {"proxy-protocol": "80"}, r"give \*"),
    (CLASSIC, {"ssl-cert": "arn:1", "backend-protocol": "HTTP"}, "give https, http, ssl or tcp"),
    (CLASSIC, {"connection-draining-timeout": "soon"}, "a number from 1 to 3600"),
    (CLASSIC, {"access-log-emit-interval": "soon"}, "a number from 5 to 60"),
    (NLB, {"extra-security-groups": "sg-1"}, "not for a load balancer of type nlb"),
    (NLB, {"healthcheck-protocol": "SSL"}, "one of TCP, HTTP, HTTPS"),
    (NLB, {"target-group-attributes": "x=1"}, "it without x"),
    (NLB, {"target-group-attributes": "proxy_protocol_v2.enabled=True"}, "as true|false"),
    (NLB, {"target-group-attributes": "proxy_protocol_v2.enabled"}, "as true|false"),
    (NLB, {"eip-allocations": "eip-1,eip-2"}, "1, one for each of a"),
    (NLB, {"private-ipv4-addresses": "10.0.0.1,10.0.0.2"}, "1, one for each of a"),
    ("both", {"healthcheck-interval": "4"}, "a number from 5"),
    ("both", {"healthcheck-interval": "٣٠"}, "a number from 5"),
    ("both", {"healthcheck-interval": "9" * 5000}, "a number from 5"),
    ("both", {"healthcheck-port": "9" * 5000}, "a port or traffic-port"),
    ("both", {"healthcheck-port": "٣٠"}, "a port or traffic-port"),
    ("both", {"access-log-enabled": "yes"}, "give true or false"),
]


@pytest.mark.parametrize(("kind", "asked", "reported"), REFUSED)
def test_what_upstream_rejects_is_refused(kind: str, asked: dict[str, str], reported: str) -> None:
    for name, read in ((CLASSIC, classic), (NLB, network)):
        if kind in ("both", name):
            with pytest.raises(Refused, match=reported):
                read(asked)


def test_clients_of_udp_ports_cannot_be_hidden() -> None:
    asked = {"target-group-attributes": "preserve_client_ip.enabled=false"}
    with pytest.raises(Refused, match="UDP needs it"):
        network(asked, ports=[port(53, "UDP")])


@pytest.mark.parametrize(
    "name", ["cross-zone-load-balancing-enabled", "connection-draining-enabled"]
)
@pytest.mark.parametrize("value", BOOLEANS)
def test_booleans_are_gos(name: str, value: str) -> None:
    elb, _ = classic({name: value})
    section = {"cross": "CrossZoneLoadBalancing", "conne": "ConnectionDraining"}[name[:5]]
    assert elb.attributes[section]["Enabled"] is (value.lower() in ("1", "t", "true"))


@pytest.mark.parametrize(
    ("value", "is_internal"),
    [("true", True), ("0.0.0.0/0", True), ("False", True), ("0", True), ("false", False)],
)
def test_internal_is_anything_but_false(value: str, is_internal: bool) -> None:
    assert classic({"internal": value})[0].is_internal is is_internal
    assert network({"internal": value, "scheme": "internal"})[0].nlb.is_internal is is_internal


TYPES = [
    ("nlb", NLB),
    ("classic", CLASSIC),
    ("elb", CLASSIC),
    ("clb", CLASSIC),
    ("alb", CLASSIC),
    ("NLB", CLASSIC),
    ("", NLB),
]


@pytest.mark.parametrize(("value", "elb_type"), TYPES)
def test_every_type_that_is_not_known_is_classic(value: str, elb_type: str) -> None:
    """Only where none is given the configured one counts."""
    assert load_balancer_type(service("web", {PREFIX + "type": value}), NLB) == elb_type


@pytest.mark.parametrize("value", ["external", "nlb-ip"])
def test_the_other_controllers_types_are_left_to_it(value: str) -> None:
    with pytest.raises(ImplementedElsewhere):
        load_balancer_type(service("web", {PREFIX + "type": value}), NLB)


@pytest.mark.parametrize(
    ("ports", "tls"),
    [
        ("", {80, 443}),
        ("*", {80, 443}),
        ("443", {443}),
        ("https", {443}),
        ("https,80", {80, 443}),
        ("443, 80", {443}),
        ("443,*", {443}),
        ("8443", set()),
    ],
)
def test_ports_with_a_certificate_are_those_that_upstream_finds(ports: str, tls: set[int]) -> None:
    named = [{**port(80), "name": "http"}, {**port(443, node_port=30443), "name": "https"}]
    asked = {"ssl-cert": "arn:1", "ssl-ports": ports}
    elb, _ = classic(asked, ports=named)
    nlb, _ = network(asked, ports=named)
    assert {one.port for one in elb.listeners.values() if one.certificate} == tls
    assert {one.port for one in nlb.listeners.values() if one.protocol == "TLS"} == tls


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ("", "abc"),
        ("pool=web", "a"),
        ("pool", "ab"),
        ("pool=", "ab"),
        ("pool,x", "b"),
        ("pool=web,x=1", ""),
        ("=web", "abc"),
    ],
)
def test_a_label_without_a_value_is_any_value(labels: str, names: str) -> None:
    given = {"a": {"pool": "web"}, "b": {"pool": "db", "x": "1"}, "c": {"y": ""}}
    nodes = [
        Node(
            {
                "metadata": {"name": name, "labels": own},
                "spec": {"providerID": f"aws:///a/i-0000000{name}"},
            }
        )
        for name, own in given.items()
    ]
    read = Annotations({"target-node-labels": labels})
    assert target_instances(read, nodes) == {f"i-0000000{name}" for name in names}


@pytest.mark.parametrize(
    ("given", "tags"),
    [("a=b=c", {"a": "b"}), ("a=b=,c,d=", {"a": "b", "c": "", "d": ""}), ("a==b", {"a": ""})],
)
def test_a_value_ends_at_the_second_equals_sign(given: str, tags: dict[str, str]) -> None:
    nlb, _ = network({"additional-resource-tags": given})
    assert tags.items() <= nlb.nlb.tags.items()


@pytest.mark.parametrize(
    "name",
    ["additional-resource-tags", "attributes", "target-group-attributes", "target-node-labels"],
)
def test_more_pairs_than_count_are_refused(name: str) -> None:
    pairs = [f"k{number}=v" for number in range(MOST_PAIRS + 1)]
    most = Annotations({name: ",".join(pairs[1:]) + ","})
    assert len(most.key_values(name)) == MOST_PAIRS
    with pytest.raises(Refused, match=f"{name} has more than {MOST_PAIRS} parts"):
        Annotations({name: ",".join(pairs)}).key_values(name)


@pytest.mark.parametrize("text", ["a," * 131_072, "=" * 262_144, "," * 262_144])
def test_labels_without_number_cost_no_time(text: str) -> None:
    """Each start, and each new leader, reads those of all Services before anything is done."""
    nothing: Any = SimpleNamespace(api=None, tagging=None)
    balancers = AwsLoadBalancers({}, nothing, NLB)
    endless = service("web", {f"{PREFIX}target-node-labels": text})
    began = time.process_time()
    for _ in range(100):
        assert not balancers.selector_labels(endless)
    assert time.process_time() - began < CPU_SECONDS


@pytest.mark.parametrize("size", [MOST_TEXT // 2, 130_000])
def test_a_list_of_ports_without_number_is_read_for_none_of_them(size: int) -> None:
    """Forty Services that had them read for each port kept all threads busy for minutes."""
    ports = [port(number, node_port=30000 + number) for number in range(1, 501)]
    began = time.process_time()
    with suppress(Refused):
        network({"ssl-cert": "arn:1", "ssl-ports": "1," * size}, ports=ports)
    assert time.process_time() - began < CPU_SECONDS


@pytest.mark.parametrize("kind", [CLASSIC, NLB])
def test_an_annotation_without_measure_is_refused(kind: str) -> None:
    for size in (MOST_TEXT, MOST_TEXT + 1):
        one = service("web", {f"{PREFIX}ssl-cert": "a" * size}, ports=PORTS)
        with nullcontext() if size == MOST_TEXT else pytest.raises(Refused, match="characters"):
            read_request(one, kind, ClusterTag("kit"))


@pytest.mark.parametrize("kind", [CLASSIC, NLB])
def test_more_rules_than_a_network_interface_has_room_for_are_refused(kind: str) -> None:
    """Those that AWS had refused were kept, and compared with the ones of all others each time."""
    ports = [port(number, node_port=30000 + number) for number in range(1, 52)]
    ranges = [f"10.0.{number}.0/24" for number in range(20)]
    with pytest.raises(Refused, match="1020 rules"):
        read_request(asking(ports, ranges), kind, ClusterTag("kit"))
    read_request(asking(ports[1:], ranges), kind, ClusterTag("kit"))


def asking(ports: Sequence[Json], ranges: Sequence[str]) -> Service:
    return service("web", ports=[*ports], loadBalancerSourceRanges=[*ranges])


@pytest.mark.parametrize("kind", [CLASSIC, NLB])
def test_a_port_without_a_node_port_is_left_out_and_reported(kind: str) -> None:
    """As with `allocateLoadBalancerNodePorts: false` and node ports of one's own."""
    one = service("web", ports=[port(80), {"port": 81, "protocol": "TCP"}])
    request = read_request(one, kind, ClusterTag("kit"))
    assert [each.number for each in request.ports] == [80]
    assert request.annotations.warnings == ("port 81 is ignored: it has no node port",)


def test_a_shared_health_check_counts_for_nlbs_only() -> None:
    """Upstream overrides the annotations of an NLB with it, and those of a classic one not."""
    asked = {"healthcheck-protocol": "HTTPS", "healthcheck-port": "8443", "healthcheck-path": "/x"}
    nlb, ignored = network(asked, SharedProbe())
    checks = {(g.health_check.protocol, g.health_check.port) for g in nlb.groups.values()}
    assert checks == {("HTTP", str(SharedProbe().port))}
    assert sorted(ignored) == sorted(asked)
    elb, ignored = classic(asked, SharedProbe())
    assert (elb.health_check.protocol, elb.health_check.port, ignored) == ("HTTPS", "8443", {})
    elb, _ = classic({"healthcheck-port": "traffic-port"}, SharedProbe())
    assert elb.health_check.port == str(SharedProbe().port)


def test_only_target_group_attributes_that_are_asked_for_are_set() -> None:
    nlb, _ = network({})
    assert {tuple(group.attributes) for group in nlb.groups.values()} == {()}


UPSTREAM_BOTH = """
    type internal security-groups subnets target-node-labels additional-resource-tags
    ssl-cert ssl-ports ssl-negotiation-policy backend-protocol cross-zone-load-balancing-enabled
    access-log-enabled access-log-s3-bucket-name access-log-s3-bucket-prefix healthcheck-protocol
    healthcheck-port healthcheck-path healthcheck-interval healthcheck-timeout
    healthcheck-healthy-threshold healthcheck-unhealthy-threshold
"""
UPSTREAM: Mapping[str, str] = {
    CLASSIC: f"""{UPSTREAM_BOTH} proxy-protocol extra-security-groups access-log-emit-interval
        connection-draining-enabled connection-draining-timeout connection-idle-timeout
    """,
    NLB: f"{UPSTREAM_BOTH} eip-allocations private-ipv4-addresses target-group-attributes",
}
OURS: Mapping[str, Sequence[str]] = {
    CLASSIC: ["scheme"],
    NLB: ["alpn-policy", "attributes", "ip-address-type", "scheme"],
}


@pytest.mark.parametrize("kind", [CLASSIC, NLB])
def test_all_that_upstream_honours_is_honoured(kind: str) -> None:
    assert sorted(SUPPORTED_ANNOTATIONS[kind]) == sorted([*UPSTREAM[kind].split(), *OURS[kind]])
