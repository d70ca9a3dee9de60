"""What a network load balancer has to be for a Service: a pure decision."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

from ccm.errors import Refused
from ccm.providers.aws.annotations import Annotations
from ccm.providers.aws.balancers.network.state import (
    Listener,
    NetworkBalancer,
    TargetGroup,
    Wanted,
)
from ccm.providers.aws.balancers.request import Check, Port, Request, read_check
from ccm.providers.aws.config import SharedProbe
from ccm.providers.aws.subnets import Subnet

USUAL = Check("TCP", "traffic-port", "", interval=30, timeout=10, healthy=3, unhealthy=3)
LOCAL = Check("HTTP", "", "", interval=10, timeout=10, healthy=2, unhealthy=2)
ALPN = ("None", "HTTP1Only", "HTTP2Only", "HTTP2Optional", "HTTP2Preferred")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]")


def desired(
    request: Request,
    subnets: Sequence[Subnet],
    targets: Iterable[str],
    cluster_id: str,
    probe: SharedProbe | None,
) -> Wanted:
    """The balancer for a request; raises `Refused` for what cannot be honoured."""
    annotations = request.annotations
    check = read_check(request, USUAL, LOCAL, probe)
    registered = frozenset(targets)
    groups: dict[str, TargetGroup] = {}
    listeners: dict[int, Listener] = {}
    for port in merged(request.ports):
        group = _target_group(request, port, check, cluster_id, registered)
        groups[group.name] = group
        listeners[port.number] = _listener(request, port, group.name)
    balancer = NetworkBalancer(
        name=request.name,
        is_internal=request.is_internal,
        subnets=_with_addresses(annotations, subnets),
        groups=tuple(annotations.listed("security-groups")),
        tags=request.tags,
        attributes=_attributes(annotations),
    )
    return Wanted(balancer, listeners, groups)


def merged(ports: Sequence[Port]) -> Iterator[Port]:
    """The ports as listeners have them: TCP and UDP of one number are one listener."""
    by_number: dict[int, list[Port]] = {}
    for port in ports:
        if port.protocol not in ("TCP", "UDP"):
            raise Refused(f"port {port.number} is {port.protocol}: use TCP or UDP")
        by_number.setdefault(port.number, []).append(port)
    for number, same in by_number.items():
        if len({port.node_port for port in same}) > 1:
            raise Refused(
                f"port {number} has different node ports for TCP and UDP: one listener of AWS "
                "has one, so give both the same nodePort"
            )
        protocol = "TCP_UDP" if len(same) > 1 else same[0].protocol
        yield Port(same[0].name, number, protocol, same[0].node_port)


def _listener(request: Request, port: Port, group: str) -> Listener:
    annotations = request.annotations
    if port.number not in request.tls_ports or port.protocol == "UDP":
        return Listener(port.number, port.protocol, group)
    if port.protocol != "TCP":
        raise Refused(f"port {port.number} is TCP and UDP, so it cannot have a certificate")
    certificates = annotations.listed("ssl-cert")
    if len(certificates) != 1:
        raise annotations.wrong("ssl-cert", "one certificate")
    alpn = annotations.one_of("alpn-policy", ALPN, "None")
    policy = annotations.text("ssl-negotiation-policy")
    return Listener(
        port.number, "TLS", group, certificates[0], policy, "" if alpn == "None" else alpn
    )


def _target_group(
    request: Request, port: Port, check: Check, cluster_id: str, targets: frozenset[str]
) -> TargetGroup:
    annotations = request.annotations
    is_tls = port.number in request.tls_ports and port.protocol == "TCP"
    backend = annotations.one_of("backend-protocol", ("tcp", "ssl"), "tcp").lower()
    protocol = "TLS" if is_tls and backend == "ssl" else port.protocol
    return TargetGroup(
        name=group_name(request.key, port, protocol, check, cluster_id),
        protocol=protocol,
        port=port.node_port,
        check=check,
        attributes=_group_attributes(annotations),
        tags=request.tags,
        targets=targets,
    )


def name_prefix(key: str) -> str:
    """How the names of all target groups of a Service begin (upstream's form)."""
    namespace, _, name = key.partition("/")
    return f"k8s-{_NOT_IN_NAMES.sub('', namespace)[:8]}-{_NOT_IN_NAMES.sub('', name)[:8]}-"


def group_name(key: str, port: Port, protocol: str, check: Check, cluster_id: str) -> str:
    """Upstream's name: another one for whatever cannot be changed in a target group."""
    namespace, _, name = key.partition("/")
    parts = (
        cluster_id,
        namespace,
        name,
        str(port.number),
        str(port.node_port),
        protocol,
        "instance",
        check.protocol,
        str(check.interval),
    )
    digest = hashlib.sha1("".join(parts).encode(), usedforsecurity=False).hexdigest()
    return name_prefix(key) + digest[:10]


def _with_addresses(annotations: Annotations, subnets: Sequence[Subnet]) -> dict[str, str]:
    """The subnets with the EIP allocation for each, if any are given."""
    allocations = annotations.listed("eip-allocations")
    if allocations and len(allocations) != len(subnets):
        zones = ", ".join(subnet.zone for subnet in subnets)
        raise annotations.wrong("eip-allocations", f"{len(subnets)}, one for each of {zones}")
    found = allocations or [""] * len(subnets)
    return {subnet.id: one for subnet, one in zip(subnets, found, strict=True)}


def _attributes(annotations: Annotations) -> dict[str, str]:
    crosses = annotations.boolean("cross-zone-load-balancing-enabled")
    logs = annotations.boolean("access-log-enabled")
    attributes = {
        "load_balancing.cross_zone.enabled": str(crosses).lower(),
        "access_logs.s3.enabled": str(logs).lower(),
    }
    if logs:
        attributes["access_logs.s3.bucket"] = annotations.text("access-log-s3-bucket-name")
        attributes["access_logs.s3.prefix"] = annotations.text("access-log-s3-bucket-prefix")
        if not attributes["access_logs.s3.bucket"]:
            raise annotations.wrong("access-log-s3-bucket-name", "the name of a bucket")
    return attributes | annotations.pairs("attributes")


def _group_attributes(annotations: Annotations) -> dict[str, str]:
    value = annotations.text("proxy-protocol")
    if value not in ("", "*"):
        raise annotations.wrong("proxy-protocol", "*")
    has_proxy = {"proxy_protocol_v2.enabled": "true" if value else "false"}
    return has_proxy | annotations.pairs("target-group-attributes")
