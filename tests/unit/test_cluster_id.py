"""A cloud whose objects cannot be told from another cluster's is refused."""

import pytest

from ccm.errors import ConfigurationFault
from ccm.providers.simulated.provider import SimulatedCloud
from ccm.settings import Settings
from workers.main import require_cluster_id


def test_without_a_cluster_id_a_worker_starts_only_with_a_flag() -> None:
    cloud = SimulatedCloud()
    require_cluster_id(cloud, Settings())
    cloud.has_cluster_id = False
    with pytest.raises(ConfigurationFault, match=r"--allow-untagged-cloud: .* no cluster ID"):
        require_cluster_id(cloud, Settings())
    require_cluster_id(cloud, Settings(allow_untagged_cloud=True))
