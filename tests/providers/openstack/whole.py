"""The whole product on a real API server and the lab: what there is in both."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.sandbox.kubelets import ready_condition, registration
from tests.labs.openstack.lab import Lab
from tests.support.environment import EVENTS, NODES, SERVICES
from tests.support.kube.cluster import ITS_EVENTS
from tests.support.running import Supervisor, Where

AGENT = r"^ccm-supervisor/\S+ (node-\d+|route|service|volume-label)$"
FLAGS = (
    "--cloud-provider=openstack",
    "--controllers=*",
    "--cluster-cidr=10.244.0.0/16",
    "--node-monitor-period=500ms",
    "--node-deletion-confirmation-period=0",
    "--cloud-call-timeout=60s",  # ten load balancers at once, from an API with one process
)


@dataclass(frozen=True)
class Whole:
    """A cluster on the lab's project of users, and the lab."""

    api: Kube
    lab: Lab
    where: Where

    def supervisor(self, name: str = "supervisor") -> Supervisor:
        return Supervisor(self.where, *FLAGS, name=name)

    # In the cluster

    async def register(self, name: str, number: int) -> None:
        """What the kubelet on a server does first."""
        await self.api.post(NODES, registration(name, f"10.244.{number}.0/24"))

    async def nodes(self) -> dict[str, Json]:
        return {one["metadata"]["name"]: one for one in (await self.api.get(NODES))["items"]}

    async def are_initialized(self) -> bool:
        """Whether each Node has its provider ID and lacks the taint."""
        return all(
            node["spec"].get("providerID")
            and not any("uninitialized" in taint["key"] for taint in node["spec"].get("taints", ()))
            for node in (await self.nodes()).values()
        )

    async def have_networks(self) -> bool:
        """Whether each Node says that its network is there."""
        reported = [
            condition["status"]
            for node in (await self.nodes()).values()
            for condition in node["status"]["conditions"]
            if condition["type"] == "NetworkUnavailable"
        ]
        return reported == ["False"] * len(await self.nodes())

    async def stop_kubelet(self, name: str) -> None:
        body = {"status": {"conditions": [ready_condition(False)]}}
        await self.api.patch(f"{NODES}/{name}/status", MERGE_PATCH, body)

    async def delete_nodes(self) -> None:
        """All but one of another cloud: without any Node no route is believed to lead nowhere."""
        names, other = await self.nodes(), registration("elsewhere")
        other["spec"]["providerID"] = "other:///1"
        await self.api.post(NODES, other)
        for name in names:
            await self.api.request("DELETE", f"{NODES}/{name}")

    async def add_service(self, name: str, **spec: Any) -> None:
        """A Service; `annotations` are its, the rest belongs to its spec."""
        meta = {"name": name, "annotations": spec.pop("annotations", {})}
        ports = [{"name": "http", "port": 80}]
        wanted = {"type": "LoadBalancer", "ports": ports, **spec}
        await self.api.post(SERVICES, {"metadata": meta, "spec": wanted})

    async def annotate(self, service: str, key: str, value: str) -> None:
        body = {"metadata": {"annotations": {key: value}}}
        await self.api.patch(f"{SERVICES}/{service}", MERGE_PATCH, body)

    async def services(self) -> dict[str, Json]:
        items = (await self.api.get(SERVICES))["items"]
        return {one["metadata"]["name"]: one for one in items if one["spec"]["type"] != "ClusterIP"}

    async def addresses(self) -> dict[str, str]:
        """Of the Services that have one."""
        return {
            name: one["status"]["loadBalancer"]["ingress"][0]["ip"]
            for name, one in (await self.services()).items()
            if one["status"]["loadBalancer"].get("ingress")
        }

    async def have_addresses(self) -> bool:
        return len(await self.addresses()) == len(await self.services())

    async def delete_services(self) -> None:
        for name in await self.services():
            await self.api.request("DELETE", f"{SERVICES}/{name}")

    async def has_no_services(self) -> bool:
        return not await self.services()

    async def warnings(self) -> list[str]:
        """What Warnings are about and say, but for those of the API server itself."""
        events = (await self.api.get(EVENTS))["items"]
        return [
            f"{e['involvedObject']['name']}: {e['reason']}: {e['message']}"
            for e in events
            if e["type"] == "Warning" and e["reportingComponent"] != ITS_EVENTS
        ]

    # In the cloud

    def balancers(self) -> dict[str, Json]:
        found = self.lab.get("octavia", "/lbaas/loadbalancers")
        return {one["name"].rpartition("_")[2]: one for one in found}

    def members(self) -> list[set[str]]:
        """The names in each pool."""
        pools = self.lab.get("octavia", "/lbaas/pools")
        lists = (self.lab.get("octavia", f"/lbaas/pools/{one['id']}/members") for one in pools)
        return [{member["name"] for member in listed} for listed in lists]

    def routes(self) -> dict[str, str]:
        path = f"/routers/{self.lab.world['router']}"
        listed = self.lab.get("neutron", path)["routes"]
        return {one["destination"]: one["nexthop"] for one in listed}

    def resources(self) -> Counter[str]:
        """How much there is of all that the product makes, and the ports that come with it."""
        ports = self.lab.get("neutron", "/ports")
        theirs = "Octavia" if self.lab.is_split else "compute:"
        groups = self.lab.get("neutron", "/security-groups")
        return Counter(
            {
                "ports": sum(not one["device_owner"].startswith(theirs) for one in ports),
                "floating IPs": len(self.lab.get("neutron", "/floatingips")),
                "groups": sum(one["name"].startswith("lb-sg-") for one in groups),
                "address groups": len(self.lab.get("neutron", "/address-groups")),
                "load balancers": len(self.balancers()),
                "routes": len(self.routes()),
                "pairs": sum(len(one["allowed_address_pairs"]) for one in ports),
            }
        )
