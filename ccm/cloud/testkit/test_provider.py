"""The provider as a whole: how it is found, started and ended, and that every call is accounted."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import entry_points

import pytest

from ccm.cloud.dry_run import only_reads
from ccm.cloud.gate import invoke
from ccm.cloud.registry import GROUP
from ccm.cloud.testkit.adapter import NotShown
from ccm.cloud.testkit.operations import READS, WRITES, Operation
from ccm.cloud.testkit.world import World
from ccm.errors import ConfigurationFaults

pytestmark = pytest.mark.asyncio

OPERATIONS = (*READS, *WRITES)


async def test_it_has_a_name_and_a_scheme_of_its_own(world: World) -> None:
    assert world.provider.name == world.provider_name
    assert world.provider.scheme
    assert "://" not in world.provider.scheme


async def test_it_declares_what_the_cloud_allows(world: World) -> None:
    assert world.provider.quotas
    for budget, quota in world.provider.quotas.items():
        assert quota.per_second > 0, budget
        assert quota.burst >= 1, budget


async def test_a_batch_holds_one_or_more(world: World) -> None:
    for part in (world.provider.instances, world.provider.volumes):
        assert part is None or part.batch_size >= 1


async def test_starting_it_writes_nothing_to_the_cloud(world: World) -> None:
    await world.close()
    world.config = await invoke(world.adapter.reset)
    async with world.unchanged():
        await world.restart()
    assert world.writes_since(0) == []


async def test_a_configuration_it_cannot_use_is_told_as_faults(world: World) -> None:
    provider = type(world.provider)()
    with suppress(ConfigurationFaults):
        await provider.initialize(world.context(b"\xff\x00 { nothing = [that can be read"))
    await provider.close()


async def test_it_can_be_closed_twice_and_started_again(world: World) -> None:
    await world.provider.close()
    await world.restart()


@pytest.mark.parametrize("make", OPERATIONS)
async def test_every_call_spends_a_declared_budget(world: World, make: type[Operation]) -> None:
    operation = make()
    await operation.prepare(world)
    await world.finish(operation.run, world)
    assert {call.budget for call in world.gate.calls} <= world.provider.quotas.keys()


@pytest.mark.parametrize("make", OPERATIONS)
async def test_every_call_passes_the_gate(world: World, make: type[Operation]) -> None:
    operation = make()
    await operation.prepare(world)
    counted, start = await invoke(world.adapter.calls), len(world.gate.calls)
    await world.finish(operation.run, world)
    assert await invoke(world.adapter.calls) - counted == len(world.gate.calls) - start


@pytest.mark.parametrize("make", OPERATIONS)
async def test_reads_and_writes_are_told_apart_by_their_names(
    world: World, make: type[Operation]
) -> None:
    operation = make()
    await operation.prepare(world)
    await world.finish(operation.run, world)
    for call in world.gate.calls:
        is_write = world.adapter.is_write(call.operation, call.budget)
        assert is_write != only_reads(call.operation), "a rehearsal goes by the name"


async def test_importing_its_package_does_not_import_the_sdk(world: World) -> None:
    package = package_of(world.provider_name)
    if not world.adapter.sdk:
        raise NotShown("the adapter names no SDK")
    code = f"import sys, {package}; print(*sys.modules.keys() & {set(world.adapter.sdk)!r})"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


def package_of(provider: str) -> str:
    """The package that the provider's entry point is in."""
    for point in entry_points(group=GROUP, name=provider):
        package = point.module.rpartition(".")[0]
        if package:
            return package
    raise NotShown("the provider is not a module in a package with an entry point")
