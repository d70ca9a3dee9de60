"""Cloud-call grants in a worker: one request there, one grant back, for each call."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.bus.frames import CloudRemaining, CloudThrottled, Granted, GrantRequest
from ccm.cloud.gate import SupervisorGrants
from ccm.decide.budget import GRANT_TIMEOUT, Priority
from tests.support.context import FakePort
from tests.support.waiting import let_run, until

pytestmark = pytest.mark.virtual_time

INIT, ROUTE = Priority.NODE_INIT, Priority.ROUTE
Takers = list["asyncio.Task[float]"]


class Ends:
    """A worker's grants and the supervisor that they ask."""

    def __init__(self) -> None:
        self.port = FakePort()
        self.grants = SupervisorGrants(self.port.send)

    @property
    def requests(self) -> list[GrantRequest]:
        return [message for message in self.port.sent if isinstance(message, GrantRequest)]

    def take(self, count: int, priority: Priority = INIT) -> Takers:
        return [asyncio.create_task(self.grants.take("read", priority)) for _ in range(count)]

    def grant(self, number: int, age: float = 0.0) -> None:
        self.grants.on_granted(Granted(number, time.monotonic() - age))


@pytest.fixture
async def ends() -> Ends:
    return Ends()


def done(tasks: Takers) -> int:
    return sum(task.done() and not task.cancelled() for task in tasks)


async def end(tasks: Takers) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_each_call_is_requested_at_once_and_goes_with_its_own_grant(ends: Ends) -> None:
    init, route = ends.take(1, INIT), ends.take(1, ROUTE)
    await let_run()
    assert ends.port.sent == [GrantRequest(1, "read", INIT), GrantRequest(2, "read", ROUTE)]
    assert done(init + route) == 0
    ends.grant(2)
    await let_run()
    assert (done(init), done(route)) == (0, 1)
    assert await route[0] == pytest.approx(time.monotonic(), abs=1e-3)
    await end(init)


async def test_the_grant_of_a_call_that_was_given_up_lapses(ends: Ends) -> None:
    tasks = ends.take(3)
    await let_run()
    await end(tasks[:1])
    tasks[1].cancel()
    ends.grant(2)  # together with the cancellation
    ends.grant(1)
    ends.grant(99)  # which nobody requested
    await let_run()
    assert (done(tasks), len(ends.requests)) == (0, 3)
    assert not set(ends.grants._waiting) - {3}
    await end(tasks)


async def test_a_request_that_the_bus_does_not_take_is_sent_again() -> None:
    ends = Ends()
    port = FakePort(lambda _: len(port.sent) > 3)
    ends.grants = SupervisorGrants(port.send, retry_interval=0.001)
    tasks = ends.take(1)
    await until(lambda: len(port.sent) == 4)
    await asyncio.sleep(0.02)  # time in which it may not be sent once more
    assert port.sent == [GrantRequest(1, "read", INIT)] * 4
    ends.grant(1)
    await asyncio.gather(*tasks)


async def test_throttling_is_reported(ends: Ends) -> None:
    ends.grants.throttled("read", 3.0, 123.0)
    assert ends.port.sent == [CloudThrottled("read", 3.0, 123.0)]


async def test_what_the_cloud_has_left_is_reported(ends: Ends) -> None:
    ends.grants.remaining("read", 3, 60.0)
    assert ends.port.sent == [CloudRemaining("read", 3, 60.0)]


moves = st.lists(
    st.tuples(st.sampled_from(["take", "grant", "late", "cancel"]), st.integers(0, 9)),
    max_size=25,
)


@given(moves)
def test_every_call_has_a_grant_of_its_own_and_no_one_is_left_waiting(
    history: list[tuple[str, int]],
) -> None:
    asyncio.run(_history(history))


async def _history(history: list[tuple[str, int]]) -> None:
    ends, tasks, answered, granted = Ends(), Takers(), 0, 0
    for move, value in [*history, *[("grant", 0)] * 99]:
        match move:
            case "take":
                tasks += ends.take(value % 4)
            case "grant" | "late" if answered < len(ends.requests):
                is_late = move == "late"
                granted += not is_late
                ends.grant(ends.requests[answered].number, GRANT_TIMEOUT + 1.0 if is_late else 0.0)
                answered += 1
            case "cancel" if value < len(tasks):
                tasks[value].cancel()
        await let_run()
    assert all(task.done() for task in tasks)
    assert done(tasks) <= granted
    assert not ends.grants._waiting
