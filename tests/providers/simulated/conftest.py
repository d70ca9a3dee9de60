"""A simulated cloud in this process and a provider that is started against it."""

from collections.abc import AsyncIterator

import pytest

from ccm.sandbox.cloud.server import CloudServer

from .world import World


@pytest.fixture
async def w() -> AsyncIterator[World]:
    async with CloudServer(page=100) as server:
        world = World(server)
        yield world
        await world.api.close()
