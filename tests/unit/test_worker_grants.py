"""Cloud-call grants in a worker."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.bus.frames import (
    AskCalls,
    CallsShut,
    CloudThrottled,
    Granted,
    MadeCalls,
    Message,
    ReturnCalls,
)
from ccm.decide.budget import GOOD_FOR, Priority
from workers.grants import Grants

from .waiting import let_run, until

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

    @property
    def made(self) -> int:
        return sum(message.count for message in self.told if isinstance(message, MadeCalls))

    @property
    def granted(self) -> int:
        """What a supervisor with a full bucket gives: everything that is asked for."""
        return sum(ask.count + ask.ahead for ask in self.asks)


def serving(supervisor: Supervisor) -> Grants:
    """Grants from a supervisor that gives at once whatever is asked for."""

    def send(message: Message) -> bool:
        supervisor.send(message)
        if isinstance(message, AskCalls):
            answer = Granted(message.number, message.count + message.ahead, time.monotonic())
            asyncio.get_running_loop().call_soon(purse.granted, answer)
        return True

    purse = Grants(send)
    return purse


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor()


@pytest.fixture
async def grants(supervisor: Supervisor) -> Grants:
    return Grants(supervisor.send)


def takers(grants: Grants, count: int, priority: Priority = INIT) -> list["asyncio.Task[float]"]:
    return [asyncio.create_task(grants.take("read", priority)) for _ in range(count)]


def grant(number: int, count: int, age: float = 0.0) -> Granted:
    return Granted(number, count, time.monotonic() - age)


def done(tasks: list["asyncio.Task[float]"]) -> int:
    return sum(task.done() and not task.cancelled() for task in tasks)


async def end(tasks: list["asyncio.Task[float]"]) -> None:
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
    grants.granted(grant(1, 5))
    await let_run()
    assert (done(tasks), supervisor.returned) == (5, 0)


async def test_a_part_of_what_was_asked_lets_as_many_go(
    grants: Grants, supervisor: Supervisor
) -> None:
    tasks = takers(grants, 5)
    await let_run()
    grants.granted(grant(1, 2))
    await let_run()
    assert (done(tasks), len(supervisor.asks)) == (2, 1)
    grants.granted(grant(1, 3))
    await let_run()
    assert done(tasks) == 5


async def test_calls_that_come_later_are_asked_for_at_once(
    grants: Grants, supervisor: Supervisor
) -> None:
    tasks = takers(grants, 1)
    await let_run()
    tasks += takers(grants, 3)
    await let_run()
    assert supervisor.asks[1:] == [AskCalls(2, "read", int(INIT), 3)]
    grants.granted(grant(1, 1))
    grants.granted(grant(2, 3))
    await let_run()
    assert done(tasks) == 4


async def test_priorities_are_asked_for_apart_and_served_apart(
    grants: Grants, supervisor: Supervisor
) -> None:
    urgent, others = takers(grants, 1, INIT), takers(grants, 2, ROUTE)
    await let_run()
    assert [(ask.priority, ask.count) for ask in supervisor.asks] == [(INIT, 1), (ROUTE, 2)]
    grants.granted(grant(2, 2))
    await let_run()
    assert (done(urgent), done(others)) == (0, 2)
    await end(urgent)


async def test_grants_for_calls_that_were_given_up_go_back(
    grants: Grants, supervisor: Supervisor
) -> None:
    tasks = takers(grants, 3)
    await let_run()
    await end(tasks[:2])
    grants.granted(grant(1, 3))
    await let_run()
    assert (done(tasks), supervisor.returned) == (1, 2)


async def test_a_grant_that_comes_together_with_the_cancellation_goes_back(
    grants: Grants, supervisor: Supervisor
) -> None:
    (task,) = takers(grants, 1)
    await let_run()
    grants.granted(grant(1, 1))
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
    grants.granted(grant(1, 1))
    await let_run()
    assert (done(waiting), supervisor.returned) == (1, 0)


async def test_calls_given_up_before_they_were_asked_for_leave_nobody_stuck(
    grants: Grants, supervisor: Supervisor
) -> None:
    (given_up,) = takers(grants, 1)
    await asyncio.sleep(0)
    await end([given_up])
    await let_run()
    waiting = takers(grants, 1)
    await let_run()
    assert sum(ask.count for ask in supervisor.asks) >= 1
    grants.granted(grant(supervisor.asks[-1].number, 1))
    await let_run()
    assert done(waiting) == 1


async def test_a_grant_that_comes_too_late_is_not_used_but_returned_and_asked_for_again(
    grants: Grants, supervisor: Supervisor
) -> None:
    tasks = takers(grants, 2)
    await let_run()
    grants.granted(grant(1, 2, age=GOOD_FOR + 0.1))
    await let_run()
    assert (done(tasks), supervisor.returned) == (0, 2)
    assert [ask.count for ask in supervisor.asks] == [2, 2]
    grants.granted(grant(2, 2))
    await let_run()
    assert (done(tasks), supervisor.made) == (2, 2)


async def test_a_used_grant_is_reported(grants: Grants, supervisor: Supervisor) -> None:
    tasks = takers(grants, 3)
    await let_run()
    grants.granted(grant(1, 3))
    await let_run()
    assert (done(tasks), supervisor.made) == (3, 3)


async def test_calls_that_follow_each_other_do_not_pay_an_answer_each(
    supervisor: Supervisor,
) -> None:
    grants = serving(supervisor)
    for _ in range(100):
        await grants.take("read", INIT)
    assert len(supervisor.asks) <= 100 / 8 + 5


async def test_one_call_alone_asks_for_nothing_ahead(
    grants: Grants, supervisor: Supervisor
) -> None:
    tasks = takers(grants, 1)
    await let_run()
    assert [ask.ahead for ask in supervisor.asks] == [0]
    await end(tasks)


async def hot(supervisor: Supervisor) -> Grants:
    """A purse with calls in it that were granted ahead."""
    grants = serving(supervisor)
    while supervisor.granted == supervisor.made + supervisor.returned:
        await grants.take("read", INIT)
        await let_run()
    return grants


async def test_what_was_granted_ahead_and_not_used_goes_back_soon(supervisor: Supervisor) -> None:
    await hot(supervisor)
    await until(lambda: supervisor.made + supervisor.returned == supervisor.granted)
    assert supervisor.returned > 0


@pytest.mark.parametrize("is_own", [True, False])
async def test_when_the_cloud_refuses_what_is_unused_goes_back_at_once(
    supervisor: Supervisor, is_own: bool
) -> None:
    grants = await hot(supervisor)
    if is_own:
        grants.throttled("read", None, 0.0)
    else:
        grants.shut(CallsShut("read"))
    assert supervisor.returned > 0
    assert supervisor.made + supervisor.returned == supervisor.granted


async def test_a_class_that_is_shut_leaves_other_classes_alone(supervisor: Supervisor) -> None:
    grants = await hot(supervisor)
    grants.shut(CallsShut("write"))
    assert supervisor.returned == 0


async def test_calls_granted_ahead_are_not_used_after_their_time(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants = await hot(supervisor)
    later = time.monotonic() + GOOD_FOR + 0.1
    monkeypatch.setattr("workers.grants.time.monotonic", lambda: later)
    asked = len(supervisor.asks)
    tasks = takers(grants, 1)
    await asyncio.sleep(0)
    await let_run(1)
    assert len(supervisor.asks) == asked + 1
    await end(tasks)


async def test_without_a_supervisor_no_call_is_made(grants: Grants) -> None:
    tasks = takers(grants, 2)
    await let_run(50)
    assert done(tasks) == 0
    await end(tasks)


async def test_throttling_is_told(grants: Grants, supervisor: Supervisor) -> None:
    grants.throttled("read", 3.0, 123.0)
    assert supervisor.told == [CloudThrottled("read", 3.0, 123.0)]


moves = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("grant"), st.integers(1, 4)),
        st.tuples(st.just("late"), st.integers(1, 4)),
        st.tuples(st.just("shut"), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
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
    grants, tasks, granted = Grants(supervisor.send), list["asyncio.Task[float]"](), 0
    owed: dict[int, int] = {}
    ahead: dict[int, int] = {}

    def give(most: int, age: float = 0.0) -> None:
        """A part of the oldest ask; what is welcome ahead comes with the last part."""
        nonlocal granted
        for ask in supervisor.asks:
            owed.setdefault(ask.number, ask.count)
            ahead.setdefault(ask.number, ask.ahead)
        number = next((number for number, count in owed.items() if count), None)
        if number is not None:
            count = min(most, owed[number])
            owed[number] -= count
            count += 0 if owed[number] else ahead[number]
            granted += count
            grants.granted(grant(number, count, age))

    for move, value in history:
        match move:
            case "take":
                tasks += takers(grants, value)
            case "grant":
                give(value)
            case "late":
                give(value, age=GOOD_FOR + 1.0)
            case "shut":
                grants.shut(CallsShut("read"))
            case "cancel" if value < len(tasks):
                tasks[value].cancel()
        await let_run()
    for _ in range(100):
        give(99)
        await let_run()
    grants.shut(CallsShut("read"))
    assert all(task.done() for task in tasks)
    assert supervisor.made + supervisor.returned == granted
    assert supervisor.made >= done(tasks)
