"""Machines and the kubelets on them, as far as a cloud controller manager meets them."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from uuid import NAMESPACE_DNS, uuid5

from ccm.errors import KubernetesError
from ccm.kube.client import MERGE_PATCH, STRATEGIC_PATCH, Kube
from ccm.model.objects import PROVIDED_NODE_IP, UNINITIALIZED_TAINT, Json, Node, format_time
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Machine, Power

ZONES = ("zone-a", "zone-b", "zone-c")
TYPES = ("standard-2", "standard-4", "compute-8")
REGISTRATIONS = 16  # at the same time

NODES = "/api/v1/nodes"
NOT_READY = "node.kubernetes.io/not-ready"
TTL = {"node.alpha.kubernetes.io/ttl": "0"}
HOST = {"arch": "amd64", "os": "linux"}
SIZE = {"cpu": "4", "ephemeral-storage": "100Gi", "memory": "16Gi", "pods": "110"}
PRESSURES = (
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
READY = {
    "True": ("KubeletReady", "kubelet is posting ready status"),
    "False": ("KubeletNotReady", "container runtime status check may not have completed yet"),
    "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
}


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


def in_order(names: Iterable[str]) -> list[str]:
    """As they were numbered: vm-2 before vm-10."""
    return sorted(names, key=lambda name: (len(name), name))


def pod_network(name: str) -> str:
    """The pod network of vm-<number>, as kube-controller-manager would choose one.

    From 10.244.0.0/16 on to the end of 10.0.0.0/8, then from 10.128.0.0/16 on.
    """
    number = int(name.rpartition("-")[2])
    return f"10.{128 + (116 + number // 256) % 128}.{number % 256}.0/24"


def registration(
    name: str, pod_cidr: str = "", *, node_ip: str = "", is_ready: bool = True
) -> Json:
    """The Node of a kubelet with `--cloud-provider=external` that no cloud knows yet.

    Without `is_ready` it is what the kubelet creates, before kube-controller-manager has seen it.
    `node_ip` is the kubelet's flag: addresses with commas between them.
    """
    labels = {f"{prefix}kubernetes.io/{key}": HOST[key] for prefix in ("beta.", "") for key in HOST}
    addresses = [("InternalIP", item) for item in node_ip.split(",") if item]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels | {"kubernetes.io/hostname": name},
            "annotations": {
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                **({PROVIDED_NODE_IP: node_ip} if node_ip else {}),
                **(TTL if is_ready else {}),
            },
        },
        "spec": {
            "taints": [{"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}],
            **({"podCIDR": pod_cidr, "podCIDRs": [pod_cidr]} if pod_cidr else {}),
        },
        "status": {
            "addresses": [
                {"type": kind, "address": address}
                for kind, address in (*addresses, ("Hostname", name))
            ],
            "allocatable": SIZE,
            "capacity": SIZE,
            "conditions": conditions("True" if is_ready else "False"),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": HOST["arch"],
                "bootID": str(uuid5(NAMESPACE_DNS, f"boot.{name}")),
                "containerRuntimeVersion": "containerd://2.4.2",
                "kernelVersion": "6.12.48",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.37.2",
                "machineID": uuid5(NAMESPACE_DNS, name).hex,
                "operatingSystem": HOST["os"],
                "osImage": "Debian GNU/Linux 13 (trixie)",
                "systemUUID": str(uuid5(NAMESPACE_DNS, f"system.{name}")),
            },
        },
    }


def conditions(ready: str) -> list[Json]:
    """What a kubelet reports that is ready (`True`) or not yet (`False`), or silent (`Unknown`)."""
    now = format_time(datetime.now(UTC))
    reported = [*PRESSURES, ("Ready", ready, *READY[ready])]
    if ready == "Unknown":
        reported = [(kind, ready, *READY[ready]) for kind, *_ in reported]
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, status, reason, message in reported
    ]


def ready_condition(is_ready: bool) -> Json:
    """The `Ready` condition of a kubelet that works, or of one that fell silent."""
    return conditions("True" if is_ready else "Unknown")[-1]


async def register(kube: Kube, names: Sequence[str], stagger: float = 0.0) -> None:
    """Let these machines vm-… join, `stagger` seconds apart, or all at once.

    Their kubelets create the Nodes and are ready soon after, when kube-controller-manager gives
    each its pod network.
    """
    slots = asyncio.Semaphore(REGISTRATIONS)

    async def join(name: str) -> None:
        async with slots:
            await kube.post(NODES, registration(name, is_ready=False))
            await _report(kube, name, "True")
            await _control(kube, name)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(join(name))
            if stagger:
                await asyncio.sleep(stagger)


async def _report(kube: Kube, name: str, ready: str) -> None:
    """The kubelet's report, or what kube-controller-manager writes when none comes."""
    body = {"status": {"conditions": conditions(ready)}}
    await kube.patch(f"{NODES}/{name}/status", STRATEGIC_PATCH, body)


async def _control(kube: Kube, name: str) -> None:
    """What kube-controller-manager writes to a Node that has become ready."""
    network = pod_network(name)
    while True:
        node = await kube.get(f"{NODES}/{name}")
        taints = [taint for taint in node["spec"].get("taints", ()) if taint["key"] != NOT_READY]
        body = {
            "metadata": {
                "annotations": TTL,
                "resourceVersion": node["metadata"]["resourceVersion"],
            },
            "spec": {"podCIDR": network, "podCIDRs": [network], "taints": taints},
        }
        try:
            await kube.patch(f"{NODES}/{name}", MERGE_PATCH, body)
        except KubernetesError as error:
            if not error.is_race:
                raise
        else:
            return


async def follow_power(kube: Kube, cloud: CloudAdmin, nodes: Iterable[str]) -> dict[str, Power]:
    """Let each node's kubelet be alive exactly while its machine runs; returns the power states.

    A node whose machine is not there any more keeps a silent kubelet.
    """
    power = {machine.name: machine.power for machine in await cloud.machines()}
    for name in nodes:
        is_running = power.get(name) is Power.RUNNING
        if Node(await kube.get(f"{NODES}/{name}")).is_ready != is_running:
            await _report(kube, name, "True" if is_running else "Unknown")
    return power
