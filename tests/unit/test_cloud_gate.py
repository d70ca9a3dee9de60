"""The gate that every cloud call passes."""

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from ccm import metrics
from ccm.bus.frames import Granted, GrantRequest, Message
from ccm.cloud.gate import (
    MOST_REMAINING,
    THROTTLED_RETRY,
    SupervisorGrants,
    WorkerGate,
    call,
    invoke,
    noted_writes,
)
from ccm.counters import MOST, OTHER
from ccm.decide.budget import Priority
from ccm.decide.rate_law import LONGEST_RETRY_AFTER
from ccm.errors import CloudError, Denied, NotLeading, Refused, RetryAfter, Throttled
from tests.support.cloud import GRANTED, GrantSource
from tests.support.deadlines import timeout
from tests.support.waiting import let_run, until


async def answer() -> str:
    return "answer"


def raising(error: BaseException) -> Callable[[], str]:
    def call() -> str:
        raise error

    return call


async def called(
    gate: WorkerGate,
    call: Callable[[], str],
    is_blocking: bool,
    operation: str = "List",
    is_write: bool = False,
) -> str:
    """The result of a cloud call that a provider makes from its thread or in the loop."""
    if is_blocking:
        return await asyncio.to_thread(
            gate.call_blocking, operation, "read", call, is_write=is_write
        )
    return await gate.call(operation, "read", lambda: asyncio.to_thread(call), is_write=is_write)


async def test_a_call_spends_a_grant_and_is_counted(gate: WorkerGate, grants: GrantSource) -> None:
    assert await gate.call("List", "read", answer, is_write=False) == "answer"
    assert grants.spent == [("read", Priority.REFRESH)]
    assert gate.calls == {("List", "ok"): 1}


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_the_writes_that_the_cloud_took_are_noted(
    gate: WorkerGate, is_blocking: bool
) -> None:
    with noted_writes() as writes:
        await called(gate, str, is_blocking, "CreateSession", is_write=False)
        await called(gate, str, is_blocking, "GetOrCreateTags", is_write=True)
        with suppress(Refused):
            await called(gate, raising(Refused("no")), is_blocking, "Delete", is_write=True)
    await called(gate, str, is_blocking, "CreateRoute", is_write=True)
    assert writes == ["GetOrCreateTags"]


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_a_call_is_under_way_until_its_answer(gate: WorkerGate, is_blocking: bool) -> None:
    seen: list[int] = []

    def look() -> str:
        seen.append(gate.under_way)
        raise CloudError("it fails")

    with pytest.raises(CloudError):
        await called(gate, look, is_blocking)
    assert (seen, gate.under_way) == ([1], 0)


@pytest.mark.virtual_time
async def test_a_call_that_gives_no_answer_ends_at_its_deadline(grants: GrantSource) -> None:
    gate = WorkerGate(grants, timeout=0.02, check=lambda: None)
    with pytest.raises(CloudError, match="List: no answer within 20ms"):
        await gate.call("List", "read", asyncio.Event().wait, is_write=False)
    assert gate.calls == {("List", "error"): 1}


@pytest.mark.virtual_time
async def test_waiting_for_a_grant_is_not_part_of_the_deadline(grants: GrantSource) -> None:
    gate = WorkerGate(grants, timeout=0.02, check=lambda: None)
    grants.open.clear()
    calling = asyncio.create_task(gate.call("List", "read", answer, is_write=False))
    asyncio.get_running_loop().call_later(0.05, grants.open.set)
    assert await calling == "answer"


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_a_call_that_gets_no_grant_is_given_up_and_tried_again(
    grants: GrantSource, is_blocking: bool
) -> None:
    gate = WorkerGate(grants, timeout=timeout(), check=lambda: None, grant_wait=0.02)
    grants.open.clear()
    with pytest.raises(Throttled, match="List: no call of class 'read' free in 20ms"):
        await called(gate, lambda: "answer", is_blocking)
    assert gate.calls == {}


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
    calling = asyncio.create_task(gate.call("List", "read", asyncio.Event().wait, is_write=False))
    await let_run()
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    assert gate.calls == {("List", "cancelled"): 1}


@pytest.mark.parametrize("seconds", [7.0, None])
@pytest.mark.parametrize("is_blocking", [False, True])
async def test_a_throttling_answer_is_reported_to_all_workers(
    gate: WorkerGate, grants: GrantSource, seconds: float | None, is_blocking: bool
) -> None:
    with pytest.raises(Throttled):
        await called(gate, raising(Throttled("slow down", seconds)), is_blocking)
    await let_run()
    assert grants.throttles == [("read", seconds, GRANTED)]


async def test_the_remaining_quota_of_an_answer_is_reported_to_all_workers(
    gate: WorkerGate, grants: GrantSource
) -> None:
    gate.report_remaining("read", 3, 60.0)
    assert grants.left == [("read", 3, 60.0)]


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf])
async def test_invalid_numbers_of_an_answer_are_not_reported(
    gate: WorkerGate, grants: GrantSource, seconds: float
) -> None:
    """Else the supervisor would reckon with them."""
    gate.report_remaining("read", 3, seconds)
    assert grants.left == []
    gate.report_remaining("read", 10**400, -5.0)
    gate.report_remaining("read", -3, 1e300)
    assert grants.left == [("read", MOST_REMAINING, 0.0), ("read", 0, 1e300)]


async def test_a_providers_method_is_called_at_the_priority_of_its_controller(
    gate: WorkerGate, grants: GrantSource
) -> None:
    def plain(number: int) -> int:
        return gate.call_blocking("List", "read", lambda: number, is_write=False)

    async def written_async(number: int) -> int:
        return await gate.call("List", "read", lambda: asyncio.sleep(0, number), is_write=False)

    plain_result: int = await call(Priority.VOLUME, plain, 1)
    async_result: int = await call(Priority.LB_DELETE, written_async, 2)
    assert (plain_result, async_result) == (1, 2)
    assert await gate.call("List", "read", answer, is_write=False) == "answer"  # of no controller
    assert grants.spent == [
        ("read", priority) for priority in (Priority.VOLUME, Priority.LB_DELETE, Priority.REFRESH)
    ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Throttled("slow down", 7.0), RetryAfter("slow down", 7.0)),
        (Throttled("slow down", None), RetryAfter("slow down", THROTTLED_RETRY)),
        (Throttled("in years", 1e9), RetryAfter("in years", LONGEST_RETRY_AFTER)),
        (RetryAfter("at work", 7.0), RetryAfter("at work", 7.0)),
        (RetryAfter("at work for years", 1e9), RetryAfter("at work for years", 300.0)),
        (Refused("no"), Refused("no")),
        (NotLeading("not now"), NotLeading("not now")),
        (ValueError("a bug"), CloudError("the provider failed: ValueError('a bug')")),
    ],
    ids=repr,
)
async def test_a_controller_sees_errors_by_what_it_has_to_do(
    error: Exception, expected: Exception
) -> None:
    with pytest.raises(type(expected)) as raised:
        await call(Priority.ROUTE, raising(error))
    assert type(raised.value) is type(expected)
    assert str(raised.value) == str(expected)
    assert getattr(raised.value, "seconds", None) == getattr(expected, "seconds", None)


@pytest.mark.parametrize("is_blocking", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        StopIteration("x"),
        SystemExit(0),
        SystemExit(77),
        asyncio.CancelledError("x"),
        RecursionError("x"),
        TimeoutError("x"),
    ],
    ids=repr,
)
async def test_whatever_a_provider_raises_is_the_failure_of_that_call(
    error: BaseException, is_blocking: bool
) -> None:
    async def method() -> str:
        return raising(error)()

    name = "call raised " if is_blocking else "method raised "
    raised = name if isinstance(error, SystemExit | asyncio.CancelledError) else ""
    with pytest.raises(CloudError, match=f"the provider failed: .*{raised}{type(error).__name__}"):
        await call(Priority.ROUTE, raising(error) if is_blocking else method)
    if raised and is_blocking:
        with pytest.raises(CloudError, match=r"functools\.partial.* raised "):
            await call(Priority.ROUTE, partial(raising(error)))
    task = asyncio.current_task()
    assert task
    assert not task.cancelling()


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_a_method_that_does_not_return_has_failed_and_writes_nothing_later(
    gate: WorkerGate, is_blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm.cloud.gate.METHOD_TIMEOUT", 0.02)
    released, end = threading.Event(), Future[str]()

    def hanging() -> None:
        released.wait()
        try:
            end.set_result(gate.call_blocking("Create", "write", str, is_write=True))
        except CloudError as error:
            end.set_exception(error)

    async def deaf() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await gate.call("Create", "write", answer, is_write=True)

    left = "Create: its reconcile has ended already"
    with pytest.raises(
        CloudError, match="hanging .* did not return in 20ms" if is_blocking else left
    ):
        await call(Priority.ROUTE, hanging if is_blocking else deaf)
    if is_blocking:
        released.set()
        with pytest.raises(CloudError, match=left):
            await asyncio.wrap_future(end)
    assert gate.calls == {}


async def test_a_task_that_is_cancelled_ends_in_whatever_method_it_is() -> None:
    methods: tuple[Callable[..., Any], ...] = (threading.Event().wait, asyncio.Event().wait)
    for method in methods:
        task = asyncio.create_task(call(Priority.ROUTE, method))
        await let_run()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_plain_provider_method_does_not_block_the_loop() -> None:
    released = threading.Event()
    is_daemon: bool = await invoke(lambda: threading.current_thread().daemon)
    assert is_daemon, "one that hangs would keep the process from ending"
    waiting = asyncio.create_task(invoke(released.wait, timeout()))
    await let_run()
    released.set()
    assert await waiting is True


async def test_a_process_that_may_not_act_any_more_makes_no_call(grants: GrantSource) -> None:
    """Its grant came, but while it waited for that the lease went to another."""

    def check() -> None:
        raise NotLeading("it leads no more")

    calls: list[str] = []

    async def call() -> None:
        calls.append("made")

    gate = WorkerGate(grants, timeout=timeout(), check=check)
    with pytest.raises(NotLeading):
        await gate.call("Create", "write", call, is_write=True)
    with pytest.raises(NotLeading):
        await asyncio.to_thread(
            gate.call_blocking, "Create", "write", lambda: calls.append("made"), is_write=True
        )
    assert (calls, gate.under_way) == ([], 0)


async def test_names_of_calls_are_counted_up_to_a_number(gate: WorkerGate) -> None:
    for number in range(2 * MOST):
        await gate.call(f"Get{number}", "read", answer, is_write=False)
    assert (len(gate.calls), gate.calls[OTHER, OTHER]) == (MOST + 1, MOST)


@pytest.mark.virtual_time
async def test_a_calls_duration_is_counted_with_its_result(grants: GrantSource) -> None:
    gate = WorkerGate(grants, timeout=5.0, check=lambda: None)
    for seconds in (3.0, 4.0):
        await gate.call("List", "read", partial(asyncio.sleep, seconds), is_write=False)
    with pytest.raises(CloudError):
        await gate.call("List", "read", asyncio.Event().wait, is_write=False)
    durations = gate.counters.export()[metrics.CLOUD_CALL_SECONDS.name]
    assert [(labels, round(numbers[0], 3)) for labels, numbers in durations] == [
        (["List", "ok"], 7.0),
        (["List", "error"], 5.0),
    ]
    assert gate.calls == {("List", "ok"): 2, ("List", "error"): 1}


async def test_a_call_is_made_for_its_owner_and_the_next_for_no_one() -> None:
    sent: list[Any] = []

    def send(message: Message) -> bool:
        sent.append(message)
        return True

    grants = SupervisorGrants(send)
    gate = WorkerGate(grants, timeout=timeout(), check=lambda: None)

    async def provided(operation: str) -> str:
        return await gate.call(operation, "read", answer, is_write=False)

    async def answered(asking: Awaitable[str]) -> str:
        task, before = asyncio.ensure_future(asking), len(sent)
        await until(lambda: len(sent) > before, "it asks")
        grants.on_granted(Granted(sent[-1].number, time.monotonic()))
        return await task

    for_a_service: Awaitable[str] = call(Priority.ROUTE, provided, "List", owner="a Service")
    for_nobody: Awaitable[str] = call(Priority.ROUTE, provided, "List")
    for asking in (for_a_service, for_nobody, provided("List")):
        assert await answered(asking) == "answer"
    assert sent == [
        GrantRequest(1, "read", int(Priority.ROUTE), "a Service"),
        GrantRequest(2, "read", int(Priority.ROUTE), ""),
        GrantRequest(3, "read", int(Priority.REFRESH), ""),
    ]
