"""Microsoft's own controller and ours, side by side in a lab each."""

from pathlib import Path

import pytest

from tests.labs.azure.lab import MISSING, is_built, running_lab
from tests.peers.azure import nodes, services
from tests.peers.azure.world import AzureWorld
from tests.peers.checks import Checks
from tests.peers.play import Play, play
from tests.peers.test_azure_peers import NOT_BUILT
from tests.peers.world import OURS, UPSTREAM
from tests.support.kube.build import AZURE_PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import long

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def plays(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Play]:
    """By who begins."""
    needed(is_built() or None, MISSING)
    peers = needed(find_binaries(AZURE_PEERS), NOT_BUILT)
    done: dict[str, Play] = {}
    for first, second in ((UPSTREAM, OURS), (OURS, UPSTREAM)):
        directory = tmp_path_factory.mktemp(first)
        with (
            RealCluster.start(kube_binaries, directory / "kube") as cluster,
            running_lab(directory / "lab") as lab,
        ):
            done[first] = play(AzureWorld(directory, peers, cluster, lab=lab), first, second)
            assert not lab.state()["bad_answers"]
    return done


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
