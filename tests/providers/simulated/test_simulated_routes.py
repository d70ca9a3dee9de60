"""The routes of the simulated cloud: by machine, marked, adopted, and refused with a reason."""

from typing import Any

import pytest

from ccm.errors import Refused, RetryAfter
from ccm.sandbox.cloud import records
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.records import Machine
from ccm.sandbox.cloud.server import CloudServer

from .world import World, node

A4, A6 = "10.244.0.0/24", "fd00:244::/64"
NODE = node("a", "simulated://m-1")


@pytest.fixture(autouse=True)
def machines(w: World) -> None:
    w.cloud.state.machines.add(Machine("a", id="m-1"))
    w.cloud.state.machines.add(Machine("b", id="m-2"))


def put(cloud: CloudServer, cidr: str, machine_id: str = "m-1", cluster: str = "test") -> str:
    """A route in the cloud; its id."""
    tags = {"cluster": cluster} if cluster else {}
    return cloud.state.routes.put(records.RouteRecord(cidr, machine_id, tags=tags)).id


async def test_a_target_is_a_node_by_its_provider_id_and_not_by_its_name(w: World) -> None:
    put(w.cloud, A4, "m-1")
    put(w.cloud, A6, "m-2")
    found = await w.routes.list(
        [node("renamed", "simulated://m-1"), node("b"), node("c", "aws://1")]
    )
    assert {route.cidr: route.node for route in found} == {A4: "renamed", A6: ""}
    assert all(route.is_marked for route in found)


async def test_the_very_same_route_is_success(w: World) -> None:
    put(w.cloud, A4)
    await w.routes.create(NODE, A4)
    put(w.cloud, A6)
    await w.routes.create(NODE, "FD00:0244:0000::/64")
    assert len(w.cloud.state.routes.records) == 2


@pytest.mark.parametrize(
    ("cluster", "told"), [("other", "carries cluster 'other'"), ("", "carries nobody's mark")]
)
async def test_another_route_to_the_network_is_a_refusal(w: World, cluster: str, told: str) -> None:
    put(w.cloud, A4, "m-2", cluster)
    with pytest.raises(Refused, match=f"leads to machine m-2 and {told}"):
        await w.routes.create(NODE, A4)


async def test_the_same_name_alone_is_not_the_same_route(w: World) -> None:
    w.cloud.state.routes.put(records.RouteRecord("10.9.0.0/24", "m-2", name=f"test-m-1-{A4}"))
    with pytest.raises(Refused, match="AlreadyExists"):
        await w.routes.create(NODE, A4)


@pytest.mark.parametrize("kind", [CloudFaultKind.EMPTY, CloudFaultKind.PARTIAL])
async def test_a_route_that_exists_but_is_not_listed_is_waited_for(
    w: World, kind: CloudFaultKind
) -> None:
    put(w.cloud, A4)
    w.cloud.faults.set(CloudFault(kind, "ListRoutes"))
    with pytest.raises(RetryAfter, match="not listed"):
        await w.routes.create(NODE, A4)


async def test_a_full_table_says_how_full_it_is(w: World) -> None:
    w.cloud.set_parameters(max_routes=2)
    put(w.cloud, A4)
    put(w.cloud, "10.1.0.0/24", cluster="other")
    with pytest.raises(Refused, match="2 of 2 routes are used"):
        await w.routes.create(NODE, A6)
    assert w.cloud.counters.reads == 0


async def test_a_machine_that_does_not_exist_is_refused(w: World) -> None:
    with pytest.raises(Refused, match="no such machine: m-404"):
        await w.routes.create(node("x", "simulated://m-404"), A4)


RECORD = {"id": "r-1", "cidr": A4, "machine_id": "m-1", "state": "active"}


@pytest.mark.parametrize(
    "change",
    [{"id": ""}, {"cidr": "banana"}, {"cidr": None}, {"machine_id": None}, {"state": 7}, None],
)
async def test_a_record_that_is_not_right_is_skipped_with_a_word(
    w: World, change: dict[str, Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    mark = {"tags": {"cluster": "test"}}
    odd: Any = None if change is None else {**RECORD, **mark, **change}
    w.answer_with({"items": [odd, {**RECORD, **mark, "id": "r-2"}], "next_page_token": None})
    assert [route.id for route in await w.routes.list([NODE])] == ["r-2"]
    assert "routes not understood" in caplog.text
