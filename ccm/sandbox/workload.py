"""What users ask of the sandbox's cluster: a Service with a balancer, and a volume."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ccm.kube.client import Kube
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.service import Service
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Power, Volume
from ccm.sandbox.observer import ZONE

WEB = "default/web"
DRIVER = "simulated.csi.ccm"

SERVICE: Json = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "type": "LoadBalancer",
        "selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
    },
}


@dataclass(frozen=True, slots=True)
class WorkloadStatus:
    """The workload as it is now; empty while something is missing.

    `service_backends` are the machines behind the load balancer of `web`, `routed` those with a
    route, by name; `services` has the address of each Service of this type.
    """

    service_address: str = ""
    service_backends: frozenset[str] = frozenset()
    volume_zone: str = ""
    routed: frozenset[str] = frozenset()
    services: Mapping[str, str] = field(default_factory=dict)
    power: Mapping[str, Power] = field(default_factory=dict)
    faults: frozenset[str] = frozenset()


async def create(kube: Kube, cloud: CloudAdmin) -> None:
    """One Service and one volume with its PersistentVolume."""
    await kube.post("/api/v1/namespaces/default/services", SERVICE)
    await create_volume(kube, cloud)


async def create_volume(kube: Kube, cloud: CloudAdmin) -> None:
    """A volume in the cloud, and the PersistentVolume for it."""
    volume = await cloud.add_volume(Volume(id="vol-1", zones=("zone-b",), region="region-1"))
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": DRIVER, "volumeHandle": volume.id},
    }
    body: Json = {"apiVersion": "v1", "kind": "PersistentVolume", "spec": spec}
    await kube.post("/api/v1/persistentvolumes", {**body, "metadata": {"name": "data"}})


def _labels(thing: Json) -> Mapping[str, object]:
    return mapping(mapping(thing.get("metadata")).get("labels"))


def _address(service: Service) -> str:
    ingress = objects(mapping(service.status.get("loadBalancer")).get("ingress"))
    way_in = ingress[0] if ingress else {}
    return text(way_in.get("ip")) or text(way_in.get("hostname"))


async def observe(kube: Kube, cloud: CloudAdmin) -> WorkloadStatus:
    """What came of it."""
    listed = await kube.get("/api/v1/services")
    volumes = await kube.get("/api/v1/persistentvolumes")
    state, faults = await cloud.state(), await cloud.faults()
    services = [*map(Service, objects(listed.get("items")))]
    addresses = {item.key: _address(item) for item in services if item.type == "LoadBalancer"}
    address = addresses.get(WEB, "")
    zones = [text(_labels(item).get(ZONE)) for item in objects(volumes.get("items"))]
    names = {machine["id"]: machine["name"] for machine in state["machines"]}
    balancers = [
        item for item in state["load_balancers"] if address in (item["ip"], item["hostname"])
    ]
    backends = (backend for item in balancers for backend in item["backends"] if address)
    return WorkloadStatus(
        service_address=address,
        service_backends=frozenset(names.get(backend, backend) for backend in backends),
        volume_zone="".join(zones[:1]),
        routed=frozenset(names.get(r["machine_id"], r["name"]) for r in state["routes"]),
        services=addresses,
        power={machine["name"]: Power(machine["power"]) for machine in state["machines"]},
        faults=frozenset(f"{fault.kind} of {fault.operation}" for fault in faults),
    )
