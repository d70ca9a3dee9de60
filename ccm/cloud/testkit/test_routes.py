"""Routes to pod networks: made, listed with what became of their target, and taken away."""

from collections.abc import Sequence

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.adapter import Machine
from ccm.cloud.testkit.objects import node, node_of
from ccm.cloud.testkit.operations import CIDR, ListRoutes, read_broken_everywhere
from ccm.cloud.testkit.world import World
from ccm.errors import CloudError, Refused

pytestmark = pytest.mark.asyncio


async def test_a_route_is_listed_as_it_was_made(world: World) -> None:
    (machine,) = await world.machines(1)
    await world.finish(world.routes.create, node_of(machine), CIDR)
    (route,) = await world.ask(world.routes.list, [node_of(machine)])
    assert (route.cidr, route.node, route.is_blackhole) == (CIDR, machine.node, False)
    (there,) = await invoke(world.adapter.routes)
    assert (there.cidr, there.provider_id) == (CIDR, machine.provider_id)


async def test_a_node_may_have_several_networks(world: World) -> None:
    (machine,) = await world.machines(1)
    cidrs = [CIDR, "10.245.7.0/24"]
    for cidr in cidrs:
        await world.finish(world.routes.create, node_of(machine), cidr)
    routes = await world.ask(world.routes.list, [node_of(machine)])
    assert sorted(route.cidr for route in routes) == cidrs
    assert len({route.id for route in routes}) == len(cidrs)
    await world.finish(world.routes.delete, routes[0])
    left = await world.ask(world.routes.list, [node_of(machine)])
    assert [route.cidr for route in left] == [routes[1].cidr]


async def test_a_route_whose_machine_ended_is_a_blackhole_that_can_be_deleted(
    world: World,
) -> None:
    ended, alive = await world.machines(2)
    for number, machine in enumerate((ended, alive)):
        await world.finish(world.routes.create, node_of(machine), f"10.244.{number}.0/24")
    await invoke(world.adapter.terminate_machine, ended)
    routes = await world.ask(world.routes.list, [node_of(alive)])
    assert {route.cidr: route.is_blackhole for route in routes} == {
        "10.244.0.0/24": True,
        "10.244.1.0/24": False,
    }
    (hole,) = [route for route in routes if route.is_blackhole]
    await world.finish(world.routes.delete, hole)
    assert [route.cidr for route in await invoke(world.adapter.routes)] == ["10.244.1.0/24"]


async def test_a_route_to_a_machine_without_a_node_has_no_node(world: World) -> None:
    (machine,) = await world.machines(1)
    await world.finish(world.routes.create, node_of(machine), CIDR)
    (route,) = await world.ask(world.routes.list, [node("someone"), node("new", "other://1")])
    assert (route.cidr, route.node) == (CIDR, "")


@pytest.mark.parametrize("provider_id", ["", "another-cloud://machine-1"])
async def test_a_node_without_a_machine_of_this_cloud_gets_no_route(
    world: World, provider_id: str
) -> None:
    async with world.no_write():
        with pytest.raises(Refused):
            await world.ask(world.routes.create, node("odd", provider_id), CIDR)


async def test_a_network_is_routed_to_one_machine(world: World) -> None:
    one, other = await world.machines(2)
    await world.finish(world.routes.create, node_of(one), CIDR)
    async with world.unchanged():
        with pytest.raises(CloudError):
            await world.ask(world.routes.create, node_of(other), CIDR)


async def make_routes(world: World, machines: Sequence[Machine], first: int = 0) -> dict[str, str]:
    """A network for each machine, by the name of its Node; they are numbered from `first`."""
    made = {}
    for number, machine in enumerate(machines, first):
        made[machine.node] = f"10.244.{number}.0/24"
        await world.finish(world.routes.create, node_of(machine), made[machine.node])
    return made


async def test_routes_are_listed_from_all_pages(world: World) -> None:
    machines = await world.machines(world.more_than_a_page)
    wanted = await make_routes(world, machines)
    routes = await world.ask(world.routes.list, [node_of(machine) for machine in machines])
    assert {route.node: route.cidr for route in routes} == wanted
    assert len(routes) == len(wanted)


async def test_listing_does_not_cost_a_call_a_route(world: World) -> None:
    one, *others = await world.machines(max(world.adapter.page_size, 4) + 1)
    costs = []
    for first, machines in enumerate(([one], others)):
        await make_routes(world, machines, first)
        start = len(world.gate.calls)
        await world.ask(world.routes.list, [node_of(machine) for machine in (one, *others)])
        costs.append(len(world.gate.calls) - start)
    assert costs[1] <= 2 * costs[0], "each list may have grown by a page"


async def test_a_list_that_broke_off_is_raised_and_not_returned_in_part(world: World) -> None:
    operation = ListRoutes()
    await operation.prepare(world)
    for number in range(world.adapter.page_size):
        await world.finish(world.routes.create, operation.node, f"10.245.{number}.0/24")
    listed = await read_broken_everywhere(world, operation)
    assert len(listed) == world.adapter.page_size + 1
