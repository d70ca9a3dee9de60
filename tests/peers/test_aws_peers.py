"""The upstream AWS controller and ours, side by side in an emulated account."""

from pathlib import Path

import pytest

from tests.peers.aws import nodes, services
from tests.peers.aws.world import AwsWorld
from tests.peers.checks import Checks
from tests.peers.play import Play, make, play
from tests.peers.world import OURS, UPSTREAM
from tests.providers.aws.emulator import CREDENTIALS, Emulator
from tests.providers.aws.proxy import Proxy
from tests.providers.aws.world import Account
from tests.support.kube.build import PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import IS_LONG
from tests.unit.settings.test_upstream_newest import NOT_BUILT

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

RULES_PER_GROUP = 1000
"""What AWS allows at most: the nodes' group has rules of all Services."""


@pytest.fixture(scope="module")
def plays(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Play]:
    """By who begins."""
    peers = needed(find_binaries(PEERS), NOT_BUILT)
    done: dict[str, Play] = {}
    for first, second in ((UPSTREAM, OURS), (OURS, UPSTREAM)):
        directory = tmp_path_factory.mktemp(first)
        with (
            pytest.MonkeyPatch.context() as patch,
            RealCluster.start(kube_binaries, directory / "kube") as cluster,
            Emulator(directory, RULES_PER_GROUP) as emulator,
            Proxy(emulator.url) as proxy,
        ):
            for name, value in (CREDENTIALS | {"AWS_EC2_METADATA_DISABLED": "true"}).items():
                patch.setenv(name, value)
            account = Account.make(emulator)
            world = AwsWorld(directory, peers, cluster, account=account, proxy=proxy)
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
