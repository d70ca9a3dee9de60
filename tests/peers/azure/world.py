"""A lab in which the controllers of Azure are compared."""

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ccm.model.objects import Json
from ccm.providers.azure.api import QUOTAS
from tests.labs.azure.lab import MISSING, Lab, is_built, path_of, running_lab
from tests.peers import upstream
from tests.peers.azure import nodes, picture, services
from tests.peers.kubelets import NodeShape, node_of
from tests.peers.world import OURS, UPSTREAM, CountedWorld, Seen
from tests.support.kube.build import AZURE_PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import Running, Supervisor, Where

BALANCERS = "/loadbalancers", "/publicipaddresses", "/networksecuritygroups"
MINE = {"tenantId": "adfs", "disableAzureStackCloud": True}
"""With these upstream's asks no public host."""
GRACE = {"nodeInstanceNotFoundGracePeriodInSeconds": 0}
"""Upstream's default; ours is two minutes."""
WITHOUT_IPAM = "--controllers=*,-node-ipam"
"""Upstream's would give all Nodes pod networks, as kube-controller-manager does."""
CACHES = (
    *("vmCacheTTLInSeconds", "availabilitySetsCacheTTLInSeconds", "routeUpdateIntervalInSeconds"),
    *("nonVmssUniformNodesCacheTTLInSeconds", "routeTableCacheTTLInSeconds"),
)
"""What upstream remembers for minutes: one second here, lest a comparison take as long."""
NOT_BUILT = "upstream's Azure controller is not built: python3 -m tests.support.kube.build azure"
BY_INTERFACE, BY_ADDRESS = "by interface", "by address"
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "": GRACE | dict.fromkeys(CACHES, 1),
    BY_INTERFACE: GRACE,
    BY_ADDRESS: GRACE | {"loadBalancerBackendPoolConfigurationType": "nodeIP"},
}


@dataclass
class AzureWorld(CountedWorld):
    """One lab."""

    cases = services.CASES
    shapes = tuple(nodes.SHAPES)
    late = tuple(nodes.LATER)
    kinds: ClassVar[Mapping[str, nodes.Shape]] = nodes.ALL
    configs: ClassVar[Mapping[str, Mapping[str, Any]]] = CONFIGS
    least_quiet = 2.0
    least_calls = 4  # ours reads for all Services together
    settle_timeout = 300.0
    budgets = tuple(QUOTAS)
    initialize = (OURS,)

    lab: Lab = field(kw_only=True)

    def prepare(self) -> None:
        for name, shape in self.kinds.items():
            self.machines[name] = nodes.launch(self.lab, name, shape)
        for name in ("by-hand", "by-hand-too", "spare"):
            body = {
                "sku": {"name": "Standard"},
                "properties": {"publicIPAllocationMethod": "Static"},
            }
            made = self.lab.put("publicIPAddresses", name, body)
        self.names["spare-address"] = made["properties"]["ipAddress"]

    def registration(self, shape: str, pod_cidr: str) -> Json:
        return nodes.manifest(shape, self.kinds[shape], self.machines[shape], pod_cidr)

    def add_machine(self, name: str, who: str) -> Json:
        shape = NodeShape(
            provider_id="azure://{id}" * (who == UPSTREAM), is_initialized=who == UPSTREAM
        )
        machine = self.lab.add_machine(name)
        body = node_of(shape, machine, "")
        if who == UPSTREAM:
            address = nodes.address_of(self.lab, name)
            body["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
        return body

    def end_machine(self, node: Json) -> None:
        self.lab.delete_machine(path_of("virtualMachines", node["metadata"]["name"]))

    def start(self, who: str, config: str) -> Running:
        path, kubeconfig = self.directory / f"{who}.json", self.cluster.kubeconfig("admin")
        path.write_text(self.lab.config(**MINE, **self.configs[config]))
        flags = self.flags_of(who)
        if who == UPSTREAM:
            ca_file = self.lab.ca_file
            flags = (*flags, WITHOUT_IPAM)
            return upstream.azure(self.directory, self.binaries, kubeconfig, path, ca_file, *flags)
        where = Where(self.directory, kubeconfig, path)
        return Supervisor(where, "--cloud-provider=azure", *flags)

    def calls(self) -> int:
        return len(self.lab.calls())

    def balancer_calls(self) -> int:
        return sum(_is_balancers(one) for one in self.lab.calls())

    def doings(self) -> object:
        return self.balancer_calls(), len(self.lab.writes())

    def writes(self) -> list[str]:
        return self.lab.writes()

    def forget_calls(self) -> None:
        self.lab.forget_calls()

    def roles(self) -> Mapping[str, str]:
        found = picture.roles(self.lab)
        for name, uid in self.uids.items():
            found["a" + uid.replace("-", "")[:31]] = f"lb-of-{name}"
        return found

    def seen(self) -> Seen:
        return picture.seen(self.lab, self.cases)

    def is_served(self, service: str, port: int, seen: Set[str]) -> bool:
        ends = f"-TCP-{port} ", f"-UDP-{port} "
        rules = [one for one in seen if one.startswith("rule ") and f"/lb-of-{service}-" in one]
        is_whole = any(f"-{service}-" in one and "/lb-of-inner-ha-" in one for one in rules)
        return is_whole or any(end in one for one in rules for end in ends)


@contextmanager
def azure_world(
    kube_binaries: Path, directory: Path, kind: type[AzureWorld] = AzureWorld
) -> Iterator[AzureWorld]:
    """With a cluster and a lab of its own."""
    needed(is_built() or None, MISSING)
    peers = needed(find_binaries(AZURE_PEERS), NOT_BUILT)
    with (
        RealCluster.start(kube_binaries, directory / "kube") as cluster,
        running_lab(directory / "lab") as lab,
    ):
        yield kind(directory, peers, cluster, lab=lab)
        assert not lab.state()["bad_answers"]


def _is_balancers(call: Json) -> bool:
    return any(one in call["path"].lower() for one in BALANCERS)
