"""Which workers the supervisor replaces, and what follows the end of a process."""

import asyncio
import logging
import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ccm.bus.in_flight import InFlightJournal
from ccm.decide.children import RENEWAL_INTERVAL, WorkerEvent, WorkerState
from ccm.errors import ExitCode
from ccm.settings import Settings
from ccm.supervisor.child import GROWTH_SHOWN
from ccm.supervisor.children import (
    CHECK_INTERVAL,
    KILL_DELAY,
    ORDERLY_EXITS,
    STARTUP_SILENCE_FACTOR,
)
from tests.support.waiting import until

from .children_world import WORKING, Spawns, World, handle, said

pytestmark = pytest.mark.virtual_time

LIMIT = Settings().worker_silence_limit


# Workers that are replaced.


async def test_a_supervisor_that_was_stopped_blames_no_worker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspend of the host, or SIGSTOP: it heard no worker, and the workers had no time either."""
    kills: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *kill: kills.append(kill))
    up, starting = world.start("node-0", WorkerState.RUNNING), world.start("route")
    running = asyncio.create_task(world.children.run())
    await asyncio.sleep(1.2 * CHECK_INTERVAL)
    assert up.current
    assert starting.current
    for stopped in (14.0, 60.0):
        world.children.checked_at -= stopped
        for process in (up.current, starting.current):
            process.heard_at -= stopped
            process.started_at -= stopped
        await asyncio.sleep(2 * CHECK_INTERVAL)
    assert kills == []
    await asyncio.sleep(LIMIT)
    assert {pid for pid, _ in kills} == {up.current.handle.pid}
    running.cancel()


async def test_a_worker_that_is_silent_writes_its_stacks_and_is_killed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *kill: kills.append(kill))
    now = asyncio.get_running_loop().time
    began = now()
    silent, other, starting = (
        world.start("node-0", WorkerState.RUNNING),
        world.start("service", WorkerState.RUNNING),
        world.start("route"),
    )
    assert round(world.children.checked_at - began) == 0
    running = asyncio.create_task(world.children.run())
    assert other.current
    await asyncio.sleep(0.5)
    for second in range(1, int(LIMIT)):
        other.current.heard_at = now()
        await asyncio.sleep(1.0)
        assert round(world.children.checked_at - began) == second
    assert kills == []
    other.current.heard_at = now()
    await asyncio.sleep(2 * CHECK_INTERVAL)
    [pid] = {pid for pid, _ in kills}
    assert silent.current
    assert pid == silent.current.handle.pid
    assert [number for _, number in kills] == [signal.SIGABRT, signal.SIGCONT]
    assert handle(silent.current).done == []
    await asyncio.sleep(KILL_DELAY)
    assert handle(silent.current).done == ["kill"]
    assert len(kills) == 2  # not once more meanwhile
    kills.clear()
    while not kills and now() - began < 2 * STARTUP_SILENCE_FACTOR * LIMIT:
        other.current.heard_at = silent.current.heard_at = now()
        await asyncio.sleep(0.1)
    assert now() - began == pytest.approx(STARTUP_SILENCE_FACTOR * LIMIT, abs=2 * CHECK_INTERVAL)
    assert starting.current
    assert {pid for pid, _ in kills} == {starting.current.handle.pid}
    running.cancel()


async def checked(world: World) -> None:
    """One pass over all workers."""
    running = asyncio.create_task(world.children.run())
    await asyncio.sleep(1.5 * CHECK_INTERVAL)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(
    ("limit", "size", "is_replaced"),
    [(100, 101, True), (100, 100, False), (100, None, False), (0, 101, False)],
)
async def test_a_worker_that_grew_too_large_is_replaced_once(
    short_dir: Path,
    spawns: Spawns,
    limit: int,
    size: int | None,
    is_replaced: bool,
) -> None:
    world = World(short_dir, spawns, replace(Settings(), worker_memory_limit=limit))
    child, gone = world.start(state=WorkerState.RUNNING), world.start("service")
    gone.current = None
    assert child.current
    child.current.report = {} if size is None else {"rss_bytes": size}
    await checked(world)
    assert bool(child.successor) == is_replaced
    assert spawns.count == 2 + is_replaced


async def test_a_worker_that_grows_again_is_replaced_once_a_minute(
    short_dir: Path, spawns: Spawns
) -> None:
    """As when the limit is below what every worker needs."""
    world = World(short_dir, spawns, replace(Settings(), worker_memory_limit=1))
    child = world.start(state=WorkerState.RUNNING)
    assert child.current
    child.current.report = {"rss_bytes": 2}
    for waited, is_replaced in ((0.0, True), (0.0, False), (RENEWAL_INTERVAL, True)):
        child.successor, child.renewed_at = None, child.renewed_at - waited
        await checked(world)
        assert bool(child.successor) == is_replaced
    assert child.describe(time.monotonic())["grew"] == "0 MiB of memory, more than 0"
    assert child.describe(time.monotonic() + GROWTH_SHOWN)["grew"] == ""


async def test_one_byte_is_too_much_without_a_first_report(short_dir: Path, spawns: Spawns) -> None:
    """A worker that has reported no size yet has none that is too large."""
    world = World(short_dir, spawns, replace(Settings(), worker_memory_limit=1))
    child = world.start(state=WorkerState.RUNNING)
    assert child.current
    for size, is_replaced in ((None, False), (1, False), (2, True)):
        child.current.report = {} if size is None else {"rss_bytes": size}
        await checked(world)
        assert bool(child.successor) == is_replaced


@pytest.mark.parametrize("joining", [False, True])
@pytest.mark.parametrize("state", [WorkerState.SYNCING, *WORKING])
async def test_a_worker_that_may_run_more_controllers_is_replaced(
    world: World, state: WorkerState, joining: bool
) -> None:
    child = world.start(state=state)
    gone = world.start("service", state)
    gone.current, child.is_joining = None, joining
    await checked(world)
    assert child.successor is None
    world.of_controller["node"] = replace(Settings(), controllers=("cloud-node",))
    await checked(world)
    assert bool(child.successor) == (state in WORKING and not joining)
    assert (handle(child.current).done, gone.successor) == ([], None)


# Ends.


@pytest.mark.parametrize(
    ("code", "state", "deaths", "starts"),
    [
        (ExitCode.NOT_NEEDED, WorkerState.SKIPPED, 0, 1),
        (ExitCode.CONFIGURATION, WorkerState.FAILED, 0, 1),
        (ExitCode.OK, WorkerState.STARTING, 1, 2),
        (1, WorkerState.STARTING, 1, 2),
        (-signal.SIGKILL, WorkerState.STARTING, 1, 2),
    ],
)
async def test_what_follows_the_end_of_a_process(
    world: World, code: int, state: WorkerState, deaths: int, starts: int
) -> None:
    child = world.start()
    process = child.current
    assert process
    process.faults = ["it says why"]
    handle(process).end(code)
    await until(lambda: child.current is not process and world.spawns.count == starts)
    assert (child.life.state, child.life.deaths) == (state, deaths)
    assert world.spawns.specs[-1].journal_path.endswith(f"node-0.{starts}.journal")
    assert child.last_faults == ["it says why"]
    assert ("gone", process.ident) in world.reported
    assert (("refused", "node-0") in world.reported) == (code == ExitCode.CONFIGURATION)


async def test_a_drained_process_is_followed_by_another(world: World) -> None:
    """As when a change of shards was given up."""
    child, now = world.start(state=WorkerState.RUNNING), asyncio.get_running_loop().time
    child.life, began = replace(child.life, deaths=9), now()
    world.children.transition(child, WorkerEvent.DRAIN_SENT)
    handle(child.current).end(ExitCode.OK)
    await until(partial(world.has_started, 2))
    assert (child.life.state, child.life.deaths) == (WorkerState.STARTING, 9)
    assert now() - began < 1.0


async def test_a_start_that_was_due_is_left_out_once_it_is_not_wanted(world: World) -> None:
    started, leaving = world.start("node-0"), world.start("node-1")
    for child in (started, leaving):
        child.life = replace(child.life, deaths=3)
        handle(child.current).end(1)
    await until(lambda: not started.current and not leaving.current)
    world.children.restart(started)
    world.children.retire(leaving)
    await asyncio.sleep(1.0)
    assert world.spawns.count == 3


async def test_an_end_that_cannot_be_handled_is_handled_later(
    short_dir: Path, spawns: Spawns
) -> None:
    world, errors = World(short_dir, spawns), [OSError("no memory")]
    child = world.start()

    def gone(_: str) -> None:
        if errors:
            raise errors.pop()

    world.children.bind(replace(world.children._hooks, gone=gone))
    handle(child.current).end(1)
    await until(partial(world.has_started, 2))


async def test_a_refusal_without_a_word_has_a_reason_all_the_same(world: World) -> None:
    child = world.start()
    handle(child.current).end(ExitCode.CONFIGURATION)
    await until(lambda: child.life.state is WorkerState.FAILED)
    assert child.last_faults == ["worker node-0 refused to start"]


async def test_a_death_without_a_word_keeps_the_faults_of_before(world: World) -> None:
    child = world.start()
    child.last_faults = ["of before"]
    handle(child.current).end(1)
    await until(lambda: world.spawns.count == 2)
    assert child.last_faults == ["of before"]


@pytest.mark.parametrize("code", [1, -signal.SIGALRM, *ORDERLY_EXITS])
async def test_a_death_counts_against_what_was_in_flight(
    world: World, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An orderly end does not, nor one whose permission ran out."""
    caplog.set_level(logging.WARNING)
    child = world.start(state=WorkerState.RUNNING)
    process = child.current
    assert process
    InFlightJournal(process.journal_path).take("key")
    handle(process).end(code)
    await until(lambda: not process.journal_path.exists())
    assert [*world.children.quarantine.suspicions("node")] == (["key"] if code == 1 else [])
    reasons = {
        1: ["worker died"],
        -signal.SIGALRM: ["worker exited in order: its leadership deadline passed"],
    }
    assert [text for text in said(caplog) if text.startswith("worker ")][:1] == reasons.get(
        code, ["worker refused to start"] if code == ExitCode.CONFIGURATION else []
    )
    fenced = [record for record in caplog.records if "leadership deadline" in record.message]
    assert [(one.levelno, hasattr(one, "exit_code")) for one in fenced] == [
        (logging.WARNING, False) for _ in fenced
    ]


async def test_the_key_that_ended_a_worker_again_is_quarantined(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    child = world.start(state=WorkerState.RUNNING)
    for starts in (2, 3):
        process = child.current
        assert process
        InFlightJournal(process.journal_path).take("key")
        handle(process).end(1)
        await until(partial(world.has_started, starts))
    assert [*world.children.quarantine.quarantined("node")] == ["key"]
    [record] = [record for record in caplog.records if record.message.startswith("quarantined")]
    assert vars(record)["key"] == "key"
    died = [vars(record) for record in caplog.records if record.message == "worker died"]
    assert [(one["worker"], one["pid"], one["exit_code"]) for one in died] == [
        ("node-0", process.pid, 1) for process in world.spawns.processes[:2]
    ]
    assert world.spawns.specs[-1].suspicions["key"].is_quarantined


async def test_a_change_of_state_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    child = world.start(state=WorkerState.STANDBY)
    caplog.clear()
    for deaths, messages in ((0, []), (1, ["worker changed state"]), (1, ["worker changed state"])):
        child.life = replace(child.life, deaths=deaths)
        world.children.transition(child, WorkerEvent.STARTED_LEADING)
        assert caplog.messages == messages  # none of a start, in which all is as usual
        if not deaths:
            child.life = replace(child.life, state=WorkerState.STANDBY)
    assert child.life.state is WorkerState.RUNNING
    assert child.life.since > 0
