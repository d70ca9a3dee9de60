"""A simulated cloud with the parts of a provider for it, behind the gate of the kit; Nodes."""

import orjson

from ccm.cloud.testkit.gate import KitGate
from ccm.model.objects import Node
from ccm.model.volume import PersistentVolume
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.config import SimulatedConfig
from ccm.providers.simulated.instances import SimulatedInstances
from ccm.providers.simulated.load_balancers import SimulatedLoadBalancers
from ccm.providers.simulated.routes import SimulatedRoutes
from ccm.providers.simulated.volumes import CSI_DRIVER, SimulatedVolumes
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.server import CloudServer
from tests.support.deadlines import timeout


class World:
    """The cloud, and each part of the provider as cluster `test` has it."""

    def __init__(self, cloud: CloudServer) -> None:
        self.cloud = cloud
        self.api = SimulatedApi(SimulatedConfig(cloud.url, cloud.token), KitGate(timeout()), "test")
        self.instances = SimulatedInstances(self.api, batch_size=100)
        self.volumes = SimulatedVolumes(self.api, batch_size=100)
        self.routes = SimulatedRoutes(self.api, "test")
        self.balancers = SimulatedLoadBalancers(self.api, self.instances, "test", page_size=2)

    def answer_with(self, body: object) -> None:
        """Let the cloud answer every call with this JSON."""
        garbage = CloudFault(CloudFaultKind.GARBAGE, body=orjson.dumps(body).decode())
        self.cloud.faults.set(garbage)


def node(name: str, provider_id: str = "") -> Node:
    return Node({"metadata": {"name": name}, "spec": {"providerID": provider_id}})


def volume(handle: str, name: str) -> PersistentVolume:
    csi = {"driver": CSI_DRIVER, "volumeHandle": handle}
    return PersistentVolume({"metadata": {"name": name}, "spec": {"csi": csi}})
