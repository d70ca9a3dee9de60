"""A simulated cloud in this process, its clock and its admin."""

from collections.abc import AsyncIterator

import pytest

from ccm.sandbox.cloud.client import CloudAdmin

from .calling import Cloud, HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def cloud(clock: HandClock) -> AsyncIterator[Cloud]:
    async with Cloud(page=10, clock=clock) as server:
        yield server


@pytest.fixture
async def admin(cloud: Cloud) -> AsyncIterator[CloudAdmin]:
    async with CloudAdmin(cloud.url) as client:
        yield client
