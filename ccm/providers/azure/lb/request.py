"""What a Service asks of its load balancer, as Resource Manager has it; nothing in here acts."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)

from ccm.errors import Refused
from ccm.model.cloud import Network, read_address, read_network
from ccm.model.objects import Json, text
from ccm.model.service import MOST_RULES, SOURCE_RANGES, Service, ServicePort
from ccm.providers.azure.config import SHARED, AzureConfig
from ccm.providers.azure.lb.annotations import (
    CONFIGURATIONS,
    INTERNAL,
    PREFIX,
    RESOURCE_GROUP,
    Annotations,
)
from ccm.providers.azure.lb.names import IPV4, IPV6, SHARED_PROBE, Names

INTERNET = "Internet"  # the service tag of all addresses outside
DENIES = "deny-all-except-load-balancer-source-ranges"
TRANSPORTS = {"TCP": "Tcp", "UDP": "Udp", "SCTP": "All"}
RULE_PROTOCOLS = {"TCP": "Tcp", "UDP": "Udp", "SCTP": "*"}
PROBE_PROTOCOLS = {"tcp": "Tcp", "http": "Http", "https": "Https"}
LEAST_IDLE, MOST_IDLE = 4, 100  # minutes
LEAST_INTERVAL, LEAST_PROBES = 5, 2
MOST_PROBE_SECONDS = 120
PROBE_PATH = "/"
SERVICE_TAG = re.compile(r"[A-Za-z0-9.*]{1,80}")
MOST_SERVICE_TAGS = 50
MOST_ADDITIONAL = 100  # addresses by annotation; the group of all Services takes 4,000
_PRIVATE = "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"
INNER = [*map(ip_network, _PRIVATE)]
PLATFORM = ip_address("168.63.129.16")  # Azure's DNS and agent, for every machine


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """Which public address a family has: one of this name that is there, or one of a prefix."""

    name: str = ""
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class BalancerRequest:
    """A Service as load balancers see it, checked; `fixed` are addresses by family."""

    service: Service
    names: Names
    annotations: Annotations
    config: AzureConfig
    is_internal: bool
    subnet: str
    fixed: Mapping[str, str]
    ports: Sequence[ServicePort]
    node_ports: Mapping[str, int]  # by the names, in small letters, and numbers of the ports
    sources: Sequence[str] = ()
    denies_others: bool = False
    public: Mapping[str, PublicAddress] = field(default_factory=dict)
    additional: Sequence[str] = ()

    @property
    def families(self) -> Sequence[str]:
        return self.service.ip_families

    @property
    def is_floating(self) -> bool:
        return self.annotations.floats

    @property
    def has_fixed_address(self) -> bool:
        """Whether the Service names its address, which has its load balancer."""
        return bool(self.fixed) or any(item.name for item in self.public.values())

    @property
    def warnings(self) -> list[str]:
        return self.annotations.warnings

    def floats(self, family: str) -> bool:
        """Internal load balancers cannot do it for IPv6 (upstream's rule)."""
        return self.is_floating and not (self.is_internal and family == IPV6)

    def security_ports(self, shares: bool = False) -> dict[str, list[str]]:
        """Destination ports by protocol, sorted as text, as upstream does it.

        Where others have ports as well, as it `shares` an address or has that of machines, only
        those that lead to it.
        """
        found: dict[str, list[str]] = {}
        is_alone = self.is_ha or (self.is_floating and not shares)
        for port in self.ports if is_alone else self._ruled_ports():
            number = port.number if self.is_floating else port.node_port
            found.setdefault(RULE_PROTOCOLS[port.protocol], []).append(str(number))
        return {protocol: sorted(set(ports)) for protocol, ports in found.items()}

    # Rules and probes

    def rules(self, family: str, frontend: str, pool: str, probes: str) -> list[Json]:
        """The rules, with the IDs of what they refer to; `probes` is the path of probes."""
        if self.is_ha:
            first = self.ports[0]
            rule = self._rule(family, first, frontend, pool)
            rule["properties"] |= {
                "protocol": "All", "frontendPort": 0, "backendPort": 0,
                "enableTcpReset": self._resets,
            }  # fmt: skip
            found = self.probes(family)
            if found:
                rule["properties"]["probe"] = {"id": f"{probes}/{found[0]['name']}"}
            return [rule]
        rules = []
        for port in self._ruled_ports():
            rule = self._rule(family, port, frontend, pool)
            if probe := self._probe_of(port, family):
                rule["properties"]["probe"] = {"id": f"{probes}/{probe['name']}"}
            rules.append(rule)
        return rules

    def probes(self, family: str) -> list[Json]:
        """Each probe once."""
        ports = self.ports if self.is_ha else self._ruled_ports()
        found = {probe["name"]: probe for port in ports if (probe := self._probe_of(port, family))}
        return list(found.values())[: 1 if self.is_ha else None]

    @property
    def is_ha(self) -> bool:
        """Whether it has all ports of its address."""
        return self.is_internal and self.annotations.is_true(
            "load-balancer-enable-high-availability-ports"
        )

    @property
    def _resets(self) -> bool:
        return not self.annotations.is_true("load-balancer-disable-tcp-reset")

    def _ruled_ports(self) -> Iterator[ServicePort]:
        for port in self.ports:
            if not self.annotations.is_port_true(port.number, "no_lb_rule"):
                yield port

    def _rule(self, family: str, port: ServicePort, frontend: str, pool: str) -> Json:
        floats = self.floats(family)
        affinity = self.service.spec.get("sessionAffinity") == "ClientIP"
        properties: Json = {
            "protocol": TRANSPORTS[port.protocol],
            "frontendPort": port.number,
            "backendPort": port.number if floats else port.node_port,
            "enableFloatingIP": floats,
            "disableOutboundSnat": self.config.disable_outbound_snat,
            "idleTimeoutInMinutes": self.annotations.number(
                "load-balancer-tcp-idle-timeout", LEAST_IDLE, MOST_IDLE, LEAST_IDLE
            ),
            "loadDistribution": "SourceIP" if affinity else "Default",
            "frontendIPConfiguration": {"id": frontend},
            "backendAddressPool": {"id": pool},
        }
        if port.protocol == "TCP":
            properties["enableTcpReset"] = self._resets
        return {
            "name": self.names.rule(port.protocol, port.number, family),
            "properties": properties,
        }

    def _probe_of(self, port: ServicePort, family: str) -> Json | None:
        """Of one port: its own by annotation, else the Service's health check, else its port's."""
        if self.annotations.is_port_true(port.number, "no_probe_rule"):
            return None
        asked, health = (
            self.annotations.of_port(port.number, "health-probe_port"),
            self._health(family),
        )
        is_shared = health is not None and health["name"] == SHARED_PROBE
        if port.protocol != "TCP" or is_shared or (health and not asked):
            return health
        protocol = self.annotations.of_port(port.number, "health-probe_protocol")
        protocol = (
            protocol
            or port.app_protocol
            or self.annotations.text("load-balancer-health-probe-protocol")
        )
        kind = PROBE_PROTOCOLS.get(protocol.lower(), "Tcp")
        properties: Json = {"protocol": kind, "port": self._probe_port(port, asked)}
        if kind != "Tcp":
            path = self.annotations.probe_text(port.number, "request-path")
            properties["requestPath"] = path or PROBE_PATH
        return {
            "name": self.names.rule(port.protocol, port.number, family),
            "properties": properties | self._timing(port.number),
        }

    def _health(self, family: str) -> Json | None:
        """The probe of all ports: kube-proxy's on each node, where one is asked for."""
        if health := self.service.health_check:
            properties: Json = {"protocol": "Http", "port": health.port, "requestPath": health.path}
            name = self.names.rule("TCP", health.port, family)
            return {"name": name, "properties": properties | self._timing(health.port)}
        config = self.config
        is_shared = config.cluster_service_load_balancer_health_probe_mode == SHARED
        if is_shared and not self.service.is_local_only:
            properties = {
                "protocol": "Http",
                "port": config.cluster_service_shared_load_balancer_health_probe_port,
                "requestPath": config.cluster_service_shared_load_balancer_health_probe_path,
                "intervalInSeconds": LEAST_INTERVAL,
                "probeThreshold": LEAST_PROBES,
            }
            return {"name": SHARED_PROBE, "properties": properties}
        return None

    def _timing(self, port: int) -> Json:
        interval = self.annotations.probe_number(port, "interval", LEAST_INTERVAL, LEAST_INTERVAL)
        count = self.annotations.probe_number(port, "num-of-probe", LEAST_PROBES, LEAST_PROBES)
        if interval * count >= MOST_PROBE_SECONDS:
            raise Refused(
                f"port {port}: {count} probes every {interval} s take {interval * count} s; they "
                f"have to take less than {MOST_PROBE_SECONDS} s"
            )
        return {"intervalInSeconds": interval, "probeThreshold": count}

    def _probe_port(self, port: ServicePort, asked: str) -> int:
        """The node port of the Service's port of this number or name, or another number."""
        if not asked:
            return port.node_port
        if asked.lower() in self.node_ports:
            return self.node_ports[asked.lower()]
        if not (asked.isascii() and asked.isdecimal() and len(asked) < 6 and int(asked) <= 65535):
            raise Refused(
                f"port {port.number}: its probe's port {asked!r} is none of the Service's"
            )
        return int(asked)


def read_request(service: Service, config: AzureConfig, cluster: str) -> BalancerRequest:
    """What the Service asks for; raises `Refused` for what Azure or this provider cannot do."""
    annotations = Annotations(service.annotations)
    annotations.check()
    is_internal = service.annotations.get(INTERNAL) == "true"
    subnet = annotations.text("load-balancer-internal-subnet") if is_internal else ""
    ports = service.node_ports()
    if any(port.protocol == "SCTP" for port in ports) and not is_internal:
        raise Refused("SCTP needs an internal load balancer")
    if is_internal and not (config.vnet_name and (subnet or config.subnet_name)):
        raise Refused("an internal load balancer needs vnetName and subnetName in azure.json")
    if annotations.text(CONFIGURATIONS) and not config.balancers:
        why = "azure.json has one load balancer"
        annotations.warnings.append(f"annotation {PREFIX}{CONFIGURATIONS} has no effect: {why}")
    if (group := annotations.text(RESOURCE_GROUP)) != annotations.resource_group:
        raise Refused(f"annotation {PREFIX}{RESOURCE_GROUP}: {group!r} is not a resource group")
    sources, denies_others = _sources(service, annotations, is_internal)
    if denies_others and not annotations.floats:
        raise Refused(
            f"annotation {PREFIX}{DENIES}: without floating IP it would deny all traffic to the"
            " machines themselves: remove one of the two"
        )
    families = service.ip_families
    public = {item: _public(annotations, item, is_dual=len(families) > 1) for item in families}
    request = BalancerRequest(
        service=service,
        names=Names(cluster, service, subnet, bool(config.balancers)),
        annotations=annotations,
        config=config,
        is_internal=is_internal,
        subnet=subnet or config.subnet_name,
        fixed=_fixed(service, annotations),
        ports=ports,
        node_ports=_by_name(ports),
        sources=sources,
        denies_others=denies_others,
        public={} if is_internal else public,
        additional=additional_ips(annotations),
    )
    for family in request.families:
        request.probes(family)
        request.rules(family, "", "", "")  # what is refused is refused before any call
    return request


def _by_name(ports: Sequence[ServicePort]) -> dict[str, int]:
    """The first that has a name or number counts."""
    listed = [
        (key, port.node_port) for port in ports for key in (port.name.lower(), str(port.number))
    ]
    return dict(reversed(listed))


def additional_ips(annotations: Annotations) -> list[str]:
    """Public addresses of someone else's load balancer that kube-proxy is to serve."""
    key, found = f"{PREFIX}additional-public-ips", annotations.items("additional-public-ips")
    if len(found) > MOST_ADDITIONAL:
        raise Refused(f"annotation {key}: more than {MOST_ADDITIONAL} addresses")
    try:
        addresses = [_unmapped(ip_address(item)) for item in found]
    except ValueError as error:
        raise Refused(f"annotation {key}: {error}") from error
    for address in addresses:  # of a machine, ports would be open
        if _is_inner(address) or address == PLATFORM:
            raise Refused(f"annotation {key}: {address} is not a public address")
    return [str(address) for address in addresses]


def without_taken(
    request: BalancerRequest, others: Collection[str], *, is_new: bool
) -> BalancerRequest:
    """Without the additional addresses that others have by now; a new Service's are refused."""
    for ip in sorted({*request.additional} & {*others}):
        why = f"{ip} is the address of another Service"
        if is_new:
            raise Refused(why)
        request.warnings.append(f"annotation {PREFIX}additional-public-ips: {why}")
    return replace(request, additional=[ip for ip in request.additional if ip not in others])


def published_ips(service: Service) -> set[str]:
    """Public addresses in the status, among which are additional ones that it had."""
    found = (read_address(text(item.get("ip"))) for item in service.ingress)
    return {str(ip) for ip in found if ip and not _is_inner(ip)}


def _unmapped(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """What kube-proxy takes it for: `::ffff:192.0.2.1` is 192.0.2.1."""
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _is_inner(ip: IPv4Address | IPv6Address) -> bool:
    """Whether it may be a machine's own."""
    is_special = ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified
    return is_special or any(ip in item for item in INNER)


def _public(annotations: Annotations, family: str, *, is_dual: bool) -> PublicAddress:
    end = "-ipv6" if family == IPV6 else ""
    name = annotations.text(f"pip-name{end}")
    if not name and not is_dual:
        name = annotations.text("pip-name")
    return PublicAddress(name=name, prefix=annotations.text(f"pip-prefix-id{end}"))


def _fixed(service: Service, annotations: Annotations) -> dict[str, str]:
    """Requested addresses by family; annotations count before `loadBalancerIP`."""
    found = dict[str, str]()
    for family, name in ((IPV4, "load-balancer-ipv4"), (IPV6, "load-balancer-ipv6")):
        if asked := annotations.text(name):
            found[family] = _ip(asked, PREFIX + name, family)
    if service.requested_ip and not found:
        ip = _ip(service.requested_ip, "spec.loadBalancerIP")
        found[IPV6 if ":" in ip else IPV4] = ip
    return {family: ip for family, ip in found.items() if family in service.ip_families}


def _ip(value: str, where: str, family: str = "") -> str:
    try:
        found = ip_address(value)
        if family and f"IPv{found.version}" != family:
            raise ValueError(f"{value!r} is not {family}")
    except ValueError as error:
        raise Refused(f"{where}: {error}") from error
    return str(found)


def _sources(
    service: Service, annotations: Annotations, is_internal: bool
) -> tuple[list[str], bool]:
    """Who may come: networks and service tags, and whether all others in the network may not."""
    tags, allowed = (
        annotations.items("allowed-service-tags"),
        annotations.networks("allowed-ip-ranges"),
    )
    is_given = bool(
        service.spec.get("loadBalancerSourceRanges") or service.annotations.get(SOURCE_RANGES)
    )
    ranges: list[Network] = sorted(service.source_ranges(), key=str) if is_given else []
    if ranges and allowed:
        raise Refused(f"annotation {PREFIX}allowed-ip-ranges: there are source ranges as well")
    if ranges and tags:
        annotations.warnings.append("source ranges and allowed-service-tags both let clients in")
    if len(tags) > MOST_SERVICE_TAGS:  # each is a rule of the group that all Services share
        raise Refused(f"annotation {PREFIX}allowed-service-tags: more than {MOST_SERVICE_TAGS}")
    for tag in tags:
        if not (SERVICE_TAG.fullmatch(tag) or read_network(tag)):
            raise Refused(f"annotation {PREFIX}allowed-service-tags: {tag!r} is not a service tag")
    if len(allowed) * len(service.ports) > MOST_RULES:
        why = f"{len(allowed)} networks for {len(service.ports)} ports are more than {MOST_RULES}"
        raise Refused(f"annotation {PREFIX}allowed-ip-ranges: {why} rules")
    networks = ranges + allowed
    if not tags and not networks and not is_internal:
        tags = [INTERNET]
    denies = annotations.is_true(DENIES) and bool(networks)
    return [*tags, *_collapsed(networks)], denies


def _collapsed(networks: Sequence[Network]) -> list[str]:
    v4 = collapse_addresses(network for network in networks if isinstance(network, IPv4Network))
    v6 = collapse_addresses(network for network in networks if isinstance(network, IPv6Network))
    return [*map(str, v4), *map(str, v6)]
