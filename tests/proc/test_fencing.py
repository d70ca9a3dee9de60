"""Processes that are stopped and go on later: two replicas never write at once."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from tests.kube.cluster import RealCluster
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes
from tests.proc.replicas import (
    DEFAULT,
    SHORT,
    Replica,
    Stage,
    all_gone,
    churn,
    until,
)
from tests.proc.running import Cloud, is_alive, long, wait_for

real = pytest.mark.real

NODES = 40
GAP = 0.01  # seconds between two nodes that need work
BUSY = ("--kube-api-qps=20", "--kube-api-burst=1")  # less than comes in: work is always in hand
GRACE = (SHORT.lease - SHORT.renew) / 2  # what workers.main gives a worker to live on

Victims = Callable[[Replica], list[int]]


def supervisor_only(replica: Replica) -> list[int]:
    return [replica.process.pid]


def whole_group(replica: Replica) -> list[int]:
    return [*replica.worker_pids(), replica.process.pid]


def waiting(replica: Replica) -> float:
    """Seconds that the oldest key in the hands of its workers has been there."""
    return max(float(worker["queue"]["oldest_seconds"]) for worker in replica.workers().values())


def has_successor_at_work(replica: Replica, old: int) -> bool:
    """Whether a worker that is not the old one has initialised a node; one look at the status."""
    [worker] = replica.workers().values() or [{}]
    return worker.get("pid") not in (None, old) and bool(worker.get("initialised"))


async def stop_the_leader(
    here: Stage, api: Kube, cloud: Cloud, witness: Witness, victims: Victims, seconds: float
) -> str:
    """Stop the leader for a while, with work in hand; the figures, once it is shown to be safe."""
    names = await add_machines_and_nodes(api, cloud.url, NODES)
    with Replica("a", here, *BUSY) as a:
        await until("a leads", a.may_act)
        with Replica("b", here) as b:
            await until("b stands by", lambda: b.is_in("standby"))
            await witness.until_initialised(NODES, 30)
            workers = a.worker_pids()
            async with churn(api, names, GAP):
                await asyncio.sleep(1.5)  # until a sign of life tells of this work
                await until("work piles up", lambda: waiting(a) > 0.3)
                began = time.time()
                a.freeze(victims(a))
                await asyncio.sleep(seconds)
                assert b.is_in("running")
                a.thaw()
                await until("a ends", lambda: a.process.poll() is not None)
                await asyncio.sleep(1.0)
            assert a.process.returncode == 1
            await all_gone(workers, 1.0)
    history = here.history()
    assert list(history.strays()) == []
    assert [term.user for term in history.terms()] == [a.user, b.user]
    before, after = history.of(a), history.of(b)
    assert len(before) > 2 * NODES
    assert len(after) > 100
    last, taken = max(done.answered for done in before), history.terms()[1].taken
    return (
        f"stopped for {seconds:g} s: {len(before)} writes, the last {last - began:+.3f} s after the"
        f" stop; the other led {taken - began:.2f} s after it and wrote {len(after)}"
    )


@real
async def test_a_leader_that_is_stopped_writes_nothing_once_another_leads(
    cluster: RealCluster, cloud: Cloud, tmp_path: Path, api: Kube, witness: Witness
) -> None:
    here = Stage(cluster, tmp_path, cloud.config, SHORT, "ccm-stopped")
    print(await stop_the_leader(here, api, cloud, witness, whole_group, 7.0))


@long
@real
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victims", [whole_group, supervisor_only], ids=["group", "parent"])
async def test_the_same_for_a_minute_with_the_default_durations(
    cluster: RealCluster,
    cloud: Cloud,
    tmp_path: Path,
    api: Kube,
    witness: Witness,
    victims: Victims,
) -> None:
    name = f"ccm-minute-{victims.__name__.replace('_', '-')}"
    here = Stage(cluster, tmp_path, cloud.config, DEFAULT, name)
    print(victims.__name__, await stop_the_leader(here, api, cloud, witness, victims, 60.0))


@real
async def test_a_worker_that_is_stopped_is_replaced_and_writes_nothing_late(
    cluster: RealCluster, cloud: Cloud, tmp_path: Path, api: Kube, witness: Witness
) -> None:
    """Its supervisor leads all the while, so the lease stays; the old one never writes again."""
    here = Stage(cluster, tmp_path, cloud.config, SHORT, "ccm-worker")
    names = await add_machines_and_nodes(api, cloud.url, NODES)
    with Replica("a", here, "--worker-silence-limit=30s") as a:
        await witness.until_initialised(NODES, 30)
        [worker] = a.worker_pids()
        async with churn(api, names, GAP):
            await asyncio.sleep(1.0)
            stopped = time.time()
            a.freeze([worker])
            await asyncio.sleep(SHORT.renew + GRACE + 0.5)
            resumed = time.time()
            a.thaw()
            await all_gone([worker], 0.5)
            await until("another works", lambda: has_successor_at_work(a, worker))
            await asyncio.sleep(1.0)
        assert a.end() == 0
    history = here.history()
    assert list(history.strays()) == []
    [term] = history.terms()
    came = [done.came for done in history.of(a)]
    assert not [at for at in came if stopped + 0.5 < at < resumed]
    first_again = min(at for at in came if at > resumed)
    print(f"worker stopped: its successor wrote {first_again - resumed:.2f} s after the SIGCONT")
    assert first_again - resumed > 0.1  # a new process, and not the old one
    assert max(came) > resumed + 1.0
    assert term.last_written > resumed


@real
async def test_a_worker_stops_by_itself_while_its_supervisor_hangs(
    cluster: RealCluster, cloud: Cloud, tmp_path: Path, api: Kube, witness: Witness
) -> None:
    """Its queue is long, and a rate limit lets requests wait between their check and the wire."""
    here = Stage(cluster, tmp_path, cloud.config, SHORT, "ccm-hang")
    count, slowly = 200, ("--kube-api-qps=40", "--kube-api-burst=1", "--shutdown-timeout=2s")
    await add_machines_and_nodes(api, cloud.url, count)
    with Replica("a", here, *slowly) as a:
        await until("a leads", a.may_act)
        with Replica("b", here) as b:
            await until("b stands by", lambda: b.is_in("standby"))
            await witness.until_initialised(1, 30)
            [worker] = a.worker_pids()
            a.freeze(supervisor_only(a))
            await until("the worker ends", lambda: not is_alive(worker), SHORT.lease + 1.0)
            ended = time.time()
            assert witness.initialised() < count
            await witness.until_initialised(count, 30)
            a.thaw()
            await until("the supervisor ends", lambda: a.process.poll() is not None)
            assert a.process.returncode == 1
    history = here.history()
    assert list(history.strays()) == []
    first, second = history.terms()
    renewed = max(done.came for done in history.lease_writes if done.user == a.user)
    last = max(done.came for done in history.of(a))
    print(f"supervisor hangs: the last write came {last - renewed:.3f} s after the last renewal, ")
    print(
        f"the worker ended {ended - renewed:.2f} s and another led {second.taken - renewed:.2f} s"
    )
    assert (first.user, second.user) == (a.user, b.user)
    assert renewed + SHORT.renew - 0.5 < last <= renewed + SHORT.renew + 0.1
    assert ended <= renewed + SHORT.renew + GRACE + 0.5


@real
async def test_no_worker_outlives_a_killed_supervisor(
    cluster: RealCluster, cloud: Cloud, tmp_path: Path, api: Kube
) -> None:
    here = Stage(cluster, tmp_path, cloud.config, SHORT, "ccm-orphans")
    with Replica("a", here, "--node-workers=3") as a:
        await until("all run", lambda: a.is_in("running"))
        workers = a.worker_pids()
        os.kill(workers[0], signal.SIGSTOP)
        a.process.kill()
        gone_after = await all_gone(workers, 1.0)
    assert len(workers) == 3
    print(f"workers of a killed supervisor gone after {gone_after:.3f} s, one of them was stopped")


ACTS_WITHOUT_LOOKING = """
import asyncio, os, time
from ccm.bus.sockets import Permission

async def main():
    permission = Permission()
    permission.outlive_by(0.3)
    permission.renew(time.monotonic() + 0.5)
    permission.renew(0.0)  # taking it back must not disarm the end

asyncio.run(main())
while True:
    os.write(1, b"%.6f\\n" % time.monotonic())
    time.sleep(0.0001)
"""


@pytest.mark.parametrize("is_stopped", [False, True], ids=["hanging", "stopped"])
def test_a_process_that_never_checks_ends_before_its_next_instruction(
    is_stopped: bool, tmp_path: Path
) -> None:
    """The kernel's timer covers the moment between a check and what was checked for."""
    acts = tmp_path / "acts"
    with acts.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", ACTS_WITHOUT_LOOKING], stdout=output)
    try:
        wait_for("it acts", lambda: acts.stat().st_size > 100)
        if is_stopped:
            process.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            time.sleep(1.5)
            process.send_signal(signal.SIGCONT)
        assert process.wait(5.0) == -signal.SIGALRM
    finally:
        process.kill()
    first, *_, last = (float(line) for line in acts.read_text().splitlines())
    assert first < last < first + 0.9
    if is_stopped:
        assert last < stopped + 0.05
