"""What a process test works with: a real cluster, a cloud, and clients of the test's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Node
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.workload import DRIVER, SERVICE
from tests.support.cluster_nodes import NodeWatcher, add_machines_and_nodes
from tests.support.deadlines import timeout
from tests.support.kube.cluster import ITS_EVENTS, RealCluster
from tests.support.running import Cloud, Json, Supervisor, Where, until

NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
VOLUMES = "/api/v1/persistentvolumes"
EVENTS = "/api/v1/namespaces/default/events"
LEASE = "cloud-controller-manager"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@dataclass(frozen=True)
class Environment:
    """`where` is for supervisors; `api` and `admin` are the test's own clients."""

    cluster: RealCluster
    cloud: Cloud
    where: Where
    api: Kube
    admin: CloudAdmin
    nodes: NodeWatcher

    @property
    def directory(self) -> Path:
        return self.where.directory

    def supervisor(self, *flags: str, name: str = "supervisor") -> Supervisor:
        return Supervisor(self.where, *flags, name=name)

    async def add_nodes(self, count: int, first: int = 1) -> list[str]:
        """Machines vm-<first> and following in the cloud, and a tainted Node for each of them."""
        return await add_machines_and_nodes(self.api, self.cloud.url, count, first)

    async def node_names(self) -> set[str]:
        return {item["metadata"]["name"] for item in (await self.api.get(NODES))["items"]}

    async def are_initialized(self) -> bool:
        """Whether no Node has the taint any more."""
        nodes = map(Node, (await self.api.get(NODES))["items"])
        return not any(node.is_uninitialized for node in nodes)

    async def has_no_node(self, name: str) -> bool:
        return name not in await self.node_names()

    async def warnings(self) -> set[tuple[str, str]]:
        """Name of the object and reason of every Warning in `default`, but the API server's own."""
        events = (await self.api.get(EVENTS))["items"]
        others = [event for event in events if event["reportingComponent"] != ITS_EVENTS]
        warnings = [event for event in others if event["type"] == "Warning"]
        return {(event["involvedObject"]["name"], event["reason"]) for event in warnings}

    async def add_services(self, *numbers: int) -> None:
        for number in numbers:
            await self.api.post(SERVICES, service(number))

    async def until_served(self, *numbers: int) -> None:
        """Until these Services have an address."""

        async def are_served() -> bool:
            made = [await self.api.get(f"{SERVICES}/web-{number}") for number in numbers]
            return all(one["status"]["loadBalancer"].get("ingress") for one in made)

        await until(f"Services {numbers} have an address", are_served)

    async def lease_spec(self, name: str = LEASE) -> Json:
        return dict((await self.api.get(f"{LEASES}/{name}"))["spec"])


def service(number: int) -> Json:
    """Service web-<number>, which wants a balancer."""
    return SERVICE | {"metadata": SERVICE["metadata"] | {"name": f"web-{number}"}}


def persistent_volume(name: str, handle: str, driver: str = DRIVER, **spec: Any) -> Json:
    """The PersistentVolume of a volume of the cloud."""
    csi = {"driver": driver, "volumeHandle": handle}
    wanted = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi, **spec}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": wanted,
    }


async def force_delete(api: Kube, path: str) -> None:
    """Delete an object without waiting for the controller that its finalizers stand for."""
    await api.patch(path, MERGE_PATCH, {"metadata": {"finalizers": None}})
    await api.request("DELETE", path)


async def until_asked(admin: CloudAdmin, times: int = 4) -> None:
    """Until the cloud was asked so many times more: a pass that had not ended then has by now."""
    before = (await admin.counters())["reads"]

    async def is_asked() -> bool:
        return bool((await admin.counters())["reads"] >= before + times)

    await until(f"the cloud is asked {times} times", is_asked)


async def until_renewed(api: Kube, lease: str = LEASE, times: int = 4) -> None:
    """Until a Lease was renewed so many times more: how long it takes to see that nothing happens.

    It goes as slowly as the supervisor does.
    """
    seen = set()

    async def is_renewed() -> bool:
        seen.add((await api.get(f"{LEASES}/{lease}"))["spec"]["renewTime"])
        return len(seen) > times

    await until(f"{lease} is renewed {times} times", is_renewed)


@asynccontextmanager
async def emptied(api: Kube) -> AsyncIterator[Kube]:
    """This client; what it finds at the end, it takes away for the next test.

    But for the API server's own Service, which would be back in the middle of that test.
    """
    yield api
    for path in (SERVICES, VOLUMES):
        for item in (await api.get(path))["items"]:
            if item["metadata"].get("finalizers"):
                body = {"metadata": {"finalizers": None}}
                await api.patch(f"{path}/{item['metadata']['name']}", MERGE_PATCH, body)
    own = {"fieldSelector": "metadata.name!=kubernetes"}
    for path in (NODES, SERVICES, VOLUMES, EVENTS, LEASES):
        await api.request("DELETE", path, params=own, timeout=timeout(150))
    await api.close()
