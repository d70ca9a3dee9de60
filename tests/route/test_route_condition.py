"""The condition of a Node: when it is written, and what the write is (rows RT19 to RT23)."""

from datetime import UTC, datetime

import pytest

from ccm.model.objects import Json, Node
from tests.route.nodes import OLD, network_condition, routed, with_condition
from tests.route.world import Nodes
from tests.unit.nodes import Tweak
from workers.route.plan import condition
from workers.route.steps import patch_for

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
LATER = "2026-03-04T05:06:07Z"
CREATED = ("False", "RouteCreated", "RouteController created a route")
NOT_CREATED = ("True", "NoRouteCreated", "RouteController failed to create a route")
CAUSE = ("True", "NoRouteCreated", f"{NOT_CREATED[2]}: 10.1.0.0/24: 5 of 5 used")

nothing: tuple[Tweak, ...] = ()


async def after(node: Node, is_created: bool, causes: list[str]) -> tuple[Json, int]:
    """The condition that a Node then has, and the writes this took."""
    cluster = Nodes()
    cluster.put(node)
    for action in condition(node, is_created, causes):
        write = patch_for(node, action, NOW)
        await cluster.patch(write.path, "application/strategic-merge-patch+json", write.body)
    stored = cluster.get(node.name)
    assert stored
    return network_condition(stored), cluster.writes


CASES = [
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
]  # fmt: skip
"""What is there, whether the routes are, why not, what it says then, since when, and the writes."""


@pytest.mark.parametrize(("before", "is_created", "causes", "expected", "turned", "writes"), CASES)
async def test_the_condition_is_written_when_it_says_something_else(
    before: tuple[Tweak, ...],
    is_created: bool,
    causes: list[str],
    expected: tuple[str, str, str],
    turned: str,
    writes: int,
) -> None:
    found, written = await after(routed("a", "10.1.0.0/24", tweaks=before), is_created, causes)
    assert (found["status"], found["reason"], found["message"]) == expected
    assert found["lastTransitionTime"] == turned
    assert found["lastHeartbeatTime"] == (LATER if writes else OLD)
    assert written == writes


async def test_the_other_conditions_stay() -> None:
    node = routed("a", tweaks=(with_condition("False", "CalicoIsUp"),))
    cluster = Nodes()
    cluster.put(node)
    (action,) = condition(node, True, [])
    write = patch_for(node, action, NOW)
    stored = await cluster.patch(write.path, "application/strategic-merge-patch+json", write.body)
    types = [each["type"] for each in stored["status"]["conditions"]]
    assert sorted(types) == ["NetworkUnavailable", "Ready"]
