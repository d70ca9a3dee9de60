"""One cluster with real kubelets, without containers, and what tests ask of it."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ccm.bus.control import ask
from ccm.model.objects import Json, Node
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Address, Machine
from tests.support.deadlines import timeout
from tests.support.kube.kubelets import POD_NETWORK, Kubelets
from tests.support.running import IS_LONG, Cloud, Supervisor, until

NODES = "/api/v1/nodes"
WAVE = [f"wave-{number}" for number in range(1, 21 if IS_LONG else 4)]
BY_IP = {"ip-v4": "v4", "ip-v6": "v6", "ip-both": "v4,v6", "ip-any": "::"}
NAMES = [
    *WAVE,
    *BY_IP,
    *("id-right", "id-foreign", "id-nowhere", "bootstrap", "returning", "stopped", "ended"),
    *("twin", "twin-ip", "replaced", "drained"),
]
FLAGS = (
    "--controllers=*",
    f"--cluster-cidr={POD_NETWORK}",
    "--cloud-rate=write=200",
    # As in the sandbox: what waits for kube-controller-manager waits for nothing else.
    "--node-monitor-period=1s",
    "--node-deletion-confirmation-period=5s",
    # So that silence has refreshes and comparisons.
    "--node-status-update-frequency=4s",
    "--route-reconciliation-period=10s",
)
OURS = "ccm-supervisor"


@dataclass(frozen=True)
class World:
    """One cluster with kubelets of a release, its cloud and a leader."""

    release: str
    kubelets: Kubelets
    cloud: Cloud
    admin: CloudAdmin
    supervisor: Supervisor

    async def machine(self, name: str, *addresses: Address) -> Machine:
        """A machine of the cloud that runs, with an address inside unless some are given."""
        where = addresses or (Address("InternalIP", f"10.99.0.{1 + NAMES.index(name)}"),)
        added = Machine(name, addresses=(Address("Hostname", name), *where))
        return (await self.admin.add([added]))[0]

    def node(self, name: str) -> Node | None:
        answer = self.kubelets.cluster.request("GET", f"{NODES}/{name}")
        return Node(answer.body) if answer.status == 200 else None

    async def initialized(self, name: str) -> Node:
        """The Node, once it has what the cloud knows, its network and no taint of ours."""

        def node() -> Node | None:
            found = self.node(name)
            is_done = found and not found.is_uninitialized and found.provider_id
            return found if is_done and self.network(name) == "RouteCreated" else None

        return await until(f"{name} is initialized", node)

    def network(self, name: str) -> str:
        """The reason of the Node's condition `NetworkUnavailable`."""
        node = self.node(name)
        conditions = node.status["conditions"] if node else ()
        reasons = (one["reason"] for one in conditions if one["type"] == "NetworkUnavailable")
        return next(reasons, "")

    def reason(self, name: str) -> str:
        """Why this Node is not what it should be, as `status` shows it."""
        reasons: dict[str, str] = self.supervisor.workers()["node-0"].get("reasons", {})
        return reasons.get(name, "")

    async def refreshed(self) -> None:
        """Until every machine was asked about once more."""

        def passes() -> int:
            return int(self.supervisor.workers()["node-0"]["refresh_passes"])

        end = await asyncio.to_thread(passes) + 2  # the first may have gone past some already
        await until("a refresh", lambda: passes() >= end)

    async def explained(self, name: str) -> Json:
        """What the workers answer about this Node."""
        request = {"command": "explain", "kind": "node", "name": name}
        answer = await asyncio.to_thread(ask, self.supervisor.control, request, timeout())
        return {name: text for one in answer["workers"] for name, text in one["details"].items()}

    async def routes(self, machine: Machine) -> list[str]:
        """The networks that the cloud sends to this machine."""
        found = (await self.admin.state())["routes"]
        return [one["cidr"] for one in found if one["machine_id"] == machine.id]


NOT_COMPARED = {
    r"metadata\.(uid|resourceVersion|creationTimestamp|managedFields).*": "the API server's",
    r"status\.(capacity|allocatable)\..*": "the machine's size",
    r"status\.nodeInfo\..*": "the machine's own",
    r"status\.conditions\.\d\.last.*": "when it was",
    r"status\.conditions\.3\.message": "what a kubelet that is not ready waits for",
    r"status\.(images|features|runtimeHandlers|declaredFeatures)\b.*": "what the runtime can do",
}
"""What of a Node may differ in the sandbox, and why; no cloud controller decides by it."""


def fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each field by its path, but those that are not compared."""
    if any(re.fullmatch(pattern, path) for pattern in NOT_COMPARED):
        return
    if not isinstance(value, dict | list):
        yield path, value
        return
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        yield from fields(one, f"{path}.{key}" if path else str(key))


def has_taint(node: Node | None, taint: str) -> bool:
    return bool(node and any(one["key"] == taint for one in node.taints))
