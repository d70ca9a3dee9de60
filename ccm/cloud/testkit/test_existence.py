"""Three answers about machines, and `Gone` only on the cloud's positive word."""

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.adapter import Machine, NotShown
from ccm.cloud.testkit.objects import node, node_of
from ccm.cloud.testkit.world import World
from ccm.model.cloud import Answer, Gone, Instance, PowerState, Unknown

pytestmark = pytest.mark.asyncio


def check_machine(answer: Answer, machine: Machine, power: PowerState = PowerState.RUNNING) -> None:
    """The answer says of this machine what the adapter knows about it."""
    assert isinstance(answer, Instance)
    assert (answer.provider_id, answer.power) == (machine.provider_id, power)
    for field in ("type", "zone", "region"):
        known = getattr(machine, field)
        assert getattr(answer, field) == known or not known, field
    assert set(answer.addresses) == set(machine.addresses) or not machine.addresses


async def test_a_running_machine_is_described_by_id(world: World) -> None:
    (machine,) = await world.machines(1)
    check_machine(await world.describe_one(node_of(machine)), machine)
    assert machine.provider_id.startswith(f"{world.provider.scheme}://")


async def test_a_running_machine_is_found_by_name_while_its_node_has_no_id(world: World) -> None:
    (machine,) = await world.machines(1)
    check_machine(await world.describe_one(node(machine.node)), machine)


async def test_an_id_goes_before_a_name(world: World) -> None:
    one, other = await world.machines(2)
    check_machine(await world.describe_one(node(other.node, one.provider_id)), one)
    absent = world.adapter.absent_provider_id()
    assert isinstance(await world.describe_one(node(other.node, absent)), Gone)


async def test_a_stopped_machine_exists_and_is_off_until_it_is_started(world: World) -> None:
    (machine,) = await world.machines(1)
    await invoke(world.adapter.stop_machine, machine)
    check_machine(await world.describe_one(node_of(machine)), machine, PowerState.STOPPED)
    await invoke(world.adapter.start_machine, machine)
    check_machine(await world.describe_one(node_of(machine)), machine)


async def test_a_terminated_machine_is_gone(world: World) -> None:
    (machine,) = await world.machines(1)
    await invoke(world.adapter.terminate_machine, machine)
    answer = await world.describe_one(node_of(machine))
    assert isinstance(answer, Gone)
    assert answer.evidence
    assert not isinstance(await world.describe_one(node(machine.node)), Instance)


async def test_a_machine_that_never_existed_is_gone(world: World) -> None:
    answer = await world.describe_one(node("never", world.adapter.absent_provider_id()))
    assert isinstance(answer, Gone)
    assert not isinstance(await world.describe_one(node("never")), Instance)


async def test_a_node_of_another_cloud_is_unknown(world: World) -> None:
    answer = await world.describe_one(node("foreign", "another-cloud://machine-1"))
    assert isinstance(answer, Unknown)


@pytest.mark.parametrize("rest", ["", "/", "no such machine, or a list of them", "*"])
async def test_an_id_that_names_no_machine_is_unknown(world: World, rest: str) -> None:
    answer = await world.describe_one(node("odd", f"{world.provider.scheme}://{rest}"))
    assert isinstance(answer, Unknown)


async def test_a_name_that_two_machines_have_is_unknown(world: World) -> None:
    (one,) = await world.machines(1)
    (twin,) = await world.machines(1)
    check_machine(await world.describe_one(node_of(one)), one)
    check_machine(await world.describe_one(node_of(twin)), twin)
    if twin.node != one.node:
        raise NotShown("no two machines of this cloud have one name")
    assert isinstance(await world.describe_one(node(one.node)), Unknown)


async def test_one_odd_node_does_not_spoil_the_others(world: World) -> None:
    by_id, by_name, ended = await world.machines(3)
    await invoke(world.adapter.terminate_machine, ended)
    scheme = world.provider.scheme
    answers = await world.describe(
        [
            node("absent", world.adapter.absent_provider_id()),
            node_of(by_id),
            node("foreign", "another-cloud://machine-1"),
            node(by_name.node),
            node("odd", f"{scheme}://no such machine, or a list of them"),
            node_of(ended),
        ]
    )
    check_machine(answers[by_id.node], by_id)
    check_machine(answers[by_name.node], by_name)
    assert isinstance(answers["absent"], Gone)
    assert isinstance(answers[ended.node], Gone)
    assert isinstance(answers["foreign"], Unknown)
    assert isinstance(answers["odd"], Unknown)


async def test_looking_changes_nothing(world: World) -> None:
    machines = await world.machines(2)
    async with world.no_write():
        await world.describe([node(machines[0].node), node_of(machines[1])])
        await world.describe([])
