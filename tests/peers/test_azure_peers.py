"""The upstream Azure controller and ours, each in a lab of its own, and then in the other's."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ccm.model.objects import UNINITIALIZED_TAINT, Json
from ccm.providers.azure.lb.annotations import PREFIX
from ccm.sandbox.kubelets import ready_condition, registration
from tests.labs.azure.lab import MISSING, NSG, TABLE, Lab, is_built, running_lab
from tests.peers import upstream
from tests.peers.world import FLAGS, LEASE, NODES, OUR_FLAGS, OURS, SERVICES, UPSTREAM
from tests.support.kube.build import AZURE_PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import Running, Supervisor, Where, long, wait_for

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(1800)]

NOT_BUILT = "upstream's Azure controller is not built: python3 -m tests.support.kube.build azure"
LEAST_CALLS = 5
KEPT = "kubernetes", "node-0"
"""Without any Node no controller takes routes away."""
QUIET = 6.0  # seconds without a write: retries of both begin after 5
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
            body = registration(name, f"10.244.{number}.0/24")
            taints = body["spec"].get("taints", [])
            body["spec"]["taints"] = [one for one in taints if one["key"] != UNINITIALIZED_TAINT]
            body["spec"]["providerID"] = f"azure://{machine['id']}"
            body["status"]["conditions"] = [ready_condition(True)]
            address = ip["properties"]["privateIPAddress"]
            body["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
            self.request("POST", NODES, body)
        self.lab.forget_calls()

    def request(self, method: str, path: str, body: object = None) -> Json:
        return dict(self.cluster.request(method, path, body).expect().body)

    def make(self, *names: str) -> None:
        for name in names:
            annotations, spec = SHAPES[name]
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

    @contextmanager
    def at_work(self, who: str) -> Iterator[Running]:
        config = self.directory / f"{who}.json"
        stack: dict[str, Any] = {"tenantId": "adfs", "disableAzureStackCloud": True}
        stack |= {"routeUpdateIntervalInSeconds": 1}
        config.write_text(self.lab.config(**stack))
        kubeconfig = self.cluster.kubeconfig("admin")
        if who == UPSTREAM:
            ca_file = self.lab.ca_file
            run: Running = upstream.azure(
                self.directory, self.binaries, kubeconfig, config, ca_file, *FLAGS
            )
        else:
            where = Where(self.directory, kubeconfig, config)
            run = Supervisor(where, "--cloud-provider=azure", *FLAGS, *OUR_FLAGS)
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
        since, before = time.monotonic(), len(self.lab.writes())

        def is_quiet() -> bool:
            nonlocal since, before
            if len(writes := self.lab.writes()) != before:
                since, before = time.monotonic(), len(writes)
            return time.monotonic() - since > QUIET

        wait_for("nothing is written any more", is_quiet, 120.0)

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
