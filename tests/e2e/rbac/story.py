"""Everything that all controllers do, once: what it takes to need each of their rights."""

import os
import signal
from dataclasses import dataclass

import aiohttp

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Node
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Machine, Volume
from ccm.sandbox.kubelets import new_machines, ready_condition, register, registration
from ccm.sandbox.observer import ZONE, missing_fields
from ccm.sandbox.workload import SERVICE
from tests.support.environment import SERVICES, VOLUMES, persistent_volume
from tests.support.running import Json, Supervisor, until

FLAGS = (
    "--controllers=*",
    "--cluster-cidr=10.240.0.0/12",
    "--node-monitor-period=300ms",
    "--node-deletion-confirmation-period=0",
    "--node-vanish-share=0.9",
    "--worker-silence-limit=1m",  # on a busy machine a start takes its time
)
MACHINES = ("vm-1", "vm-2", "vm-3")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@dataclass(frozen=True, slots=True)
class Page:
    """Something that a supervisor shows over HTTPS, to who has the token if one is needed."""

    url: str
    token: str = ""

    async def is_shown(self) -> bool:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(self.url, ssl=False) as response,
        ):
            return response.status == 200


class Story:
    """Told by a bystander who may do all, and who ends machines in the cloud."""

    def __init__(self, api: Kube, admin: CloudAdmin) -> None:
        self._api, self._admin = api, admin

    async def tell(self, supervisor: Supervisor, page: Page) -> None:
        """From the first tainted node to the last Event, which someone reads about."""
        await self._ask_for_everything()
        await until("nodes are initialized", self._are_nodes_initialized)
        await until("services have addresses", self._have_services_addresses)
        await until("nodes have routes", self._have_nodes_routes)
        await until("the volume is labelled", self._is_volume_labelled)
        await self._end_a_machine("vm-3")
        pid = supervisor.workers()["service"]["pid"]
        os.kill(pid, signal.SIGSTOP)  # it sees nothing of the Service's end but the end
        await self._lose(f"{SERVICES}/lost")
        os.kill(pid, signal.SIGCONT)
        await until("its node is gone", self._is_node_gone)
        await until("the lost balancer is gone", self._is_one_balancer_left)
        await until("people are told", self._has_events)
        await until("the page is shown", page.is_shown)

    async def joins(self, name: str) -> None:
        """A node vm-… joins, and is initialized."""
        await self._admin.add(new_machines(int(name.removeprefix("vm-")), 1))
        await register(self._api, [name])

        async def is_ready() -> bool:
            return not missing_fields((await self._nodes())[name])

        await until(f"{name} is initialized", is_ready)

    async def forget(self) -> None:
        """Leave nothing of it behind, whatever someone should still do about it."""
        for path in (SERVICES, VOLUMES):
            for item in await self._all(path):
                if item["metadata"]["name"] != "kubernetes":
                    await self._lose(f"{path}/{item['metadata']['name']}")
        events = [f"/api/v1/namespaces/{name}/events" for name in ("default", "kube-system")]
        for path in ("/api/v1/nodes", LEASES, *events):
            await self._api.request("DELETE", path)

    async def _ask_for_everything(self) -> None:
        """And for what cannot be: a foreign pod network, a volume that the cloud does not have."""
        await self._admin.add([*new_machines(1, len(MACHINES)), Machine("hostile")])
        await register(self._api, MACHINES)
        await self._api.post("/api/v1/nodes", registration("hostile", "192.168.0.0/24"))
        for name in ("web", "lost"):
            meta = {"name": name, "namespace": "default"}
            await self._api.post(SERVICES, {**SERVICE, "metadata": meta})
        await self._admin.add_volume(Volume(id="vol-1", zones=("zone-b",), region="region-1"))
        for name in ("vol-1", "vol-2"):
            await self._api.post(VOLUMES, persistent_volume(name, name))

    async def _all(self, path: str) -> list[Json]:
        items: list[Json] = (await self._api.get(path))["items"]
        return items

    async def _nodes(self) -> dict[str, Node]:
        nodes = map(Node, await self._all("/api/v1/nodes"))
        return {node.name: node for node in nodes}

    async def _are_nodes_initialized(self) -> bool:
        nodes = await self._nodes()
        return not any(missing_fields(nodes[name]) for name in MACHINES)

    async def _have_services_addresses(self) -> bool:
        statuses = [
            service["status"]["loadBalancer"]
            for service in await self._all(SERVICES)
            if service["spec"]["type"] == "LoadBalancer"
        ]
        return all(status.get("ingress") for status in statuses)

    async def _have_nodes_routes(self) -> bool:
        conditions = [
            (entry["type"], entry["status"])
            for node in (await self._nodes()).values()
            for entry in node.raw["status"]["conditions"]
        ]
        return conditions.count(("NetworkUnavailable", "False")) >= 2

    async def _is_volume_labelled(self) -> bool:
        labels = (await self._api.get(f"{VOLUMES}/vol-1"))["metadata"].get("labels", {})
        return ZONE in labels

    async def _end_a_machine(self, name: str) -> None:
        await self._admin.vanish(name)
        silent = {"status": {"conditions": [ready_condition(False)]}}
        await self._api.patch(f"/api/v1/nodes/{name}/status", MERGE_PATCH, silent)

    async def _is_node_gone(self) -> bool:
        return "vm-3" not in await self._nodes()

    async def _lose(self, path: str) -> None:
        """An object goes without waiting for anybody: its finalizers were taken away."""
        await self._api.patch(path, MERGE_PATCH, {"metadata": {"finalizers": None}})
        await self._api.request("DELETE", path)

    async def _is_one_balancer_left(self) -> bool:
        return len((await self._admin.state())["load_balancers"]) == 1

    async def _has_events(self) -> bool:
        reported = {
            (event["source"].get("component"), event["metadata"]["namespace"])  # some have none
            for event in await self._all("/api/v1/events")
        }
        return reported >= {
            ("cloud-node-controller", "default"),
            ("route_controller", "default"),
            ("service-controller", "default"),
            ("volume-label-controller", "default"),
            ("cloud-controller-manager", "kube-system"),
        }
