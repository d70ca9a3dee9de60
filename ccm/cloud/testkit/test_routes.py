"""Routes to pod networks: created, listed with what became of their target, deleted; only ours."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.adapter import FOREIGN_OWNERS, Machine, Owner
from ccm.cloud.testkit.gate import LACKING, LackingAnswer
from ccm.cloud.testkit.harness import OVERLAP_DELAY, Harness, node, node_of
from ccm.cloud.testkit.operations import CIDR, CreateRoute, ListRoutes, read_interrupted_everywhere
from ccm.errors import CloudError, Refused

pytestmark = pytest.mark.asyncio


async def test_a_route_is_listed_as_it_was_made(harness: Harness) -> None:
    operation = CreateRoute()
    await operation.prepare(harness)
    await harness.until_done(operation.run, harness)
    await operation.check(harness)
    (route,) = await harness.call(harness.routes.list, [operation.node])
    assert not route.is_blackhole


async def test_a_node_may_have_several_networks(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    cidrs = [CIDR, "10.245.7.0/24"]
    for cidr in cidrs:
        await harness.until_done(harness.routes.create, node_of(machine), cidr)
    routes = await harness.call(harness.routes.list, [node_of(machine)])
    assert sorted(route.cidr for route in routes) == cidrs
    assert len({route.id for route in routes}) == len(cidrs)
    await harness.until_done(harness.routes.delete, routes[0])
    left = await harness.call(harness.routes.list, [node_of(machine)])
    assert [route.cidr for route in left] == [routes[1].cidr]


async def test_a_route_whose_machine_ended_is_a_blackhole_that_can_be_deleted(
    harness: Harness,
) -> None:
    ended, alive = await harness.machines(2)
    for number, machine in enumerate((ended, alive)):
        await harness.until_done(harness.routes.create, node_of(machine), f"10.244.{number}.0/24")
    await invoke(harness.adapter.terminate_machine, ended)
    routes = await harness.call(harness.routes.list, [node_of(alive)])
    holes = {} if harness.adapter.routes_end_with_machines else {"10.244.0.0/24": True}
    assert {route.cidr: route.is_blackhole for route in routes} == holes | {"10.244.1.0/24": False}
    if not holes:
        return
    (hole,) = [route for route in routes if route.is_blackhole]
    await harness.until_done(harness.routes.delete, hole)
    assert [route.cidr for route in await invoke(harness.adapter.list_routes)] == ["10.244.1.0/24"]


async def test_a_route_to_a_machine_without_a_node_has_no_node(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    await harness.until_done(harness.routes.create, node_of(machine), CIDR)
    (route,) = await harness.call(harness.routes.list, [node("someone"), node("new", "other://1")])
    assert (route.cidr, route.node) == (CIDR, "")


@pytest.mark.parametrize("provider_id", ["", "another-cloud://machine-1"])
async def test_a_node_without_a_machine_of_this_cloud_gets_no_route(
    harness: Harness, provider_id: str
) -> None:
    async with harness.no_write():
        with pytest.raises(Refused):
            await harness.call(harness.routes.create, node("odd", provider_id), CIDR)


async def test_a_network_is_routed_to_one_machine(harness: Harness) -> None:
    item, other = await harness.machines(2)
    await harness.until_done(harness.routes.create, node_of(item), CIDR)
    async with harness.no_change():
        with pytest.raises(CloudError):
            await harness.call(harness.routes.create, node_of(other), CIDR)


async def make_routes(
    harness: Harness, machines: Sequence[Machine], first: int = 0
) -> dict[str, str]:
    """A network for each machine, by the name of its Node; they are numbered from `first`."""
    made = {}
    for number, machine in enumerate(machines, first):
        made[machine.node] = f"10.244.{number}.0/24"
        await harness.until_done(harness.routes.create, node_of(machine), made[machine.node])
    return made


async def test_routes_are_listed_from_all_pages(harness: Harness) -> None:
    machines = await harness.machines(harness.more_than_a_page)
    wanted = await make_routes(harness, machines)
    routes = await harness.call(harness.routes.list, [node_of(machine) for machine in machines])
    assert {route.node: route.cidr for route in routes} == wanted
    assert len(routes) == len(wanted)


@pytest.mark.parametrize("lacking", LACKING)
async def test_an_answer_without_what_is_there_harms_no_others_route(
    harness: Harness, lacking: Callable[[Any], Any]
) -> None:
    """None is shown as stale, and none goes with what is done for another Node."""
    own, *others = await harness.machines(4)
    made = await make_routes(harness, others)
    nodes = [node_of(machine) for machine in others]
    for item in nodes:
        item.raw["spec"]["podCIDRs"] = [made[item.name]]
    lacks, cidr = LackingAnswer(lacking), "10.244.99.0/24"
    while lacks.is_next():
        await harness.restart()
        await harness.call(harness.routes.list, nodes)  # after a login, say
        harness.gate.spoil = lacks
        for asked in ([], [node_of(own)]):
            with suppress(CloudError):
                for route in await harness.call(harness.routes.list, [*nodes, *asked]):
                    is_right = not route.is_blackhole and made.get(route.node) == route.cidr
                    assert is_right or route.cidr not in made.values()
                    if route.cidr == cidr:
                        await harness.until_done(harness.routes.delete, route)
                await harness.until_done(harness.routes.create, node_of(own), cidr)
        harness.gate.spoil = None
        kept = {route.cidr for route in await invoke(harness.adapter.list_routes)}
        assert {*made.values()} <= kept
        for route in await harness.call(harness.routes.list, [*nodes, node_of(own)]):
            if route.cidr == cidr:
                await harness.until_done(harness.routes.delete, route)


async def test_listing_does_not_cost_a_call_a_route(harness: Harness) -> None:
    item, *others = await harness.machines(max(harness.adapter.page_size, 4) + 1)
    costs = []
    for first, machines in enumerate(([item], others)):
        await make_routes(harness, machines, first)
        start = len(harness.gate.calls)
        await harness.call(harness.routes.list, [node_of(machine) for machine in (item, *others)])
        costs.append(len(harness.gate.calls) - start)
    assert costs[1] <= 2 * costs[0], "each list may have grown by a page"


async def test_a_list_that_broke_off_is_raised_and_not_returned_in_part(harness: Harness) -> None:
    operation = ListRoutes()
    await operation.prepare(harness)
    for number in range(harness.adapter.page_size):
        await harness.until_done(harness.routes.create, operation.node, f"10.245.{number}.0/24")
    listed = await read_interrupted_everywhere(harness, operation)
    assert len(listed) == harness.adapter.page_size + 1


async def test_a_route_that_is_there_is_created_with_success(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    await harness.until_done(harness.routes.create, node_of(machine), CIDR)
    for _ in range(2):
        async with harness.no_change():
            await harness.call(harness.routes.create, node_of(machine), CIDR)
        await harness.restart()


async def test_a_route_that_is_gone_is_deleted_with_success(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    before = await invoke(harness.adapter.list_routes)
    await harness.until_done(harness.routes.create, node_of(machine), CIDR)
    (route,) = await harness.call(harness.routes.list, [node_of(machine)])
    await harness.until_done(harness.routes.delete, route)
    assert await invoke(harness.adapter.list_routes) == before
    async with harness.no_change():
        await harness.call(harness.routes.delete, route)


@pytest.mark.parametrize("owner", FOREIGN_OWNERS)
async def test_a_route_without_our_mark_is_not_listed(harness: Harness, owner: Owner) -> None:
    (machine,) = await harness.machines(1)
    await invoke(harness.adapter.create_foreign_route, "10.244.99.0/24", machine, owner)
    async with harness.no_write():
        assert list(await harness.call(harness.routes.list, [node_of(machine)])) == []


@pytest.mark.parametrize("owner", FOREIGN_OWNERS)
async def test_a_network_that_another_routes_is_left_to_him(harness: Harness, owner: Owner) -> None:
    ours, theirs = await harness.machines(2)
    await invoke(harness.adapter.create_foreign_route, CIDR, theirs, owner)
    for machine in (ours, theirs):
        async with harness.no_change():
            with pytest.raises(CloudError):
                await harness.call(harness.routes.create, node_of(machine), CIDR)


@pytest.mark.parametrize("owner", FOREIGN_OWNERS)
async def test_a_route_beside_ours_is_not_touched(harness: Harness, owner: Owner) -> None:
    (machine,) = await harness.machines(1)
    await invoke(harness.adapter.create_foreign_route, "10.244.99.0/24", machine, owner)
    async with harness.no_change():
        await harness.until_done(harness.routes.create, node_of(machine), CIDR)
        (route,) = await harness.call(harness.routes.list, [node_of(machine)])
        await harness.until_done(harness.routes.delete, route)


async def test_routes_are_made_and_taken_away_in_parallel(harness: Harness) -> None:
    harness.gate.delay = OVERLAP_DELAY
    machines = await harness.machines(5)
    nodes = [node_of(machine) for machine in machines]
    cidrs = {node.name: f"10.244.{number}.0/24" for number, node in enumerate(nodes)}
    create, delete = harness.routes.create, harness.routes.delete
    await asyncio.gather(*(harness.until_done(create, node, cidrs[node.name]) for node in nodes))
    routes = await harness.call(harness.routes.list, nodes)
    assert {route.node: route.cidr for route in routes} == cidrs
    assert len(routes) == len(cidrs)
    await asyncio.gather(*(harness.until_done(delete, route) for route in routes))
    assert not await invoke(harness.adapter.list_routes)
