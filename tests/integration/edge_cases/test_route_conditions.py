"""Rows of a Node's `NetworkUnavailable`, as the writes that an API server takes."""

from datetime import UTC, datetime

import pytest

from ccm.errors import KubernetesError
from ccm.kube.client import STRATEGIC_PATCH
from ccm.model.objects import Json, Node
from ccm.model.writes import Merge
from tests.support.nodes import (
    OLD,
    Tweak,
    network_condition,
    routed,
    with_condition,
    with_conditions,
)
from workers.route.plan import condition
from workers.route.steps import patch_for

from .servers import ApiServer

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
LATER = "2026-03-04T05:06:07Z"
CREATED = ("False", "RouteCreated", "RouteController created a route")
NOT_CREATED = ("True", "NoRouteCreated", "RouteController failed to create a route")
CAUSE = ("True", "NoRouteCreated", f"{NOT_CREATED[2]}: 10.1.0.0/24: 5 of 5 used")

nothing: tuple[Tweak, ...] = ()

FIRST, SECOND = (datetime(2026, 3, 4, 5, 6, second, tzinfo=UTC) for second in (1, 2))


@pytest.mark.parametrize(
    # What is there, whether the routes are, why not, what it says then, since when, and the writes.
    ("before", "is_created", "causes", "expected", "turned", "writes"),
    [
        pytest.param(nothing, True, [], CREATED, LATER, 1, id="RT19"),
        pytest.param(nothing, False, [], NOT_CREATED, LATER, 1, id="RT20"),
        pytest.param(
            (with_condition("False", "RouteCreated", "as it was"),),
            True, [], ("False", "RouteCreated", "as it was"), OLD, 0, id="RT21",
        ),
        pytest.param(
            (with_condition("False", "CalicoIsUp"),), True, [], CREATED, OLD, 1, id="RT22"
        ),
        pytest.param(
            (with_condition("False", "RouteCreated"),), False, [], NOT_CREATED, LATER, 1, id="RT23"
        ),
        pytest.param(
            (with_condition("True", "NoRouteCreated", "as it was"),),
            False, [], ("True", "NoRouteCreated", "as it was"), OLD, 0, id="still-not-created",
        ),
        pytest.param(
            (with_condition("True", "NoRouteCreated", "an older cause"),),
            False, ["10.1.0.0/24: 5 of 5 used"], CAUSE, OLD, 1, id="another-cause",
        ),
        pytest.param(
            (with_condition("True", "NoRouteCreated", CAUSE[2]),),
            False, ["10.1.0.0/24: 5 of 5 used"], CAUSE, OLD, 0, id="the-same-cause",
        ),
        pytest.param(
            (with_condition("True", "NoRouteCreated"),), True, [], CREATED, LATER, 1, id="at-last"
        ),
    ],
)  # fmt: skip
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
    actions = list(condition(node, is_created, causes))
    assert len(actions) == writes
    for action in actions:
        write = patch_for(node, action, NOW)
        await perform(api_server, write)
    found = await api_server.find(node)
    assert found
    reported = network_condition(Node(found))
    assert (reported["status"], reported["reason"], reported["message"]) == expected
    assert reported["lastTransitionTime"] == turned
    assert reported["lastHeartbeatTime"] == (LATER if writes else OLD)
    assert (found["metadata"]["resourceVersion"] != node.meta["resourceVersion"]) is bool(writes)


async def test_the_condition_is_set_beside_the_others_and_turns_only_when_it_turns(
    api_server: ApiServer,
) -> None:
    ready: Json = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    node = await api_server.node(routed("a", tweaks=(with_conditions(ready),)))
    for is_created, causes, now, turned in (
        (False, ["full"], FIRST, FIRST),
        (False, ["broken"], SECOND, FIRST),
        (True, [], SECOND, SECOND),
    ):
        (action,) = condition(node, is_created, causes)
        node = await perform(api_server, patch_for(node, action, now))
        found = network_condition(node)
        assert found["lastTransitionTime"] == turned.strftime("%Y-%m-%dT%H:%M:%SZ")
        assert found["lastHeartbeatTime"] == now.strftime("%Y-%m-%dT%H:%M:%SZ")
        assert list(condition(node, is_created, causes)) == []
        types = {each["type"] for each in node.raw["status"]["conditions"]}
        assert types == {"Ready", "NetworkUnavailable"}
    other = Node({**node.raw, "metadata": {"name": node.name, "uid": "of-an-earlier-node"}})
    (action,) = condition(other, False, [])
    with pytest.raises(KubernetesError) as refusal:
        await perform(api_server, patch_for(other, action, SECOND))
    assert refusal.value.status in (409, 422)


async def perform(api_server: ApiServer, write: Merge) -> Node:
    return Node(await api_server.kube.patch(write.path, STRATEGIC_PATCH, write.body))
