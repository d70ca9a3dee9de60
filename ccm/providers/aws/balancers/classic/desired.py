"""What a classic load balancer has to be for a Service: a pure decision."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ccm.errors import Refused
from ccm.providers.aws.annotations import Annotations
from ccm.providers.aws.balancers.classic.state import Attributes, ClassicBalancer, Listener
from ccm.providers.aws.balancers.request import Check, Port, Request, read_check
from ccm.providers.aws.config import SharedProbe
from ccm.providers.aws.security_groups import Rule
from ccm.providers.aws.subnets import Subnet

USUAL = Check("TCP", "", "", interval=10, timeout=5, healthy=2, unhealthy=6)
LOCAL = Check("HTTP", "", "", interval=10, timeout=5, healthy=2, unhealthy=6)
WITH_CERTIFICATE = {"https": "HTTPS", "http": "HTTPS", "ssl": "SSL", "tcp": "SSL", "": "SSL"}
"""The listener's protocol by the backend's, for a port with a certificate."""


def desired(
    request: Request,
    subnets: Sequence[Subnet],
    groups: Sequence[str],
    instances: Iterable[str],
    probe: SharedProbe | None,
) -> ClassicBalancer:
    """The balancer for a request; raises `Refused` for what cannot be honoured."""
    annotations = request.annotations
    listeners = {port.number: _listener(request, port) for port in request.ports}
    policy = annotations.text("ssl-negotiation-policy")
    proxy = annotations.text("proxy-protocol")
    if proxy not in ("", "*"):
        raise annotations.wrong("proxy-protocol", "*")
    return ClassicBalancer(
        name=request.name,
        is_internal=request.is_internal,
        subnets=frozenset(subnet.id for subnet in subnets),
        groups=tuple(groups),
        listeners=listeners,
        check=_check(request, listeners, probe),
        tags=request.tags,
        attributes=_attributes(annotations),
        instances=frozenset(instances),
        tls_policies={one.port: policy for one in listeners.values() if one.certificate and policy},
        proxied=frozenset(one.node_port for one in listeners.values()) if proxy else frozenset(),
    )


def _listener(request: Request, port: Port) -> Listener:
    if port.protocol != "TCP":
        raise Refused(f"port {port.number} is {port.protocol}: a classic balancer has TCP only")
    annotations = request.annotations
    choices = [choice for choice in WITH_CERTIFICATE if choice]
    backend = annotations.one_of("backend-protocol", [*choices, ""], "").lower()
    if port.number in request.tls_ports:
        certificate = annotations.text("ssl-cert")
        if "," in certificate:
            raise annotations.wrong("ssl-cert", "one certificate")
        node_protocol = backend.upper() or "TCP"
        protocol = WITH_CERTIFICATE[backend]
        return Listener(port.number, protocol, port.node_port, node_protocol, certificate)
    plain = "HTTP" if backend == "http" else "TCP"
    return Listener(port.number, plain, port.node_port, plain)


def _check(request: Request, listeners: dict[int, Listener], probe: SharedProbe | None) -> Check:
    """On the first listener's node port, unless something else says how nodes are checked."""
    backend = request.annotations.text("backend-protocol").lower()
    protocol = "SSL" if backend in ("https", "ssl") else "TCP"
    first = str(next(iter(listeners.values())).node_port)
    check = read_check(request, replace(USUAL, protocol=protocol, port=first), LOCAL, probe)
    return replace(check, port=first) if check.port == "traffic-port" else check


def _attributes(annotations: Annotations) -> Attributes:
    drains = annotations.boolean("connection-draining-enabled")
    draining: dict[str, object] = {"Enabled": drains}
    if drains and annotations.text("connection-draining-timeout"):
        draining["Timeout"] = annotations.integer("connection-draining-timeout", 300, 1, 3600)
    return {
        "CrossZoneLoadBalancing": {
            "Enabled": annotations.boolean("cross-zone-load-balancing-enabled")
        },
        "AccessLog": _access_log(annotations),
        "ConnectionDraining": draining,
        "ConnectionSettings": {
            "IdleTimeout": annotations.integer("connection-idle-timeout", 60, 1, 4000)
        },
    }


def _access_log(annotations: Annotations) -> dict[str, object]:
    if not annotations.boolean("access-log-enabled"):
        return {"Enabled": False}
    bucket = annotations.text("access-log-s3-bucket-name")
    interval = annotations.integer("access-log-emit-interval", 60, 5, 60)
    if not bucket:
        raise annotations.wrong("access-log-s3-bucket-name", "the name of a bucket")
    if interval not in (5, 60):
        raise annotations.wrong("access-log-emit-interval", "5 or 60")
    prefix = annotations.text("access-log-s3-bucket-prefix")
    return {
        "Enabled": True,
        "EmitInterval": interval,
        "S3BucketName": bucket,
        **({"S3BucketPrefix": prefix} if prefix else {}),
    }


def own_group_name(name: str) -> str:
    """The name of the security group that is made for a balancer (upstream's)."""
    return f"k8s-elb-{name}"


def own_group_rules(request: Request) -> frozenset[Rule]:
    """Who may come in at the listeners, and messages about the size of packets from there."""
    ports = {port.number for port in request.ports}
    return frozenset(
        {Rule("tcp", port, port, cidr) for port in ports for cidr in request.ranges}
        | {Rule("icmp", 3, 4, cidr) for cidr in request.ranges}
    )
