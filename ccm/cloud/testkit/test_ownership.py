"""What does not carry our mark is never changed, never deleted and never taken for ours."""

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.adapter import Mark
from ccm.cloud.testkit.objects import node_of, port, service
from ccm.cloud.testkit.operations import CIDR, lister
from ccm.cloud.testkit.world import World
from ccm.errors import CloudError, Refused

pytestmark = pytest.mark.asyncio

OF_ANOTHER = (Mark.NOBODY, Mark.OTHER_CLUSTER)


@pytest.mark.parametrize("mark", Mark)
async def test_a_balancer_of_our_name_without_our_mark_is_not_touched(
    world: World, mark: Mark
) -> None:
    hosts = [node_of(machine) for machine in await world.machines(1)]
    parts = world.load_balancers
    await invoke(world.adapter.plant_balancer, parts.name_for(service()), service(), mark)
    async with world.no_write():
        assert await world.ask(parts.get, service()) is None
        with pytest.raises(Refused):
            await world.ask(parts.ensure, service(), hosts)
        with pytest.raises(Refused):
            await world.ask(parts.update_hosts, service(), hosts)
        with pytest.raises(Refused):
            await world.ask(parts.delete, service())


@pytest.mark.parametrize("mark", OF_ANOTHER)
async def test_a_balancer_beside_ours_is_not_touched(world: World, mark: Mark) -> None:
    machines = await world.machines(2)
    name = world.load_balancers.name_for(service("other"))
    await invoke(world.adapter.plant_balancer, name, service("other"), mark)
    async with world.unchanged():
        await world.ensure(service(), machines[:1])
        await world.ensure(service(ports=[port(81)]), machines)
        await world.finish(world.load_balancers.delete, service())


@pytest.mark.parametrize("mark", OF_ANOTHER)
async def test_a_balancer_of_another_is_not_listed_as_ours(world: World, mark: Mark) -> None:
    owned = lister(world).owned
    name = world.load_balancers.name_for(service("other"))
    await invoke(world.adapter.plant_balancer, name, service("other"), mark)
    await world.ensure(service(), [])
    names = [one.name for one in await world.ask(owned)]
    assert names == [world.load_balancers.name_for(service())]


@pytest.mark.parametrize("mark", OF_ANOTHER)
async def test_a_route_without_our_mark_is_not_listed(world: World, mark: Mark) -> None:
    (machine,) = await world.machines(1)
    await invoke(world.adapter.plant_route, "10.244.99.0/24", machine, mark)
    async with world.no_write():
        assert list(await world.ask(world.routes.list, [node_of(machine)])) == []


@pytest.mark.parametrize("mark", OF_ANOTHER)
async def test_a_network_that_another_routes_is_left_to_him(world: World, mark: Mark) -> None:
    ours, theirs = await world.machines(2)
    await invoke(world.adapter.plant_route, CIDR, theirs, mark)
    for machine in (ours, theirs):
        async with world.unchanged():
            with pytest.raises(CloudError):
                await world.ask(world.routes.create, node_of(machine), CIDR)


@pytest.mark.parametrize("mark", OF_ANOTHER)
async def test_a_route_beside_ours_is_not_touched(world: World, mark: Mark) -> None:
    (machine,) = await world.machines(1)
    await invoke(world.adapter.plant_route, "10.244.99.0/24", machine, mark)
    async with world.unchanged():
        await world.finish(world.routes.create, node_of(machine), CIDR)
        (route,) = await world.ask(world.routes.list, [node_of(machine)])
        await world.finish(world.routes.delete, route)
