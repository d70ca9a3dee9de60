"""The keys of one namespace whose turns are long rest, and no others do."""

import asyncio
import time

import pytest

from tests.support.virtual_time import VirtualLoop
from workers.executor import (
    BESIDE,
    FOR_A_NODE,
    LONG,
    LONG_BESIDE_OTHERS,
    SAVED,
    SHARE,
    ProcessorShares,
)

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def shares() -> ProcessorShares:
    return ProcessorShares(lambda: 0)


async def steps(count: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    for _ in range(count):
        loop.compute(seconds)
        await asyncio.sleep(0)


async def test_long_turns_of_a_namespace_have_it_rest_and_no_other(
    shares: ProcessorShares,
) -> None:
    await shares.measure("hostile/web", steps(10, 2 * LONG))
    assert shares.seconds_to_rest("hostile/other") > 20 * LONG * (1 / SHARE - 1) - 1.1 * SAVED
    assert shares.seconds_to_rest("honest/web") <= 0
    await asyncio.sleep(shares.seconds_to_rest("hostile/other"))
    assert shares.seconds_to_rest("hostile/other") <= 0


async def test_short_turns_are_free_however_many_there_are(shares: ProcessorShares) -> None:
    for _ in range(20):
        await shares.measure("honest/web", steps(100, LONG / 50))
    assert shares.seconds_to_rest("honest/web") <= 0


async def test_beside_others_shorter_turns_count_until_these_have_none_any_more(
    shares: ProcessorShares,
) -> None:
    seconds = 2 * LONG_BESIDE_OTHERS
    for _ in range(20):
        await shares.measure("honest/web", steps(3, seconds / 100))
        await shares.measure("hostile/web", steps(5, seconds))
    assert shares.seconds_to_rest("hostile/web") > 100 * seconds * (1 / SHARE - 1) - 1.1 * SAVED
    assert shares.seconds_to_rest("honest/web") <= 0
    await asyncio.sleep(max(shares.seconds_to_rest("hostile/web"), BESIDE))
    await shares.measure("hostile/web", steps(1000, seconds))
    assert shares.seconds_to_rest("hostile/web") <= 0


async def test_between_two_turns_of_a_namespace_others_have_theirs(shares: ProcessorShares) -> None:
    seconds = LONG / 2
    hostile = [
        asyncio.create_task(shares.measure(f"hostile/{number}", steps(20, seconds)))
        for number in range(40)
    ]
    await asyncio.sleep(0)
    began = time.monotonic()
    await shares.measure("honest/web", steps(10, seconds / 100))
    assert time.monotonic() - began < 2 * 10 * seconds
    await asyncio.gather(*hostile)


async def test_turns_of_one_namespace_alone_lose_no_time(shares: ProcessorShares) -> None:
    began = time.monotonic()
    works = (shares.measure(f"hostile/{number}", steps(20, LONG / 2)) for number in range(40))
    await asyncio.gather(*works)
    assert time.monotonic() - began < 1.001 * 40 * 20 * LONG / 2


async def test_what_is_cancelled_before_its_turn_leaves_it_to_others(
    shares: ProcessorShares,
) -> None:
    tasks = [
        asyncio.create_task(shares.measure(f"a/{number}", steps(20, LONG / 2)))
        for number in range(40)
    ]
    await asyncio.sleep(0)
    for task in tasks[1:]:
        task.cancel()
    await asyncio.wait_for(tasks[0], 1)
    assert all(
        isinstance(it, asyncio.CancelledError)
        for it in await asyncio.gather(*tasks[1:], return_exceptions=True)
    )


async def test_turns_that_many_nodes_make_long_are_free() -> None:
    shares = ProcessorShares(lambda: int(LONG / FOR_A_NODE) * 2)
    await shares.measure("honest/web", steps(10, 1.2 * LONG))
    assert shares.seconds_to_rest("honest/web") <= 0


async def test_the_work_goes_on_as_it_would_alone(shares: ProcessorShares) -> None:
    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await shares.measure("a/web", fails())
    ended = list[str]()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            ended.append("in order")
            raise

    task = asyncio.create_task(shares.measure("a/web", waits()))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["in order"]
