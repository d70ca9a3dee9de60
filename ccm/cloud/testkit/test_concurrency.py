"""Things of different names at once; the caller sees to it that one name is worked on once."""

import asyncio

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.objects import node_of, port, service
from ccm.cloud.testkit.world import World
from ccm.model.cloud import Instance

pytestmark = pytest.mark.asyncio

DELAY = 0.002

SERVICES = [
    service(f"web-{number}", ports=[port(80, node_port=30100 + number)]) for number in range(5)
]


async def test_services_are_served_in_parallel(world: World) -> None:
    world.gate.delay = DELAY
    machines = await world.machines(2)
    before = set(await invoke(world.adapter.pieces))
    await asyncio.gather(*(world.ensure(one, machines) for one in SERVICES))
    for one in SERVICES:
        await world.check_balancer(one, machines)
    delete = world.load_balancers.delete
    update = world.load_balancers.update_hosts
    await asyncio.gather(
        *(world.finish(delete, one) for one in SERVICES[:2]),
        *(world.finish(update, one, [node_of(machines[0])]) for one in SERVICES[2:]),
    )
    for one in SERVICES[:2]:
        assert await world.seen(one) is None
    for one in SERVICES[2:]:
        await world.check_balancer(one, machines[:1])
    await asyncio.gather(*(world.finish(delete, one) for one in SERVICES))
    assert set(await invoke(world.adapter.pieces)) == before


async def test_routes_are_made_and_taken_away_in_parallel(world: World) -> None:
    world.gate.delay = DELAY
    machines = await world.machines(5)
    nodes = [node_of(machine) for machine in machines]
    cidrs = {node.name: f"10.244.{number}.0/24" for number, node in enumerate(nodes)}
    create, delete = world.routes.create, world.routes.delete
    await asyncio.gather(*(world.finish(create, node, cidrs[node.name]) for node in nodes))
    routes = await world.ask(world.routes.list, nodes)
    assert {route.node: route.cidr for route in routes} == cidrs
    assert len(routes) == len(cidrs)
    await asyncio.gather(*(world.finish(delete, route) for route in routes))
    assert not await invoke(world.adapter.routes)


async def test_questions_are_answered_in_parallel(world: World) -> None:
    world.gate.delay = DELAY
    machines = await world.machines(4)
    answers = await asyncio.gather(
        *(world.describe_one(node_of(machine)) for machine in machines for _ in range(3))
    )
    wanted = [machine.provider_id for machine in machines for _ in range(3)]
    assert [a.provider_id for a in answers if isinstance(a, Instance)] == wanted
