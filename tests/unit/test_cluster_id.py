"""A cloud whose objects cannot be told from another cluster's is refused."""

import pytest

from ccm.errors import ConfigurationFault
from ccm.providers.simulated.provider import SimulatedCloud
from ccm.settings import Settings
from workers.main import require_cluster_id


@pytest.fixture
def untagged() -> SimulatedCloud:
    cloud = SimulatedCloud()
    cloud.has_cluster_id = False
    return cloud


def test_without_a_cluster_id_a_worker_refuses_to_start(untagged: SimulatedCloud) -> None:
    with pytest.raises(ConfigurationFault, match=r"--allow-untagged-cloud: .* no cluster ID"):
        require_cluster_id(untagged, Settings())


def test_a_flag_lets_it_start_without_one(untagged: SimulatedCloud) -> None:
    require_cluster_id(untagged, Settings(allow_untagged_cloud=True))


def test_with_a_cluster_id_no_flag_is_needed() -> None:
    require_cluster_id(SimulatedCloud(), Settings())
