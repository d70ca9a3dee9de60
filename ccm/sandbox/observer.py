"""Watches the nodes from outside: what each still misses, how long each took to be ready."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ccm.kube.client import Kube
from ccm.kube.watch import Deleted, Updated, list_and_watch
from ccm.model.objects import Node

ZONE = "topology.kubernetes.io/zone"
TYPE = "node.kubernetes.io/instance-type"


def missing_fields(node: Node) -> list[str]:
    """What a node still needs from the cloud controller manager, in words for people."""
    needs = {
        "provider ID": not node.provider_id,
        "addresses": not node.addresses,
        "zone": ZONE not in node.labels,
        "type": TYPE not in node.labels,
        "taint removal": node.is_uninitialized,
    }
    return [what for what, is_missing in needs.items() if is_missing]


@dataclass
class TimedNode:
    """One node as it is now, and when it was first seen and first ready (monotonic)."""

    node: Node
    seen_at: float
    ready_at: float | None = None

    @property
    def seconds_to_ready(self) -> float | None:
        return None if self.ready_at is None else self.ready_at - self.seen_at


@dataclass
class NodeObserver:
    """Watches the nodes from outside, with a client of its own."""

    kube: Kube
    nodes: dict[str, TimedNode] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        async for event in list_and_watch(self.kube, "/api/v1/nodes"):
            match event:
                case Updated(raw):
                    self._see(Node(raw))
                case Deleted(raw):
                    self.nodes.pop(Node(raw).name, None)
            self.changed.set()

    def is_settled(self, expected: int) -> bool:
        """Whether `expected` nodes are there and lack nothing."""
        return len(self.nodes) >= expected and not self.unready()

    def unready(self) -> list[str]:
        return [name for name, seen in self.nodes.items() if seen.ready_at is None]

    def delays(self) -> list[float]:
        """Seconds from registration to ready, sorted, of the nodes that are ready."""
        delays = (seen.seconds_to_ready for seen in self.nodes.values())
        return sorted(delay for delay in delays if delay is not None)

    def _see(self, node: Node) -> None:
        now = time.monotonic()
        seen = self.nodes.setdefault(node.name, TimedNode(node, now))
        seen.node = node
        if seen.ready_at is None and not missing_fields(node):
            seen.ready_at = now


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The value below which `share` of `ordered` lies; None when there is nothing."""
    if not ordered:
        return None
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
