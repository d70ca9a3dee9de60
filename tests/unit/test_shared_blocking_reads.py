"""Blocking reads that are shared by those who ask for the same one before it leaves."""

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest

from ccm.bus.frames import Granted, GrantRequest, Message
from ccm.cloud.gate import SupervisorGrants, WorkerGate, noted_writes, with_priority
from ccm.cloud.shared_read import LINGER, SharedBlockingReads
from ccm.decide.budget import Priority
from ccm.errors import Denied, Throttled
from tests.support.cloud import GrantSource
from tests.support.deadlines import timeout
from tests.support.waiting import until

from .test_cloud_gate import raising


class Key(str):
    """Counts who asked for it: each look among the waiting reads hashes it."""

    asked = 0

    def __hash__(self) -> int:
        self.asked += 1
        return super().__hash__()


async def read_shared(
    gate: WorkerGate, grants: GrantSource, read: Callable[[], str], number: int = 3
) -> list[str | BaseException]:
    """What threads get that ask for one read before it leaves."""
    reads, key = SharedBlockingReads(gate), Key("all")
    grants.open.clear()
    asking = [
        asyncio.create_task(asyncio.to_thread(reads.call_blocking, key, "List", "read", read))
        for _ in range(number)
    ]
    await until(lambda: key.asked >= number, "all have asked")
    grants.open.set()
    return await asyncio.gather(*asking, return_exceptions=True)


async def test_reads_that_wait_together_are_one_and_the_next_is_another(
    gate: WorkerGate, grants: GrantSource
) -> None:
    numbers = count(1)
    assert await read_shared(gate, grants, lambda: f"{next(numbers)}") == ["1"] * 3
    assert await read_shared(gate, grants, lambda: f"{next(numbers)}") == ["2"] * 3
    assert len(grants.spent) == 2


async def test_a_shared_read_is_asked_for_the_cluster_at_its_priority() -> None:
    sent: list[Any] = []

    def send(message: Message) -> bool:
        sent.append(message)
        return True

    grants = SupervisorGrants(send)
    gate = WorkerGate(grants, timeout=timeout(), check=lambda: None)
    reads = SharedBlockingReads(gate)
    with with_priority(Priority.LB_ENSURE, "someone"), noted_writes() as writes:
        ask = asyncio.to_thread(reads.call_blocking, "all", "List", "read", lambda: "answer")
        asking = asyncio.create_task(ask)
    await until(lambda: sent, "it asks")
    assert sent == [GrantRequest(1, "read", int(Priority.LB_ENSURE))]
    grants.on_granted(Granted(1, time.monotonic()))
    assert await asking == "answer"
    assert (gate.calls, writes) == ({("List", "ok"): 1}, [])


async def test_a_shared_read_that_fails_fails_for_all(
    gate: WorkerGate, grants: GrantSource
) -> None:
    error = Denied("no")
    assert await read_shared(gate, grants, raising(error)) == [error] * 3


async def test_a_shared_read_that_never_left_keeps_no_one_waiting(grants: GrantSource) -> None:
    gate = WorkerGate(grants, timeout=timeout(), check=lambda: None, grant_wait=0.02)
    reads = SharedBlockingReads(gate)
    grants.open.clear()
    with pytest.raises(Throttled):
        await asyncio.to_thread(reads.call_blocking, "all", "List", "read", lambda: "late")
    grants.open.set()
    assert (
        await asyncio.to_thread(reads.call_blocking, "all", "List", "read", lambda: "now") == "now"
    )


async def test_reads_of_other_priorities_wait_for_themselves(
    gate: WorkerGate, grants: GrantSource
) -> None:
    reads, key = SharedBlockingReads(gate), Key("all")
    grants.open.clear()
    asking = []
    for priority in (Priority.LB_ENSURE, Priority.REFRESH):
        with with_priority(priority):
            asking.append(
                asyncio.create_task(
                    asyncio.to_thread(reads.call_blocking, key, "List", "read", lambda: "answer")
                )
            )
    await until(lambda: key.asked >= 2, "both have asked")
    grants.open.set()
    assert await asyncio.gather(*asking) == ["answer"] * 2
    assert sorted(priority for _, priority in grants.spent) == [
        Priority.LB_ENSURE,
        Priority.REFRESH,
    ]


async def test_only_who_reads_beside_others_waits_for_more(
    gate: WorkerGate, grants: GrantSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whoever failed does not count as one who reads."""
    lingered: list[float] = []
    monkeypatch.setattr("ccm.cloud.shared_read.time.sleep", lingered.append)
    reads = SharedBlockingReads(gate)

    def ask(key: str, read: Callable[[], str] = lambda: "answer") -> "asyncio.Task[str]":
        call = asyncio.to_thread(reads.call_blocking, key, "List", "read", read)
        return asyncio.create_task(call)

    def has_lingered(times: int) -> bool:
        return len(lingered) == times

    with pytest.raises(Denied):
        await ask("alone", raising(Denied("no")))
    grants.open.clear()
    asking = []
    for number in (2, 3, 4):
        asking.append(ask(f"{number}"))
        await until(partial(has_lingered, number), "it reads")
    grants.open.set()
    assert await asyncio.gather(*asking) == ["answer"] * 3
    assert await ask("alone") == "answer"
    assert lingered == [0, 0, LINGER, LINGER, 0]


async def test_a_read_that_fails_under_way_leaves_the_next_one_alone(
    gate: WorkerGate, grants: GrantSource
) -> None:
    reads, key = SharedBlockingReads(gate), Key("all")
    has_left, may_end = threading.Event(), threading.Event()

    def fail() -> str:
        has_left.set()
        may_end.wait()
        raise Denied("no")

    def ask(read: Callable[[], str]) -> "asyncio.Task[str]":
        call = asyncio.to_thread(reads.call_blocking, key, "List", "read", read)
        return asyncio.create_task(call)

    first = ask(fail)
    await until(has_left.is_set, "it has left")
    grants.open.clear()
    before = key.asked
    later = [ask(lambda: "answer")]
    await until(lambda: key.asked > before, "the next one has asked")
    may_end.set()
    with pytest.raises(Denied):
        await first
    before = key.asked
    later.append(ask(lambda: "another"))
    await until(lambda: key.asked > before, "one more has asked")
    grants.open.set()
    assert await asyncio.gather(*later) == ["answer"] * 2
