"""The Nodes behind a balancer, as a value: the same set for every Service."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ccm.model.node import Node
from workers.service.predicates import may_be_host


@dataclass(frozen=True, slots=True)
class Hosts:
    """A set of Nodes; two are equal when a balancer could not tell them apart.

    What counts is each Node's name, provider ID and addresses: what a cloud reaches it by.
    """

    nodes: tuple[Node, ...] = field(compare=False)
    reached_by: frozenset[Any]

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes]


def hosts_of(nodes: Iterable[Node], scheme: str) -> Hosts:
    """Those of `nodes` that may be hosts, by name."""
    chosen = sorted((n for n in nodes if may_be_host(n, scheme)), key=lambda node: node.name)
    return Hosts(tuple(chosen), frozenset(map(_reached_by, chosen)))


def _reached_by(node: Node) -> tuple[str, str, frozenset[tuple[str, str]]]:
    addresses = ((str(entry.get("type")), str(entry.get("address"))) for entry in node.addresses)
    return node.name, node.provider_id, frozenset(addresses)
