"""What a Service asks of any kind of balancer, before it is known what there is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ccm.errors import Refused
from ccm.model.node import Node
from ccm.model.objects import text
from ccm.model.service import HealthCheck, Network, Service
from ccm.providers.aws import ids
from ccm.providers.aws.annotations import Annotations, is_internal
from ccm.providers.aws.config import SharedProbe
from ccm.providers.aws.tags import Mark

UID_TAG = "ccm-supervisor/service-uid"


@dataclass(frozen=True, slots=True)
class Port:
    """One port of the Service that has a node port."""

    name: str
    number: int
    protocol: str
    node_port: int


@dataclass(frozen=True, slots=True)
class Request:
    """A Service as balancers see it; its values are checked, its annotations are not all read."""

    key: str
    uid: str
    name: str
    annotations: Annotations
    ports: tuple[Port, ...]
    ranges: tuple[str, ...]
    is_local_only: bool
    node_check: HealthCheck | None
    is_internal: bool
    tags: Mapping[str, str]

    @property
    def tls_ports(self) -> frozenset[int]:
        """The numbers of the ports that get the certificate: those listed, or all of them."""
        annotations = self.annotations
        if not annotations.text("ssl-cert"):
            return frozenset()
        listed = set(annotations.listed("ssl-ports"))
        every = not listed or "*" in listed
        is_listed = {p.number: p.name in listed or str(p.number) in listed for p in self.ports}
        return frozenset(number for number, yes in is_listed.items() if yes or every)


def name_of(service: Service) -> str:
    """Upstream's name: `a` and the UID without dashes, 32 characters at the most."""
    return f"a{service.uid.replace('-', '')}"[:32]


def marks_of(service: Service, mark: Mark) -> dict[str, str]:
    """The tags that say whose something is; upstream has all but that of the UID."""
    return {**mark.for_service(service), UID_TAG: service.uid}


def is_marked(service: Service, mark: Mark, tags: Mapping[str, str]) -> bool:
    """Whether these are the marks of the Service; upstream's objects lack that of the UID."""
    return mark.owns_for(service, tags) and tags.get(UID_TAG, service.uid) == service.uid


def read_request(service: Service, kind: str, mark: Mark) -> Request:
    """The request of a Service; raises `Refused` for what no balancer of this kind can do."""
    annotations = Annotations.of(service)
    annotations.check_known(kind)
    if service.requested_ip:
        raise Refused("spec.loadBalancerIP cannot be had in AWS: use eip-allocations with an NLB")
    if service.spec.get("sessionAffinity") == "ClientIP":
        raise Refused("spec.sessionAffinity ClientIP is not supported in AWS")
    if service.spec.get("ipFamilies") == ["IPv6"]:
        raise Refused("spec.ipFamilies: balancers of this provider are of IPv4")
    return Request(
        key=service.key,
        uid=service.uid,
        name=name_of(service),
        annotations=annotations,
        ports=_ports(service),
        ranges=_ranges(service.source_ranges()),
        is_local_only=service.is_local_only,
        node_check=service.health_check,
        is_internal=is_internal(annotations),
        tags=_tags(service, annotations, mark),
    )


def _ports(service: Service) -> tuple[Port, ...]:
    found = []
    for port in service.ports:
        protocol, number = text(port.get("protocol")) or "TCP", port.get("port")
        if not port.get("nodePort"):
            raise Refused(
                f"port {number} has no node port: set spec.allocateLoadBalancerNodePorts to true"
            )
        found.append(Port(text(port.get("name")), int(str(number)), protocol, port["nodePort"]))
    if not found:
        raise Refused("the Service has no ports")
    return tuple(sorted(found, key=lambda port: (port.number, port.protocol)))


def _ranges(networks: frozenset[Network]) -> tuple[str, ...]:
    if only_ipv6 := [str(one) for one in networks if one.version == 6]:
        raise Refused(f"source ranges {', '.join(only_ipv6)}: the balancer is of IPv4")
    return tuple(sorted(map(str, networks)))


def _tags(service: Service, annotations: Annotations, mark: Mark) -> dict[str, str]:
    more = annotations.pairs("additional-resource-tags")
    marks = marks_of(service, mark)
    if clash := sorted(more.keys() & marks.keys()):
        raise annotations.wrong("additional-resource-tags", f"it without {', '.join(clash)}")
    return {**more, **marks}


def targets_of(annotations: Annotations, hosts: Sequence[Node]) -> list[str]:
    """The instances of the Nodes that carry the labels asked for, each once."""
    wanted = annotations.pairs("target-node-labels")
    return sorted(
        {
            instance_id
            for node in hosts
            if wanted.items() <= node.labels.items()
            if (instance_id := ids.instance_id_of(node.provider_id))
            and not node.is_foreign(ids.SCHEME)
        }
    )


@dataclass(frozen=True, slots=True)
class Check:
    """A health check; `port` is `traffic-port` or a number, `path` empty unless it is HTTP(S)."""

    protocol: str
    port: str
    path: str
    interval: int
    timeout: int
    healthy: int
    unhealthy: int


def read_check(request: Request, usual: Check, local: Check, probe: SharedProbe | None) -> Check:
    """The health check that the annotations ask for, with upstream's defaults.

    `usual` is that of nodes that all serve, `local` that of a node that says so itself.
    """
    base = usual
    if request.node_check:
        check = request.node_check
        base = replace(local, port=str(check.port), path=check.path)
    elif probe:
        base = replace(usual, protocol="HTTP", port=str(probe.port), path=probe.path)
    read = request.annotations
    protocol = read.one_of("healthcheck-protocol", _protocols(usual), base.protocol).upper()
    port = read.text("healthcheck-port", base.port)
    if port != "traffic-port" and not (port.isdecimal() and 1 <= int(port) <= 65535):
        raise read.wrong("healthcheck-port", "a port or traffic-port")
    has_path = protocol in ("HTTP", "HTTPS")
    if not has_path and read.text("healthcheck-path"):
        raise read.wrong("healthcheck-path", "it with healthcheck-protocol HTTP or HTTPS only")
    return Check(
        protocol,
        port,
        read.text("healthcheck-path", base.path or "/") if has_path else "",
        read.integer("healthcheck-interval", base.interval, 5, 300),
        read.integer("healthcheck-timeout", base.timeout, 2, 120),
        read.integer("healthcheck-healthy-threshold", base.healthy, 2, 10),
        read.integer("healthcheck-unhealthy-threshold", base.unhealthy, 2, 10),
    )


def _protocols(usual: Check) -> tuple[str, ...]:
    is_network = usual.port == "traffic-port"
    return ("TCP", "HTTP", "HTTPS") if is_network else ("TCP", "SSL", "HTTP", "HTTPS")
