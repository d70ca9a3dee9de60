"""What a Service asks of any type of load balancer, before it is known what there is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ccm.errors import Refused
from ccm.model.annotations import whole_number
from ccm.model.objects import Node
from ccm.model.service import EVERYBODY, HealthCheck, Service, ServicePort
from ccm.providers.aws import ids
from ccm.providers.aws.config import SharedProbe
from ccm.providers.aws.elb.annotations import CLASSIC, NUMBER, PREFIX, Annotations, is_internal
from ccm.providers.aws.tags import ClusterTag, says_ownership

IPV4, IPV6, DUALSTACK = "ipv4", "ipv6", "dualstack"
"""IP address types in AWS's words: an NLB is of IPv4 or of both, its targets are of one family."""
EVERYBODY_IPV6 = "::/0"
IMMUTABLE = "which cannot be changed after creation; recreate the Service"
MOST_RULES = 1000
"""Ports times source ranges; AWS has no more rules in the groups of one network interface."""
_CHECK_PLACE = ("healthcheck-protocol", "healthcheck-port", "healthcheck-path")


def is_open(ranges: Sequence[str]) -> bool:
    """Whether every source may come in: all of IPv4, and IPv6 without a limit of its own."""
    of_ipv6 = [item for item in ranges if ":" in item]
    return str(EVERYBODY) in ranges and (not of_ipv6 or EVERYBODY_IPV6 in of_ipv6)


@dataclass(frozen=True, slots=True)
class LoadBalancerRequest:
    """A Service as load balancers see it; its fields are checked, not all annotations are read."""

    key: str
    name: str  # of the load balancer
    annotations: Annotations
    ports: tuple[ServicePort, ...]
    ranges: tuple[str, ...]
    node_health_check: HealthCheck | None
    is_internal: bool
    tags: Mapping[str, str]
    ip_families: tuple[str, ...]
    requires_ipv6: bool
    tls_ports: frozenset[int]  # the numbers of the ports that get the certificate
    address_type: str = IPV4
    own_tags: Mapping[str, str] = field(default_factory=dict)  # of the load balancer alone

    @property
    def target_family(self) -> str:
        """Of which family the targets are: any instance has IPv4, and nodes serve both."""
        return IPV4 if "IPv4" in self.ip_families else IPV6

    def refuse_ranges(self, why: str) -> None:
        """Refuse source ranges that nothing would enforce, for this reason."""
        if not is_open(self.ranges):
            raise Refused(f"source ranges {', '.join(self.ranges)} would not be enforced: {why}")

    def refuse_ipv6(self, remedy: str) -> None:
        """Refuse what a load balancer of IPv4 cannot do."""
        if self.requires_ipv6:
            raise Refused(f"spec.ipFamilies: the load balancer is of IPv4: {remedy}")
        if only_ipv6 := [item for item in self.ranges if ":" in item]:
            raise Refused(f"source ranges {', '.join(only_ipv6)}: the load balancer is of IPv4")

    def keeping_scheme(self, is_internal: bool) -> "LoadBalancerRequest":
        """The same for a load balancer that is there."""
        if is_internal != self.is_internal:
            kind = "internal" if is_internal else "internet-facing"
            values = self.annotations.values
            name = "scheme" if "scheme" in values and "internal" not in values else "internal"
            self.annotations.ignore(name, f"the load balancer is {kind}, {IMMUTABLE}")
        return replace(self, is_internal=is_internal)


def read_request(service: Service, elb_type: str, tag: ClusterTag) -> LoadBalancerRequest:
    """The request of a Service; raises `Refused` for what no load balancer of this type can do."""
    annotations = Annotations.for_type(service, elb_type)
    if service.requested_ip:
        raise Refused("spec.loadBalancerIP cannot be had in AWS: use eip-allocations with an NLB")
    if service.spec.get("sessionAffinity") == "ClientIP":
        raise Refused("spec.sessionAffinity ClientIP is not supported in AWS")
    if not service.ports:
        raise Refused("the Service has no ports")
    ports = sorted(service.node_ports(True), key=lambda port: (port.number, port.protocol))
    for port in service.ports:
        if not port.get("nodePort"):
            annotations.notes.append(f"port {port.get('port')} is ignored: it has no node port")
    ranges = tuple(sorted(map(str, service.source_ranges())))
    if (count := len(ranges) * len(ports)) > MOST_RULES:
        raise Refused(
            f"{len(ranges)} source ranges for {len(ports)} ports take {count} rules, and AWS has"
            f" room for {MOST_RULES}: give each part of the ports a Service of its own"
        )
    request = LoadBalancerRequest(
        key=service.key,
        name=service.default_balancer_name,
        annotations=annotations,
        ports=tuple(ports),
        ranges=ranges,
        node_health_check=service.health_check,
        is_internal=is_internal(annotations),
        tags=_tags(service, annotations, tag),
        ip_families=service.ip_families,
        requires_ipv6=service.requires_ipv6,
        tls_ports=_tls_ports(annotations, ports),
    )
    if elb_type == CLASSIC:
        request.refuse_ipv6(f"annotate {PREFIX}type: nlb")
    return request


def _tags(service: Service, annotations: Annotations, tag: ClusterTag) -> dict[str, str]:
    additional, ours = annotations.key_values("additional-resource-tags"), tag.tags_for(service)
    if clash := sorted(filter(says_ownership, additional)):
        raise annotations.invalid("additional-resource-tags", f"it without {', '.join(clash)}")
    return {**additional, **ours}


def _tls_ports(annotations: Annotations, ports: Sequence[ServicePort]) -> frozenset[int]:
    """The numbers of the ports that get the certificate: those listed, or all of them.

    As upstream reads the list, blanks count.
    """
    numbers = frozenset(port.number for port in ports)
    if not annotations.text("ssl-cert"):
        return frozenset()
    if annotations.text("ssl-ports") in ("", "*"):
        return numbers
    by_name = {port.name: port.number for port in ports if port.name}
    found = set()
    for item in annotations.values["ssl-ports"].split(","):
        number = int(item) if NUMBER.fullmatch(item) else by_name.get(item)
        if number not in numbers:
            annotations.ignore("ssl-ports", f"{item!r} in it is not a port of the Service")
        else:
            found.add(number)
    return frozenset(found)


def label_selector(annotations: Annotations) -> Mapping[str, str]:
    """The labels that Nodes behind a load balancer have; an empty value is any."""
    return annotations.key_values("target-node-labels")


def target_instances(annotations: Annotations, nodes: Sequence[Node]) -> frozenset[str]:
    """The instances of the Nodes that carry the labels asked for; without Nodes, whatever is."""
    labels = label_selector(annotations).items() if nodes else ()
    return frozenset(
        instance_id
        for node in nodes
        if all(key in node.labels and value in ("", node.labels[key]) for key, value in labels)
        if (instance_id := ids.instance_id_of(node.provider_id))
    )


@dataclass(frozen=True, slots=True)
class ElbHealthCheck:
    """A health check; `port` is `traffic-port` or a number, `path` empty unless it is HTTP(S).

    `interval` and `timeout` are seconds, `healthy` and `unhealthy` numbers of checks.
    """

    protocol: str
    port: str
    path: str
    interval: int
    timeout: int
    healthy: int
    unhealthy: int


def read_health_check(
    request: LoadBalancerRequest,
    default: ElbHealthCheck,
    local: ElbHealthCheck,
    probe: SharedProbe | None,
) -> ElbHealthCheck:
    """The health check that the annotations ask for, with upstream's defaults.

    `default` is that of nodes that all serve, `local` that of a node that says so itself.
    """
    base = default
    if request.node_health_check:
        check = request.node_health_check
        base = replace(local, port=str(check.port), path=check.path)
    elif probe:
        base = replace(default, protocol="HTTP", port=str(probe.port), path=probe.path)
    read = request.annotations
    is_nlb = default.port == "traffic-port"
    if is_nlb and probe and not request.node_health_check:
        read = read.without(dict.fromkeys(_CHECK_PLACE, "all NLBs check kube-proxy (Shared)"))
    protocols = ("TCP", "HTTP", "HTTPS") if is_nlb else ("TCP", "SSL", "HTTP", "HTTPS")
    protocol = read.one_of("healthcheck-protocol", protocols, base.protocol).upper()
    port = read.text("healthcheck-port", base.port)
    if port != "traffic-port" and not 1 <= (whole_number(port) or 0) <= 65535:
        raise read.invalid("healthcheck-port", "a port or traffic-port")
    has_path = protocol in ("HTTP", "HTTPS")
    if not has_path and read.text("healthcheck-path"):
        read.ignore("healthcheck-path", f"a health check of {protocol} has no path")
    return ElbHealthCheck(
        protocol,
        port,
        read.text("healthcheck-path", base.path or "/") if has_path else "",
        read.integer("healthcheck-interval", base.interval, 5, 300),
        read.integer("healthcheck-timeout", base.timeout, 2, 120),
        read.integer("healthcheck-healthy-threshold", base.healthy, 2, 10),
        read.integer("healthcheck-unhealthy-threshold", base.unhealthy, 2, 10),
    )
