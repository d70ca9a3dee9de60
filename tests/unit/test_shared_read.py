"""Reads that are made together: few calls, no old answer, and one failure is that of its call."""

import asyncio
import gc
from collections.abc import Mapping, Sequence

import pytest

from ccm.cloud import gate
from ccm.cloud.gate import current_priority, with_priority
from ccm.cloud.shared_read import SharedLock, SharedRead
from ccm.decide.budget import Priority
from ccm.errors import Throttled
from tests.support.waiting import let_run


class Cloud:
    """Answers when it is `open`, with the number of the call; keeps what was asked for at once."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.priorities: list[Priority] = []
        self.open = asyncio.Event()
        self.reads = SharedRead(self.read, 2)

    async def read(self, names: Sequence[str] = ("all",)) -> Mapping[str, int]:
        self.calls.append(list(names))
        self.priorities.append(current_priority())
        number = len(self.calls)
        await self.open.wait()
        if "broken" in names:
            raise Throttled("not now")
        return dict.fromkeys(names, number)

    def ask(self, *names: str) -> "list[asyncio.Task[Mapping[str, int]]]":
        return [asyncio.create_task(self.reads(name)) for name in names]


@pytest.fixture
async def cloud() -> Cloud:
    return Cloud()


async def test_who_asks_together_shares_calls_of_a_batch_each(cloud: Cloud) -> None:
    cloud.open.set()
    answers = await asyncio.gather(*cloud.ask("a", "b", "c", "a"))
    assert cloud.calls == [["a", "b"], ["c"]]
    assert [answer[name] for answer, name in zip(answers, "abca", strict=True)] == [1, 1, 2, 1]


async def test_a_read_that_says_nothing_else_is_of_one_key(cloud: Cloud) -> None:
    cloud.open.set()
    reads = SharedRead(cloud.read)
    await asyncio.gather(reads("a"), reads("b"))
    assert cloud.calls == [["a"], ["b"]]


async def test_no_answer_is_older_than_its_question(cloud: Cloud) -> None:
    first = cloud.ask("a")
    await let_run()
    later = cloud.ask("a", "b")
    await let_run()
    assert cloud.calls == [["a"]]
    cloud.open.set()
    assert [answer["a"] for answer in await asyncio.gather(*first, *later)] == [1, 2, 2]
    assert cloud.calls == [["a"], ["a", "b"]]


async def test_a_read_without_keys_is_one_for_all(cloud: Cloud) -> None:
    first = [*cloud.ask(""), asyncio.create_task(cloud.reads())]
    await let_run()
    later = cloud.ask("", "")
    cloud.open.set()
    await asyncio.gather(*first, *later)
    assert cloud.calls == [["all"], ["all"]]


async def test_a_call_that_fails_fails_for_those_in_it_and_the_next_is_made(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    asking = cloud.ask("a", "broken", "c")
    await let_run()
    asking[0].cancel()
    cloud.open.set()
    ends = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError, Throttled, dict]
    del asking, ends
    gc.collect()
    assert not caplog.records  # of a failure that no caller is left for
    assert (await cloud.reads("a"))["a"] == 3


async def test_what_is_urgent_does_not_wait_for_what_is_not(cloud: Cloud) -> None:
    asking = []
    for priority in (Priority.REFRESH, Priority.LB_DELETE):
        with with_priority(priority, "someone"):
            asking += cloud.ask("a")
            await let_run()
    assert cloud.priorities == [Priority.REFRESH, Priority.LB_DELETE]
    cloud.open.set()
    await asyncio.gather(*asking)


async def test_nothing_is_left_behind_once_all_have_their_answers(cloud: Cloud) -> None:
    cloud.open.set()
    await asyncio.gather(*cloud.ask("a", "b", "c"))
    await let_run()
    assert (cloud.reads._calling, cloud.reads._waiting) == (set(), {})


async def test_when_the_process_ends_no_one_waits_for_an_answer(cloud: Cloud) -> None:
    """Neither those whose call is under way nor those who wait for the next."""
    asking = cloud.ask("a", "b", "c")
    await let_run()
    assert cloud.calls == [["a", "b"]]
    for calling in cloud.reads._calling:
        calling.cancel()
    ends = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * 3


async def test_what_all_wait_for_is_urgent_and_in_no_ones_turn() -> None:
    """Who holds a lock may be compared only, and be behind all else that its namespace wants."""
    lock, seen = SharedLock(), list[tuple[Priority, str]]()

    async def work(priority: Priority, held: SharedLock = lock) -> None:
        with with_priority(priority, "theirs"):
            async with held.held():
                seen.append((current_priority(), gate._owner.get()))
            assert (current_priority(), gate._owner.get()) == (priority, "theirs")

    await asyncio.gather(work(Priority.REFRESH), work(Priority.LB_DELETE))
    await work(Priority.REFRESH, SharedLock(None))
    assert seen == [
        (Priority.LB_ENSURE, ""),
        (Priority.LB_DELETE, ""),
        (Priority.REFRESH, "theirs"),
    ]
