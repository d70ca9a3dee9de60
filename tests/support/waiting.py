"""Waiting for what nobody announces: a condition with a deadline, never a bare sleep."""

import asyncio
from collections.abc import Callable

import pytest

DEADLINE = 5.0  # seconds after which a condition will not come true any more


async def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Return once `condition()` is true; fail the test when it does not come true."""
    try:
        async with asyncio.timeout(DEADLINE):
            while not condition():  # noqa: ASYNC110 - nothing tells a test when this comes true
                await asyncio.sleep(0.002)
    except TimeoutError:
        pytest.fail(f"{what} did not come true within {DEADLINE:g} s")


async def let_run(rounds: int = 5) -> None:
    """Let everything that is ready to run in this loop do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)
