"""A simulated cloud in this process, and a caller of it."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.server import CloudServer

from .calling import Caller, HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def cloud(clock: HandClock) -> AsyncIterator[CloudServer]:
    async with CloudServer(page=10, clock=clock) as server:
        yield server


@pytest.fixture
async def caller(cloud: CloudServer) -> AsyncIterator[Caller]:
    async with aiohttp.ClientSession() as session:
        session._retry_connection = False
        yield Caller(cloud.url, session)


@pytest.fixture
async def admin(cloud: CloudServer) -> AsyncIterator[CloudAdmin]:
    async with CloudAdmin(cloud.url) as client:
        yield client
