"""What users ask of the sandbox's cluster: a Service with a balancer, and a volume."""

from collections.abc import Mapping
from dataclasses import dataclass

from ccm.errors import CloudError, KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.model.objects import Json, mapping, objects, text
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Volume
from ccm.sandbox.observer import ZONE

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

    `service_backends` are the machines behind the balancer, `routed` those with a route, by name.
    """

    service_address: str = ""
    service_backends: frozenset[str] = frozenset()
    volume_zone: str = ""
    routed: frozenset[str] = frozenset()


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


async def observe(kube: Kube, cloud: CloudAdmin) -> WorkloadStatus:
    """What came of it; a fault that someone set on purpose shows as nothing seen."""
    try:
        service = await kube.get("/api/v1/namespaces/default/services/web")
        volume = await kube.get("/api/v1/persistentvolumes/data")
        state = await cloud.state()
    except (KubernetesError, Unreachable, CloudError):
        return WorkloadStatus()
    ingress = objects(mapping(mapping(service.get("status")).get("loadBalancer")).get("ingress"))
    way_in = ingress[0] if ingress else {}
    labels: Mapping[str, str] = mapping(mapping(volume.get("metadata")).get("labels"))
    names = {machine["id"]: machine["name"] for machine in state["machines"]}
    backends = (backend for balancer in state["load_balancers"] for backend in balancer["backends"])
    return WorkloadStatus(
        service_address=text(way_in.get("ip")) or text(way_in.get("hostname")),
        service_backends=frozenset(names.get(backend, backend) for backend in backends),
        volume_zone=labels.get(ZONE, ""),
        routed=frozenset(names.get(r["machine_id"], r["name"]) for r in state["routes"]),
    )
