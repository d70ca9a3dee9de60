"""Beside the controller of upstream: what is taken over, and whom it deletes and we do not."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from ccm.model.objects import Json, Node
from tests.e2e.conftest import api, cluster
from tests.labs.vsphere.lab import LABELS, Lab
from tests.peers import upstream
from tests.providers.vsphere.test_vsphere_real import FLAGS, Whole, name_of
from tests.support.kube.build import VSPHERE_PEERS, build_binaries, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import IS_LONG, Supervisor, Where, long, until

__all__ = ["api", "cluster"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), long]

COUNT = 5
ALONE = ("--leader-elect=false", "--controllers=*,-service,-route")


@pytest.fixture(scope="module")
def binaries() -> Path:
    if IS_LONG:
        build_binaries(VSPHERE_PEERS)
    return needed(find_binaries(VSPHERE_PEERS), "upstream's controller is not built: make labs")


@pytest.fixture
async def whole(api: Kube, lab: Lab, cluster: RealCluster) -> Whole:
    """Some Nodes whose guests read their UUID turned around, as upstream takes it."""
    whole = Whole(api, lab)
    for at, machine in enumerate(lab.create(*map(name_of, range(1, COUNT * 3, 3)))):
        await whole.register(at * 3 + 1, machine)
    return whole


def read_back(nodes: Mapping[str, Node]) -> dict[str, tuple[str, Json, list[Json], str]]:
    """What a controller writes, and the version that any write changes."""
    return {
        name: (node.provider_id, dict(node.labels), node.addresses, node.meta["resourceVersion"])
        for name, node in nodes.items()
    }


async def test_nodes_of_upstream_are_taken_over_without_a_write(
    whole: Whole, cluster: RealCluster, binaries: Path, tmp_path: Path
) -> None:
    """The same file; then whole passes over all Nodes, one a second."""
    config = tmp_path / "vsphere.yaml"
    config.write_text(whole.lab.config(LABELS))
    admin = cluster.kubeconfig("admin")
    with upstream.vsphere(tmp_path, binaries, admin, config, *ALONE) as theirs:
        await until("upstream initializes", whole.are_initialized)
        await until("upstream tells addresses", lambda: _have_addresses(whole))
        print(f"upstream: {COUNT} nodes, {whole.lab.calls().total()} calls")
        theirs.end()  # with whatever code
    before = read_back(await whole.nodes())
    assert len(before) == COUNT
    whole.lab.forget_calls()
    with Supervisor(Where(tmp_path, cluster.kubeconfig("ccm"), config), *FLAGS) as ours:
        await whole.reads(4)
        assert ours.end() == 0
    assert read_back(await whole.nodes()) == before


async def test_nodes_that_upstream_deletes_are_kept(
    whole: Whole, cluster: RealCluster, binaries: Path, tmp_path: Path
) -> None:
    """VS18: vCenter finds the machines and answers 503 to their properties, after a restart."""
    config = tmp_path / "vsphere.yaml"
    config.write_text(whole.lab.config(LABELS))
    where = Where(tmp_path, cluster.kubeconfig("ccm"), config)
    with Supervisor(where, *FLAGS) as ours:
        await until("ours initializes", whole.are_initialized)
        assert ours.end() == 0
    await whole.stop_kubelets(*map(name_of, range(1, COUNT * 3, 3)))
    whole.lab.fail("RetrieveProp", body='type="VirtualMachine"', status=503)
    whole.lab.fail("RetrieveProp", body="ContainerView", status=503)
    with Supervisor(where, *FLAGS, name="restarted") as ours:
        await whole.reads(20)
        assert len(await whole.nodes()) == COUNT
        assert ours.end() == 0
    admin = cluster.kubeconfig("admin")
    with upstream.vsphere(tmp_path, binaries, admin, config, *ALONE):
        await until("upstream deletes living nodes", lambda: _are_gone(whole), 60)


async def _are_gone(whole: Whole) -> bool:
    return not await whole.nodes()


async def _have_addresses(whole: Whole) -> bool:
    return all(len(node.addresses) == 3 for node in (await whole.nodes()).values())
