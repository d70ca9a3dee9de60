"""The provider as a whole: how it is found, started and ended, and that every call is accounted."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import entry_points

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.registry import GROUP
from ccm.cloud.testkit.adapter import Untestable
from ccm.cloud.testkit.harness import Harness
from ccm.cloud.testkit.operations import OPERATIONS, Operation
from ccm.errors import ConfigurationFaults

pytestmark = pytest.mark.asyncio


async def test_it_has_a_name_and_knows_what_is_not_its_own(harness: Harness) -> None:
    assert harness.provider.name == harness.provider_name
    assert not harness.provider.provider_ids.fullmatch("another-cloud://machine-1")


async def test_it_declares_what_the_cloud_allows(harness: Harness) -> None:
    assert harness.provider.quotas
    for budget, quota in harness.provider.quotas.items():
        assert quota.per_second > 0, budget
        assert quota.burst >= 1, budget


async def test_a_batch_holds_one_or_more(harness: Harness) -> None:
    for part in (harness.provider.instances, harness.provider.volumes):
        assert part is None or part.batch_size >= 1


async def test_starting_it_writes_nothing_to_the_cloud(harness: Harness) -> None:
    await harness.close()
    harness.config = await invoke(harness.adapter.reset)
    async with harness.no_change():
        await harness.restart()
    assert harness.writes_since(0) == []


async def test_a_configuration_it_cannot_use_is_reported_as_faults(harness: Harness) -> None:
    provider = type(harness.provider)()
    with suppress(ConfigurationFaults):
        await provider.initialize(harness.context(b"\xff\x00 { nothing = [that can be read"))
    await provider.close()


async def test_it_can_be_closed_twice_and_started_again(harness: Harness) -> None:
    await harness.provider.close()
    await harness.restart()


@pytest.mark.parametrize("operation", OPERATIONS, indirect=True)
async def test_every_call_spends_a_declared_budget(harness: Harness, operation: Operation) -> None:
    await harness.until_done(operation.run, harness)
    assert {call.budget for call in harness.gate.calls} <= harness.provider.quotas.keys()


@pytest.mark.parametrize("operation", OPERATIONS, indirect=True)
async def test_every_call_passes_the_gate(harness: Harness, operation: Operation) -> None:
    counted, start = await invoke(harness.adapter.count_calls), len(harness.gate.calls)
    await harness.until_done(operation.run, harness)
    assert await invoke(harness.adapter.count_calls) - counted == len(harness.gate.calls) - start


@pytest.mark.parametrize("operation", OPERATIONS, indirect=True)
async def test_a_call_that_may_change_the_cloud_is_said_to_be_a_write(
    harness: Harness, operation: Operation
) -> None:
    await harness.until_done(operation.run, harness)
    for call in harness.gate.calls:
        is_write = harness.adapter.is_write(call.operation, call.budget)
        assert is_write == call.is_write, f"a dry run goes by is_write of {call.operation}"


async def test_importing_its_package_does_not_import_the_sdk(harness: Harness) -> None:
    package = package_of(harness.provider_name)
    if not harness.adapter.sdk_modules:
        raise Untestable("the adapter names no SDK")
    code = (
        f"import sys, {package}; print(*sys.modules.keys() & {set(harness.adapter.sdk_modules)!r})"
    )
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
    raise Untestable("the provider is not a module in a package with an entry point")
