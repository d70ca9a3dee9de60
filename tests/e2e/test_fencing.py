"""Processes that are stopped and go on later: two replicas never write at once."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.deadlines import timeout
from tests.support.environment import Environment
from tests.support.replicas import (
    DEFAULT,
    Durations,
    Election,
    Replica,
    all_gone,
    churn,
)
from tests.support.running import is_alive, long, started_at, until, until_none, wait_for

real = pytest.mark.real

COUNT = 40
GAP = 0.1  # seconds between two nodes that need work
BUSY = ("--kube-api-qps=10", "--kube-api-burst=1")  # less than comes in: work is always in hand


def supervisor_only(replica: Replica) -> list[int]:
    return [replica.process.pid]


def whole_group(replica: Replica) -> list[int]:
    return [*replica.pids().values(), replica.process.pid]


def oldest_key_age(replica: Replica) -> float:
    """Seconds that the oldest key has been in a worker's queue."""
    return max(float(worker["queue"]["oldest_seconds"]) for worker in replica.workers().values())


def has_successor_at_work(replica: Replica, old: int) -> bool:
    """Whether a worker that is not the old one has initialized a node, by one status."""
    [worker] = replica.workers().values() or [{}]
    return worker.get("pid") not in (None, old) and bool(worker.get("initialized"))


@real
@pytest.mark.parametrize(
    ("durations", "victims", "seconds"),
    [
        pytest.param(Durations.short, whole_group, 0.0, id="short"),
        pytest.param(lambda: DEFAULT, whole_group, 60.0, id="group", marks=long),
        pytest.param(lambda: DEFAULT, supervisor_only, 60.0, id="parent", marks=long),
    ],
)
async def test_a_leader_that_is_stopped_writes_nothing_once_another_leads(
    env: Environment,
    durations: Callable[[], Durations],
    victims: Callable[[Replica], list[int]],
    seconds: float,
    request: pytest.FixtureRequest,
) -> None:
    """It is stopped until another works, and for so many seconds, with work in hand."""
    election = Election(env, f"ccm-stopped-{request.node.callspec.id}", durations())
    names = await env.add_nodes(COUNT)
    with Replica("a", election, *BUSY) as a:
        await until("a leads", a.is_leading)
        with Replica("b", election) as b:
            await until("b stands by", lambda: b.is_in("standby"))
            await env.nodes.until_initialized(COUNT)
            workers = a.pids().values()
            async with churn(env.api, names, GAP):
                await until_written(election, a, 2 * COUNT + 1)
                await until("work piles up", lambda: oldest_key_age(a) > 0.3)
                began = time.time()
                a.stop(victims(a))
                await asyncio.sleep(seconds)  # the fault, not a wait
                await until("b works", lambda: b.is_in("running"))
                a.resume()
                assert await asyncio.to_thread(a.exit_code) == 1
                await until_written(election, b, 101)
            await all_gone(workers)
    history = election.history()
    assert list(history.strays()) == []
    assert [term.user for term in history.terms()] == [a.user, b.user]
    before, after = history.of(a), history.of(b)
    last, taken = max(write.answered for write in before), history.terms()[1].taken
    print(
        f"{len(before)} writes, the last {last - began:+.3f} s after the"
        f" stop; the other led {taken - began:.2f} s after it and wrote {len(after)}"
    )


async def until_written(
    election: Election, replica: Replica, writes: int, since: float = 0
) -> None:
    """Until the API server has got so many writes of its workers."""

    async def missing() -> Sequence[int]:
        written = await asyncio.to_thread(lambda: election.history().of(replica))
        return range(sum(write.received > since for write in written), writes)

    await until_none("to be written", missing)


@real
async def test_a_worker_that_is_stopped_is_replaced_and_writes_nothing_late(
    env: Environment,
) -> None:
    """Its supervisor leads all the while, so the lease stays; the old one never writes again."""
    election = Election(env, "ccm-worker")
    durations = election.durations
    names = await env.add_nodes(COUNT)
    with Replica("a", election, f"--worker-silence-limit={10 * durations.lease:g}s") as a:
        await env.nodes.until_initialized(COUNT)
        [worker] = a.pids().values()
        async with churn(env.api, names, GAP):
            await until_written(election, a, 2 * COUNT + 1)
            stopped = time.time()
            a.stop([worker])
            # The fault, not a wait: until it may not write any more.
            await asyncio.sleep(durations.renew + durations.grace + 0.5)
            resumed = time.time()
            a.resume()
            await all_gone([worker])
            await until("another works", lambda: has_successor_at_work(a, worker))
            [successor] = a.pids().values()
            began = started_at(successor)
            await until_written(election, a, COUNT, since=began)
        assert a.end() == 0
    history = election.history()
    assert list(history.strays()) == []
    [term] = history.terms()
    received = [write.received for write in history.of(a)]
    assert not [at for at in received if stopped + timeout(0.25) < at < resumed]
    first_again = min(at for at in received if at > resumed)
    print(
        f"worker stopped: its successor began {began - resumed:.2f} s after the SIGCONT"
        f" and wrote {first_again - began:.2f} s later"
    )
    assert resumed - 0.01 < began < first_again  # made once the old one has ended; a tick is 10 ms
    assert term.last_written > resumed


@real
async def test_a_worker_stops_by_itself_while_its_supervisor_hangs(env: Environment) -> None:
    """Its queue is long, and a rate limit lets requests wait between their check and the wire."""
    election, count = Election(env, "ccm-hang"), 200
    durations = election.durations
    rate = 2 * count / (4 * durations.lease)  # so that there is work for four times as long
    slowly = (f"--kube-api-qps={rate:g}", "--kube-api-burst=1", "--shutdown-timeout=2s")
    await env.add_nodes(count)
    with Replica("a", election, *slowly) as a:
        await until("a leads", a.is_leading)
        with Replica("b", election) as b:
            await until("b stands by", lambda: b.is_in("standby"))
            await env.nodes.until_initialized(1)
            [worker] = a.pids().values()
            a.stop(supervisor_only(a))
            await until("the worker ends", lambda: not is_alive(worker))
            ended = time.time()
            assert env.nodes.initialized() < count
            await env.nodes.until_initialized(count)
            a.resume()
            assert await asyncio.to_thread(a.exit_code) == 1
    history = election.history()
    assert list(history.strays()) == []
    first, second = history.terms()
    renewals = (write.received for write in history.lease_writes if write.user == a.user)
    *_, before, renewed = sorted(renewals)
    last = max(write.received for write in history.of(a))
    print(
        f"supervisor hangs: the last write came {last - renewed:.3f} s after the last renewal, "
        f"the worker ended {ended - renewed:.2f} s and another led {second.taken - renewed:.2f} s"
    )
    assert (first.user, second.user) == (a.user, b.user)
    # The supervisor may have stopped between its last renewal and telling the worker of it.
    assert before + durations.renew - timeout(0.25) < last
    assert last <= renewed + durations.renew + timeout(0.05)
    assert ended <= renewed + durations.renew + durations.grace + timeout(0.25)


@real
async def test_no_worker_outlives_a_killed_supervisor(env: Environment) -> None:
    with env.supervisor("--node-workers=3") as supervisor:
        workers = [worker["pid"] for worker in supervisor.wait_running().values()]
        os.kill(workers[0], signal.SIGSTOP)
        supervisor.process.kill()
        gone_after = await all_gone(workers)
    assert len(workers) == 3
    print(f"workers of a killed supervisor gone after {gone_after:.3f} s, one of them was stopped")


WRITES_UNCHECKED = """
import asyncio, os, time
from ccm.bus.sockets import Permission

async def main():
    permission = Permission()
    permission.outlive_by({grace})
    permission.renew(time.monotonic() + {seconds})
    permission.renew(0.0)  # taking it back must not disarm the end

end = time.monotonic() + {most}
asyncio.run(main())
while time.monotonic() < end:  # if nothing ends it before
    os.write(1, b"%.6f\\n" % time.monotonic())
    time.sleep(0.0001)
"""


@pytest.mark.parametrize("is_stopped", [False, True], ids=["hanging", "stopped"])
def test_a_process_that_never_checks_ends_before_its_next_instruction(
    is_stopped: bool, tmp_path: Path
) -> None:
    """The kernel's timer covers the moment between a check and what was checked for."""
    written, seconds, grace = tmp_path / "written", timeout(0.25), timeout(0.15)
    most = 4 * (seconds + grace)
    code = WRITES_UNCHECKED.format(seconds=seconds, grace=grace, most=most)
    with written.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=output)
    try:
        wait_for("it writes", lambda: written.stat().st_size > 100)
        if is_stopped:
            process.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            time.sleep(2 * (seconds + grace))  # the fault, not a wait
            process.send_signal(signal.SIGCONT)
        assert process.wait(timeout()) == -signal.SIGALRM
    finally:
        process.kill()
    first, *_, last = (float(line) for line in written.read_text().splitlines())
    assert first < last < first + seconds + grace + 0.1
    if is_stopped:
        assert last < stopped + 0.05
