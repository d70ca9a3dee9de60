"""A real cluster, a cloud and clients for each process test, which leaves the cluster empty."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from tests.support.cluster_nodes import NodeWatcher, connect
from tests.support.environment import Environment, emptied
from tests.support.fault_proxy import FaultProxy
from tests.support.kube.cluster import RealCluster
from tests.support.running import RULES, Cloud, Where, in_background

PAGE = 100
Written = Callable[[], Counter[tuple[str, str]]]


@pytest.fixture
def written(cluster: RealCluster, api: Kube) -> Written:
    """Writes to Nodes that workers made in this test and the API server took, per node and part."""
    return lambda: Counter(
        (entry.name, entry.subresource)
        for entry in cluster.audit()
        if entry.is_write
        and entry.resource == "nodes"
        and "cloud-node" in entry.user_agent
        and entry.code < 300
    )


@pytest.fixture(scope="session")
def cluster(kube: RealCluster) -> RealCluster:
    """The cluster of the session, where the identity `ccm` may do what it needs."""
    kube.grant("ccm", RULES)
    return kube


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Cloud(tmp_path, "--page", str(PAGE)) as cloud:
        yield cloud


@pytest.fixture
async def api(cluster: RealCluster) -> AsyncIterator[Kube]:
    """The test's own client; what it finds at the end, it takes away for the next test."""
    cluster.forget_audit()
    async with emptied(await connect(cluster.kubeconfig("admin"))) as api:
        yield api


@pytest.fixture
def where(tmp_path: Path, cluster: RealCluster, cloud: Cloud) -> Where:
    return Where(tmp_path, cluster.kubeconfig("ccm"), cloud.config)


@pytest.fixture
def proxy(cluster: RealCluster) -> Iterator[FaultProxy]:
    """A way to the API server that spoils watches on command."""
    with FaultProxy(cluster.url, cluster.ca_file) as proxy:
        yield proxy


@pytest.fixture
async def env(
    cluster: RealCluster, cloud: Cloud, where: Where, api: Kube
) -> AsyncIterator[Environment]:
    nodes = NodeWatcher(api)
    async with cloud.admin() as admin, in_background(nodes.run()):
        yield Environment(cluster, cloud, where, api, admin, nodes)
