"""What a Service asks of its load balancer, before it is known what there is."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ccm.errors import Refused
from ccm.model.cloud import Ingress, IpMode, Network
from ccm.model.objects import Json
from ccm.model.service import EVERYBODY, HealthCheck, Service, ServicePort
from ccm.providers.openstack.config import (
    LB_METHODS,
    MAX_RETRIES,
    BalancerClass,
    BalancerSection,
)
from ccm.providers.openstack.ids import Cluster
from ccm.providers.openstack.lb.annotations import BALANCER_ID, ON_ERROR, Annotations
from ccm.providers.openstack.lb.names import Names
from ccm.providers.openstack.lb.place import Place, id_in, read_place

OVN = "ovn"
IPV4, IPV6 = "IPv4", "IPv6"
VERSIONS = {IPV4: 4, IPV6: 6}
PROXY_PROTOCOLS = {"true": "PROXY", "v1": "PROXY", "v2": "PROXYV2"}
MONITOR_TYPES = {"TCP": "TCP", "UDP": "UDP-CONNECT", "SCTP": "SCTP"}
MAX_TIMEOUT = 365 * 24 * 3600 * 1000  # milliseconds; Octavia's
TIMEOUTS = {
    "timeout-client-data": 50000,
    "timeout-member-connect": 5000,
    "timeout-member-data": 50000,
    "timeout-tcp-inspect": 0,
}
BARBICAN_REF = re.compile(r"https?://[^\s/]+/(\S*/)?v1/(containers|secrets)/[0-9a-fA-F-]{32,36}")


@dataclass(frozen=True, slots=True)
class Member:
    """One Node in a pool; `monitor_port` is 0 where the port itself is monitored."""

    name: str
    address: str
    port: int
    monitor_port: int = 0
    subnet_id: str = field(default="", compare=False)  # cannot be changed


@dataclass(frozen=True, slots=True)
class Monitor:
    """A health monitor; a type is for life."""

    name: str
    type: str
    settings: Json


@dataclass(frozen=True, slots=True)
class Pool:
    """The Nodes behind one port; a protocol is for life."""

    name: str
    protocol: str
    settings: Json
    members: frozenset[Member]
    monitor: Monitor | None


@dataclass(frozen=True, slots=True)
class Listener:
    """One port of a load balancer; `settings` are what may be changed."""

    name: str
    protocol: str
    port: int
    settings: Json
    pool: Pool

    @property
    def key(self) -> tuple[str, int]:
        return self.protocol, self.port


@dataclass(frozen=True, slots=True)
class LoadBalancerRequest:
    """A Service as load balancers see it; its fields and annotations are checked."""

    names: Names
    annotations: Annotations = field(compare=False)
    ports: tuple[tuple[int, ServicePort], ...]  # with their places in the Service
    families: tuple[str, ...]
    must_be_dual: bool
    ranges: tuple[str, ...]
    is_internal: bool
    requested_ip: str
    may_request_ip: bool
    keeps_floating_ip: bool
    place: Place
    provider: str
    settings: Json  # of listeners
    pool_settings: Json
    tls_ref: str
    proxy: str  # the protocol of pools; empty for the listener's
    forwards: bool  # X-Forwarded-For
    monitor: Json | None
    health_check: HealthCheck | None
    selector: Mapping[str, str]
    flavor_id: str
    zone: str
    hostname: str
    hostname_suffix: str
    on_error: str
    balancer_id: str

    @property
    def family(self) -> str:
        """The one that members are reached by."""
        return self.families[0]

    def ingress(self, addresses: Sequence[str]) -> tuple[Ingress, ...]:
        """What the Service's status says."""
        if self.hostname:
            return (Ingress(hostname=self.hostname),)
        if self.proxy and self.hostname_suffix:
            return tuple(
                Ingress(hostname=f"{address}.{self.hostname_suffix}") for address in addresses
            )
        mode = IpMode.PROXY if self.proxy else IpMode.VIP
        return tuple(Ingress(ip=address, ip_mode=mode) for address in addresses)

    def node_ports(self) -> dict[tuple[str, int], int]:
        """The node port by protocol and port of the listener."""
        return {
            (self._protocols(port.protocol)[0], port.number): port.node_port
            for _, port in self.ports
        }

    def listeners(self, members: Mapping[int, frozenset[Member]]) -> Iterator[Listener]:
        """The listeners with these members by node port."""
        for index, port in self.ports:
            protocol, pool_protocol = self._protocols(port.protocol)
            monitor = self._monitor(port.protocol)
            name = self.names.child("monitor", index)
            pool = Pool(
                self.names.child("pool", index),
                pool_protocol,
                self.pool_settings,
                members[port.node_port],
                Monitor(name, monitor.pop("type"), monitor) if monitor else None,
            )
            settings = dict(self.settings)
            if self.provider != OVN:
                is_web = protocol in ("HTTP", "TERMINATED_HTTPS")
                header = {"X-Forwarded-For": "true"} if is_web and self.forwards else {}
                settings["insert_headers"] = header
                settings["default_tls_container_ref"] = (
                    self.tls_ref if protocol == "TERMINATED_HTTPS" else None
                )
            name = self.names.child("listener", index)
            yield Listener(name, protocol, port.number, settings, pool)

    def _protocols(self, protocol: str) -> tuple[str, str]:
        """Of the listener and of its pool; only TCP can carry more than itself."""
        if protocol != "TCP":
            return protocol, protocol
        listener = "TERMINATED_HTTPS" if self.tls_ref else "HTTP" if self.forwards else "TCP"
        return listener, self.proxy or ("TCP" if listener == "TCP" else "HTTP")

    def _monitor(self, protocol: str) -> Json | None:
        if self.monitor is None:
            return None
        if self.has_node_check:
            http = {"url_path": "/healthz", "http_method": "GET", "expected_codes": "200"}
            return {"type": "HTTP", **self.monitor, **http}
        return {"type": MONITOR_TYPES[protocol], **self.monitor}

    @property
    def has_node_check(self) -> bool:
        """Whether each node is asked if it has an endpoint; OVN has no monitors of HTTP."""
        return self.health_check is not None and self.provider != OVN


def read_request(
    service: Service,
    config: BalancerSection,
    classes: Mapping[str, BalancerClass],
    cluster: Cluster,
    families: tuple[str, ...] = (),
) -> LoadBalancerRequest:
    """The request of a Service; raises `Refused` for what nothing can be made of.

    `families` are those of a load balancer that is there.
    """
    read = Annotations.of(service)
    asked = families_of(service)
    families = tuple(item for item in asked if item in families) or families or asked
    ports = tuple(_ports(service, read))
    proxy = PROXY_PROTOCOLS.get(read.one_of("proxy-protocol", (*PROXY_PROTOCOLS, "false"), "false"))
    forwards = read.boolean("x-forwarded-for")
    if proxy and forwards:
        raise Refused("annotations proxy-protocol and x-forwarded-for exclude each other")
    tls_ref = read.text("default-tls-container-ref", config.default_tls_container_ref)
    if tls_ref and config.container_store == "barbican" and not BARBICAN_REF.fullmatch(tls_ref):
        raise Refused(
            f"annotation default-tls-container-ref {tls_ref!r} is no reference to Barbican: give "
            "https://<host>/v1/containers/<id> or https://<host>/v1/secrets/<id>"
        )
    for name, is_asked in (
        ("proxy-protocol", proxy),
        ("x-forwarded-for", forwards),
        ("default-tls-container-ref", tls_ref),
    ):
        if is_asked and any(port.protocol != "TCP" for _, port in ports):
            read.ignore(name, "on ports that are not TCP")
    names = Names.of(service, cluster)
    is_internal = config.internal_lb or read.internal()
    hostname = read.text("hostname")
    ranges = _ranges(service, families, read)
    return LoadBalancerRequest(
        names=names,
        annotations=read,
        ports=ports,
        families=families,
        must_be_dual=service.spec.get("ipFamilyPolicy") == "RequireDualStack",
        ranges=ranges,
        is_internal=is_internal,
        requested_ip=service.requested_ip,
        may_request_ip=config.allow_requested_ip,
        keeps_floating_ip=read.boolean("keep-floatingip"),
        place=read_place(read, config, classes),
        provider=config.lb_provider,
        settings=_listener_settings(read, config, ranges),
        pool_settings=_pool_settings(service, read, config),
        tls_ref=tls_ref,
        proxy=proxy or "",
        forwards=forwards,
        monitor=_monitor_settings(service, read, config),
        health_check=service.health_check,
        selector=node_selector(read, config),
        flavor_id=read.text("flavor-id", config.flavor_id),
        zone=read.text("availability-zone", config.availability_zone),
        hostname=hostname,
        hostname_suffix=config.ingress_hostname_suffix if config.enable_ingress_hostname else "",
        on_error=read.one_of(ON_ERROR, ("", "failover", "recreate"), ""),
        balancer_id=id_in(read, BALANCER_ID, ""),
    )


def families_of(service: Service) -> tuple[str, ...]:
    """The IP families that a Service asks for."""
    return tuple(family for family in service.ip_families if family in VERSIONS) or (IPV4,)


def _ports(service: Service, read: Annotations) -> Iterator[tuple[int, ServicePort]]:
    if not service.ports:
        raise Refused("the Service has no ports")
    served = {(port.protocol, port.number): port for port in service.node_ports(True)}
    for index, raw in enumerate(service.ports):
        port = served.get((str(raw.get("protocol") or "TCP"), int(str(raw.get("port")))))
        if port is None:
            read.warnings.append(f"port {raw.get('port')} is ignored: it has no node port")
        elif port.protocol not in MONITOR_TYPES:
            raise Refused(f"port {port.number} is {port.protocol}: Octavia has no such listeners")
        else:
            yield index, port


def _ranges(service: Service, families: Sequence[str], read: Annotations) -> tuple[str, ...]:
    """Who may come; networks of a family that the load balancer is not of are left out."""
    found: frozenset[Network] = service.source_ranges()
    if found == {EVERYBODY}:
        everybody = {IPV4: str(EVERYBODY), IPV6: "::/0"}
        return tuple(everybody[family] for family in families)
    versions = {VERSIONS[family] for family in families}
    usable = sorted(str(item) for item in found if item.version in versions)
    left_out = sorted(str(item) for item in found if item.version not in versions)
    if not usable:
        raise Refused(f"source ranges {', '.join(left_out)} are not of {', '.join(families)}")
    if left_out:
        why = f"the load balancer is of {', '.join(families)}"
        read.warnings.append(f"source ranges {', '.join(left_out)} are ignored: {why}")
    return tuple(usable)


def _listener_settings(read: Annotations, config: BalancerSection, ranges: tuple[str, ...]) -> Json:
    settings: Json = {"connection_limit": read.integer("connection-limit", -1, -1)}
    if config.lb_provider == OVN:
        if not config.manage_security_groups and not {*ranges} <= {str(EVERYBODY), "::/0"}:
            raise Refused("source ranges would not be enforced: OVN needs manage-security-groups")
        return settings
    for name, default in TIMEOUTS.items():
        settings[name.replace("-", "_")] = read.integer(name, default, 0, MAX_TIMEOUT)
    return {**settings, "allowed_cidrs": list(ranges)}


def _pool_settings(service: Service, read: Annotations, config: BalancerSection) -> Json:
    has_affinity = service.spec.get("sessionAffinity") == "ClientIP"
    return {
        "lb_algorithm": read.one_of("lb-method", LB_METHODS, config.lb_method),
        "session_persistence": {"type": "SOURCE_IP"} if has_affinity else None,
    }


def _monitor_settings(service: Service, read: Annotations, config: BalancerSection) -> Json | None:
    is_wanted = read.boolean("enable-health-monitor", config.create_monitor)
    if service.health_check and not is_wanted:
        # Without one, traffic would go to nodes without endpoints, and be lost.
        if read.has("enable-health-monitor"):
            why = "externalTrafficPolicy Local cannot do without a monitor"
            read.ignore("enable-health-monitor", why)
        is_wanted = True
    if not is_wanted:
        return None
    delay = read.integer("health-monitor-delay", int(config.monitor_delay), 1)
    timeout = read.integer("health-monitor-timeout", int(config.monitor_timeout), 1)
    if timeout >= delay:
        read.warnings.append(
            f"the health monitor's timeout of {timeout} s is not less than its delay of {delay} s: "
            "not every Octavia takes that; change annotation health-monitor-timeout or "
            "health-monitor-delay"
        )
    retries, down = config.monitor_max_retries, config.monitor_max_retries_down
    return {
        "delay": delay,
        "timeout": timeout,
        "max_retries": read.integer("health-monitor-max-retries", retries, 1, MAX_RETRIES),
        "max_retries_down": read.integer("health-monitor-max-retries-down", down, 1, MAX_RETRIES),
    }


def node_selector(
    read: Annotations, config: BalancerSection, length: int | None = None
) -> dict[str, str]:
    """The labels that Nodes behind a load balancer have; an empty value is any.

    With a `length`, those in so many characters.
    """
    selector = read.text("node-selector", config.node_selector)[:length]
    pairs = (part.partition("=") for part in selector.split(",") if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}
