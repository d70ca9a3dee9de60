"""What a Classic Load Balancer has to be for a Service, and what it is: pure decisions."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ccm.errors import Refused
from ccm.model.service import ServicePort
from ccm.providers.aws.config import SharedProbe
from ccm.providers.aws.elb.annotations import Annotations
from ccm.providers.aws.elb.request import ElbHealthCheck, LoadBalancerRequest, read_health_check
from ccm.providers.aws.security_groups import (
    ALL_PROTOCOLS,
    IngressChange,
    IngressRule,
    SecurityGroup,
    plan_ingress,
)
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import Tags

PROXY_POLICY = "k8s-proxyprotocol-enabled"
TLS_POLICY = "k8s-SSLNegotiationPolicy-{}"
NODE_RULE = "kubernetes.io/rule/elb"
"""How the description of a rule in a node's group begins; `=` and the load balancer follow."""
DEFAULT_HEALTH_CHECK = ElbHealthCheck("TCP", "", "", interval=10, timeout=5, healthy=2, unhealthy=6)
LOCAL_HEALTH_CHECK = ElbHealthCheck("HTTP", "", "", interval=10, timeout=5, healthy=2, unhealthy=6)
TLS_PROTOCOLS = {"https": "HTTPS", "http": "HTTPS", "ssl": "SSL", "tcp": "SSL", "": "SSL"}
"""The listener's protocol by the backend's, for a port with a certificate."""

AttributeSections = Mapping[str, Mapping[str, object]]
"""The attributes as the API has them, in sections by name."""


@dataclass(frozen=True, slots=True)
class ClassicListener:
    """What comes in at one port and where it goes."""

    port: int
    protocol: str
    node_port: int
    node_protocol: str
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class ClassicElb:
    """All that a Classic Load Balancer has; `health_check.port` is a number.

    `tls_policies` are of listeners, by port: in what is desired, only those that are asked for.
    `proxied` are the node ports to which the client's address is sent on. `policies` are all that
    there are, used or not; these and `hostname` are not of what is desired.
    """

    name: str
    is_internal: bool
    subnets: frozenset[str]
    groups: tuple[str, ...]
    listeners: Mapping[int, ClassicListener]
    health_check: ElbHealthCheck
    tags: Tags
    attributes: AttributeSections
    instances: frozenset[str]
    tls_policies: Mapping[int, str] = field(default_factory=dict)
    proxied: frozenset[int] = frozenset()
    policies: frozenset[str] = field(default=frozenset(), compare=False)
    hostname: str = field(default="", compare=False)


def desired_classic_elb(
    request: LoadBalancerRequest,
    subnets: Sequence[Subnet],
    groups: Sequence[str],
    instances: Iterable[str],
    probe: SharedProbe | None,
) -> ClassicElb:
    """The load balancer for a request; raises `Refused` for what cannot be honoured."""
    annotations = request.annotations
    listeners = {port.number: _listener(request, port) for port in request.ports}
    policy = annotations.text("ssl-negotiation-policy")
    proxy = annotations.text("proxy-protocol")
    if proxy not in ("", "*"):
        raise annotations.invalid("proxy-protocol", "*")
    return ClassicElb(
        name=request.name,
        is_internal=request.is_internal,
        subnets=frozenset(subnet.id for subnet in subnets),
        groups=tuple(groups),
        listeners=listeners,
        health_check=_health_check(request, listeners, probe),
        tags=request.tags,
        attributes=_attributes(annotations),
        instances=frozenset(instances),
        tls_policies={
            listener.port: policy
            for listener in listeners.values()
            if listener.certificate and policy
        },
        proxied=frozenset(listener.node_port for listener in listeners.values())
        if proxy
        else frozenset(),
    )


def _listener(request: LoadBalancerRequest, port: ServicePort) -> ClassicListener:
    if port.protocol != "TCP":
        raise Refused(
            f"port {port.number} is {port.protocol}: a Classic Load Balancer has TCP only"
        )
    annotations = request.annotations
    backend = annotations.text("backend-protocol")
    if port.number in request.tls_ports:
        if backend not in TLS_PROTOCOLS:
            raise annotations.invalid("backend-protocol", "https, http, ssl or tcp")
        certificate = annotations.text("ssl-cert")
        if "," in certificate:
            raise annotations.invalid("ssl-cert", "one certificate")
        node_protocol = backend.upper() or "TCP"
        protocol = TLS_PROTOCOLS[backend]
        return ClassicListener(port.number, protocol, port.node_port, node_protocol, certificate)
    if backend not in TLS_PROTOCOLS:
        annotations.ignore("backend-protocol", f"{backend!r} is not one of https, http, ssl, tcp")
    plain = "HTTP" if backend == "http" else "TCP"
    return ClassicListener(port.number, plain, port.node_port, plain)


def _health_check(
    request: LoadBalancerRequest,
    listeners: Mapping[int, ClassicListener],
    probe: SharedProbe | None,
) -> ElbHealthCheck:
    """On the first listener's node port, unless something else says how nodes are checked."""
    backend = request.annotations.text("backend-protocol").lower()
    protocol = "SSL" if backend in ("https", "ssl") else "TCP"
    first = str(next(iter(listeners.values())).node_port)
    default = replace(DEFAULT_HEALTH_CHECK, protocol=protocol, port=first)
    check = read_health_check(request, default, LOCAL_HEALTH_CHECK, probe)
    traffic_port = str(probe.port) if probe and not request.node_health_check else first
    return replace(check, port=traffic_port) if check.port == "traffic-port" else check


def _attributes(annotations: Annotations) -> AttributeSections:
    drains = annotations.boolean("connection-draining-enabled")
    draining: dict[str, object] = {"Enabled": drains}
    timeout = annotations.integer("connection-draining-timeout", 300, 1, 3600)
    if drains and annotations.text("connection-draining-timeout"):
        draining["Timeout"] = timeout
    cross_zone = annotations.boolean("cross-zone-load-balancing-enabled")
    idle_timeout = annotations.integer("connection-idle-timeout", 60, 1, 4000)
    return {
        "CrossZoneLoadBalancing": {"Enabled": cross_zone},
        "AccessLog": _access_log(annotations),
        "ConnectionDraining": draining,
        "ConnectionSettings": {"IdleTimeout": idle_timeout},
    }


def _access_log(annotations: Annotations) -> Mapping[str, object]:
    interval = annotations.integer("access-log-emit-interval", 60, 5, 60)
    if not annotations.boolean("access-log-enabled"):
        return {"Enabled": False}
    bucket = annotations.text("access-log-s3-bucket-name")
    if not bucket:
        raise annotations.invalid("access-log-s3-bucket-name", "the name of a bucket")
    if interval not in (5, 60):
        raise annotations.invalid("access-log-emit-interval", "5 or 60")
    prefix = annotations.text("access-log-s3-bucket-prefix")
    log = {"Enabled": True, "EmitInterval": interval, "S3BucketName": bucket}
    return {**log, "S3BucketPrefix": prefix} if prefix else log


def differing_sections(
    desired: AttributeSections, observed: AttributeSections
) -> dict[str, Mapping[str, object]]:
    """The sections with a value that is not as desired."""
    return {
        section: values
        for section, values in desired.items()
        if not values.items() <= observed.get(section, {}).items()
    }


# The security groups of nodes, which are opened for it.


def node_rule(group_id: str, elb_name: str) -> IngressRule:
    """Lets into a node all that the load balancer's group sends."""
    return IngressRule(ALL_PROTOCOLS, -1, -1, group_id, f"{NODE_RULE}={elb_name}")


def opened_for(group: SecurityGroup, elb_name: str = "") -> set[str]:
    """The security groups for which a node's group was opened in the name of a load balancer, or of
    any.
    """
    named = f"{NODE_RULE}={elb_name}"
    return {
        rule.source
        for rule in group.rules
        if (rule.description == named if elb_name else rule.description.startswith(NODE_RULE))
    }


def plan_node_ingress(
    group: SecurityGroup, desired: frozenset[IngressRule], own_group: str, unused: Collection[str]
) -> Iterator[IngressChange]:
    """What one load balancer needs changed; rules for its own group and those in `unused` may go.

    A group that was given by annotation may be another load balancer's as well, and AWS has one
    rule for both: `unused` has it once nothing else uses it. Only rules with our description go.
    """
    surplus = {
        rule
        for rule in group.rules
        if rule.protocol == ALL_PROTOCOLS
        and (
            rule.source == own_group
            or (rule.source in unused and rule.description.startswith(NODE_RULE))
        )
    }
    yield from plan_ingress(group, desired, surplus)
