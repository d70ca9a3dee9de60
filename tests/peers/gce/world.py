"""A project of the lab, in which the controllers of GCE are compared."""

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ccm.model.objects import Json
from ccm.providers.gce.api import QUOTAS
from ccm.providers.gce.credentials import KEY_FILE
from tests.labs.gce.cloud import Cloud
from tests.labs.gce.project import PROJECT, REGION, ZONES
from tests.labs.gce.server import Call, Gce
from tests.peers.gce import nodes, picture, services
from tests.peers.kubelets import NodeShape, node_of
from tests.peers.upstream import Upstream
from tests.peers.world import SERVICES, UPSTREAM, CountedWorld, Seen
from tests.providers.gce.adapter import config_of
from tests.support.kube.build import GCE_PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import Running, Supervisor, Where

BALANCERS = (
    *("forwardingRules", "targetPools", "addresses", "firewalls", "httpHealthChecks"),
    *("healthChecks", "regionBackendServices", "instanceGroups"),
    *("globalOperations", "regionOperations", "zoneOperations"),
)
"""The collections that calls about load balancers are of."""
CLUSTER_ID = "/api/v1/namespaces/kube-system/configmaps/ingress-uid"
(PROGRAM,) = (name for pin in GCE_PEERS for name in pin.programs)
NOT_BUILT = "Google's provider is not built: python3 -m tests.support.kube.build gce"


@dataclass
class GceWorld(CountedWorld):
    """One project."""

    cases = services.CASES
    shapes = tuple(nodes.SHAPES)
    late = tuple(nodes.LATER)
    least_quiet = 4.0  # upstream waits so long between two looks at an operation
    least_calls = 7  # ours reads seven lists for all Services
    settle_timeout = 600.0
    budgets = tuple(QUOTAS)

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

    def add_machine(self, name: str, who: str) -> Json:
        self.cloud.add_instance(name, ZONES[len(self.cloud.objects) % 3])
        return node_of(NodeShape(), {"name": name}, "")

    def end_machine(self, node: Json) -> None:
        (path,) = (
            one for one in self.cloud.objects if one.endswith(f"/{node['metadata']['name']}")
        )
        del self.cloud.objects[path]

    def start(self, who: str, config: str) -> Running:
        path, kubeconfig = self.directory / "gce.conf", self.cluster.kubeconfig("admin")
        lines = ["token-url = nil", "token-body = ", "subnetwork-name = default"]
        path.write_text(config_of(self.gce, *lines, "multizone = true"))
        key = self.directory / "key.json"
        key.write_text(self.gce.account_text())
        flags = ("--cloud-provider=gce", *self.flags_of(who))
        if who == UPSTREAM:
            program = self.binaries / PROGRAM
            environment = {KEY_FILE: str(key)}
            return Upstream(self.directory, program, kubeconfig, path, *flags, **environment)
        return Supervisor(Where(self.directory, kubeconfig, path), *flags)

    def calls(self) -> int:
        return len(self.gce.calls)

    def _relevant(self) -> list[Call]:
        """Those about load balancers, and writes: Nodes and routes are looked at for ever."""
        return [one for one in (*self.gce.calls,) if one.is_write or _is_balancers(one)]

    def admitted(self) -> int:
        """Those whose address no rule for the shared health check leaves out."""
        paths = (path for path in self.cloud.objects if path.endswith("-node-http-hc"))
        rules = [self.cloud.objects[path].get("destinationRanges") for path in paths]
        addresses = (
            one["status"]["loadBalancer"]["ingress"][0]["ip"]
            for one in self.request("GET", SERVICES)["items"]
            if one["spec"]["type"] == "LoadBalancer"
        )
        return sum(any(not one or ip in one for one in rules) for ip in addresses)

    def balancer_calls(self) -> int:
        return sum(map(_is_balancers, self._relevant()))

    def doings(self) -> object:
        return len(self._relevant())

    def writes(self) -> list[str]:
        return [self._described(one) for one in self._relevant() if one.is_write]

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


@contextmanager
def gce_world(kube_binaries: Path, directory: Path) -> Iterator[GceWorld]:
    """With a cluster and a server of its own."""
    peers = needed(find_binaries(GCE_PEERS), NOT_BUILT)
    with (
        pytest.MonkeyPatch.context() as patch,
        RealCluster.start(kube_binaries, directory / "kube") as cluster,
        Gce().running() as gce,
    ):
        patch.setenv(KEY_FILE, str(directory / "key.json"))
        yield GceWorld(directory, peers, cluster, gce=gce)
        assert not gce.violations


def _is_balancers(call: Call) -> bool:
    return call.name.partition(".")[0] in BALANCERS


def _values(said: Any) -> list[str]:
    if isinstance(said, dict):
        return [text for key, one in sorted(said.items()) for text in (f"{key}:", *_values(one))]
    if isinstance(said, list):
        return [text for one in said for text in _values(one)]
    return [str(said)]
