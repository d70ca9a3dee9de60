"""The work queue of a worker."""

import asyncio
from typing import Any, cast

import pytest

from ccm import metrics
from ccm.decide.backoff import Backoff
from tests.support.waiting import let_run, until
from workers.queue import WorkQueue

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def queue() -> WorkQueue:
    return WorkQueue(Backoff(first=0.02, most=0.1, jitter=0.0))


async def get(queue: WorkQueue) -> str | None:
    return await queue.get()


async def test_namespaces_take_turns_and_other_keys_are_one_group(queue: WorkQueue) -> None:
    for key in ("a/1", "a/2", "a/1", "a/3", "b/1", "node", "route 10.0.0.0/8", "b/2"):
        queue.add(key)
    order = [await get(queue) for _ in range(7)]
    assert order == ["a/1", "b/1", "node", "a/2", "b/2", "route 10.0.0.0/8", "a/3"]
    assert len(queue) == 0
    queue.add("a/4")
    assert await get(queue) == "a/4"


async def test_a_key_that_changes_in_flight_runs_once_more_when_done(
    queue: WorkQueue,
) -> None:
    queue.add("a")
    await get(queue)
    for _ in range(10):
        queue.add("a")
        assert len(queue) == 0
    queue.done("a")
    assert await get(queue) == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_parked_key_is_not_in_flight_but_still_not_handed_out_again(
    queue: WorkQueue,
) -> None:
    queue.add("a")
    await get(queue)
    with queue.parking("a"):
        queue.add("a")
        assert (queue.is_in_flight("a"), list(queue.parked), len(queue)) == (False, ["a"], 0)
    assert (queue.is_in_flight("a"), list(queue.parked)) == (True, [])
    queue.done("a")
    assert await get(queue) == "a"


@pytest.mark.parametrize("is_closed_first", [True, False])
async def test_a_reconcile_that_only_waits_is_cancelled_when_the_queue_closes(
    queue: WorkQueue, is_closed_first: bool
) -> None:
    async def wait() -> None:
        with queue.parking("a"):
            await asyncio.Event().wait()

    if is_closed_first:
        queue.close()
    waiting = asyncio.create_task(wait())
    await let_run()
    queue.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_at_most_one_consumer_has_a_key_in_flight(queue: WorkQueue) -> None:
    in_flight: set[str] = set()
    done = 0

    async def consume() -> None:
        nonlocal done
        while (key := await queue.get()) is not None:
            assert key not in in_flight
            in_flight.add(key)
            await let_run(3)
            in_flight.remove(key)
            queue.done(key)
            done += 1

    consumers = [asyncio.create_task(consume()) for _ in range(4)]
    for round_number in range(50):
        queue.add(f"key-{round_number % 3}")
        await let_run(round_number % 3)
    await until(lambda: not len(queue) and not in_flight and done >= 3)
    queue.close()
    await asyncio.gather(*consumers)


async def test_waiting_for_a_key_takes_none(queue: WorkQueue) -> None:
    waiting = asyncio.create_task(queue.wait())
    await let_run()
    assert not waiting.done()
    queue.add("a")
    await waiting
    assert (len(queue), queue.is_in_flight("a")) == (1, False)
    queue.close()
    await queue.wait()


@pytest.mark.parametrize("is_cancelled_first", [True, False])
async def test_a_consumer_that_gave_up_does_not_swallow_a_key(
    queue: WorkQueue, is_cancelled_first: bool
) -> None:
    patient = asyncio.create_task(queue.get())
    await let_run()
    hasty = asyncio.create_task(queue.get())
    await let_run()
    if is_cancelled_first:
        hasty.cancel()
        await let_run()
    queue.add("a")
    hasty.cancel()
    assert await patient == "a"


def counted(queue: WorkQueue, metric: metrics.Metric) -> object:
    """The count so far, or sum and count of the durations."""
    [[_, value]] = queue.counters.export().get(metric.name) or [[[], None]]
    return value if not isinstance(value, list) else (round(value[0], 3), sum(value[1:]))


async def test_a_later_key_comes_at_its_time(queue: WorkQueue) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for key, seconds in (("late", 60.0), ("soon", 20.0), ("soon", 20.0), ("last", 90.0)):
        queue.add_after(key, seconds)
    assert (queue.waiting, counted(queue, metrics.QUEUE_RETRIES)) == (3, 3)
    assert [queue.due_in(key) for key in ("late", "soon", "other")] == [60.0, 20.0, None]
    assert queue.next_due(loop.time() + 5.0) == 15.0
    came = [(await queue.get(), round(loop.time() - began, 3)) for _ in range(3)]
    assert came == [("soon", 20.0), ("late", 60.0), ("last", 90.0)]
    assert (queue.waiting, queue.next_due(loop.time())) == (0, None)


async def test_a_closed_queue_has_no_timer(queue: WorkQueue) -> None:
    queue.add_after("a", 10.0)
    queue.close()
    await asyncio.sleep(20.0)
    assert (len(queue), queue.waiting) == (0, 1)


async def test_how_long_keys_waited_and_are_worked_on_is_counted(queue: WorkQueue) -> None:
    for key in ("a", "b", "a"):
        queue.add(key)
    await asyncio.sleep(3.0)
    assert await queue.get() == "a"
    await asyncio.sleep(2.0)
    assert (queue.is_busy, await queue.get()) == (True, "b")
    then = asyncio.get_running_loop().time() + 10.0
    assert (round(queue.unfinished(then), 3), round(queue.oldest_in_flight(then), 3)) == (22, 12)
    assert (queue.is_busy, len(queue)) == (True, 0)
    with queue.parking("b"):
        await asyncio.sleep(1.0)
    queue.done("a")
    queue.done("b")
    assert not queue.is_busy
    assert counted(queue, metrics.QUEUE_ADDS) == 2
    assert counted(queue, metrics.QUEUE_WAIT_SECONDS) == (3.0 + 5.0, 2)
    assert counted(queue, metrics.QUEUE_WORK_SECONDS) == (3.0 + 0.0, 2)


async def test_a_change_does_not_wait_for_the_later_time(queue: WorkQueue) -> None:
    queue.add_after("a", 60.0)
    queue.add("a")
    assert (await get(queue), queue.waiting) == ("a", 0)


@pytest.mark.parametrize(("first", "second"), [(60.0, 0.01), (0.01, 60.0)])
async def test_the_sooner_of_two_times_counts(
    queue: WorkQueue, first: float, second: float
) -> None:
    queue.add_after("a", first)
    queue.add_after("a", second)
    assert await get(queue) == "a"
    queue.done("a")
    assert (len(queue), queue.waiting) == (0, 0)


async def test_a_time_that_comes_while_the_key_is_in_flight_runs_it_once_more(
    queue: WorkQueue,
) -> None:
    queue.add("a")
    await get(queue)
    queue.add_after("a", 0.005)
    await until(lambda: not queue.waiting)
    assert len(queue) == 0
    queue.done("a")
    assert await get(queue) == "a"


async def test_failures_in_a_row_wait_longer_and_longer(queue: WorkQueue) -> None:
    waits = []
    for number in range(1, 5):
        queue.add_failed("a")
        assert (queue.failures("a"), queue.failures("b")) == (number, 0)
        waits.append(queue.due_in("a"))
        await get(queue)
        queue.done("a")
    assert waits == pytest.approx([0.02, 0.04, 0.08, 0.1])
    queue.add_failed("a", Backoff(first=1.0, most=100.0, jitter=0.0))
    assert queue.due_in("a") == pytest.approx(16.0)


async def test_a_success_forgets_the_failures(queue: WorkQueue) -> None:
    slow = WorkQueue(Backoff(first=0.01, most=60.0, jitter=0.0))
    slow.forget_failures("a")
    for _ in range(12):
        slow.add_failed("a")
    slow.add("a")
    await get(slow)
    slow.forget_failures("a")
    assert slow.failures("a") == 0
    slow.done("a")
    slow.add_failed("a")
    assert await get(slow) == "a"
    slow.close()


async def test_a_closed_queue_hands_out_nothing_and_lets_every_consumer_go(
    queue: WorkQueue,
) -> None:
    consumers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await let_run()
    queue.add_after("later", 0.001)
    queue.close()
    queue.add("more")
    assert await asyncio.gather(*consumers) == [None, None, None]
    assert await queue.get() is None


async def test_the_age_of_the_oldest_key_in_flight_is_known(queue: WorkQueue) -> None:
    now = asyncio.get_running_loop().time()
    assert queue.oldest_in_flight(now) == 0.0
    queue.add("a")
    await get(queue)
    assert queue.oldest_in_flight(now + 5.0) == pytest.approx(5.0, abs=1e-3)
    queue.done("a")
    assert queue.oldest_in_flight(now + 99.0) == 0.0


async def test_keys_that_change_for_ever_and_wait_for_long_take_no_memory(
    queue: WorkQueue,
) -> None:
    """A tenant writes a label ten times a second; each time it is to be looked at in an hour."""
    for _ in range(10_000):
        queue.add("a/1")
        assert await get(queue) == "a/1"
        queue.done("a/1")
        queue.add_after("a/1", 3600.0)
        queue.add_after("a/2", 1800.0)
    assert queue.waiting == 2
    await asyncio.sleep(0)
    assert len(cast(Any, asyncio.get_running_loop())._scheduled) < 1000
    assert await get(queue) == "a/2"
    assert await get(queue) == "a/1"
