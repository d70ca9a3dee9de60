"""The route controller's edge cases as upstream pins them; a test's id is the row's (RT…)."""

from collections.abc import Mapping

import pytest

from ccm.model.node import Node
from tests.route.cloud import FakeRoutes
from tests.route.nodes import changed, network_condition, routed, with_condition, with_pod_cidrs
from tests.route.world import Nodes, world
from tests.unit.nodes import Tweak, node, with_addresses
from workers.apply import Merge
from workers.route.networks import is_managed, read_network
from workers.route.patches import patch_for
from workers.route.plan import condition

from .moment import NOW


def network(cidr: str):  # type: ignore[no-untyped-def]
    read = read_network(cidr)
    assert read is not None
    return read


@pytest.mark.parametrize(
    ("cluster", "routes", "is_ours"),
    [
        pytest.param("10.244.0.0/16", ["10.244.0.0/24", "10.244.10.0/24"], True, id="RT1"),
        pytest.param("10.244.0.0/14", ["10.247.255.0/24"], True, id="RT2"),
        pytest.param("a00:100::/10", ["a00:100::/24"], True, id="RT3"),
        pytest.param("10.244.0.0/16", ["10.224.0.0/24", "10.255.255.0/24"], False, id="RT4"),
        pytest.param("10.244.0.0/14", ["10.248.0.0/24"], False, id="RT5"),
        pytest.param("10.0.0.0/16", ["10.0.0.0/8"], True, id="wider-with-the-same-begin"),
        pytest.param("10.1.0.0/16", ["10.0.0.0/8"], False, id="wider-around-it"),
        pytest.param("10.244.0.0/16", ["::/0"], False, id="the-other-family"),
    ],
)
def test_which_routes_are_ours_to_delete(cluster: str, routes: list[str], is_ours: bool) -> None:
    managed = [is_managed(network(route), [network(cluster)]) for route in routes]
    assert managed == [is_ours] * len(routes)
