"""The provider, started in a real OpenStack."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from tests.labs.openstack.lab import Lab
from tests.providers.openstack.balancers import BalancerLab, Worker, alone
from tests.providers.openstack.started import Started
from tests.providers.openstack.whole import Whole
from tests.support.kube.cluster import RealCluster
from tests.support.running import Where


@pytest.fixture
async def cloud(lab: Lab) -> Started:
    """The provider with the lab's cloud.conf."""
    return await Started(lab.config).start()


@pytest.fixture(scope="session")
def project(lab: Lab) -> BalancerLab:
    with alone():
        return BalancerLab()


@pytest.fixture
def octavia(project: BalancerLab) -> Iterator[BalancerLab]:
    """The project of load balancers, empty and nobody else's meanwhile."""
    with alone():
        project.clear()
        yield project


@pytest.fixture
async def worker(octavia: BalancerLab) -> Worker:
    """The provider in this project, with the usual configuration."""
    return await Worker(octavia.config_with()).start()


@pytest.fixture
def whole(tmp_path: Path, cluster: RealCluster, api: Kube, lab: Lab) -> Whole:
    """A real API server, and the project of users in the lab, for a whole product."""
    config = tmp_path / "cloud.conf"
    config.write_text(lab.config)
    return Whole(api, lab, Where(tmp_path, cluster.kubeconfig("ccm"), config))
