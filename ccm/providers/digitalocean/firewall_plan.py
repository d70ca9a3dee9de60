"""The rules of the firewall of node ports: upstream's, from all Services; nothing in here acts."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Any

from ccm.errors import Refused
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.records import differences
from ccm.model.service import HealthCheck, Service, admits_everybody
from ccm.providers.digitalocean.config import NETWORK
from ccm.providers.digitalocean.lb.annotations import PREFIX, is_disowned, read_boolean
from ccm.providers.digitalocean.lb.request import EXTERNAL, KUBE_PROXY_PORT

MANAGED = "kubernetes.digitalocean.com/firewall-managed"
EVERYBODY = ("0.0.0.0/0", "::/0")
ALL_PORTS = "0"
_ALL_PORTS = ("", "all", ALL_PORTS)
MOST_RULES = 47  # of DigitalOcean's 50, beside the three of outbound traffic
MOST_SOURCES = 1000  # of one rule; DigitalOcean's
MOST_PORTS = 100  # of one Service that are looked at: without node ports there may be 65,535


@dataclass(frozen=True, slots=True, order=True)
class Inbound:
    """A port that is open to `sources`; without any, to the load balancer of its Service.

    One with a `service_uid` is open only while that Service has a load balancer of its own.
    """

    protocol: str
    port: int
    service_uid: str = ""
    sources: tuple[str, ...] = EVERYBODY


Users = Mapping[tuple[str, int], str]
"""UIDs of Services by protocol and node port, also that of health checks."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What matters of a Service, read once: it may have thousands of ports and source ranges.

    Without `sources` packets do not reach Nodes at its own `ports`. `service` is without its spec.
    """

    service: Service
    node_ports: Sequence[tuple[str, int]]
    is_open: bool  # to all: the node ports
    check: HealthCheck | None
    ports: Sequence[tuple[str, int]]
    sources: tuple[str, ...]

    @classmethod
    def of(cls, service: Service, default_type: str) -> "Reading":
        """Those of its ports and sources that a firewall may have room for."""
        has_node_ports = service.has_node_ports
        return cls(
            Service({**service.raw, "spec": {}}),
            (*_ports(service, "nodePort"),) if has_node_ports else (),
            service.type == "NodePort" and _is_managed(service),
            service.health_check if has_node_ports else None,
            (*islice(_ports(service, "port"), MOST_PORTS),),
            _sources_that_pass(service, default_type),
        )


def opened(
    readings: Collection[Reading], may_open: Callable[[int], bool], *, with_taken: bool = False
) -> set[Inbound]:
    """The ports that Services need; what is wrong in one of them opens nothing.

    `may_open` says of a port that it is no other program's on the Nodes, such as SSH's. A node port
    of another Service is opened for none but that one, unless `with_taken`.
    """
    users = {} if with_taken else _users(readings)
    return {*chain.from_iterable(_of_service(item, may_open, users) for item in readings)}


def fitting(readings: Collection[Reading], may_open: Callable[[int], bool]) -> set[Inbound]:
    """Those of `opened` that fit into the one firewall of the cluster.

    Namespaces have a rule each in turns: what one of them asks for closes no port of another.
    """
    by_namespace, users = defaultdict[str, set[Inbound]](set), _users(readings)
    for item in readings:
        for rule in _of_service(item, may_open, users):
            if len(rule.sources) <= MOST_SOURCES:
                by_namespace[item.service.namespace].add(rule)
    turns = zip_longest(*(sorted(rules) for _, rules in sorted(by_namespace.items())))
    return {*islice(dict.fromkeys(rule for turn in turns for rule in turn if rule), MOST_RULES)}


def _users(readings: Collection[Reading]) -> Users:
    users = {("tcp", it.check.port): it.service.uid for it in readings if it.check}
    return users | {port: it.service.uid for it in readings for port in it.node_ports}


def _of_service(item: Reading, may_open: Callable[[int], bool], users: Users) -> Iterator[Inbound]:
    if item.is_open:
        for protocol, number in item.node_ports:
            yield Inbound(protocol, number)
    elif item.sources:
        uid = item.service.uid
        yield Inbound("tcp", item.check.port if item.check else KUBE_PROXY_PORT, uid, ())
        for protocol, number in item.ports:
            if may_open(number) and users.get((protocol, number), uid) == uid:
                yield Inbound(protocol, number, uid, item.sources)


def _ports(service: Service, field: str) -> Iterator[tuple[str, int]]:
    """Protocols and numbers of the ports that a firewall can open."""
    for port in service.ports:
        protocol, number = (text(port.get("protocol")) or "TCP").lower(), port.get(field)
        if protocol in ("tcp", "udp") and isinstance(number, int) and number:
            yield protocol, number


def _sources(service: Service) -> tuple[str, ...]:
    ranges = service.source_ranges()
    if admits_everybody(ranges):
        return EVERYBODY
    return tuple(sorted(map(str, ranges))[: MOST_SOURCES + 1])


def _is_managed(service: Service) -> bool:
    """Unless it says false; as upstream, text that is no bool is no reason to close a port."""
    try:
        return read_boolean(MANAGED, str(service.annotations.get(MANAGED, "true")))
    except Refused:
        return True


def _sources_that_pass(service: Service, default_type: str) -> tuple[str, ...]:
    """From where packets reach Nodes at the Service's own ports; its load balancer is there."""
    said = service.annotations
    kind = str(said.get(f"{PREFIX}type") or default_type)
    is_external = str(said.get(f"{PREFIX}network") or EXTERNAL) == EXTERNAL
    if not (service.type == "LoadBalancer" and kind == NETWORK and is_external and service.ingress):
        return ()
    try:
        return () if is_disowned(service) else _sources(service)
    except Refused:
        return ()


def body(
    name: str,
    tags: Collection[str],
    rules: Iterable[Inbound],
    balancers: Mapping[str, str],
    current: Json,
) -> Json:
    """The firewall's record; droplets that someone added to it stay.

    `balancers` are the IDs of the load balancers by the UIDs of their Services; for a Service
    without one nothing is open.
    """
    return {
        "name": name,
        "tags": sorted(tags),
        "droplet_ids": current.get("droplet_ids") or [],
        "inbound_rules": [
            _rule(rule, balancers.get(rule.service_uid, ""))
            for rule in sorted(rules)
            if not rule.service_uid or rule.service_uid in balancers
        ],
        "outbound_rules": [
            {"protocol": protocol, "ports": ports, "destinations": {"addresses": [*EVERYBODY]}}
            for protocol, ports in (("tcp", "all"), ("udp", "all"), ("icmp", ALL_PORTS))
        ],
    }


def _rule(rule: Inbound, balancer_id: str) -> Json:
    to_balancer: Json = {"load_balancer_uids": [balancer_id]}
    sources = {"addresses": [*rule.sources]} if rule.sources else to_balancer
    return {"protocol": rule.protocol, "ports": str(rule.port), "sources": sources}


def balancers_of(current: Json) -> set[str]:
    """The IDs of the load balancers that a firewall lets in."""
    sources = (mapping(rule.get("sources")) for rule in objects(current.get("inbound_rules")))
    uids = (text(item) for source in sources for item in source.get("load_balancer_uids") or ())
    return {*uids} - {""}


def is_different(wanted: Json, current: Json) -> bool:
    """Whether it takes a write."""
    return bool(differences(wanted, current, _counts))


def _counts(key: str, value: Any) -> Any:
    """A rule of all ports is shown in several ways."""
    if not key.endswith("_rules"):
        return value
    return [
        {**rule, "ports": ALL_PORTS if text(rule.get("ports")) in _ALL_PORTS else rule["ports"]}
        for rule in objects(value)
    ]
