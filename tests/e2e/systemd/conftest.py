"""A little machine for each module, with the service installed."""

from collections.abc import Iterator

import pytest

from tests.e2e.systemd.machine import ETC, Machine, why_not
from tests.support.needed import needed
from tests.support.running import Cloud, Running, wait_for


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with the service installed, an API server and a cloud."""
    missing = why_not()
    needed(not missing, missing)
    directory = tmp_path_factory.mktemp("machine")
    kubeconfig = directory / "kubeconfig"
    flags = [f"--kubeconfig={kubeconfig}"]
    with (
        Running("kubernetes", directory, ["ccm.sandbox.kubernetes", *flags]),
        Cloud(directory) as cloud,
        Machine(directory) as machine,
    ):
        wait_for("the API server listens", kubeconfig.exists)
        machine.write(f"{ETC}/kubeconfig", kubeconfig.read_text())
        machine.write(f"{ETC}/cloud.conf", cloud.config.read_text())
        yield machine
