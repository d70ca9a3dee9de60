"""The whole product on a real API server and the stand-in: what Nodes cost, and which ones go."""

import time
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from ccm.sandbox.kubelets import registration
from tests.e2e.conftest import api, cluster
from tests.providers.proxmox.served import ALL_RIGHTS, LIST, TOKEN, Served, config_of
from tests.providers.proxmox.test_proxmox_instances import numbered_uuid
from tests.providers.real_nodes import RealNodes
from tests.support.environment import NODES
from tests.support.kube.cluster import RealCluster
from tests.support.running import Supervisor, Where, until

__all__ = ["api", "cluster"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

COUNT = 50
PERIOD = 0.5  # seconds
FLAGS = (
    "--cloud-provider=proxmox",
    f"--node-monitor-period={PERIOD}s",
    "--node-deletion-confirmation-period=0",
)


class Whole(RealNodes):
    """What there is in both."""

    def __init__(self, api: Kube, pve: Served) -> None:
        super().__init__(api)
        self.pve = pve

    async def register(self, number: int) -> None:
        """A machine, and what the kubelet on it does first."""
        name, uuid = name_of(number), numbered_uuid(number)
        self.pve.add(100 + number, name, uuid)
        node = registration(name)
        node["status"]["nodeInfo"]["systemUUID"] = uuid.upper()
        await self.api.post(NODES, node)

    async def rounds(self, number: int) -> None:
        """So many lists of the cluster from now."""
        before = len(self.pve.paths(LIST))
        await until("lists", lambda: len(self.pve.paths(LIST)) >= before + number)


def name_of(number: int) -> str:
    return f"pve-node-{number}"


async def test_nodes_cost_little_and_go_on_proof_alone(
    api: Kube, cluster: RealCluster, pve: Served, tmp_path: Path
) -> None:
    """PX2, PX9, PX11, PX12, PX13, PX16, PX19."""
    config = tmp_path / "proxmox.yaml"
    config.write_text(config_of(pve.section()))
    whole = Whole(api, pve)
    for number in range(COUNT):
        await whole.register(number)
    with Supervisor(Where(tmp_path, cluster.kubeconfig("ccm"), config), *FLAGS) as supervisor:
        began = time.monotonic()
        await until("all nodes are initialized", whole.are_initialized)
        print(f"{COUNT} nodes: {time.monotonic() - began:.2f} s, {len(pve.requests)} requests")
        assert len(pve.paths("/config")) == COUNT
        await check_doubts(whole, supervisor)
        await check_what_follows(whole)
        assert supervisor.end() == 0


async def check_doubts(whole: Whole, supervisor: Supervisor) -> None:
    """Five Nodes fell silent: without rights or without quorum nobody goes."""
    pve = whole.pve
    await whole.stop_kubelets(*map(name_of, range(5)))
    pve.acl = {TOKEN: [("/", {"Sys.Audit"})]}
    await whole.rounds(6)
    assert len(await whole.nodes()) == COUNT
    await whole.until_reported(supervisor, name_of(0), "VM.Audit on /vms")
    assert len(await whole.nodes()) == COUNT
    pve.acl = {TOKEN: [("/", set(ALL_RIGHTS))]}
    pve.lose_quorum()
    pve.remove(100)
    await whole.rounds(6)
    assert len(await whole.nodes()) == COUNT
    pve.regain_quorum()
    await whole.until_gone(name_of(0))
    assert len(await whole.nodes()) == COUNT - 1


async def check_what_follows(whole: Whole) -> None:
    """A stop, a migration, and a host that does not answer."""
    pve = whole.pve
    pve.vm(101).status = "stopped"
    await whole.until_node(name_of(1), lambda node: node.is_shut_down)
    pve.vm(101).status = "running"
    await whole.until_node(name_of(1), lambda node: not node.is_shut_down)
    pve.add_node("pve2")
    for number in (2, 7):
        pve.vm(100 + number).node = "pve2"
    zone = "topology.kubernetes.io/zone"
    pve.set_node_offline("pve2")
    await whole.rounds(6)
    away = (await whole.nodes())[name_of(2)]
    assert not away.is_shut_down
    pve.set_node_offline("pve2", offline=False)
    await whole.until_node(name_of(2), lambda node: node.labels.get(zone) == "pve2")
