"""Microsoft's own controller and ours, side by side in a lab each."""

from functools import partial
from pathlib import Path

import pytest

from tests.peers.azure import nodes, services
from tests.peers.azure.world import azure_world
from tests.peers.checks import Checks
from tests.peers.play import Play, play_both
from tests.support.running import long

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def plays(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Play]:
    return play_both(partial(azure_world, kube_binaries), tmp_path_factory)


class TestAzure(Checks):
    cloud = "azure"
    cases = services.CASES
    kept = (
        *("balancer", "frontend", "rule", "probe", "pool", "address kubernetes-", "security"),
        *("service",),
    )


def test_there_is_enough_to_compare() -> None:
    assert len(services.ALL) >= 45
    assert len(nodes.SHAPES) >= 15
