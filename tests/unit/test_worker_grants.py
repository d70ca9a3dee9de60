"""Cloud-call grants in a worker."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.bus.frames import AskCalls, CloudThrottled, Granted, Message, ReturnCalls
from ccm.decide.budget import Priority
from workers.grants import Grants

from .waiting import let_run

INIT, ROUTE = Priority.NODE_INIT, Priority.ROUTE


class Supervisor:
    """The other end: what it was told, and what it still owes."""

    def __init__(self) -> None:
        self.told: list[Message] = []

    def send(self, message: Message) -> bool:
        self.told.append(message)
        return True

    @property
    def asks(self) -> list[AskCalls]:
        return [message for message in self.told if isinstance(message, AskCalls)]

    @property
    def returned(self) -> int:
        return sum(message.count for message in self.told if isinstance(message, ReturnCalls))


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor()


@pytest.fixture
async def grants(supervisor: Supervisor) -> Grants:
    return Grants(supervisor.send)


def takers(grants: Grants, count: int, priority: Priority = INIT) -> list["asyncio.Task[None]"]:
    return [asyncio.create_task(grants.take("read", priority)) for _ in range(count)]


def done(tasks: list["asyncio.Task[None]"]) -> int:
    return sum(task.done() and not task.cancelled() for task in tasks)


async def end(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_calls_that_wait_together_are_asked_for_together(
    grants: Grants, supervisor: Supervisor
) -> None:
    tasks = takers(grants, 5)
    await let_run()
    assert supervisor.told == [AskCalls(1, "read", int(INIT), 5)]
    assert done(tasks) == 0
    grants.granted(Granted(1, 5))
    await let_run()
    assert (done(tasks), supervisor.returned) == (5, 0)


async def test_a_part_of_what_was_asked_lets_as_many_go(
    grants: Grants, supervisor: Supervisor
) -> None:
    tasks = takers(grants, 5)
    await let_run()
    grants.granted(Granted(1, 2))
    await let_run()
    assert (done(tasks), len(supervisor.asks)) == (2, 1)
    grants.granted(Granted(1, 3))
    await let_run()
    assert done(tasks) == 5


async def test_calls_that_come_later_are_asked_for_with_the_next_grant(
    grants: Grants, supervisor: Supervisor
) -> None:
    tasks = takers(grants, 1)
    await let_run()
    tasks += takers(grants, 3)
    await let_run()
    grants.granted(Granted(1, 1))
    await let_run()
    assert supervisor.asks[1:] == [AskCalls(2, "read", int(INIT), 3)]
    grants.granted(Granted(2, 3))
    await let_run()
    assert done(tasks) == 4


async def test_priorities_are_asked_for_apart_and_served_apart(
    grants: Grants, supervisor: Supervisor
) -> None:
    urgent, others = takers(grants, 1, INIT), takers(grants, 2, ROUTE)
    await let_run()
    assert [(ask.priority, ask.count) for ask in supervisor.asks] == [(INIT, 1), (ROUTE, 2)]
    grants.granted(Granted(2, 2))
    await let_run()
    assert (done(urgent), done(others)) == (0, 2)
    await end(urgent)


async def test_grants_for_calls_that_were_given_up_go_back(
    grants: Grants, supervisor: Supervisor
) -> None:
    tasks = takers(grants, 3)
    await let_run()
    await end(tasks[:2])
    grants.granted(Granted(1, 3))
    await let_run()
    assert (done(tasks), supervisor.returned) == (1, 2)


async def test_a_grant_that_comes_together_with_the_cancellation_goes_back(
    grants: Grants, supervisor: Supervisor
) -> None:
    (task,) = takers(grants, 1)
    await let_run()
    grants.granted(Granted(1, 1))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert supervisor.returned == 1


async def test_a_given_up_calls_grant_serves_the_next_in_line(
    grants: Grants, supervisor: Supervisor
) -> None:
    given_up = takers(grants, 1)
    await let_run()
    await end(given_up)
    waiting = takers(grants, 1)
    await let_run()
    grants.granted(Granted(1, 1))
    await let_run()
    assert (done(waiting), supervisor.returned) == (1, 0)


async def test_without_a_supervisor_no_call_is_made(grants: Grants) -> None:
    tasks = takers(grants, 2)
    await let_run(50)
    assert done(tasks) == 0
    await end(tasks)


async def test_throttling_is_told(grants: Grants, supervisor: Supervisor) -> None:
    grants.throttled("read", 3.0)
    assert supervisor.told == [CloudThrottled("read", 3.0)]


moves = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("grant"), st.integers(1, 4)),
    ),
    max_size=25,
)


@given(moves)
def test_every_grant_is_used_once_or_returned_and_nobody_is_left_waiting(
    history: list[tuple[str, int]],
) -> None:
    asyncio.run(_history(history))


async def _history(history: list[tuple[str, int]]) -> None:
    supervisor = Supervisor()
    grants, tasks, granted = Grants(supervisor.send), list["asyncio.Task[None]"](), 0
    owed: dict[int, int] = {}

    def grant(most: int) -> None:
        nonlocal granted
        for ask in supervisor.asks:
            owed.setdefault(ask.number, ask.count)
        number = next((number for number, count in owed.items() if count), None)
        if number is not None:
            count = min(most, owed[number])
            owed[number] -= count
            granted += count
            grants.granted(Granted(number, count))

    for move, value in history:
        match move:
            case "take":
                tasks += takers(grants, value)
            case "grant":
                grant(value)
        await let_run()
    for _ in range(len(history)):
        grant(99)
        await let_run()
    used = sum(task.done() and not task.cancelled() for task in tasks)
    assert used + supervisor.returned == granted
    assert all(task.done() for task in tasks)
