"""Doing again what is done: nothing is written, whoever did it and in whatever order it is told."""

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.objects import node_of, port, service
from ccm.cloud.testkit.operations import CIDR
from ccm.cloud.testkit.world import World

pytestmark = pytest.mark.asyncio

PORTS = [port(80), port(443, node_port=30443), port(8080, node_port=30808)]


async def test_a_balancer_that_is_right_is_not_written(world: World) -> None:
    hosts = [node_of(machine) for machine in await world.machines(3)]
    parts = world.load_balancers
    made = await world.finish(parts.ensure, service(ports=PORTS), hosts)
    async with world.no_write():
        assert await world.ask(parts.ensure, service(ports=PORTS), hosts) == made
        assert await world.ask(parts.ensure, service(ports=PORTS[::-1]), hosts[::-1]) == made
        await world.ask(parts.update_hosts, service(ports=PORTS), hosts)
        await world.ask(parts.update_hosts, service(ports=PORTS), hosts[::-1])


async def test_neither_a_restart_nor_a_fail_over_writes(world: World) -> None:
    hosts = [node_of(machine) for machine in await world.machines(2)]
    await world.finish(world.load_balancers.ensure, service(), hosts)
    await world.restart()
    async with world.no_write():
        await world.ask(world.load_balancers.ensure, service(), hosts)
        await world.ask(world.load_balancers.update_hosts, service(), hosts)


async def test_a_balancer_is_read_before_it_is_written(world: World) -> None:
    hosts = [node_of(machine) for machine in await world.machines(2)]
    parts = world.load_balancers
    for work in (
        lambda: world.finish(parts.ensure, service(), hosts[:1]),
        lambda: world.finish(parts.ensure, service(ports=PORTS), hosts[:1]),
        lambda: world.finish(parts.update_hosts, service(), hosts),
        lambda: world.finish(parts.delete, service()),
    ):
        start = len(world.gate.calls)
        await work()
        first = world.gate.calls[start]
        assert world.writes_since(start), "there was something to write"
        assert not world.adapter.is_write(first.operation, first.budget), "the first is a write"


async def test_a_balancer_that_is_gone_is_deleted_without_a_write(world: World) -> None:
    async with world.no_write():
        await world.ask(world.load_balancers.delete, service())
    await world.ensure(service(), [])
    await world.finish(world.load_balancers.delete, service())
    async with world.no_write():
        await world.ask(world.load_balancers.delete, service())


async def test_a_route_that_is_there_is_created_with_success(world: World) -> None:
    (machine,) = await world.machines(1)
    await world.finish(world.routes.create, node_of(machine), CIDR)
    for _ in range(2):
        async with world.unchanged():
            await world.ask(world.routes.create, node_of(machine), CIDR)
        await world.restart()


async def test_a_route_that_is_gone_is_deleted_with_success(world: World) -> None:
    (machine,) = await world.machines(1)
    before = await invoke(world.adapter.routes)
    await world.finish(world.routes.create, node_of(machine), CIDR)
    (route,) = await world.ask(world.routes.list, [node_of(machine)])
    await world.finish(world.routes.delete, route)
    assert await invoke(world.adapter.routes) == before
    async with world.unchanged():
        await world.ask(world.routes.delete, route)
