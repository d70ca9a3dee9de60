"""Where volumes are: three answers as for machines, and `Gone` only on the cloud's word."""

import math
from collections.abc import Iterator

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.adapter import Untestable
from ccm.cloud.testkit.gate import NO_ANSWER, Interruption
from ccm.cloud.testkit.harness import Harness, volume
from ccm.errors import CloudError
from ccm.model.cloud import Gone, Unknown, VolumePlace
from ccm.model.objects import Json
from ccm.model.volume import PLACEHOLDER

pytestmark = pytest.mark.asyncio

MADE_UP = "made-up", "..", "x" * 100_000, "a?b#c%2e\r\n"


async def test_a_volume_has_its_zones_and_their_region(harness: Harness) -> None:
    for source in harness.volume_sources:
        disk = await invoke(harness.adapter.create_volume, source)
        answer = (await harness.places([volume("pv", disk.spec)]))["pv"]
        assert isinstance(answer, VolumePlace)
        assert (set(answer.zones), answer.region) == (set(disk.zones), disk.region)


async def test_volumes_that_are_not_there_are_gone_and_spoil_no_other(harness: Harness) -> None:
    for source in harness.volume_sources:
        current = await invoke(harness.adapter.create_volume, source)
        asked = {"never": harness.adapter.absent_volume(source), "there": current.spec}
        answers = await harness.places([volume(name, spec) for name, spec in asked.items()])
        assert isinstance(answers["never"], Gone)
        assert isinstance(answers["there"], VolumePlace)
        await invoke(harness.adapter.delete_volume, current)
        answers = await harness.places([volume("there", current.spec)])
        assert isinstance(answers["there"], Gone)


async def test_an_id_that_is_made_up_costs_no_other_volume_its_answer(harness: Harness) -> None:
    """Who may create volumes writes any: of a place that is not there, or not this account's."""
    for source in harness.volume_sources:
        disk = await invoke(harness.adapter.create_volume, source)
        for odd in made_up(disk.spec):
            answers = await harness.places([volume("odd", odd), volume("there", disk.spec)])
            assert isinstance(answers["there"], VolumePlace), (odd, answers)


def made_up(spec: Json) -> Iterator[Json]:
    """The same with another part in each text, one after the other."""
    for key, value in spec.items():
        if isinstance(value, dict):
            yield from ({**spec, key: inner} for inner in made_up(value))
        elif isinstance(value, str) and key != "driver":
            parts = value.split("/")
            for at in range(len(parts)):
                for part in MADE_UP:
                    yield {**spec, key: "/".join([*parts[:at], part, *parts[at + 1 :]])}


async def test_a_volume_that_is_still_being_made_is_unknown(harness: Harness) -> None:
    for driver in sorted(harness.volumes.csi_drivers):
        spec = {"csi": {"driver": driver, "volumeHandle": PLACEHOLDER}}
        answer = (await harness.places([volume("new", spec)]))["new"]
        assert isinstance(answer, Unknown)


async def test_two_claims_on_one_volume_are_both_answered(harness: Harness) -> None:
    for source in harness.volume_sources:
        disk = await invoke(harness.adapter.create_volume, source)
        answers = await harness.places([volume("one", disk.spec), volume("two", disk.spec)])
        assert answers["one"] == answers["two"]
        assert isinstance(answers["one"], VolumePlace)


@pytest.mark.parametrize("how", NO_ANSWER)
async def test_when_nothing_could_be_read_no_volume_is_gone(
    harness: Harness, how: Interruption
) -> None:
    source = harness.volume_sources[0]
    disk = await invoke(harness.adapter.create_volume, source)
    for spec in (disk.spec, harness.adapter.absent_volume(source)):
        harness.gate.interrupt_call(1, how)
        try:
            answers = await harness.places([volume("pv", spec)])
        except CloudError:
            continue
        assert isinstance(answers["pv"], Unknown)


async def test_looking_changes_nothing(harness: Harness) -> None:
    disk = await invoke(harness.adapter.create_volume, harness.volume_sources[0])
    async with harness.no_write():
        await harness.places([volume("pv", disk.spec)])


async def test_volumes_cost_a_call_a_batch(harness: Harness) -> None:
    batch = harness.volumes.batch_size
    source = harness.volume_sources[0]
    if 2 * batch + 1 > harness.adapter.max_machines:
        raise Untestable(f"it takes {2 * batch + 1} volumes")
    disks = [await invoke(harness.adapter.create_volume, source) for _ in range(2 * batch + 1)]
    await harness.places([volume("pv", disks[0].spec)])  # what is read once for all does not count
    for count in (0, 1, batch, batch + 1, 2 * batch + 1):
        start = len(harness.gate.calls)
        asked = [volume(f"pv-{at}", disk.spec) for at, disk in enumerate(disks[:count])]
        answers = await harness.call(harness.volumes.describe, asked)
        assert len(harness.gate.calls) - start == math.ceil(count / batch)
        assert [type(answer) for answer in answers.values()] == [VolumePlace] * count
