"""The upstream AWS controller and ours, side by side in an emulated account."""

from pathlib import Path

import pytest

from tests.peers.aws import nodes, services
from tests.peers.aws.world import aws_world
from tests.peers.checks import Checks
from tests.peers.play import Play, make, play
from tests.peers.world import OURS, UPSTREAM
from tests.support.running import IS_LONG

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def plays(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Play]:
    """By who begins."""
    done: dict[str, Play] = {}
    for first, second in ((UPSTREAM, OURS), (OURS, UPSTREAM)):
        with aws_world(kube_binaries, tmp_path_factory.mktemp(first)) as world:
            is_short = first == OURS and not IS_LONG
            done[first] = make(world, first) if is_short else play(world, first, second)
    return done


class TestAws(Checks):
    cloud = "aws"
    cases = services.CASES
    kept = ("classic", "network", "targets", "group k8s-elb-", "group nodes rule", "service")

    def name_of(self, path: str) -> str:
        return path if path.startswith("group nodes") else super().name_of(path)


def test_there_is_enough_to_compare() -> None:
    assert len(services.ALL) >= 60
    assert len(nodes.SHAPES) >= 10
