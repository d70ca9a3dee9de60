"""Load balancers and routes of ours that nothing in the cluster requires any more."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ccm.model.cloud import UID_BEGIN, OwnedBalancer, Route, read_network
from ccm.model.objects import Node
from ccm.model.service import Service


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something in the cloud with our tag; `why` says what it lacks."""

    kind: str
    name: str
    why: str


def orphaned_balancers(
    balancers: Iterable[OwnedBalancer], services: Iterable[Service]
) -> Iterator[Orphan]:
    """Load balancers that no worker will delete; `services` were listed after `balancers`.

    A Service with our finalizer still leads a worker to its balancer.
    """
    by_uid = {service.uid: service for service in services}
    by_begin = {uid[:UID_BEGIN]: service for uid, service in by_uid.items()}
    for balancer in balancers:
        uid, owner = balancer.service_uid, balancer.service or "its Service"
        service = by_begin.get(uid) if len(uid) == UID_BEGIN else by_uid.get(uid)
        if service is None:
            why = f"{owner} ({uid}) does not exist"
            yield Orphan("load balancer", balancer.name, why)
        elif service.type != "LoadBalancer" and not service.has_finalizer:
            why = f"Service {service.key} is of type {service.type} and lacks our finalizer"
            yield Orphan("load balancer", balancer.name, why)


def orphaned_routes(routes: Iterable[Route], nodes: Iterable[Node]) -> Iterator[Orphan]:
    """Routes that lead to no Node, or to one with other pod networks."""
    networks = {node.name: {*map(_network, node.pod_cidrs)} for node in nodes}
    for route in routes:
        name = f"{route.cidr} ({route.id})"
        if route.node not in networks:
            yield Orphan("route", name, "no Node has the machine it leads to")
        elif _network(route.cidr) not in networks[route.node]:
            yield Orphan("route", name, f"Node {route.node} has other pod networks")


def _network(cidr: str) -> object:
    """What is compared: a network, or the text when it is not a network."""
    return read_network(cidr) or cidr
