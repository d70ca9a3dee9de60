"""One healthy cluster for all tests here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.check.world import FLAGS, CheckWorld, grant, make_healthy, needed_rules
from tests.support.kube.cluster import RealCluster
from tests.support.running import Cloud, Supervisor, Where


@pytest.fixture(scope="package")
def world(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckWorld]:
    directory = tmp_path_factory.mktemp("check")
    with RealCluster.start(kube_binaries, directory / "kube") as cluster, Cloud(directory) as cloud:
        grant(cluster, "ccm", needed_rules())
        where = Where(directory, cluster.kubeconfig("ccm"), cloud.config)
        with Supervisor(where, *FLAGS) as supervisor:
            make_healthy(cluster, cloud, supervisor)
            yield CheckWorld(cluster, cloud, where, supervisor)
