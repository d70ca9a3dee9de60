"""What a Network Load Balancer has to be for a Service, and what it is: pure decisions."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ccm.errors import Refused
from ccm.model.service import ServicePort
from ccm.providers.aws.config import SharedProbe
from ccm.providers.aws.elb.annotations import Annotations
from ccm.providers.aws.elb.request import (
    IMMUTABLE,
    IPV4,
    IPV6,
    ElbHealthCheck,
    LoadBalancerRequest,
    read_health_check,
)
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import Tags

DEFAULT_HEALTH_CHECK = ElbHealthCheck(
    "TCP", "traffic-port", "", interval=30, timeout=10, healthy=3, unhealthy=3
)
LOCAL_HEALTH_CHECK = ElbHealthCheck("HTTP", "", "", interval=10, timeout=10, healthy=2, unhealthy=2)
ALPN_POLICIES = ("None", "HTTP1Only", "HTTP2Only", "HTTP2Optional", "HTTP2Preferred")
GROUP_ATTRIBUTES = {
    "preserve_client_ip.enabled": "true|false",
    "proxy_protocol_v2.enabled": "true|false",
    "deregistration_delay.timeout_seconds": "[0-9]{1,4}",
    "deregistration_delay.connection_termination.enabled": "true|false",
    "load_balancing.cross_zone.enabled": "true|false|use_load_balancer_configuration",
    "stickiness.enabled": "true|false",
    "stickiness.type": "source_ip",
    "target_health_state.unhealthy.connection_termination.enabled": "true|false",
    "target_health_state.unhealthy.draining_interval_seconds": "[0-9]{1,6}",
}
"""The attributes of an NLB's target groups and their values; upstream knows the first two."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]")

DEFAULT_ATTRIBUTES: Mapping[str, str] = {
    "access_logs.s3.enabled": "false",
    "load_balancing.cross_zone.enabled": "false",
    "proxy_protocol_v2.enabled": "false",
}
"""What an attribute is where AWS does not list it; of all others that is empty text."""


@dataclass(frozen=True, slots=True)
class NlbListener:
    """What comes in at one port and where it goes; `group` is a target group's name."""

    port: int
    protocol: str
    group: str
    certificate: str = ""
    policy: str = ""  # empty in what is desired: any will do
    alpn: str = ""  # as the policy; where None is desired, AWS has none
    arn: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class TargetGroup:
    """Instances and how their health is found; `port` is the node port, `family` IPv4 or IPv6."""

    name: str
    protocol: str
    port: int
    health_check: ElbHealthCheck
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: Tags = field(default_factory=dict)
    targets: frozenset[str] = frozenset()
    family: str = IPV4
    arn: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Nlb:
    """The load balancer itself; `subnets` come with its address in each, as the API names it."""

    name: str
    is_internal: bool
    subnets: Mapping[str, Mapping[str, str]]
    groups: tuple[str, ...]
    tags: Tags
    attributes: Mapping[str, str]
    address_type: str = IPV4  # or DUALSTACK


@dataclass(frozen=True, slots=True)
class ObservedNlb:
    """All there is of one Service; `arn` and `hostname` are of the load balancer.

    `foreign_groups` are names of target groups that could be the Service's, but are not.
    """

    nlb: Nlb | None
    listeners: Mapping[int, NlbListener]
    groups: Mapping[str, TargetGroup]
    arn: str = ""
    hostname: str = ""
    foreign_groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DesiredNlb:
    """All that has to be there; target groups are by name, listeners by port."""

    nlb: Nlb
    listeners: Mapping[int, NlbListener]
    groups: Mapping[str, TargetGroup]


def differing(desired: Mapping[str, str], observed: Mapping[str, str]) -> dict[str, str]:
    """Attributes or tags to set; what the Service does not ask for stays as it is."""
    return {k: v for k, v in desired.items() if observed.get(k, DEFAULT_ATTRIBUTES.get(k, "")) != v}


def desired_nlb(
    request: LoadBalancerRequest,
    subnets: Sequence[Subnet],
    targets: Iterable[str],
    cluster_id: str,
    probe: SharedProbe | None,
    observed: Nlb | None = None,
) -> DesiredNlb:
    """The load balancer for a request; raises `Refused` for what cannot be honoured.

    Of an `observed` one, what cannot be changed after creation stays, and so do its subnets unless
    the Service names others.
    """
    annotations = request.annotations
    groups = target_groups(request, targets, cluster_id, probe)
    listeners = {
        port.number: _listener(request, port, groups[port.number].name)
        for port in merged_ports(request.ports)
    }
    nlb = Nlb(
        name=request.name,
        is_internal=request.is_internal,
        subnets=_with_addresses(annotations, subnets, observed),
        groups=_security_groups(annotations, observed),
        tags={**request.tags, **request.own_tags},
        attributes=_attributes(annotations),
        address_type=request.address_type,
    )
    return DesiredNlb(nlb, listeners, {group.name: group for group in groups.values()})


def with_groups(desired: DesiredNlb, groups: tuple[str, ...]) -> DesiredNlb:
    """The same with these security groups."""
    return replace(desired, nlb=replace(desired.nlb, groups=groups))


def target_groups(
    request: LoadBalancerRequest,
    targets: Iterable[str],
    cluster_id: str,
    probe: SharedProbe | None,
) -> dict[int, TargetGroup]:
    """The target group of each of the merged ports, by the port's number."""
    check = read_health_check(request, DEFAULT_HEALTH_CHECK, LOCAL_HEALTH_CHECK, probe)
    registered = frozenset(targets)
    return {
        port.number: _target_group(request, port, check, cluster_id, registered)
        for port in merged_ports(request.ports)
    }


def merged_ports(ports: Sequence[ServicePort]) -> Iterator[ServicePort]:
    """The ports as listeners have them: TCP and UDP of one number are one listener."""
    by_number: dict[int, list[ServicePort]] = {}
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
        yield ServicePort(same[0].name, number, protocol, same[0].node_port)


def _listener(request: LoadBalancerRequest, port: ServicePort, group: str) -> NlbListener:
    annotations = request.annotations
    if port.number not in request.tls_ports or port.protocol == "UDP":
        return NlbListener(port.number, port.protocol, group)
    if port.protocol != "TCP":
        raise Refused(f"port {port.number} is TCP and UDP, so it cannot have a certificate")
    certificates = annotations.csv("ssl-cert")
    if len(certificates) != 1:
        raise annotations.invalid("ssl-cert", "one certificate")
    alpn = annotations.choice("alpn-policy", ALPN_POLICIES)
    policy = annotations.text("ssl-negotiation-policy")
    return NlbListener(port.number, "TLS", group, certificates[0], policy, alpn)


def _target_group(
    request: LoadBalancerRequest,
    port: ServicePort,
    check: ElbHealthCheck,
    cluster_id: str,
    targets: frozenset[str],
) -> TargetGroup:
    annotations = request.annotations
    is_tls = port.number in request.tls_ports and port.protocol == "TCP"
    backend = annotations.text("backend-protocol", "tcp")
    if backend not in ("tcp", "ssl"):
        annotations.ignore("backend-protocol", f"{backend!r} is not one of tcp, ssl")
    protocol = "TLS" if is_tls and backend == "ssl" else port.protocol
    return TargetGroup(
        name=target_group_name(request, port, protocol, check, cluster_id),
        protocol=protocol,
        port=port.node_port,
        health_check=check,
        attributes=_group_attributes(request),
        tags=request.tags,
        targets=targets,
        family=request.target_family,
    )


def target_group_prefix(key: str) -> str:
    """How the names of all target groups of a Service begin (upstream's form)."""
    namespace, _, name = key.partition("/")
    return f"k8s-{_NOT_IN_NAMES.sub('', namespace)[:8]}-{_NOT_IN_NAMES.sub('', name)[:8]}-"


def target_group_name(
    request: LoadBalancerRequest,
    port: ServicePort,
    protocol: str,
    check: ElbHealthCheck,
    cluster_id: str,
) -> str:
    """Upstream's name: another one for whatever cannot be changed in a target group."""
    namespace, _, name = request.key.partition("/")
    ports, check_parts = f"{port.number}{port.node_port}", f"{check.protocol}{check.interval}"
    identity = f"{cluster_id}{namespace}{name}{ports}{protocol}instance{check_parts}"
    if request.target_family == IPV6:
        identity += IPV6
    digest = hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest()
    return target_group_prefix(request.key) + digest[:10]


def _with_addresses(
    annotations: Annotations, subnets: Sequence[Subnet], observed: Nlb | None
) -> Mapping[str, Mapping[str, str]]:
    """The subnets with the address for each, if any are given; what is there keeps its own."""
    current = observed.subnets if observed else {}
    desired: dict[str, dict[str, str]] = {subnet.id: {} for subnet in subnets}
    for name, member in (
        ("eip-allocations", "AllocationId"),
        ("private-ipv4-addresses", "PrivateIPv4Address"),
    ):
        given = annotations.csv(name)
        if given and len(given) == len(subnets):
            for subnet, address in zip(subnets, given, strict=True):
                desired[subnet.id][member] = address
        elif given and not observed:
            zones = ", ".join(subnet.zone for subnet in subnets)
            raise annotations.invalid(name, f"{len(subnets)}, one for each of {zones}")
        if set(given) - {address.get(member) for address in ({**desired, **current}).values()}:
            annotations.ignore(name, f"the load balancer has other addresses, {IMMUTABLE}")
    if observed and not annotations.csv("subnets"):
        return current
    return {subnet: current.get(subnet, address) for subnet, address in desired.items()}


def _security_groups(annotations: Annotations, observed: Nlb | None) -> tuple[str, ...]:
    groups = tuple(annotations.csv("security-groups"))
    if groups and observed and not observed.groups:
        annotations.ignore("security-groups", f"the load balancer has none, {IMMUTABLE}")
        return ()
    return groups


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
            raise annotations.invalid("access-log-s3-bucket-name", "the name of a bucket")
    return attributes | annotations.key_values("attributes")


def _group_attributes(request: LoadBalancerRequest) -> dict[str, str]:
    """Those that are asked for, and no other: what was set by hand stays."""
    annotations, name = request.annotations, "target-group-attributes"
    attributes = annotations.key_values(name)
    for attribute, value in attributes.items():
        if attribute not in GROUP_ATTRIBUTES:
            raise annotations.invalid(name, f"it without {attribute}")
        if not re.fullmatch(valid := GROUP_ATTRIBUTES[attribute], value):
            raise annotations.invalid(name, f"it with {attribute} as {valid}")
    has_udp = any(port.protocol == "UDP" for port in request.ports)
    if has_udp and attributes.get("preserve_client_ip.enabled") == "false":
        raise annotations.invalid(name, "it with preserve_client_ip.enabled=true: UDP needs it")
    return attributes
