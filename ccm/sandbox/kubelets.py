"""Machines and the kubelets on them, as far as a cloud controller manager meets them."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import UNINITIALIZED_TAINT, Json, format_time
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Machine, Power

ZONES = ("zone-a", "zone-b", "zone-c")
TYPES = ("standard-2", "standard-4", "compute-8")
REGISTRATIONS = 16  # at the same time


def new_machines(first: int, count: int) -> list[Machine]:
    """Machines vm-<first> and following, spread over zones and types."""
    return [
        Machine(
            name=f"vm-{number}",
            type=TYPES[number % len(TYPES)],
            zone=ZONES[number % len(ZONES)],
            region="region-1",
        )
        for number in range(first, first + count)
    ]


def pod_network(name: str) -> str:
    """The pod network of vm-<number>, as kube-controller-manager would choose one.

    From 10.244.0.0/16 on to the end of 10.0.0.0/8, then from 10.128.0.0/16 on.
    """
    number = int(name.rpartition("-")[2])
    return f"10.{128 + (116 + number // 256) % 128}.{number % 256}.0/24"


def registration(name: str, pod_cidr: str = "") -> Json:
    """The Node that a kubelet with `--cloud-provider=external` creates."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "spec": {
            "taints": [{"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}],
            **({"podCIDR": pod_cidr, "podCIDRs": [pod_cidr]} if pod_cidr else {}),
        },
        "status": {
            "conditions": [ready_condition(True)],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "operatingSystem": "linux"},
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        },
    }


def ready_condition(is_ready: bool) -> Json:
    """The `Ready` condition of a kubelet that works, or of one that fell silent."""
    now = format_time(datetime.now(UTC))
    return {
        "type": "Ready",
        "status": "True" if is_ready else "Unknown",
        "reason": "KubeletReady" if is_ready else "NodeStatusUnknown",
        "message": "kubelet is ready" if is_ready else "Kubelet stopped posting node status.",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


async def register(kube: Kube, names: Sequence[str], stagger: float = 0.0) -> None:
    """Create the Nodes of these machines vm-…; `stagger` seconds apart, or all at once."""
    slots = asyncio.Semaphore(REGISTRATIONS)

    async def one(name: str) -> None:
        async with slots:
            await kube.post("/api/v1/nodes", registration(name, pod_network(name)))

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name))
            if stagger:
                await asyncio.sleep(stagger)


async def follow_power(kube: Kube, cloud: CloudAdmin, nodes: Iterable[str]) -> dict[str, Power]:
    """Let each node's kubelet be alive exactly while its machine runs; returns the power states.

    A node whose machine is not there any more keeps a silent kubelet.
    """
    power = {machine.name: machine.power for machine in await cloud.machines()}
    for name in nodes:
        is_running = power.get(name) is Power.RUNNING
        node = await kube.get(f"/api/v1/nodes/{name}")
        conditions = node.get("status", {}).get("conditions", [])
        others = [entry for entry in conditions if entry.get("type") != "Ready"]
        was_ready = any(c.get("type") == "Ready" and c["status"] == "True" for c in conditions)
        if was_ready != is_running:
            body = {"status": {"conditions": [*others, ready_condition(is_running)]}}
            await kube.patch(f"/api/v1/nodes/{name}/status", MERGE_PATCH, body)
    return power
