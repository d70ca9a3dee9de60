"""A project of the lab, in which the controllers of GCE are compared."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from ccm.model.objects import Json
from ccm.providers.gce.api import QUOTAS
from ccm.providers.gce.credentials import KEY_FILE
from tests.labs.gce.cloud import Cloud
from tests.labs.gce.project import PROJECT, REGION
from tests.labs.gce.server import Call, Gce
from tests.peers.gce import nodes, picture, services
from tests.peers.upstream import Upstream
from tests.peers.world import FLAGS, OUR_FLAGS, UPSTREAM, Seen, World
from tests.providers.gce.adapter import config_of
from tests.support.kube.build import GCE_PEERS
from tests.support.running import Running, Supervisor, Where

RATES = ",".join(f"{one}=500" for one in QUOTAS)
BALANCERS = (
    *("forwardingRules", "targetPools", "addresses", "firewalls", "httpHealthChecks"),
    *("healthChecks", "regionBackendServices", "instanceGroups"),
    *("globalOperations", "regionOperations", "zoneOperations"),
)
"""The collections that calls about load balancers are of."""
CLUSTER_ID = "/api/v1/namespaces/kube-system/configmaps/ingress-uid"
(PROGRAM,) = (name for pin in GCE_PEERS for name in pin.programs)


@dataclass
class GceWorld(World):
    """One project."""

    cases = services.CASES
    shapes = tuple(nodes.SHAPES)
    late = tuple(nodes.LATER)
    least_quiet = 4.0  # upstream waits so long between two looks at an operation
    least_calls = 7  # ours reads seven lists for all Services
    settle_timeout = 600.0

    gce: Gce = field(kw_only=True)

    @property
    def cloud(self) -> Cloud:
        return self.gce.cloud

    def prepare(self) -> None:
        for shape in nodes.ALL:
            self.machines[shape] = nodes.launch(self.cloud, shape)
        spare, at = self.cloud.take("EXTERNAL"), f"projects/{PROJECT}/regions/{REGION}/addresses"
        more = {"addressType": "EXTERNAL", "networkTier": "PREMIUM", "status": "RESERVED"}
        self.cloud.put(f"{at}/spare", "address", address=spare, **more)
        self.names["spare-address"] = spare

    def registration(self, shape: str, pod_cidr: str) -> Json:
        return nodes.manifest(shape, self.machines[shape], pod_cidr)

    def start(self, who: str, config: str) -> Running:
        path, kubeconfig = self.directory / "gce.conf", self.cluster.kubeconfig("admin")
        lines = ["token-url = nil", "token-body = ", "subnetwork-name = default"]
        path.write_text(config_of(self.gce, *lines, "multizone = true"))
        key = self.directory / "key.json"
        key.write_text(self.gce.account_text())
        if who == UPSTREAM:
            program, flags = self.binaries / PROGRAM, ("--cloud-provider=gce", *FLAGS)
            environment = {KEY_FILE: str(key)}
            return Upstream(self.directory, program, kubeconfig, path, *flags, **environment)
        ours = ("--cloud-provider=gce", *FLAGS, *OUR_FLAGS, f"--cloud-rate={RATES}")
        return Supervisor(Where(self.directory, kubeconfig, path), *ours)

    def _calls(self) -> list[Call]:
        """Those about load balancers, and writes: Nodes and routes are looked at for ever."""
        return [one for one in (*self.gce.calls,) if one.is_write or _is_balancers(one)]

    def balancer_calls(self) -> int:
        return sum(map(_is_balancers, self._calls()))

    def doings(self) -> object:
        return len(self._calls())

    def writes(self) -> list[str]:
        return [self._described(one) for one in self._calls() if one.is_write]

    def _described(self, call: Call) -> str:
        return " ".join([call.name, call.path.rpartition("/projects/")[2], *_values(call.body)])

    def forget_calls(self) -> None:
        self.gce.calls.clear()

    def roles(self) -> Mapping[str, str]:
        found = picture.roles(self.cloud)
        for name, uid in self.uids.items():
            found["a" + uid.replace("-", "")[:31]] = f"lb-of-{name}"
        for one in self.request("GET", "/api/v1/nodes")["items"]:
            shapes = {name: shape for shape, name in self.nodes.items()}
            found[one["metadata"]["uid"]] = f"uid-of-{shapes[one['metadata']['name']]}"
        answer = self.cluster.request("GET", CLUSTER_ID)
        data: Json = dict(answer.body).get("data", {}) if answer.status == 200 else {}
        return found | {data[key]: "cluster-id" for key in data}

    def seen(self) -> Seen:
        return picture.seen(self.cloud)

    def is_served(self, service: str, port: int, seen: Set[str]) -> bool:
        at = f"firewall k8s-fw-lb-of-{service} port"
        return any(f"{at} {kind}/{port}" in seen for kind in ("tcp", "udp"))


def _is_balancers(call: Call) -> bool:
    return call.name.partition(".")[0] in BALANCERS


def _values(said: Any) -> list[str]:
    if isinstance(said, dict):
        return [text for key, one in sorted(said.items()) for text in (f"{key}:", *_values(one))]
    if isinstance(said, list):
        return [text for one in said for text in _values(one)]
    return [str(said)]
