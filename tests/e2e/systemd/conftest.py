"""A little machine for each module, with the service installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.systemd.machine import ETC, Machine, why_not
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.pki import Authority
from tests.support.running import Cloud, Running, wait_for


@pytest.fixture(scope="session")
def authority() -> Authority:
    """Whose certificates the API server takes for those of users."""
    return Authority("users")


@pytest.fixture(scope="session")
def cluster(
    kube_binaries: Path, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """A real API server that takes client certificates besides tokens."""
    directory = tmp_path_factory.mktemp("certificates")
    (ca_file := directory / "users.pem").write_bytes(authority.pem)
    flags = [f"--client-ca-file={ca_file}"]
    with RealCluster.start(kube_binaries, directory / "kube", flags) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with the service installed, and neither kubeconfig nor cloud configuration."""
    missing = why_not()
    needed(not missing, missing)
    with Machine(tmp_path_factory.mktemp("machine")) as machine:
        yield machine


@pytest.fixture(scope="module")
def booted(installed: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The same with an API server and a cloud."""
    directory = tmp_path_factory.mktemp("servers")
    kubeconfig = directory / "kubeconfig"
    flags = [f"--kubeconfig={kubeconfig}"]
    with (
        Running("kubernetes", directory, ["ccm.sandbox.kubernetes", *flags]),
        Cloud(directory) as cloud,
    ):
        wait_for("the API server listens", kubeconfig.exists)
        installed.write(f"{ETC}/kubeconfig", kubeconfig.read_text())
        installed.write(f"{ETC}/cloud.conf", cloud.config.read_text())
        yield installed
