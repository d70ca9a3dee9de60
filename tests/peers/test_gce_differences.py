"""Google's own provider and ours, side by side in projects of their own."""

from functools import partial
from pathlib import Path

import pytest

from tests.peers.checks import Checks
from tests.peers.gce import nodes, services
from tests.peers.gce.world import gce_world
from tests.peers.play import Play, play_both
from tests.support.running import long

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def plays(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Play]:
    return play_both(partial(gce_world, kube_binaries), tmp_path_factory)


class TestGce(Checks):
    cloud = "gce"
    cases = services.CASES
    kept = ("rule", "pool", "address lb-of-", "firewall", "http-check", "check", "backend",
            "group", "service")  # fmt: skip


def test_there_is_enough_to_compare() -> None:
    assert len(services.ALL) >= 40
    assert len(nodes.SHAPES) >= 20
