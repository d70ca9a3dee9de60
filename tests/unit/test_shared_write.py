"""Changes that are written together: few writes, and none for a caller that gave up."""

import asyncio
from collections.abc import Sequence

import pytest

from ccm.cloud.gate import with_priority
from ccm.cloud.shared_write import PendingChange, SharedWrite, end_all
from ccm.decide.budget import Priority
from tests.support.waiting import let_run, until


class Cloud:
    """Writes when it is `open`; keeps what was written at once."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.open = asyncio.Event()
        self.writes = SharedWrite(self.write)

    async def write(self, pending: Sequence[PendingChange[str]]) -> None:
        self.calls.append("".join(item.change for item in pending))
        number = len(self.calls)
        await self.open.wait()
        end_all(pending, number)

    async def begin(self, *changes: str) -> "list[asyncio.Task[int]]":
        tasks = [asyncio.create_task(self.writes.do(change)) for change in changes]
        await let_run()
        return tasks


@pytest.fixture
async def cloud() -> Cloud:
    return Cloud()


async def test_changes_asked_for_while_others_are_under_way_go_together(cloud: Cloud) -> None:
    tasks = [*await cloud.begin("a"), *await cloud.begin("b", "c")]
    assert cloud.calls == ["a"]
    cloud.open.set()
    assert await asyncio.gather(*tasks) == [1, 2, 2]
    assert cloud.calls == ["a", "bc"]


@pytest.mark.virtual_time
async def test_others_may_join_before_the_write(cloud: Cloud) -> None:
    cloud.writes = SharedWrite(cloud.write, gather=0.2)
    cloud.open.set()
    tasks = [*await cloud.begin("a"), *await cloud.begin("b")]
    assert await asyncio.gather(*tasks) == [1, 1]


async def test_who_gave_up_before_a_write_is_not_in_it(cloud: Cloud) -> None:
    first, gave_up, other = await cloud.begin("a", "b", "c")
    gave_up.cancel()
    await let_run()
    cloud.open.set()
    assert [*await asyncio.gather(first, other)] == [1, 2]
    assert cloud.calls == ["a", "c"]


async def test_who_waits_behind_one_who_gave_up_is_written(cloud: Cloud) -> None:
    cloud.writes = SharedWrite(cloud.write, gather=0.001)
    gave_up, other = await cloud.begin("a", "b")
    await until(lambda: cloud.calls)
    gave_up.cancel()
    cloud.open.set()
    await other
    assert cloud.calls == ["ab", "b"]


async def test_of_who_is_alone_one_change_at_a_time_is_in_front_of_others(cloud: Cloud) -> None:
    """Each is a write of its own, and may take the cloud seconds."""
    first = await cloud.begin("a")
    with with_priority(Priority.LB_ENSURE, "x"):
        alone = [asyncio.create_task(cloud.writes.do(change, is_alone=True)) for change in "bcd"]
    await let_run()
    others = await cloud.begin("e", "f")
    cloud.open.set()
    await asyncio.gather(*first, *alone, *others)
    assert cloud.calls == ["a", "b", "ef", "c", "d"]


async def test_all_who_gave_up_during_a_write_are_in_no_later_one(cloud: Cloud) -> None:
    cloud.writes = SharedWrite(cloud.write, gather=0.001)
    first, second = await cloud.begin("a", "b")
    await until(lambda: cloud.calls)
    for task in (second, first):
        task.cancel()
        await let_run()
    cloud.open.set()
    await asyncio.gather(*await cloud.begin("c"))
    assert cloud.calls == ["ab", "c"]
