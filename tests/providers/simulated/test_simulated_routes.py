"""The routes of the simulated cloud: by machine, marked, adopted, and refused with a reason."""

from typing import Any

import orjson
import pytest

from ccm.errors import CloudError, Denied, Refused, RetryAfter, Throttled
from ccm.model.cloud import Route
from ccm.model.objects import Node
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.routes import SimulatedRoutes
from ccm.sandbox.cloud import records
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.records import Machine
from ccm.sandbox.cloud.server import CloudServer

from .doubles import node

A4, A6 = "10.244.0.0/24", "fd00:244::/64"
NODE = node("a", "simulated://m-1")


@pytest.fixture
def routes(api: SimulatedApi, cloud: CloudServer) -> SimulatedRoutes:
    cloud.state.machines.add(Machine("a", id="m-1"))
    cloud.state.machines.add(Machine("b", id="m-2"))
    return SimulatedRoutes(api, "prod")


def put(cloud: CloudServer, cidr: str, machine_id: str = "m-1", cluster: str = "prod") -> str:
    """A route in the cloud; its id."""
    tags = {"cluster": cluster} if cluster else {}
    return cloud.state.routes.put(records.RouteRecord(cidr, machine_id, tags=tags)).id


def there(cloud: CloudServer) -> dict[str, tuple[str, Any]]:
    """Network → machine and tags."""
    return {r.cidr: (r.machine_id, r.tags) for r in cloud.state.routes.records.values()}


async def test_a_route_is_created_listed_and_deleted(
    cloud: CloudServer, routes: SimulatedRoutes
) -> None:
    await routes.create(NODE, A4)
    await routes.create(NODE, A6)
    assert there(cloud) == {A4: ("m-1", {"cluster": "prod"}), A6: ("m-1", {"cluster": "prod"})}
    listed = {route.cidr: route for route in await routes.list([NODE])}
    assert listed[A4] == Route(A4, "a", listed[A4].id)
    await routes.delete(listed[A4])
    await routes.delete(listed[A4])
    assert set(there(cloud)) == {A6}


async def test_a_target_is_a_node_by_its_provider_id_and_not_by_its_name(
    cloud: CloudServer, routes: SimulatedRoutes
) -> None:
    put(cloud, A4, "m-1")
    put(cloud, A6, "m-2")
    found = await routes.list([node("renamed", "simulated://m-1"), node("b"), node("c", "aws://1")])
    assert {route.cidr: route.node for route in found} == {A4: "renamed", A6: ""}


async def test_the_very_same_route_is_success(cloud: CloudServer, routes: SimulatedRoutes) -> None:
    put(cloud, A4)
    await routes.create(NODE, A4)
    put(cloud, A6)
    await routes.create(NODE, "FD00:0244:0000::/64")
    assert len(there(cloud)) == 2


@pytest.mark.parametrize(
    ("machine_id", "cluster", "told"),
    [
        ("m-2", "prod", "leads to machine m-2 and carries cluster 'prod'"),
        ("m-1", "other", "carries cluster 'other'"),
        ("m-1", "", "carries nobody's mark"),
    ],
)
async def test_another_route_to_the_network_is_a_refusal_and_stays(
    cloud: CloudServer, routes: SimulatedRoutes, machine_id: str, cluster: str, told: str
) -> None:
    put(cloud, A4, machine_id, cluster)
    before = there(cloud)
    with pytest.raises(Refused, match=told):
        await routes.create(NODE, A4)
    assert there(cloud) == before


async def test_the_same_name_alone_is_not_the_same_route(
    cloud: CloudServer, routes: SimulatedRoutes
) -> None:
    cloud.state.routes.put(records.RouteRecord("10.9.0.0/24", "m-2", name=f"prod-m-1-{A4}"))
    with pytest.raises(Refused, match="AlreadyExists"):
        await routes.create(NODE, A4)


@pytest.mark.parametrize("kind", [CloudFaultKind.EMPTY, CloudFaultKind.PARTIAL])
async def test_a_route_that_exists_but_is_not_listed_is_waited_for(
    cloud: CloudServer, routes: SimulatedRoutes, kind: CloudFaultKind
) -> None:
    put(cloud, A4)
    cloud.faults.set(CloudFault(kind, "ListRoutes"))
    with pytest.raises(RetryAfter, match="not listed"):
        await routes.create(NODE, A4)


async def test_a_full_table_says_how_full_it_is(
    cloud: CloudServer, routes: SimulatedRoutes
) -> None:
    cloud.set_parameters(max_routes=2)
    put(cloud, A4)
    put(cloud, "10.1.0.0/24", cluster="other")
    with pytest.raises(Refused, match="2 of 2 routes are used"):
        await routes.create(NODE, A6)
    assert cloud.counters.reads == 0


@pytest.mark.parametrize("nobody", [node("a"), node("a", "aws:///i-1"), node("a", "m-1")])
async def test_a_node_without_a_machine_of_ours_is_refused_without_a_call(
    cloud: CloudServer, routes: SimulatedRoutes, nobody: Node
) -> None:
    with pytest.raises(Refused, match="no machine of this cloud"):
        await routes.create(nobody, A4)
    assert cloud.counters.count() == 0


async def test_a_machine_that_does_not_exist_is_refused(routes: SimulatedRoutes) -> None:
    with pytest.raises(Refused, match="no such machine: m-404"):
        await routes.create(node("x", "simulated://m-404"), A4)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (CloudFault(CloudFaultKind.ERROR), CloudError),
        (CloudFault(CloudFaultKind.DENIED), Denied),
        (CloudFault(CloudFaultKind.THROTTLE, retry_after=7), Throttled),
        (CloudFault(CloudFaultKind.RESET), CloudError),
        (CloudFault(CloudFaultKind.GARBAGE), CloudError),
        (CloudFault(CloudFaultKind.GARBAGE, body="[]"), CloudError),
        (CloudFault(CloudFaultKind.GARBAGE, body='{"items": {}}'), CloudError),
        (
            CloudFault(CloudFaultKind.GARBAGE, body='{"items": [], "next_page_token": 7}'),
            CloudError,
        ),
        (
            CloudFault(CloudFaultKind.GARBAGE, body='{"items": [], "next_page_token": "x"}'),
            CloudError,
        ),
    ],
)
async def test_a_failing_list_is_an_error_and_never_an_empty_answer(
    cloud: CloudServer, routes: SimulatedRoutes, fault: CloudFault, error: type[CloudError]
) -> None:
    cloud.faults.set(fault)
    with pytest.raises(CloudError) as raised:
        await routes.list([NODE])
    assert type(raised.value) is error


RECORD = {"id": "r-1", "cidr": A4, "machine_id": "m-1", "state": "active"}


@pytest.mark.parametrize(
    "change",
    [{"id": ""}, {"cidr": "banana"}, {"cidr": None}, {"machine_id": None}, {"state": 7}, None],
)
async def test_a_record_that_is_not_right_is_skipped_with_a_word(
    cloud: CloudServer,
    routes: SimulatedRoutes,
    change: dict[str, Any] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mark = {"tags": {"cluster": "prod"}}
    odd: Any = None if change is None else {**RECORD, **mark, **change}
    body = {"items": [odd, {**RECORD, **mark, "id": "r-2"}], "next_page_token": None}
    cloud.faults.set(CloudFault(CloudFaultKind.GARBAGE, body=orjson.dumps(body).decode()))
    assert [route.id for route in await routes.list([NODE])] == ["r-2"]
    assert "routes not understood" in caplog.text
