"""Rows of a Node's `NetworkUnavailable`, as the writes that an API server takes."""

import pytest

from ccm.kube.client import STRATEGIC_PATCH
from ccm.model.objects import Node
from tests.route.nodes import network_condition, routed
from tests.route.test_route_condition import CASES, NOW
from tests.unit.nodes import Tweak
from workers.route.plan import condition
from workers.route.steps import patch_for

from .servers import ApiServer


@pytest.mark.parametrize(("before", "is_created", "causes", "expected", "turned", "writes"), CASES)
async def test_the_condition_is_written_on_an_api_server(
    api_server: ApiServer,
    before: tuple[Tweak, ...],
    is_created: bool,
    causes: list[str],
    expected: tuple[str, str, str],
    turned: str,
    writes: int,
) -> None:
    node = await api_server.node(routed("a", "10.1.0.0/24", tweaks=before))
    for action in condition(node, is_created, causes):
        write = patch_for(node, action, NOW)
        await api_server.kube.patch(write.path, STRATEGIC_PATCH, write.body)
    found = await api_server.find(node)
    assert found
    told = network_condition(Node(found))
    assert (told["status"], told["reason"], told["message"]) == expected
    assert told["lastTransitionTime"] == turned
    assert (found["metadata"]["resourceVersion"] != node.meta["resourceVersion"]) is bool(writes)
