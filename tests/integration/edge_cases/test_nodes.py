"""Rows of initializing a Node, as the writes that an API server takes."""

from typing import Any

import pytest

from ccm.model.cloud import Instance
from ccm.model.objects import Node
from tests.integration.node.test_node_initialization import INITIALIZED
from tests.support.context import FakePort
from workers.node.plan import patch_for, plan
from workers.performer import Performer

from .servers import ApiServer


def seen(node: Node) -> tuple[Any, ...]:
    """All of a Node that its initialization may concern."""
    conditions = [(one["type"], one["status"]) for one in node.status.get("conditions", [])]
    labels, annotations = dict(node.labels), dict(node.annotations)
    return node.provider_id, node.taints, node.addresses, labels, annotations, conditions


@pytest.mark.parametrize(("before", "instance", "after"), INITIALIZED)
async def test_a_node_is_initialized_on_an_api_server(
    api_server: ApiServer, before: Node, instance: Instance, after: Node
) -> None:
    performer = Performer(api_server.kube, FakePort().permission, grace=5.0)
    node = await api_server.node(before)
    assert seen(node) == seen(before)
    for action in plan(node, instance):
        await performer.perform(patch_for(node, action))
    found = await api_server.find(node)
    assert found
    assert seen(Node(found)) == seen(after)
