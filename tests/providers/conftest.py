"""Providers that a test starts are closed behind it."""

from collections.abc import AsyncIterator

import pytest

from tests.providers.started import StartedProvider


@pytest.fixture(autouse=True)
async def close_started() -> AsyncIterator[None]:
    yield
    while StartedProvider.started:
        await StartedProvider.started.pop().close()
