"""A lab in which the controllers of Azure are compared."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from ccm.model.objects import Json
from ccm.providers.azure.api import QUOTAS
from tests.labs.azure.lab import Lab
from tests.peers import upstream
from tests.peers.azure import nodes, picture, services
from tests.peers.world import FLAGS, OUR_FLAGS, UPSTREAM, Seen, World
from tests.support.running import Running, Supervisor, Where

RATES = ",".join(f"{one}=500" for one in QUOTAS)
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


@dataclass
class AzureWorld(World):
    """One lab."""

    cases = services.CASES
    shapes = tuple(nodes.SHAPES)
    late = tuple(nodes.LATER)
    least_quiet = 2.0
    least_calls = 4  # ours reads for all Services together
    settle_timeout = 300.0

    lab: Lab = field(kw_only=True)

    def prepare(self) -> None:
        for shape in nodes.ALL:
            self.machines[shape] = nodes.launch(self.lab, shape)
        for name in ("by-hand", "by-hand-too", "spare"):
            body = {
                "sku": {"name": "Standard"},
                "properties": {"publicIPAllocationMethod": "Static"},
            }
            made = self.lab.put("publicIPAddresses", name, body)
        self.names["spare-address"] = made["properties"]["ipAddress"]

    def registration(self, shape: str, pod_cidr: str) -> Json:
        return nodes.manifest(shape, self.machines[shape], pod_cidr)

    def start(self, who: str, config: str) -> Running:
        path, kubeconfig = self.directory / f"{who}.json", self.cluster.kubeconfig("admin")
        path.write_text(self.lab.config(**MINE, **GRACE, **dict.fromkeys(CACHES, 1)))
        if who == UPSTREAM:
            ca_file = self.lab.ca_file
            flags = (*FLAGS, WITHOUT_IPAM)
            return upstream.azure(self.directory, self.binaries, kubeconfig, path, ca_file, *flags)
        ours = ("--cloud-provider=azure", *FLAGS, *OUR_FLAGS, f"--cloud-rate={RATES}")
        return Supervisor(Where(self.directory, kubeconfig, path), *ours)

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
        return picture.seen(self.lab)

    def is_served(self, service: str, port: int, seen: Set[str]) -> bool:
        ends = f"-TCP-{port} ", f"-UDP-{port} "
        rules = [one for one in seen if one.startswith("rule ") and f"/lb-of-{service}-" in one]
        is_whole = any(f"-{service}-" in one and "/lb-of-inner-ha-" in one for one in rules)
        return is_whole or any(end in one for one in rules for end in ends)


def _is_balancers(call: Json) -> bool:
    return any(one in call["path"].lower() for one in BALANCERS)
