"""A real cluster, a cloud and a bystander for each process test; the cluster serves a module."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from tests.kube.cluster import RealCluster
from tests.proc.cluster_nodes import Witness, connect
from tests.proc.running import RULES, Cloud, Where

PAGE = 100


@pytest.fixture
def written(cluster: RealCluster) -> Callable[[], Counter[tuple[str, str]]]:
    """Writes to Nodes that workers made in this test and the API server took, per node and part."""
    before = _writes(cluster)
    return lambda: _writes(cluster) - before


def _writes(cluster: RealCluster) -> Counter[tuple[str, str]]:
    return Counter(
        (entry.name, entry.subresource)
        for entry in cluster.audit()
        if entry.is_write
        and entry.resource == "nodes"
        and "cloud-node" in entry.user_agent
        and entry.code < 300
    )


@pytest.fixture(scope="module")
def cluster(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with RealCluster.start(kube_binaries, tmp_path_factory.mktemp("cluster") / "kube") as cluster:
        cluster.grant("ccm", RULES)
        yield cluster


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Cloud(tmp_path, "--page", str(PAGE)) as cloud:
        yield cloud


@pytest.fixture
async def api(cluster: RealCluster) -> AsyncIterator[Kube]:
    """The bystander's client; what it finds at the end, it takes away for the next test."""
    api = await connect(cluster.kubeconfig("admin"))
    yield api
    await api.request("DELETE", "/api/v1/nodes")
    await api.request("DELETE", "/api/v1/namespaces/default/events")
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    await api.request("DELETE", leases)
    await api.close()


@pytest.fixture
def where(tmp_path: Path, cluster: RealCluster, cloud: Cloud) -> Where:
    return Where(tmp_path, cluster.kubeconfig("ccm"), cloud.config)


@pytest.fixture
async def witness(api: Kube) -> AsyncIterator[Witness]:
    witness = Witness(api)
    watching = asyncio.create_task(witness.run())
    yield witness
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
