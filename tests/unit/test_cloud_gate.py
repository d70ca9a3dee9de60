"""The gate that every cloud call passes."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from ccm.cloud.gate import WorkerGate, invoke, spending
from ccm.decide.budget import Priority
from ccm.errors import CloudError, Denied, NoPermit, Refused, RetryAfter, Throttled

from .waiting import let_run

GRANTED = 123.0  # when the purse says that every call was granted


class GrantSource:
    """Gives every call its grant, unless it is shut; keeps what was spent and what was told."""

    def __init__(self) -> None:
        self.spent: list[tuple[str, Priority]] = []
        self.told: list[tuple[str, float | None, float]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def take(self, budget: str, priority: Priority) -> float:
        await self.open.wait()
        self.spent.append((budget, priority))
        return GRANTED

    def throttled(self, budget: str, seconds: float | None, granted: float) -> None:
        self.told.append((budget, seconds, granted))


@pytest.fixture
async def purse() -> GrantSource:
    return GrantSource()


@pytest.fixture
async def gate(purse: GrantSource) -> WorkerGate:
    return WorkerGate(purse, timeout=5.0, check=lambda: None)


async def answer() -> str:
    return "answer"


def raising(error: BaseException) -> Callable[[], str]:
    def call() -> str:
        raise error

    return call


async def called(gate: WorkerGate, call: Callable[[], str], is_blocking: bool) -> str:
    """The result of a cloud call that a provider makes from its thread or in the loop."""
    if is_blocking:
        return await asyncio.to_thread(gate.call_blocking, "List", "read", call)
    return await gate.call("List", "read", lambda: asyncio.to_thread(call))


async def test_a_call_spends_one_grant_and_is_counted(gate: WorkerGate, purse: GrantSource) -> None:
    assert await gate.call("List", "read", answer) == "answer"
    assert purse.spent == [("read", Priority.REFRESH)]
    assert gate.calls == {("List", "ok"): 1}


async def test_no_grant_no_call(gate: WorkerGate, purse: GrantSource) -> None:
    purse.open.clear()
    calling = asyncio.create_task(gate.call("List", "read", answer))
    await let_run(20)
    assert (calling.done(), gate.calls) == (False, {})
    purse.open.set()
    assert await calling == "answer"


async def test_a_call_that_gives_no_answer_ends_at_its_deadline(purse: GrantSource) -> None:
    gate = WorkerGate(purse, timeout=0.02, check=lambda: None)
    with pytest.raises(CloudError, match="List: no answer within 20ms"):
        await gate.call("List", "read", asyncio.Event().wait)
    assert gate.calls == {("List", "error"): 1}


async def test_waiting_for_a_grant_is_not_part_of_the_deadline(purse: GrantSource) -> None:
    gate = WorkerGate(purse, timeout=0.02, check=lambda: None)
    purse.open.clear()
    calling = asyncio.create_task(gate.call("List", "read", answer))
    asyncio.get_running_loop().call_later(0.05, purse.open.set)
    assert await calling == "answer"


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (CloudError("x"), "error"),
        (ValueError("x"), "error"),
        (RetryAfter("x", 1.0), "error"),
        (Denied("x"), "denied"),
        (Refused("x"), "refused"),
        (Throttled("x", 2.0), "throttled"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.parametrize("is_blocking", [False, True])
async def test_an_error_goes_through_and_is_counted_by_what_it_means(
    gate: WorkerGate, error: Exception, result: str, is_blocking: bool
) -> None:
    with pytest.raises(type(error)) as raised:
        await called(gate, raising(error), is_blocking)
    assert raised.value is error
    assert gate.calls == {("List", result): 1}


async def test_a_call_that_was_given_up_is_counted(gate: WorkerGate) -> None:
    calling = asyncio.create_task(gate.call("List", "read", asyncio.Event().wait))
    await let_run()
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    assert gate.calls == {("List", "cancelled"): 1}


@pytest.mark.parametrize("seconds", [7.0, None])
@pytest.mark.parametrize("is_blocking", [False, True])
async def test_a_throttling_answer_is_told_to_everybody(
    gate: WorkerGate, purse: GrantSource, seconds: float | None, is_blocking: bool
) -> None:
    with pytest.raises(Throttled):
        await called(gate, raising(Throttled("slow down", seconds)), is_blocking)
    await let_run()
    assert purse.told == [("read", seconds, GRANTED)]


async def test_a_call_goes_with_the_priority_of_its_work(
    gate: WorkerGate, purse: GrantSource
) -> None:
    with spending(Priority.ROUTE):
        await gate.call("Create", "write", answer)
        with spending(Priority.NODE_INIT):
            await gate.call("List", "read", answer)
        await gate.call("Create", "write", answer)
    await gate.call("Refresh", "read", answer)
    assert [priority for _, priority in purse.spent] == [
        Priority.ROUTE,
        Priority.NODE_INIT,
        Priority.ROUTE,
        Priority.REFRESH,
    ]


async def test_the_priority_reaches_calls_in_threads(gate: WorkerGate, purse: GrantSource) -> None:
    def provider_method() -> str:
        return gate.call_blocking("List", "read", lambda: "answer")

    with spending(Priority.LB_DELETE):
        assert await invoke(provider_method) == "answer"
    assert purse.spent == [("read", Priority.LB_DELETE)]
    assert gate.calls == {("List", "ok"): 1}


async def test_two_works_at_the_same_time_keep_their_own_priority(
    gate: WorkerGate, purse: GrantSource
) -> None:
    async def work(priority: Priority) -> None:
        with spending(priority):
            await let_run()
            await gate.call(priority.name, "read", answer)

    purse.open.clear()
    works = [asyncio.create_task(work(priority)) for priority in Priority]
    await let_run(20)
    purse.open.set()
    await asyncio.gather(*works)
    assert sorted(purse.spent) == [("read", priority) for priority in Priority]


async def test_a_provider_method_may_be_async_or_plain() -> None:
    async def written_async(number: int) -> int:
        return number + 1

    def written_plain(number: int) -> int:
        return number + 1

    first: int = await invoke(written_async, 1)
    second: int = await invoke(written_plain, 1)
    assert (first, second) == (2, 2)


async def test_a_plain_provider_method_does_not_block_the_loop() -> None:
    released = threading.Event()
    waiting = asyncio.create_task(invoke(released.wait, 5.0))
    await let_run()
    released.set()
    assert await waiting is True


async def test_a_process_that_may_not_act_any_more_makes_no_call(purse: GrantSource) -> None:
    """Its grant came, but while it waited for that the lease went to another."""

    def check() -> None:
        raise NoPermit("it leads no more")

    calls: list[str] = []

    async def call() -> None:
        calls.append("made")

    gate = WorkerGate(purse, timeout=5.0, check=check)
    with pytest.raises(NoPermit):
        await gate.call("Create", "write", call)
    with pytest.raises(NoPermit):
        await asyncio.to_thread(gate.call_blocking, "Create", "write", lambda: calls.append("made"))
    assert calls == []
