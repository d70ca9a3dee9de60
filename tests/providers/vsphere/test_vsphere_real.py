"""The whole product on a real API server and the lab: what Nodes cost, and which ones go."""

import base64
import time
from pathlib import Path
from typing import Any

import pytest

from ccm.kube.client import Kube
from ccm.model.cloud import swapped_uuid
from ccm.sandbox.kubelets import registration
from tests.e2e.conftest import api, cluster
from tests.labs.vsphere.lab import LABELS, Lab
from tests.providers.real_nodes import RealNodes
from tests.support.environment import NODES
from tests.support.kube.cluster import RealCluster
from tests.support.running import Supervisor, Where, until

__all__ = ["api", "cluster"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

COUNT = 50
PERIOD = 0.5  # seconds
LIST, LOGIN = "RetrievePropertiesEx", "POST /rest/com/vmware/cis/session"
ZONE = "topology.kubernetes.io/zone"
SECRET = {"secretName": "vsphere", "secretNamespace": "kube-system"}
FLAGS = (
    "--cloud-provider=vsphere",
    f"--node-monitor-period={PERIOD}s",
    "--node-status-update-frequency=1s",
    "--node-deletion-confirmation-period=0",
)


class Whole(RealNodes):
    """What there is in both."""

    def __init__(self, api: Kube, lab: Lab) -> None:
        super().__init__(api)
        self.lab = lab

    async def register(self, number: int, machine: dict[str, Any], node_ip: str = "") -> None:
        """What the kubelet on a machine does first; most read their UUID turned around."""
        node = registration(name_of(number), node_ip=node_ip)
        uuid = machine["uuid"]
        node["status"]["nodeInfo"]["systemUUID"] = (
            swapped_uuid(uuid) if number % 3 else uuid.upper()
        )
        await self.api.post(NODES, node)

    async def store_password(self, password: str) -> None:
        """Into the Secret that the configuration names, which we may read as the page says."""
        known = {"username": self.lab.user, "password": password}
        data = {
            f"{self.lab.server}.{key}": base64.b64encode(value.encode()).decode()
            for key, value in known.items()
        }
        name = {"name": "vsphere"}
        path = "/api/v1/namespaces/kube-system/secrets"
        await self.api.post(path, {"metadata": name, "data": data})
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system"
        rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
        role = {"metadata": name, "rules": [rule | {"resourceNames": ["vsphere"]}]}
        await self.api.post(f"{rbac}/roles", role)
        group = {"apiGroup": "rbac.authorization.k8s.io"}
        to = [group | {"kind": "User", "name": "ccm"}]
        reference = group | {"kind": "Role", "name": "vsphere"}
        binding = {"metadata": name, "roleRef": reference, "subjects": to}
        await self.api.post(f"{rbac}/rolebindings", binding)

    async def reads(self, number: int) -> None:
        """So many reads of the inventory from now, whatever comes of them."""
        before = self.lab.calls()[LIST]
        await until("reads", lambda: self.lab.calls()[LIST] >= before + number)


def name_of(number: int) -> str:
    return f"vs-node-{number}"


async def test_nodes_cost_little_and_go_on_proof_alone(
    api: Kube, cluster: RealCluster, lab: Lab, tmp_path: Path
) -> None:
    """VS1, VS2, VS10, VS13, VS14, VS18, VS29, VS43, VS51, VS60."""
    config = tmp_path / "vsphere.yaml"
    config.write_text(lab.config(LABELS, user=None, password=None, **SECRET))
    whole = Whole(api, lab)
    await whole.store_password(lab.password)
    machines = lab.create(*map(name_of, range(COUNT)))
    for number, machine in enumerate(machines):
        await whole.register(number, machine, machine["address"] if number == 3 else "")
    lab.forget_calls()
    where = Where(tmp_path, cluster.kubeconfig("ccm"), config)
    began = time.monotonic()
    with Supervisor(where, *FLAGS) as supervisor:
        await until("all nodes are initialized", whole.are_initialized)
        seconds, calls = time.monotonic() - began, lab.calls()
        print(f"{COUNT} nodes: {seconds:.2f} s from the start, {calls.total()} calls, {calls}")
        assert calls.total() <= 30
        assert (calls["Login"], calls[LOGIN]) == (1, 1)
        await check_what_nodes_have(whole, machines)
        await whole.stop_kubelets(*map(name_of, range(5)))
        lab.fail("RetrieveProp", status=503)
        await whole.reads(4)
        assert supervisor.end() == 0
    assert len(await whole.nodes()) == COUNT
    with Supervisor(where, *FLAGS, name="restarted") as supervisor:
        await check_doubts(whole, supervisor)
        await check_what_follows(whole)
        assert supervisor.end() == 0


async def check_what_nodes_have(whole: Whole, machines: list[dict[str, Any]]) -> None:
    """Also the one whose kubelet was told its address."""
    nodes = await whole.nodes()
    for number, machine in enumerate(machines):
        node = nodes[name_of(number)]
        listed = [(one["type"], one["address"]) for one in node.addresses]
        assert node.provider_id == f"vsphere://{machine['uuid']}"
        assert node.labels[ZONE] == "zone-DC0_C0"
        assert ("InternalIP", machine["address"]) in listed
        assert ("Hostname", node.name) in listed


async def check_doubts(whole: Whole, supervisor: Supervisor) -> None:
    """Five Nodes fell silent before the start: upstream deletes them, 5.5 s after it."""
    lab = whole.lab
    await whole.reads(8)
    assert len(await whole.nodes()) == COUNT
    await whole.until_reported(supervisor, name_of(0), "lab: ListInventory: 503")
    lab.change(name_of(0), delete=True)
    lab.change(name_of(9), delete=True)
    await whole.reads(4)
    assert len(await whole.nodes()) == COUNT
    lab.heal()
    await whole.until_gone(name_of(0))
    await whole.reads(4)
    assert len(await whole.nodes()) == COUNT - 1, "number 9 is Ready"


async def check_what_follows(whole: Whole) -> None:
    """A stop and a migration."""
    lab = whole.lab
    lab.change(name_of(1), power="off")
    await whole.until_node(name_of(1), lambda node: node.is_shut_down)
    lab.change(name_of(1), power="on")
    await whole.until_node(name_of(1), lambda node: not node.is_shut_down)
    lab.change(name_of(7), host="DC0_C1_H0")
    await whole.until_node(name_of(7), lambda node: node.labels[ZONE] == "zone-DC0_C1")
