"""The Nodes behind a balancer, as a value: the same set for every Service."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ccm.model.node import Node
from workers.service.predicates import may_be_host

Reach = tuple[str, str, frozenset[tuple[str, str]]]
"""Name, provider ID and addresses of a Node: what a cloud reaches it by."""


@dataclass(frozen=True, slots=True)
class Host:
    """A Node that may stand behind a balancer."""

    node: Node
    reach: Reach


@dataclass(frozen=True, slots=True)
class Hosts:
    """A set of Nodes; two are equal when a balancer could not tell them apart."""

    nodes: tuple[Node, ...] = field(compare=False)
    reached_by: frozenset[Reach]

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes]


def host_of(node: Node, scheme: str) -> Host | None:
    """The Node as a host; None when it is none of the cloud whose provider IDs have `scheme`."""
    if not may_be_host(node, scheme):
        return None
    addresses = ((str(entry.get("type")), str(entry.get("address"))) for entry in node.addresses)
    return Host(node, (node.name, node.provider_id, frozenset(addresses)))


def hosts_of(hosts: Iterable[Host]) -> Hosts:
    """The set of these hosts, by name."""
    ordered = sorted(hosts, key=lambda host: host.reach[0])
    reached_by = frozenset(host.reach for host in ordered)
    return Hosts(tuple(host.node for host in ordered), reached_by)
