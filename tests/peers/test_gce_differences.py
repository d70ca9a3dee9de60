"""Google's own provider and ours, side by side in projects of their own."""

from pathlib import Path

import pytest

from ccm.providers.gce.credentials import KEY_FILE
from tests.labs.gce.server import Gce
from tests.peers.checks import Checks
from tests.peers.gce import nodes, services
from tests.peers.gce.world import GceWorld
from tests.peers.play import Play, play
from tests.peers.test_gce_peers import NOT_BUILT
from tests.peers.world import OURS, UPSTREAM
from tests.support.kube.build import GCE_PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import long

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def plays(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Play]:
    """By who begins."""
    peers = needed(find_binaries(GCE_PEERS), NOT_BUILT)
    done: dict[str, Play] = {}
    for first, second in ((UPSTREAM, OURS), (OURS, UPSTREAM)):
        directory = tmp_path_factory.mktemp(first)
        with (
            pytest.MonkeyPatch.context() as patch,
            RealCluster.start(kube_binaries, directory / "kube") as cluster,
            Gce().running() as gce,
        ):
            patch.setenv(KEY_FILE, str(directory / "key.json"))
            done[first] = play(GceWorld(directory, peers, cluster, gce=gce), first, second)
            assert not gce.violations
    return done


class TestGce(Checks):
    cloud = "gce"
    cases = services.CASES
    kept = ("rule", "pool", "address lb-of-", "firewall", "http-check", "check", "backend",
            "group", "service")  # fmt: skip


def test_there_is_enough_to_compare() -> None:
    assert len(services.ALL) >= 40
    assert len(nodes.SHAPES) >= 20
