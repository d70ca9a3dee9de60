"""Many Nodes or volumes to a call, as many calls as needed, and each call's failure its own."""

import math

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.adapter import NotShown
from ccm.cloud.testkit.gate import Break
from ccm.cloud.testkit.objects import node, node_of, volume
from ccm.cloud.testkit.world import World
from ccm.errors import CloudError
from ccm.model.cloud import Gone, Instance, Unknown, VolumePlace

pytestmark = pytest.mark.asyncio

BREAKS = [Break.FAILED, Break.LOST]


@pytest.mark.parametrize("how", ["id", "name"])
async def test_nodes_cost_a_call_a_batch(world: World, how: str) -> None:
    batch = world.instances.batch_size
    machines = await world.machines(2 * batch + 1)
    await world.describe([node_of(machines[0])])  # what is read once for all is not counted
    for count in (1, batch, batch + 1, 2 * batch + 1):
        asked = machines[:count]
        start = len(world.gate.calls)
        answers = await world.describe([node_of(m) if how == "id" else node(m.node) for m in asked])
        made = len(world.gate.calls) - start
        assert made == math.ceil(count / batch), f"{made} calls for {count} Nodes"
        for machine in asked:
            answer = answers[machine.node]
            assert isinstance(answer, Instance)
            assert answer.provider_id == machine.provider_id, "the answer is another Node's"


async def test_no_nodes_cost_no_call(world: World) -> None:
    assert await world.describe([]) == {}
    assert world.gate.calls == []


async def test_an_absent_machine_does_not_spoil_its_batch(world: World) -> None:
    batch = world.instances.batch_size
    machines = await world.machines(batch)
    asked = [node("absent", world.adapter.absent_provider_id()), *map(node_of, machines)]
    answers = await world.describe(asked)
    assert isinstance(answers.pop("absent"), Gone)
    assert all(isinstance(answer, Instance) for answer in answers.values())


@pytest.mark.parametrize("how", BREAKS)
async def test_a_failed_call_leaves_only_its_own_nodes_unknown(world: World, how: Break) -> None:
    batch = world.instances.batch_size
    machines = await world.machines(2 * batch + 1)
    world.gate.break_call(2, how)
    answers = await world.describe([node_of(machine) for machine in machines])
    unknown = [answer for answer in answers.values() if isinstance(answer, Unknown)]
    known = [answer for answer in answers.values() if isinstance(answer, Instance)]
    assert 1 <= len(unknown) <= batch
    assert len(known) + len(unknown) == len(machines)


@pytest.mark.parametrize("how", BREAKS)
async def test_when_nothing_could_be_read_nothing_is_gone(world: World, how: Break) -> None:
    (machine,) = await world.machines(1)
    for asked in (node_of(machine), node("absent", world.adapter.absent_provider_id())):
        world.gate.break_call(1, how)
        try:
            answer = await world.describe_one(asked)
        except CloudError:
            continue
        assert isinstance(answer, Unknown)


async def test_volumes_cost_a_call_a_batch(world: World) -> None:
    batch = world.volumes.batch_size
    source = min(world.volumes.csi_drivers | world.volumes.legacy_sources)
    if 2 * batch + 1 > world.adapter.most_machines:
        raise NotShown(f"it takes {2 * batch + 1} volumes")
    disks = [await invoke(world.adapter.create_volume, source) for _ in range(2 * batch + 1)]
    for count in (0, 1, batch, batch + 1, 2 * batch + 1):
        start = len(world.gate.calls)
        asked = [volume(f"pv-{at}", disk.spec) for at, disk in enumerate(disks[:count])]
        answers = await world.ask(world.volumes.describe, asked)
        assert len(world.gate.calls) - start == math.ceil(count / batch)
        assert [type(answer) for answer in answers.values()] == [VolumePlace] * count
