"""A simulated cloud with the parts of a provider for it, behind the gate of the kit; Nodes."""

from pathlib import Path

import orjson

from ccm.cloud.interface import ProviderContext
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


class World:
    """The cloud, and each part of the provider as cluster `test` has it."""

    def __init__(self, cloud: CloudServer) -> None:
        self.cloud, self.gate = cloud, KitGate(10.0)
        self.clients: list[SimulatedApi] = []
        self.api = self.client()
        self.instances = SimulatedInstances(self.api, batch_size=100)
        self.volumes = SimulatedVolumes(self.api, batch_size=100)
        self.routes = SimulatedRoutes(self.api, "test")
        self.balancers = SimulatedLoadBalancers(self.api, "test", page_size=2)

    def client(
        self,
        token: str = "",
        *,
        url: str = "",
        caller: str = "test",
        token_file: Path | None = None,
    ) -> SimulatedApi:
        """Another client of this cloud; it is closed after the test."""
        url, token = url or self.cloud.url, token or self.cloud.token
        config = SimulatedConfig(url, token, token_file=token_file, timeout=10.0)
        self.clients.append(SimulatedApi(config, self.gate, caller))
        return self.clients[-1]

    def answer_with(self, body: object) -> None:
        """Let the cloud answer every call with this JSON."""
        garbage = CloudFault(CloudFaultKind.GARBAGE, body=orjson.dumps(body).decode())
        self.cloud.faults.set(garbage)


def node(name: str, provider_id: str = "") -> Node:
    return Node({"metadata": {"name": name}, "spec": {"providerID": provider_id}})


def nodes(count: int) -> list[Node]:
    """`node-0` …, as the machines of `CloudState.add_machines`."""
    return [node(f"node-{number}") for number in range(count)]


def volume(handle: str, name: str = "") -> PersistentVolume:
    csi = {"driver": CSI_DRIVER, "volumeHandle": handle}
    return PersistentVolume({"metadata": {"name": name or f"pv-{handle}"}, "spec": {"csi": csi}})


def volumes(count: int) -> list[PersistentVolume]:
    return [volume(f"vol-{number}") for number in range(count)]


def context(config: str) -> ProviderContext:
    return ProviderContext(KitGate(10.0), config.encode(), "cloud.conf", "test", "test")
