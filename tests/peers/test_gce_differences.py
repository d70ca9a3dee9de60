"""Google's own provider and ours, side by side in projects of their own."""

from pathlib import Path

import pytest

from tests.peers.checks import Checks
from tests.peers.gce import nodes, services
from tests.peers.gce.world import gce_world
from tests.peers.play import Play, play
from tests.peers.world import OURS, UPSTREAM
from tests.support.running import long

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def plays(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Play]:
    """By who begins."""
    done: dict[str, Play] = {}
    for first, second in ((UPSTREAM, OURS), (OURS, UPSTREAM)):
        with gce_world(kube_binaries, tmp_path_factory.mktemp(first)) as world:
            done[first] = play(world, first, second)
    return done


class TestGce(Checks):
    cloud = "gce"
    cases = services.CASES
    kept = ("rule", "pool", "address lb-of-", "firewall", "http-check", "check", "backend",
            "group", "service")  # fmt: skip


def test_there_is_enough_to_compare() -> None:
    assert len(services.ALL) >= 40
    assert len(nodes.SHAPES) >= 20
