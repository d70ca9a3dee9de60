"""A simulated cloud in this process and a provider that is started against it."""

from collections.abc import AsyncIterator

import pytest

from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.config import SimulatedConfig
from ccm.providers.simulated.instances import SimulatedInstances
from ccm.sandbox.cloud.server import CloudServer

from .doubles import CountingGate


@pytest.fixture
async def cloud() -> AsyncIterator[CloudServer]:
    async with CloudServer(page=100) as server:
        yield server


@pytest.fixture
def gate() -> CountingGate:
    return CountingGate()


@pytest.fixture
async def api(cloud: CloudServer, gate: CountingGate) -> AsyncIterator[SimulatedApi]:
    client = SimulatedApi(SimulatedConfig(cloud.url, cloud.tokens.full), gate, "test")
    yield client
    await client.close()


@pytest.fixture
def instances(api: SimulatedApi) -> SimulatedInstances:
    return SimulatedInstances(api, batch_size=100)
