"""The fixtures of the kit: one adapter for the run, an empty cloud for each test."""

import importlib
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from ccm.cloud.registry import Factory, check_name, provider_factory
from ccm.cloud.testkit.adapter import Adapter
from ccm.cloud.testkit.harness import Harness
from ccm.cloud.testkit.operations import Operation
from ccm.errors import ConfigurationFault

ADAPTER = pytest.StashKey[Adapter]()


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """Find both before the first test, so that a wrong name is one error and not hundreds."""
    provider, adapter = config.getoption("--provider"), config.getoption("--adapter")
    if not provider or not adapter:
        raise pytest.UsageError(
            "the conformance kit needs --provider NAME and --adapter MODULE:NAME"
        )
    try:
        check_name(provider)
    except ConfigurationFault as unknown:
        raise pytest.UsageError(f"--provider: {unknown.problem}; {unknown.remedy}") from unknown
    config.stash[ADAPTER] = load_adapter(adapter)


def load_adapter(where: str) -> Adapter:
    """The adapter that `module:name` makes."""
    module, _, name = where.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise pytest.UsageError(f"--adapter {where}: {error}") from error
    if not isinstance(made, Adapter):
        raise pytest.UsageError(f"--adapter {where} makes no ccm.cloud.testkit.adapter.Adapter")
    return made


@pytest.fixture(scope="session")
def adapter(pytestconfig: pytest.Config) -> Iterator[Adapter]:
    """The adapter of the run, started."""
    made = pytestconfig.stash[ADAPTER]
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def factory(pytestconfig: pytest.Config) -> Factory:
    """What makes the provider, which takes long to find among all packages."""
    return provider_factory(pytestconfig.getoption("--provider"))


@pytest_asyncio.fixture
async def harness(
    pytestconfig: pytest.Config, factory: Factory, adapter: Adapter
) -> AsyncIterator[Harness]:
    """A provider in an empty cloud."""
    current = Harness(pytestconfig.getoption("--provider"), factory, adapter)
    try:
        await current.reset()
        yield current
    finally:
        await current.close()


@pytest_asyncio.fixture
async def operation(request: pytest.FixtureRequest, harness: Harness) -> Operation:
    """What the provider does, with the state in the cloud that it needs."""
    made: Operation = request.param()
    made.part(harness)
    await made.prepare(harness)
    return made
