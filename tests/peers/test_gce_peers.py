"""Google's own provider and ours on one server: what each costs, and that each takes over."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ccm.model.objects import UNINITIALIZED_TAINT, Json
from ccm.providers.gce.credentials import KEY_FILE
from ccm.providers.gce.lb.request import TYPE
from ccm.sandbox.kubelets import registration
from tests.labs.gce.project import ZONES
from tests.labs.gce.server import Gce
from tests.peers.upstream import DEFAULTS, Upstream
from tests.peers.world import LEASE, NODES, OURS, SERVICES, UPSTREAM
from tests.providers.gce.adapter import config_of
from tests.providers.gce.balancers import left
from tests.support.deadlines import slowness
from tests.support.kube.build import GCE_PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import Running, Supervisor, Where, long, wait_for

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(1200)]

NOT_BUILT = "Google's provider is not built: python3 -m tests.support.kube.build gce"
(PROGRAM,) = (name for pin in GCE_PEERS for name in pin.programs)
FLAGS = ("--cloud-provider=gce", "--leader-elect-retry-period=500ms")
OUR_FLAGS = (
    "--controllers=*,-route",
    "--cloud-rate=read=500,write=500,operation=500,identity=500",
    "--node-monitor-period=60s",
)
LOCAL = {"externalTrafficPolicy": "Local"}
KINDS: dict[str, tuple[dict[str, str], Json]] = {
    "plain": ({}, {}),
    "local": ({}, LOCAL),
    "internal": ({TYPE: "Internal"}, {}),
    "internal-local": ({TYPE: "Internal"}, LOCAL),
}
RETRY = 5.0  # seconds after which retries begin: a while longer without a call is the end
PATIENCE = 120.0


@dataclass
class World:
    """A cluster of its own and the one server; whoever works for it."""

    directory: Path
    binaries: Path
    cluster: RealCluster
    gce: Gce

    def start(self, who: str) -> Running:
        kubeconfig, config = self.cluster.kubeconfig("admin"), self.directory / "gce.conf"
        lines = ["token-url = nil", "token-body = "]
        if who == OURS:
            config.write_text(config_of(self.gce, *lines))
            return Supervisor(Where(self.directory, kubeconfig, config), *FLAGS, *OUR_FLAGS)
        more = ["subnetwork-name = default", "multizone = true"]
        config.write_text(config_of(self.gce, *lines, *more))
        key = str(self.directory / "key.json")
        flags = (*FLAGS, "--configure-cloud-routes=false", *DEFAULTS)
        program = self.binaries / PROGRAM
        environment = {KEY_FILE: key}
        return Upstream(self.directory, program, kubeconfig, config, *flags, **environment)

    def request(self, method: str, path: str, body: object = None) -> Json:
        return dict(self.cluster.request(method, path, body).expect().body)

    def join(self, count: int) -> None:
        for at in range(count):
            self.gce.cloud.add_instance(f"n-{at}", ZONES[at % 3])
            self.request("POST", NODES, registration(f"n-{at}"))

    def are_initialized(self) -> bool:
        nodes = self.request("GET", NODES)["items"]
        taints = [taint["key"] for one in nodes for taint in one["spec"].get("taints", ())]
        return UNINITIALIZED_TAINT not in taints

    def serve(self, name: str, annotations: dict[str, str], spec: Json) -> None:
        ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": ports, **spec},
        }
        self.request("POST", SERVICES, body)

    def services(self) -> dict[str, Json]:
        listed = self.request("GET", SERVICES)["items"]
        return {one["metadata"]["name"]: one for one in listed if one["spec"].get("ports")}

    def addresses(self) -> dict[str, object]:
        """By Service of a load balancer; None before it has one."""
        return {
            name: one["status"]["loadBalancer"].get("ingress")
            for name, one in self.services().items()
            if one["spec"]["type"] == "LoadBalancer"
        }

    def are_served(self) -> bool:
        return all(self.addresses().values())

    def clear(self) -> None:
        for name in self.addresses():
            self.request("DELETE", f"{SERVICES}/{name}")

    def settle(self) -> None:
        """Until nobody has called for a while."""
        since, seen = time.monotonic(), -1

        def is_quiet() -> bool:
            nonlocal since, seen
            if (calls := len(self.gce.calls)) != seen:
                since, seen = time.monotonic(), calls
            return time.monotonic() > since + RETRY + slowness()

        wait_for("quiet", is_quiet, PATIENCE)

    def give_back(self) -> None:
        """The Lease, which upstream keeps."""
        self.request("PATCH", LEASE, {"spec": {"holderIdentity": ""}})


@pytest.fixture
def world(kube_binaries: Path, tmp_path: Path) -> Iterator[World]:
    binaries = needed(find_binaries(GCE_PEERS), NOT_BUILT)
    with Gce().running() as gce, RealCluster.start(kube_binaries, tmp_path / "kube") as cluster:
        (tmp_path / "key.json").write_text(gce.account_text())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(KEY_FILE, str(tmp_path / "key.json"))
            yield World(tmp_path, binaries, cluster, gce)
        assert not gce.violations


@pytest.mark.parametrize("count", [10, 30, 50])
def test_what_each_costs(world: World, count: int) -> None:
    costs = dict[str, list[tuple[int, float]]]()
    gce = world.gce
    for who in (UPSTREAM, OURS):
        with world.start(who):
            world.settle()
            steps = []
            gce.calls.clear()
            world.join(count)
            began = time.monotonic()
            wait_for("all Nodes are initialized", world.are_initialized, PATIENCE)
            steps.append((len(gce.calls), time.monotonic() - began))
            world.settle()
            gce.calls.clear()
            began = time.monotonic()
            for at in range(5):
                world.serve(f"web-{at}", {}, {})
            wait_for("all have addresses", world.are_served, PATIENCE)
            steps.append((len(gce.calls), time.monotonic() - began))
            world.settle()
            gce.calls.clear()
            began = time.monotonic()
            world.clear()
            wait_for("all are gone", lambda: not world.addresses(), PATIENCE)
            steps.append((len(gce.calls), time.monotonic() - began))
            print(who, count, *(f"{calls} calls {seconds:.1f} s" for calls, seconds in steps))
            world.settle()
            assert left(gce) == []
            costs[who] = steps
        if who == UPSTREAM:
            world.give_back()
        for node in world.request("GET", NODES)["items"]:
            world.request("DELETE", f"{NODES}/{node['metadata']['name']}")
        gce.cloud.objects = {k: v for k, v in gce.cloud.objects.items() if "/instances/" not in k}
    for (calls, seconds), most, (_, upstreams), times in zip(
        costs[OURS], (3, 80, 50), costs[UPSTREAM], (3, 2, 2), strict=True
    ):
        assert calls <= most
        assert seconds <= upstreams / times


@pytest.mark.parametrize(("first", "second"), [(UPSTREAM, OURS), (OURS, UPSTREAM)])
def test_each_takes_over_from_the_other(world: World, first: str, second: str) -> None:
    """Addresses stay, and nothing is left once the second one has deleted all."""
    gce = world.gce
    world.join(3)
    with world.start(first):
        wait_for("all Nodes are initialized", world.are_initialized, PATIENCE)
        for name, (annotations, spec) in KINDS.items():
            world.serve(name, annotations, spec)
        wait_for("all have addresses", world.are_served, PATIENCE)
        world.settle()
    if first == UPSTREAM:
        world.give_back()
    before, parts = world.addresses(), left(gce)
    print(first, parts)
    gce.calls.clear()
    with world.start(second) as running:
        wait_for("it looks", lambda: gce.calls, PATIENCE)
        world.settle()
        print(second, "writes", gce.writes())
        if second == OURS:
            assert {*gce.writes()} <= {"firewalls.update"}
        assert world.addresses() == before
        assert left(gce) == parts
        world.clear()
        wait_for("all are gone", lambda: not world.addresses(), PATIENCE)
        world.settle()
        assert left(gce) == [], running.tail()
