"""A hint of a cloud ends a pause; no hints make reads follow each other closer than a second."""

import asyncio
import time

import pytest

from workers.cloud_changes import HINTED_INTERVAL, CloudChanges

pytestmark = pytest.mark.virtual_time


async def test_a_hint_ends_each_pause_at_once() -> None:
    changes = CloudChanges()
    pauses = [changes.hinted_sleep() for _ in range(2)]
    began = time.monotonic()
    asyncio.get_running_loop().call_soon(changes.announce)
    assert await asyncio.gather(*(pause.sleep(60) for pause in pauses)) == [True, True]
    assert time.monotonic() == pytest.approx(began, abs=1e-3)


async def test_without_a_hint_a_pause_has_its_length() -> None:
    assert not await CloudChanges().hinted_sleep().sleep(0.01)


async def test_hints_without_end_are_heard_ever_more_seldom() -> None:
    """An instance that restarts for ever has all the others read as well."""
    changes, passes = CloudChanges(), 0
    pause = changes.hinted_sleep()

    async def announce() -> None:
        while True:
            changes.announce()
            await asyncio.sleep(0.1)

    announcing, began = asyncio.create_task(announce()), time.monotonic()
    while time.monotonic() < began + 300:
        await pause.sleep(15)
        passes += 1
    announcing.cancel()
    assert 20 <= passes <= 30
    await asyncio.sleep(60)
    changes.announce()
    began = time.monotonic()
    assert await pause.sleep(60)
    assert time.monotonic() == pytest.approx(began, abs=1e-3), "it is quiet again"


async def test_many_hints_are_one_and_the_next_waits() -> None:
    changes = CloudChanges()
    pause = changes.hinted_sleep()
    for _ in range(3):
        changes.announce()
    began = time.monotonic()
    assert await pause.sleep(60), "what came during a pass counts after it"
    changes.announce()
    assert await pause.sleep(60)
    assert time.monotonic() - began == pytest.approx(HINTED_INTERVAL, abs=1e-3)
    assert not await pause.sleep(0.01)
