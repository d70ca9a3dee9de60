"""What a Service asks of its load balancer, as DigitalOcean's API has it; nothing in here acts."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ccm.errors import Refused
from ccm.model.cloud import UUID, Ingress, IpMode
from ccm.model.objects import Json, text
from ccm.model.service import EVERYBODY, Service
from ccm.providers.digitalocean.config import DUALSTACK, IPV4, NETWORK, STACKS, TYPES
from ccm.providers.digitalocean.lb.annotations import HTTP_ONLY, Annotations
from ccm.providers.digitalocean.lb.names import DEFAULT_NAME

EXTERNAL, INTERNAL = "EXTERNAL", "INTERNAL"
HTTP, HTTPS, HTTP2, HTTP3, TCP, UDP = "http", "https", "http2", "http3", "tcp", "udp"
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9.])?")
KUBE_PROXY_PORT = 10256
HTTPS_PORT = 443
SIZES = {"lb-small": 1, "lb-medium": 3, "lb-large": 6}
"""The old names of sizes, and the units that they are."""
MAX_TTL = 2**31 - 1  # seconds
FIXED = ("network", "network_stack", "ip", "subnet_uuid")
"""What cannot be changed after a load balancer is created."""


@dataclass(frozen=True, slots=True)
class LoadBalancerRequest:
    """A Service as load balancers see it, checked.

    `settings` may be changed, and are compared; `fixed` counts when it is made: what the Service
    says itself. `hostname` stands in the status in place of addresses.
    """

    annotations: Annotations
    type: str
    settings: Json
    fixed: Json
    hostname: str
    stack: str  # the configuration's; empty for upstream's rule

    @property
    def network(self) -> str:
        return str(self.fixed.get("network", EXTERNAL))

    @property
    def warnings(self) -> list[str]:
        return self.annotations.warnings

    def ingress(self, record: Json) -> tuple[Ingress, ...]:
        """What the status says, once it is active."""
        if self.hostname:
            return (Ingress(hostname=self.hostname),)
        mode = IpMode.PROXY if self.settings.get("enable_proxy_protocol") else None
        addresses = (text(record.get("ip")), text(record.get("ipv6")))
        return tuple(Ingress(ip=address, ip_mode=mode) for address in addresses if address)


def read_request(
    service: Service, default_type: str, default_stack: str, certificate_id: str = ""
) -> LoadBalancerRequest:
    """The request of a Service; raises `Refused` for what nothing can be made of.

    `default_type` is that of the load balancer that is there, or the configuration's.
    """
    read = Annotations.of(service)
    kind = read.one_of("type", TYPES, default_type)
    if not service.ports:
        raise Refused("the Service has no ports")
    rules = list(
        _network_rules(service) if kind == NETWORK else _rules(service, read, certificate_id)
    )
    settings: Json = {
        "forwarding_rules": rules,
        "health_check": _health_check(service, read),
        "firewall": _firewall(service, read),
        **_size(read),
    }
    if kind == NETWORK:
        for name in sorted(HTTP_ONLY):
            if read.has(name):
                read.ignore(name, f"it means nothing to type {NETWORK}")
    else:
        settings |= _http_settings(read)
    if read.has("algorithm"):
        read.ignore("algorithm", "DigitalOcean's API does not heed it")
    return LoadBalancerRequest(
        annotations=read,
        type=kind,
        settings=settings,
        fixed=_fixed(read),
        hostname=read.text("hostname").lower(),
        stack=default_stack,
    )


def _fixed(read: Annotations) -> Json:
    found: Json = {}
    if (name := read.text("name")) and not NAME.fullmatch(name):
        read.refuse("name", f"{name!r}: give up to 255 letters, digits, dots and dashes")
    if DEFAULT_NAME.fullmatch(name) and name != read.service.default_balancer_name:
        read.refuse("name", f"{name!r}: such a name belongs to another Service")
    if read.has("network"):
        found["network"] = read.one_of("network", (EXTERNAL, INTERNAL), EXTERNAL)
    if read.has("network-stack"):
        found["network_stack"] = read.one_of("network-stack", STACKS, IPV4)
    if found == {"network": INTERNAL, "network_stack": DUALSTACK}:
        read.refuse("network-stack", f"{DUALSTACK}, and {INTERNAL} load balancers have IPv4 only")
    if address := read.text("ip"):
        found["ip"] = address
    if subnet := read.text("subnet-uuid"):
        if not UUID.fullmatch(subnet):
            read.refuse("subnet-uuid", f"{subnet!r}, which is not a UUID")
        found["subnet_uuid"] = subnet
    return found


def _size(read: Annotations) -> Json:
    """None where nothing is said: what someone made bigger stays so."""
    slug, unit = read.text("size-slug"), read.text("size-unit")
    if slug and unit not in ("", "0"):
        raise Refused("annotations size-slug and size-unit exclude each other")
    if slug:
        return {"size": read.one_of("size-slug", tuple(SIZES), "")}
    return {"size_unit": read.integer("size-unit", 1, 1, 100)} if unit not in ("", "0") else {}


def _http_settings(read: Annotations) -> Json:
    return {
        "sticky_sessions": _sticky_sessions(read),
        "redirect_http_to_https": read.boolean("redirect-http-to-https"),
        "enable_proxy_protocol": read.boolean("enable-proxy-protocol"),
        "enable_backend_keepalive": read.boolean("enable-backend-keepalive"),
        "disable_lets_encrypt_dns_records": read.boolean("disable-lets-encrypt-dns-records"),
        "http_idle_timeout_seconds": read.integer("http-idle-timeout-seconds", 60, 30, 600),
    }


def _sticky_sessions(read: Annotations) -> Json:
    if read.one_of("sticky-sessions-type", ("none", "cookies"), "none") == "none":
        return {"type": "none"}
    name = read.text("sticky-sessions-cookie-name")
    if not name or not read.text("sticky-sessions-cookie-ttl"):
        raise Refused("sticky sessions by cookies need annotations for the cookie's name and ttl")
    ttl = read.integer("sticky-sessions-cookie-ttl", 0, 1, MAX_TTL)
    return {"type": "cookies", "cookie_name": name, "cookie_ttl_seconds": ttl}


def _firewall(service: Service, read: Annotations) -> Json:
    """Source ranges win over rules to allow."""
    ranges, listed = service.source_ranges(), service.spec.get("loadBalancerSourceRanges")
    allow = sorted(f"cidr:{item}" for item in ranges) if listed or ranges != {EVERYBODY} else []
    if allow and read.has("allow-rules"):
        read.ignore("allow-rules", "the Service has source ranges")
    allow = allow or sorted(read.rules("allow-rules"))
    return {"allow": allow, "deny": sorted(read.rules("deny-rules"))}


def _health_check(service: Service, read: Annotations) -> Json:
    """kube-proxy's, or the one of the Service's own node port, unless the Service overrides it."""
    check: Json = {
        "check_interval_seconds": read.integer("healthcheck-check-interval-seconds", 3, 3, 300),
        "response_timeout_seconds": read.integer("healthcheck-response-timeout-seconds", 5, 3, 300),
        "unhealthy_threshold": read.integer("healthcheck-unhealthy-threshold", 3, 2, 10),
        "healthy_threshold": read.integer("healthcheck-healthy-threshold", 5, 2, 10),
    }
    if read.has("override-health-check"):
        path = read.text("healthcheck-path")
        default = HTTP if path else TCP
        protocol = read.one_of("healthcheck-protocol", (TCP, HTTP, HTTPS), default)
        asked_for = {} if protocol == TCP else {"path": path or "/"}
        return {**check, "protocol": protocol, "port": _check_port(service, read), **asked_for}
    for name in ("healthcheck-port", "healthcheck-path", "healthcheck-protocol"):
        if read.has(name):
            read.ignore(name, "annotation override-health-check is not there")
    own = service.health_check
    port, path = (own.port, own.path) if own else (KUBE_PROXY_PORT, "/healthz")
    return {**check, "protocol": HTTP, "port": port, "path": path, "proxy_protocol": False}


def _check_port(service: Service, read: Annotations) -> int:
    """The node port of the port that the annotation names, or of the first TCP port."""
    asked = read.ports("healthcheck-port")
    if len(asked) > 1:
        read.refuse("healthcheck-port", f"{read.text('healthcheck-port')!r}: give one port")
    for port in service.node_ports(may_lack_some=True):
        if port.protocol == "TCP" and (not asked or port.number == asked[0]):
            return port.node_port
    wanted = f"port {asked[0]}" if asked else "a port"
    raise Refused(f"the health check needs {wanted} of protocol TCP, which the Service has not")


def _network_rules(service: Service) -> Iterator[Json]:
    """Packets pass through: the Service's own port is where they go, and no node port."""
    for raw in service.ports:
        protocol = _transport(raw)
        number = int(str(raw.get("port")))
        yield _rule(protocol, number, protocol, number)


def _rules(service: Service, read: Annotations, certificate_id: str) -> Iterator[Json]:
    protocols, passes = _protocols(read, certificate_id)
    default = read.one_of("protocol", (TCP, HTTP, HTTPS, HTTP2, HTTP3), TCP)
    secured = {"tls_passthrough": True} if passes else {"certificate_id": certificate_id}
    with_http3 = _http3_ports(read, default, certificate_id, passes)
    for raw, port in zip(service.ports, service.node_ports(), strict=True):
        has_http3 = default == HTTP3 or port.number in with_http3
        protocol = protocols.get(port.number, HTTPS if has_http3 else default)
        if _transport(raw) == UDP:
            protocol = UDP
        if protocol not in (HTTPS, HTTP2):
            yield _rule(protocol, port.number, protocol, port.node_port)
            continue
        if bool(certificate_id) == passes:
            has = "both" if passes else "neither"
            why = f"it needs a certificate or tls-passthrough, and has {has}"
            raise Refused(f"port {port.number} is {protocol}: {why}")
        target = protocol if passes else HTTP
        yield _rule(protocol, port.number, target, port.node_port) | secured
        if has_http3:
            yield _rule(HTTP3, port.number, HTTP, port.node_port) | secured


def _protocols(read: Annotations, certificate_id: str) -> tuple[dict[int, str], bool]:
    """Of the ports that annotations name, and whether TLS passes through."""
    listed = {HTTP: "http-ports", HTTPS: "tls-ports", HTTP2: "http2-ports"}
    ports = {protocol: read.ports(name) for protocol, name in listed.items()}
    counts = Counter(port for some in ports.values() for port in some)
    if twice := sorted(port for port, count in counts.items() if count > 1):
        shown = ", ".join(map(str, twice))
        raise Refused(f"annotations {', '.join(listed.values())} share {shown}")
    passes = False
    try:
        passes = read.boolean("tls-passthrough")
    except Refused:
        read.ignore("tls-passthrough", "it is neither true nor false; it is false")
    if (certificate_id or passes) and not ports[HTTPS] and HTTPS_PORT not in ports[HTTP2]:
        ports[HTTPS] = [HTTPS_PORT]
    found = {port: protocol for protocol, some in ports.items() for port in some}
    return found, passes


def _http3_ports(read: Annotations, default: str, certificate_id: str, passes: bool) -> list[int]:
    """Those that have HTTP/3 besides TLS, by which browsers learn of it."""
    needs = "needs a certificate without tls-passthrough"
    numbers = read.ports("http3-port")
    if len(numbers) > 1 or (numbers and (passes or not certificate_id)):
        read.refuse("http3-port", f"one port, and {needs}")
    if default == HTTP3 and passes:
        read.refuse("protocol", f"{HTTP3!r}: {needs}")
    return numbers


def _transport(raw: Json) -> str:
    protocol = (text(raw.get("protocol")) or "TCP").lower()
    if protocol not in (TCP, UDP):
        raise Refused(
            f"port {raw.get('port')} is {protocol.upper()}: DigitalOcean balances TCP and UDP only"
        )
    return protocol


def _rule(entry: str, port: int, target: str, target_port: int) -> Json:
    return {
        "entry_protocol": entry,
        "entry_port": port,
        "target_protocol": target,
        "target_port": target_port,
    }
