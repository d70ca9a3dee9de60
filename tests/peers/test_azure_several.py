"""Microsoft's own controller and ours with several load balancers, side by side in a lab each."""

from functools import partial
from pathlib import Path

import pytest

from tests.peers.azure.several.world import ALL, SHAPES, SeveralWorld
from tests.peers.azure.world import azure_world
from tests.peers.checks import Checks
from tests.peers.play import Play, play_both
from tests.support.running import long

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def plays(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Play]:
    return play_both(partial(azure_world, kube_binaries, kind=SeveralWorld), tmp_path_factory)


class TestSeveral(Checks):
    cloud = "azure/several"
    cases = SeveralWorld.cases
    kept = (
        *("balancer", "frontend", "rule", "probe", "pool", "address kubernetes-", "security"),
        *("service",),
    )


def test_there_is_enough_to_compare() -> None:
    assert len(ALL) >= 20
    assert len(SHAPES) >= 10
