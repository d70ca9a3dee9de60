"""Where volumes are: three answers as for machines, and `Gone` only on the cloud's word."""

from collections.abc import Mapping

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.gate import Break
from ccm.cloud.testkit.objects import volume
from ccm.cloud.testkit.world import World
from ccm.errors import CloudError
from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.volume import PLACEHOLDER, PersistentVolume

pytestmark = pytest.mark.asyncio


def sources(world: World) -> list[str]:
    found = sorted(world.volumes.csi_drivers | world.volumes.legacy_sources)
    assert found, "which volumes are this cloud's?"
    return found


async def places(world: World, volumes: list[PersistentVolume]) -> Mapping[str, PlaceAnswer]:
    """An answer for every volume, of the right kind and about no other."""
    answers = await world.ask(world.volumes.describe, volumes)
    assert answers.keys() <= {one.name for one in volumes}
    assert all(isinstance(answer, PlaceAnswer) for answer in answers.values())
    return {one.name: answers.get(one.name, Unknown("left out")) for one in volumes}


async def test_a_volume_has_its_zones_and_their_region(world: World) -> None:
    for source in sources(world):
        disk = await invoke(world.adapter.create_volume, source)
        answer = (await places(world, [volume("pv", disk.spec)]))["pv"]
        assert isinstance(answer, VolumePlace)
        assert (set(answer.zones), answer.region) == (set(disk.zones), disk.region)


async def test_volumes_that_are_not_there_are_gone_and_spoil_no_other(world: World) -> None:
    for source in sources(world):
        there = await invoke(world.adapter.create_volume, source)
        asked = {"never": world.adapter.absent_volume(source), "there": there.spec}
        answers = await places(world, [volume(name, spec) for name, spec in asked.items()])
        assert isinstance(answers["never"], Gone)
        assert isinstance(answers["there"], VolumePlace)
        await invoke(world.adapter.delete_volume, there)
        answers = await places(world, [volume("there", there.spec)])
        assert isinstance(answers["there"], Gone)


async def test_a_volume_that_is_still_being_made_is_unknown(world: World) -> None:
    for driver in sorted(world.volumes.csi_drivers):
        spec = {"csi": {"driver": driver, "volumeHandle": PLACEHOLDER}}
        answer = (await places(world, [volume("new", spec)]))["new"]
        assert isinstance(answer, Unknown)


async def test_two_claims_on_one_volume_are_both_answered(world: World) -> None:
    for source in sources(world):
        disk = await invoke(world.adapter.create_volume, source)
        answers = await places(world, [volume("one", disk.spec), volume("two", disk.spec)])
        assert answers["one"] == answers["two"]
        assert isinstance(answers["one"], VolumePlace)


@pytest.mark.parametrize("how", [Break.FAILED, Break.LOST])
async def test_when_nothing_could_be_read_no_volume_is_gone(world: World, how: Break) -> None:
    source = sources(world)[0]
    disk = await invoke(world.adapter.create_volume, source)
    for spec in (disk.spec, world.adapter.absent_volume(source)):
        world.gate.break_call(1, how)
        try:
            answers = await places(world, [volume("pv", spec)])
        except CloudError:
            continue
        assert isinstance(answers["pv"], Unknown)


async def test_looking_changes_nothing(world: World) -> None:
    disk = await invoke(world.adapter.create_volume, sources(world)[0])
    async with world.no_write():
        await places(world, [volume("pv", disk.spec)])
