"""Nodes on a real API server: registering them, and every state that a watch saw them in."""

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ccm.kube import config
from ccm.kube.client import Kube
from ccm.kube.watch import Updated, list_and_watch
from ccm.model.objects import Node
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.kubelets import new_machines, register
from ccm.sandbox.observer import missing_fields
from tests.support.deadlines import PATIENCE, timeout, within


async def connect(kubeconfig: Path) -> Kube:
    """A client of the test's own, which the audit log tells apart from the supervisor's."""
    return Kube(await config.load(str(kubeconfig)), "test")


async def add_machines_and_nodes(
    kube: Kube, cloud_url: str, count: int, first: int = 1
) -> list[str]:
    """Machines vm-<first> and following in the cloud, and a tainted Node for each of them."""
    async with CloudAdmin(cloud_url, timeout()) as cloud:
        machines = await cloud.add(new_machines(first, count))
    names = [machine.name for machine in machines]
    await register(kube, names)
    return names


@dataclass
class NodeWatcher:
    """Follows all Nodes and keeps, for each, the distinct contents it has had of what we write."""

    kube: Kube
    nodes: dict[str, Node] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    contents: dict[str, dict[str, set[bytes]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )

    async def run(self) -> None:
        async for event in list_and_watch(self.kube, "/api/v1/nodes"):
            if isinstance(event, Updated):
                self._on_update(Node(event.raw))

    def initialized(self) -> int:
        return sum(not missing_fields(node) for node in self.nodes.values())

    async def until_initialized(self, count: int) -> None:
        try:
            async with within(2 * PATIENCE):
                while self.initialized() < count:
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            raise AssertionError(f"{self.initialized()} of {count} are initialized") from None

    def rewritten(self) -> list[str]:
        """Nodes on which a field of ours had more than one content after it was first written."""
        return [
            f"{name} {what}: {sorted(values)}"
            for name, fields in self.contents.items()
            for what, values in fields.items()
            if len(values) > 1
        ]

    def _on_update(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.changed.set()
        for what, value in _ours(node):
            if value:
                self.contents[node.name][what].add(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def _ours(node: Node) -> Iterable[tuple[str, Any]]:
    yield "provider ID", node.provider_id
    yield "addresses", node.addresses if node.provider_id else []  # the kubelet's own before
    cloud_labels = {k: v for k, v in node.labels.items() if "zone" in k or "region" in k}
    yield "labels", cloud_labels


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
