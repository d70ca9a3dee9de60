"""The upstream Azure controller and ours, each in a lab of its own, and then in the other's."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ccm.model.objects import Json
from ccm.providers.azure.lb.annotations import PREFIX
from tests.labs.azure.lab import MISSING, NSG, TABLE, Lab, is_built, running_lab
from tests.peers import upstream
from tests.peers.kubelets import NodeShape, node_of
from tests.peers.world import FLAGS, LEASE, NODES, OUR_FLAGS, OURS, SERVICES, UPSTREAM
from tests.support.deadlines import slowness
from tests.support.kube.build import AZURE_PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import Running, Supervisor, Where, long, wait_for

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(1800)]

NOT_BUILT = "upstream's Azure controller is not built: python3 -m tests.support.kube.build azure"
LEAST_CALLS = 5
INITIALIZED = NodeShape(provider_id="azure://{id}", is_initialized=True)
KEPT = "kubernetes", "node-0"
"""Without any Node no controller takes routes away."""
RETRY = 5.0  # seconds after which retries of both begin: a while longer without a write is the end
TCP, UDP = {"name": "tcp", "port": 80}, {"name": "udp", "port": 80, "protocol": "UDP"}
RANGES = {"loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/24"]}
SHAPES: dict[str, tuple[dict[str, str], Json]] = {
    "plain": ({}, {}),
    "two-ports": ({}, {"ports": [TCP, {"name": "more", "port": 443}]}),
    "mixed": ({}, {"ports": [TCP, UDP]}),
    "local": ({}, {"externalTrafficPolicy": "Local"}),
    "internal": ({"load-balancer-internal": "true"}, {}),
    "subnet": (
        {"load-balancer-internal": "true", "load-balancer-internal-subnet": "nodes"},
        {"ports": [{"name": "tcp", "port": 81}]},
    ),
    "affinity": ({}, {"sessionAffinity": "ClientIP"}),
    "ranges": ({}, RANGES),
    "denied": ({"deny-all-except-load-balancer-source-ranges": "true"}, RANGES),
    "tags": ({"allowed-service-tags": "AzureCloud"}, {}),
    "timeout": ({"load-balancer-tcp-idle-timeout": "15"}, {}),
    "probe": (
        {"load-balancer-health-probe-protocol": "http", "load-balancer-health-probe-interval": "9"},
        {},
    ),
    "label": ({"dns-label-name": "peers-label", "pip-tags": "team=blue"}, {}),
    "ported": ({"disable-load-balancer-floating-ip": "true"}, {}),
}
"""Annotations without their prefix, and the spec, by the name of a Service."""


@dataclass
class World:
    """A cluster and a lab, and who works for them; upstream's tenant asks no public host."""

    directory: Path
    cluster: RealCluster
    lab: Lab
    binaries: Path
    uids: dict[str, str] = field(default_factory=dict)
    nodes: int = 0

    def prepare(self, nodes: int) -> None:
        self.nodes = nodes
        for number in range(nodes):
            name = f"node-{number}"
            machine = self.lab.add_machine(name)
            (ip,) = self.lab.get("networkInterfaces", f"{name}-nic")["properties"][
                "ipConfigurations"
            ]
            body = node_of(INITIALIZED, machine, f"10.244.{number}.0/24")
            address = ip["properties"]["privateIPAddress"]
            body["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
            self.request("POST", NODES, body)
        self.lab.forget_calls()

    def request(self, method: str, path: str, body: object = None) -> Json:
        return dict(self.cluster.request(method, path, body).expect().body)

    def make(self, *names: str) -> None:
        for name in names:
            annotations, spec = SHAPES.get(name, ({}, {}))
            usual = {"type": "LoadBalancer", "selector": {"app": name}, "ports": [TCP]}
            meta = {"name": name, "annotations": {PREFIX + k: v for k, v in annotations.items()}}
            made = self.request("POST", SERVICES, {"metadata": meta, "spec": usual | spec})
            self.uids[name] = made["metadata"]["uid"]

    def addresses(self) -> dict[str, str]:
        found = {}
        for one in self.request("GET", SERVICES)["items"]:
            ingress = one["status"].get("loadBalancer", {}).get("ingress")
            if one["spec"]["type"] == "LoadBalancer" and ingress:
                found[one["metadata"]["name"]] = ingress[0]["ip"]
        return found

    def clear(self) -> None:
        for name in self.uids:
            self.request("DELETE", f"{SERVICES}/{name}")
        self.uids.clear()

    @contextmanager
    def at_work(self, who: str, *flags: str, **more: Any) -> Iterator[Running]:
        """`flags` count after those of all comparisons, `more` are keys of the configuration."""
        config = self.directory / f"{who}.json"
        stack: dict[str, Any] = {"tenantId": "adfs", "disableAzureStackCloud": True}
        stack |= {"routeUpdateIntervalInSeconds": 1}
        config.write_text(self.lab.config(**stack, **more))
        kubeconfig = self.cluster.kubeconfig("admin")
        if who == UPSTREAM:
            ca_file = self.lab.ca_file
            run: Running = upstream.azure(
                self.directory, self.binaries, kubeconfig, config, ca_file, *FLAGS, *flags
            )
        else:
            where = Where(self.directory, kubeconfig, config)
            run = Supervisor(where, "--cloud-provider=azure", *FLAGS, *OUR_FLAGS, *flags)
        with run as running:
            yield running
        if who == UPSTREAM:
            self.request("PATCH", LEASE, {"spec": {"holderIdentity": ""}})

    def settle(self, running: Running, services: int) -> None:
        """All Services are served, and nothing was written for a while."""

        def is_served() -> bool:
            assert running.process.poll() is None, running.tail(20)
            routes = self.lab.get("routeTables", TABLE)["properties"].get("routes", [])
            is_made = len(self.addresses()) == services and len(routes) == self.nodes
            return is_made and len(self.lab.calls()) >= LEAST_CALLS

        wait_for("all are served", is_served, 120.0)
        self.until_quiet(self.lab.writes)

    def until_quiet(self, calls: Callable[[], Sequence[object]]) -> None:
        """For a while there were no more of these."""
        since, before = time.monotonic(), len(calls())

        def is_quiet() -> bool:
            nonlocal since, before
            if (now := len(calls())) != before:
                since, before = time.monotonic(), now
            return time.monotonic() - since > RETRY + slowness()

        wait_for("no more calls", is_quiet, 120.0)

    def left(self) -> list[str]:
        """What there is of load balancers and routes."""
        group = self.lab.get("networkSecurityGroups", NSG)["properties"].get("securityRules", [])
        routes = self.lab.get("routeTables", TABLE)["properties"].get("routes", [])
        routes = [one for one in routes if not one["name"].startswith(KEPT[1])]
        kinds = ("loadBalancers", "publicIPAddresses")
        made = [key for kind in kinds for key in self.lab.objects(kind)]
        return [*made, *(one["name"] for one in (*group, *routes))]


@contextmanager
def world(kube_binaries: Path, directory: Path, nodes: int) -> Iterator[World]:
    needed(is_built() or None, MISSING)
    binaries = needed(find_binaries(AZURE_PEERS), NOT_BUILT)
    with (
        RealCluster.start(kube_binaries, directory / "kube") as cluster,
        running_lab(directory / "lab") as lab,
    ):
        made = World(directory, cluster, lab, binaries)
        made.prepare(nodes)
        yield made


@pytest.mark.parametrize("first", [UPSTREAM, OURS])
def test_each_takes_over_what_the_other_made_without_a_write(
    kube_binaries: Path, tmp_path: Path, first: str
) -> None:
    second = OURS if first == UPSTREAM else UPSTREAM
    with world(kube_binaries, tmp_path, 3) as made:
        made.make(*SHAPES)
        with made.at_work(first) as running:
            made.settle(running, len(SHAPES))
        made.lab.forget_calls()
        with made.at_work(second) as running:
            made.settle(running, len(SHAPES))
            assert made.lab.writes() == []
            for path in (SERVICES, NODES):
                for one in made.request("GET", path)["items"]:
                    if one["metadata"]["name"] not in KEPT:
                        made.request("DELETE", f"{path}/{one['metadata']['name']}")
            wait_for("nothing is left", lambda: not made.left(), 120.0)


FEW_READS = ("--configure-cloud-routes=false", "--node-monitor-period=60s")
BY_ADDRESS = {"loadBalancerBackendPoolConfigurationType": "nodeIP"}


@pytest.mark.parametrize("nodes", [10, 30, 50])
def test_what_five_services_cost(kube_binaries: Path, tmp_path: Path, nodes: int) -> None:
    """By interface both write each one; by address the number stays the same."""
    kinds: dict[str, tuple[str, dict[str, str]]] = {
        "upstream": (UPSTREAM, {}),
        "by interface": (OURS, {}),
        "by address": (OURS, BY_ADDRESS),
    }
    costs = dict[str, tuple[int, float]]()
    with world(kube_binaries, tmp_path, nodes) as made:
        for kind, (who, more) in kinds.items():
            with made.at_work(who, *FEW_READS, **more):
                wait_for("it looks", made.lab.calls, 60.0)
                made.until_quiet(made.lab.calls)
                made.lab.forget_calls()
                began = time.monotonic()
                made.make(*(f"five-{number}" for number in range(5)))
                wait_for("all are served", lambda: len(made.addresses()) == 5, 60.0)
                seconds = time.monotonic() - began
                made.until_quiet(made.lab.calls)
                costs[kind] = len(made.lab.calls()), seconds
                print(nodes, kind, costs[kind], dict(made.lab.counted()))
                made.lab.forget_calls()
                made.clear()
                wait_for("nothing is left", lambda: not made.left(), 60.0)
                print(nodes, kind, "deleted", len(made.lab.calls()))
    assert costs["by address"][0] <= 60
    assert costs["by interface"][0] <= nodes + 60
    assert costs["by interface"][0] < costs["upstream"][0] / 3
