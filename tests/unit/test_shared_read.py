"""Reads that are made together: few calls, no old answer, and one failure is that of its call."""

import asyncio
import gc
import threading
from collections.abc import Mapping, Sequence

import pytest

from ccm.cloud import gate
from ccm.cloud.gate import current_priority, with_priority
from ccm.cloud.shared_read import SharedBlockingLock, SharedLock, SharedRead
from ccm.decide.budget import Priority
from ccm.errors import CloudError, Throttled
from tests.support.running import wait_for
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


async def test_of_all_who_have_an_answer_one_goes_on_in_a_turn_of_the_loop(cloud: Cloud) -> None:
    """Forty Services of 5,000 source ranges went on at once on GCE: nothing else did for 9 s."""
    turns, seen = 0, list[int]()

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def ask() -> None:
        await cloud.reads("a")
        seen.append(turns)

    others, asked = asyncio.create_task(take_turns()), [asyncio.create_task(ask()) for _ in "12345"]
    await let_run()
    cloud.open.set()
    await asyncio.gather(*asked)
    others.cancel()
    assert len({*seen}) == 5
    assert cloud.calls == [["a"]]


async def test_owners_take_turns_at_going_on(cloud: Cloud) -> None:
    """What each makes of the answer takes a moment, and a namespace may have forty that do."""
    order = list[str]()

    async def ask(owner: str) -> None:
        with with_priority(Priority.LB_ENSURE, owner):
            await cloud.reads("a")
        order.append(owner)

    async with asyncio.TaskGroup() as group:
        for owner in [*["busy"] * 40, "other"]:
            group.create_task(ask(owner))
        await let_run()
        cloud.open.set()
    assert len(order) == 41
    assert order.index("other") <= 2


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


async def test_owners_take_turns_at_what_is_locked() -> None:
    """A namespace that changes forty Services at a time is not before all others."""
    lock, order = SharedLock(), list[str]()

    async def work(owner: str) -> None:
        with with_priority(Priority.LB_ENSURE, owner):
            async with lock.held():
                order.append(owner)
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for owner in [*["busy"] * 40, "other"]:
            group.create_task(work(owner))
    assert len(order) == 41
    assert order.index("other") <= 2


@pytest.mark.parametrize("is_its_turn", [False, True])
async def test_who_gives_up_waiting_for_a_lock_keeps_no_one_out(is_its_turn: bool) -> None:
    lock, order, leaves = SharedLock(), list[int](), asyncio.Event()

    async def work(number: int) -> None:
        async with lock.held():
            order.append(number)
            await leaves.wait()

    working = [asyncio.create_task(work(number)) for number in range(3)]
    await let_run()
    leaves.set()
    if is_its_turn:
        await asyncio.sleep(0)
    working[1].cancel()
    ends = await asyncio.gather(*working, return_exceptions=True)
    assert [type(end) for end in ends] == [type(None), asyncio.CancelledError, type(None)]
    assert order == [0, 2]
    async with lock.held():
        assert order == [0, 2]


def test_owners_take_turns_at_a_lock_of_threads() -> None:
    lock, order = SharedBlockingLock(), list[str]()

    def work(owner: str) -> None:
        with with_priority(Priority.LB_ENSURE, owner), lock:
            order.append(owner)

    owners = [*["busy"] * 10, "other"]
    threads = [threading.Thread(target=work, args=[owner]) for owner in owners]
    with lock:
        for thread in threads:
            thread.start()
        wait_for("all wait", lambda: sum(map(len, lock._waiting._by_owner.values())) == len(owners))
    for thread in threads:
        thread.join()
    assert len(order) == len(owners)
    assert order.index("other") <= 1


async def test_who_has_given_up_does_nothing_in_a_lock_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All others waited for the reads of each, and gave up as well: more stood before the next."""
    monkeypatch.setattr("ccm.cloud.gate.METHOD_TIMEOUT", 0.05)
    lock, order = SharedBlockingLock(), list[str]()

    def work() -> None:
        with lock:
            order.append("work")

    with lock:
        given_up = [gate.invoke(work) for _ in range(3)]
        errors = await asyncio.gather(*given_up, return_exceptions=True)
        assert {type(error) for error in errors} == {CloudError}
    wait_for("none waits", lambda: not lock._is_held)
    assert order == []
    work()
    assert order == ["work"]
