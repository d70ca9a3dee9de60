"""The rules of the firewall of node ports: upstream's, from all Services; nothing in here acts."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.errors import Refused
from ccm.model.objects import Json, objects, text
from ccm.model.records import differences
from ccm.model.service import Service
from ccm.providers.digitalocean.config import NETWORK
from ccm.providers.digitalocean.lb.annotations import PREFIX, read_boolean
from ccm.providers.digitalocean.lb.request import EXTERNAL, KUBE_PROXY_PORT

MANAGED = "kubernetes.digitalocean.com/firewall-managed"
EVERYBODY = ("0.0.0.0/0", "::/0")
ALL_PORTS = "0"
_ALL_PORTS = ("", "all", ALL_PORTS)


@dataclass(frozen=True, slots=True, order=True)
class Inbound:
    """A port that is open: to everybody, or to the load balancer of the Service with this UID."""

    protocol: str
    port: int
    service_uid: str = ""


def opened(services: Iterable[Service], default_type: str) -> set[Inbound]:
    """The ports that Services need; what is wrong in one of them opens nothing."""
    return {rule for service in services for rule in _of_service(service, default_type)}


def _of_service(service: Service, default_type: str) -> Iterator[Inbound]:
    if service.type == "NodePort" and _is_managed(service):
        for port in service.ports:
            if number := port.get("nodePort"):
                yield from _inbound(port, number)
    elif service.type == "LoadBalancer" and _passes_through(service, default_type):
        check = service.health_check
        if service.ingress:
            yield Inbound("tcp", check.port if check else KUBE_PROXY_PORT, service.uid)
        for port in service.ports:
            yield from _inbound(port, port.get("port"))


def _inbound(port: Json, number: object) -> Iterator[Inbound]:
    protocol = (text(port.get("protocol")) or "TCP").lower()
    if protocol in ("tcp", "udp") and isinstance(number, int):
        yield Inbound(protocol, number)


def _is_managed(service: Service) -> bool:
    """Unless it says false; as upstream, text that is no bool is no reason to close a port."""
    try:
        return read_boolean(MANAGED, str(service.annotations.get(MANAGED, "true")))
    except Refused:
        return True


def _passes_through(service: Service, default_type: str) -> bool:
    said = service.annotations
    kind = str(said.get(f"{PREFIX}type") or default_type)
    return kind == NETWORK and str(said.get(f"{PREFIX}network") or EXTERNAL) == EXTERNAL


def body(
    name: str,
    tags: Collection[str],
    rules: Iterable[Inbound],
    balancers: Mapping[str, str],
    there: Json,
) -> Json:
    """The firewall's record; droplets that somebody added to it stay.

    `balancers` are the IDs of the load balancers by the UIDs of their Services; to one that is not
    there nothing is open.
    """
    return {
        "name": name,
        "tags": sorted(tags),
        "droplet_ids": there.get("droplet_ids") or [],
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
    sources: Json = {"addresses": [*EVERYBODY]}
    if balancer_id:
        sources = {"load_balancer_uids": [balancer_id]}
    return {"protocol": rule.protocol, "ports": str(rule.port), "sources": sources}


def is_different(wanted: Json, there: Json) -> bool:
    """Whether it takes a write."""
    return bool(differences(wanted, there, _counts))


def _counts(key: str, value: Any) -> Any:
    """A rule of all ports is shown in several ways."""
    if not key.endswith("_rules"):
        return value
    return [
        {**rule, "ports": ALL_PORTS if text(rule.get("ports")) in _ALL_PORTS else rule["ports"]}
        for rule in objects(value)
    ]
