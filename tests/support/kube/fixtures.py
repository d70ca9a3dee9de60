"""Pytest fixtures for tests that need a real API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kube.build import REMEDY, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed

MISSING = f"kube-apiserver, etcd and kubectl are not built: {REMEDY}"


@pytest.fixture(scope="session")
def kube_binaries() -> Path:
    """The folder of the binaries; without them a skip on a laptop and a failure in CI."""
    return needed(find_binaries(), MISSING)


@pytest.fixture(scope="session")
def kube(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster for the session, one test at a time: each leaves nothing in it but accounts."""
    with RealCluster.start(kube_binaries, tmp_path_factory.mktemp("kube")) as cluster:
        yield cluster
