"""Waiting for what nothing announces: a condition with a deadline, never a bare sleep."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support.deadlines import Deadline


async def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Return once `condition()` is true; fail the test when it does not come true."""
    deadline = Deadline()
    while not condition():
        if deadline.has_passed():
            pytest.fail(f"{what} did not come true within {deadline}")
        await asyncio.sleep(0.002)


async def let_run(rounds: int = 5) -> None:
    """Let everything that is ready to run in this loop do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def turns_during(work: Coroutine[Any, Any, object]) -> int:
    """How many turns all else in this loop has while this work is done."""
    task, turns = asyncio.create_task(work), 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns
