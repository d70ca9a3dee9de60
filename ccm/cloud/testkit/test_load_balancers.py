"""Balancers: made, read, given other hosts and taken away."""

from collections.abc import Sequence

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.objects import node, node_of, port, service
from ccm.cloud.testkit.operations import Owned, lister, read_broken_everywhere
from ccm.cloud.testkit.world import World
from ccm.errors import Refused
from ccm.model.cloud import OwnedBalancer
from ccm.model.service import Service

pytestmark = pytest.mark.asyncio


async def test_a_name_is_of_one_service_for_ever(world: World) -> None:
    name_for = world.load_balancers.name_for
    name = name_for(service("web"))
    assert name
    assert name_for(service("web", {"a": "b"}, ports=[port(81)])) == name
    assert name_for(service("other")) != name
    await world.restart()
    assert world.load_balancers.name_for(service("web")) == name


async def test_where_there_is_no_balancer_none_is_told(world: World) -> None:
    async with world.no_write():
        assert await world.ask(world.load_balancers.get, service()) is None


async def test_a_balancer_is_made_as_asked_and_can_be_reached(world: World) -> None:
    machines = await world.machines(3)
    asked = service(ports=[port(80), port(443, node_port=30443)])
    made = await world.finish(world.load_balancers.ensure, asked, list(map(node_of, machines)))
    await world.check_balancer(asked, machines)
    assert made.name == world.load_balancers.name_for(asked)
    assert made.ingress
    assert all(way.ip or way.hostname for way in made.ingress)
    assert await world.ask(world.load_balancers.get, asked) == made


async def test_a_balancer_without_hosts_can_be_made(world: World) -> None:
    await world.ensure(service(), [])


async def test_hosts_are_replaced_and_nothing_else(world: World) -> None:
    machines = await world.machines(3)
    await world.ensure(service(), machines[:1])
    for hosts in (machines, machines[1:], []):
        other = service(ports=[port(81)])
        nodes = [node_of(machine) for machine in hosts]
        await world.finish(world.load_balancers.update_hosts, other, nodes)
        await world.check_balancer(service(), hosts)


async def test_hosts_of_no_balancer_are_refused(world: World) -> None:
    machines = await world.machines(1)
    async with world.no_write():
        with pytest.raises(Refused):
            await world.ask(world.load_balancers.update_hosts, service(), [node_of(machines[0])])


async def test_nodes_without_a_machine_of_this_cloud_are_no_hosts(world: World) -> None:
    (machine,) = await world.machines(1)
    odd = [node("new"), node("foreign", "another-cloud://machine-1"), node_of(machine)]
    await world.finish(world.load_balancers.ensure, service(), odd)
    await world.check_balancer(service(), [machine])
    await world.finish(world.load_balancers.update_hosts, service(), odd[:2])
    await world.check_balancer(service(), [])


async def test_a_machine_that_ended_does_not_keep_the_others_out(world: World) -> None:
    one, ended, other = await world.machines(3)
    nodes = [node_of(machine) for machine in (one, ended, other)]
    await world.ensure(service(), [one])
    await invoke(world.adapter.terminate_machine, ended)
    await world.finish(world.load_balancers.update_hosts, service(), nodes)
    await world.check_balancer(service(), [one, other])
    await world.finish(world.load_balancers.ensure, service("second"), nodes)
    await world.check_balancer(service("second"), [one, other])


async def test_a_deleted_balancer_leaves_nothing_behind(world: World) -> None:
    before = set(await invoke(world.adapter.pieces))
    machines = await world.machines(2)
    asked = service(ports=[port(80), port(443, node_port=30443)])
    await world.ensure(asked, machines)
    assert set(await invoke(world.adapter.pieces)) > before
    await world.finish(world.load_balancers.delete, asked)
    assert await world.seen(asked) is None
    assert await world.ask(world.load_balancers.get, asked) is None
    assert set(await invoke(world.adapter.pieces)) == before


async def test_a_balancer_is_deleted_after_its_hosts_ended(world: World) -> None:
    (machine,) = await world.machines(1)
    await world.ensure(service(), [machine])
    await invoke(world.adapter.terminate_machine, machine)
    await world.finish(world.load_balancers.delete, service())
    assert await world.seen(service()) is None


async def check_owned(world: World, services: Sequence[Service]) -> None:
    """Exactly these are listed as ours."""
    name_for = world.load_balancers.name_for
    listed = await world.ask(lister(world).owned)
    assert all(isinstance(one, OwnedBalancer) for one in listed)
    wanted = sorted((name_for(one), one.uid) for one in services)
    assert sorted((one.name, one.service_uid) for one in listed) == wanted
    assert {one.service for one in listed} <= {"", *(one.key for one in services)}


async def test_the_balancers_of_the_cluster_are_listed_with_their_services(world: World) -> None:
    await check_owned(world, [])
    services = [service("web"), service("shop")]
    for one in services:
        await world.ensure(one, [])
    await check_owned(world, services)
    await world.finish(world.load_balancers.delete, services[0])
    await check_owned(world, services[1:])


async def test_balancers_are_listed_from_all_pages(world: World) -> None:
    services = [service(f"web-{number}") for number in range(world.more_than_a_page)]
    for one in services:
        await world.ensure(one, [])
    await check_owned(world, services)


async def test_a_list_that_broke_off_is_raised_and_not_returned_in_part(world: World) -> None:
    operation = Owned()
    await operation.prepare(world)
    for number in range(world.adapter.page_size):
        await world.ensure(service(f"web-{number}"), [])
    listed = await read_broken_everywhere(world, operation)
    assert len(listed) == world.adapter.page_size + 1
