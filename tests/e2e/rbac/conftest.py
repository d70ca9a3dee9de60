"""A real API server that grants our accounts nothing of its own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from tests.support.cluster_nodes import connect
from tests.support.kube.access import RBAC
from tests.support.kube.cluster import RealCluster

BUILT_IN = ("service-controller", "route-controller")
"""Accounts with rights from the API server's own roles, which would hide that ours lack some."""


@pytest.fixture(scope="session")
def cluster(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with RealCluster.start(kube_binaries, tmp_path_factory.mktemp("rbac") / "kube") as cluster:
        for name in BUILT_IN:
            path = f"{RBAC}/clusterrolebindings/system:controller:{name}"
            cluster.request("DELETE", path).expect()
        yield cluster


@pytest.fixture
async def api(cluster: RealCluster) -> AsyncIterator[Kube]:
    api = await connect(cluster.kubeconfig("admin"))
    yield api
    await api.close()
