"""The upstream OpenStack controller and ours, side by side in projects of one lab."""

from pathlib import Path

import pytest

from tests.labs.openstack.lab import Lab
from tests.labs.openstack.tenant import Tenant
from tests.peers.checks import Checks
from tests.peers.openstack import nodes, services
from tests.peers.openstack.world import OpenStackWorld
from tests.peers.play import Play, play
from tests.peers.world import OURS, UPSTREAM
from tests.support.kube.build import LAB_PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import long

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(7200)]

NOT_BUILT = (
    "upstream's OpenStack controller is not built: python3 -m tests.support.kube.build openstack"
)


@pytest.fixture(scope="module")
def plays(
    kube_binaries: Path, lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Play]:
    """By who begins."""
    peers = needed(find_binaries(LAB_PEERS), NOT_BUILT)
    done: dict[str, Play] = {}
    for first, second in ((UPSTREAM, OURS), (OURS, UPSTREAM)):
        directory = tmp_path_factory.mktemp(first)
        with RealCluster.start(kube_binaries, directory / "kube") as cluster:
            world = OpenStackWorld(directory, peers, cluster, tenant=Tenant())
            done[first] = play(world, first, second)
    return done


class TestOpenStack(Checks):
    cloud = "openstack"
    cases = services.CASES
    kept = (
        *("balancer lb-of-", "balancer by-hand listener", "balancer by-hand-inner listener"),
        *("floating floating-of-lb-of-", "service"),
    )


def test_there_is_enough_to_compare() -> None:
    assert len(services.ALL) >= 25
    assert len(nodes.SHAPES) >= 12
