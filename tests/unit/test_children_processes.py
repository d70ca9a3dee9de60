"""What the supervisor does with a worker's processes: start, hand over, drain and kill."""

import asyncio
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ccm.bus.frames import WorkerSpec
from ccm.decide.children import Life, WorkerState
from ccm.errors import ExitCode
from ccm.settings import Settings
from ccm.supervisor.child import NotReplaced
from tests.support.waiting import let_run, until

from .children_world import SERVER, WORKING, Spawns, World, handle, said

pytestmark = pytest.mark.virtual_time

SHUTDOWN = Settings().shutdown_timeout


async def test_a_process_is_given_all_that_it_needs(world: World, short_dir: Path) -> None:
    world.of_controller["node"] = replace(Settings(), controllers=("cloud-node",))
    world.children.quarantine.record_death("node", ["a"], 0.0)
    world.children.add({"node-0": "node"}, is_joining=True)
    [child], [spec] = world.children, world.spawns.specs
    assert child.is_joining
    assert spec == WorkerSpec(
        name="node-0",
        ident=spec.ident,
        controller="node",
        bus_path=str(short_dir / "bus"),
        journal_path=str(short_dir / "node-0.1.journal"),
        supervisor_pid=os.getpid(),
        settings=world.of_controller["node"],
        server=SERVER,
        cluster_uid="cluster",
        suspicions=world.children.quarantine.suspicions("node"),
    )
    assert spec.suspicions
    name, _, secret = spec.ident.partition("-0.1-")
    assert (name, len(secret)) == ("node", 16)
    assert world.reported == [("admit", "node-0", spec.ident)]
    process = child.current
    assert process
    assert (process.ident, process.controllers) == (spec.ident, ("cloud-node",))
    assert str(process.journal_path) == spec.journal_path
    assert child.life.state is WorkerState.STARTING


# A hand-over: nothing of what is in flight is lost.


@pytest.mark.parametrize("state", WORKING)
async def test_a_restart_in_the_middle_of_work_drains_once_the_successor_has_everything(
    world: World, state: WorkerState
) -> None:
    child = world.start(state=state)
    old = child.current
    assert old
    assert "hands over" in world.children.restart(child)
    new = child.successor
    assert new
    assert new is not old
    assert "is being replaced already" in world.children.restart(child)
    world.children.on_hello(child, new)
    assert (child.life.state, new.said_hello) == (state, True)
    world.reported.clear()
    world.children.on_synced(child, new)
    assert world.reported == [("drain", old.ident, SHUTDOWN)]
    assert (handle(old).done, child.life.state) == ([], WorkerState.DRAINING)
    handle(old).end(ExitCode.OK)
    await until(lambda: child.current is new)
    assert (child.successor, child.life.state) == (None, WorkerState.STANDBY)
    assert (handle(old).done, handle(new).done) == (["join 0.5"], [])
    assert world.reported[1:] == [("gone", old.ident), ("permit", "node-0")]


@pytest.mark.parametrize(
    ("hello", "synced", "state"),
    [
        (False, False, WorkerState.STARTING),
        (True, False, WorkerState.SYNCING),
        (True, True, WorkerState.STANDBY),
    ],
)
async def test_a_successor_takes_over_as_far_as_it_is_when_the_worker_dies(
    world: World, hello: bool, synced: bool, state: WorkerState
) -> None:
    child = world.start(state=WorkerState.RUNNING)
    old, child.last_faults = child.current, ["of before"]
    world.children.restart(child)
    new = child.successor
    assert new
    new.said_hello, new.is_synced = hello, synced
    handle(old).end(-signal.SIGKILL)
    await until(lambda: child.current is new)
    assert (child.life.state, child.life.deaths, child.last_faults) == (state, 0, [])
    assert child.life.since > 0
    assert world.spawns.count == 2


@pytest.mark.parametrize("is_proof", [False, True])
async def test_a_successor_that_fails_leaves_the_worker_as_it_is(
    is_proof: bool, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    child = world.start(state=WorkerState.RUNNING)
    old = child.current
    world.children.restart(child)
    new = child.successor
    assert new
    new.faults = ["no such file"]
    new.proof = asyncio.get_running_loop().create_future() if is_proof else None
    handle(new).end(ExitCode.CONFIGURATION)
    await until(lambda: not child.successor)
    assert (child.current, child.life.state) == (old, WorkerState.RUNNING)
    assert (child.last_faults, world.spawns.count) == (["no such file"], 2)
    logged = [] if is_proof else ["successor failed; the worker goes on as it is"]
    assert said(caplog) == logged  # the reload reports why it fails


async def test_a_worker_that_cannot_hand_over_is_killed(world: World) -> None:
    child = world.start(state=WorkerState.SYNCING)
    assert "is restarted" in world.children.restart(child)
    assert (handle(child.current).done, child.successor) == (["kill"], None)


async def test_a_worker_that_does_not_run_is_started(world: World) -> None:
    child = world.start()
    child.current, child.life = None, Life(WorkerState.FAILED)
    assert world.children.restart(child) == "node-0 is started"
    assert (child.life.state, world.spawns.count) == (WorkerState.STARTING, 2)


async def test_a_worker_is_synced_with_its_snapshot(world: World) -> None:
    child = world.start()
    process = child.current
    assert process
    child.last_faults = ["of before"]
    assert not world.children.are_up()
    world.children.on_hello(child, process)
    assert (child.life.state, process.said_hello) == (WorkerState.SYNCING, True)
    assert (child.last_faults, process.is_synced) == ([], False)
    assert world.children.are_up()
    world.children.on_synced(child, process)
    assert (child.life.state, process.is_synced) == (WorkerState.STANDBY, True)
    assert world.reported == []


async def test_a_worker_is_down_until_it_has_been_up_for_the_steady_time(
    short_dir: Path, spawns: Spawns
) -> None:
    world = World(short_dir, spawns, replace(Settings(), worker_steady_time=5.0))
    child, now = world.start(), asyncio.get_running_loop().time()
    child.life = Life(WorkerState.RUNNING, now - 4.0, deaths=2)
    child.last_faults = ["no credentials", "no region"]
    assert world.children.down() == {"node-0": "no credentials; no region"}
    child.life = Life(WorkerState.RUNNING, now - 6.0, deaths=2)
    assert world.children.down() == {}
    handle(child.current).end(1)
    await until(partial(world.has_started, 2))
    assert child.life.deaths == 1, "the earlier ones are forgotten"


# A reload: the first new process proves the cloud's credentials for all.


@pytest.mark.parametrize(
    ("faults", "code", "why"),
    [
        pytest.param(None, None, None, id="they-work"),
        pytest.param(
            ["401", "since noon"],
            ExitCode.CONFIGURATION,
            NotReplaced("401; since noon", may_pass=False),
            id="refused",
        ),
        pytest.param(["503"], ExitCode.UNPROVEN, NotReplaced("503", may_pass=True), id="no-answer"),
        pytest.param(
            [], ExitCode.FAILED, NotReplaced("the new process died", may_pass=True), id="it-dies"
        ),
    ],
)
async def test_a_reload_replaces_all_workers_or_none(
    world: World, faults: list[str] | None, code: ExitCode | None, why: NotReplaced | None
) -> None:
    starting, leaving = world.start("route"), world.start("node-1", WorkerState.RUNNING)
    first, other = (world.start(name, WorkerState.RUNNING) for name in ("node-0", "service"))
    leaving.is_leaving = True
    reloading = asyncio.create_task(world.children.replace_all())
    await let_run()
    new = first.successor
    assert new
    assert [spec.proves for spec in world.spawns.specs] == [False] * 4 + [True]
    assert (other.successor, handle(starting.current).done) == (None, [])
    if faults is None:
        world.children.on_hello(first, new)
    else:
        new.faults = faults
        handle(new).end(code or ExitCode.OK)
    await until(reloading.done)
    assert reloading.result() == why
    assert first.successor is (None if why else new)
    assert bool(other.successor) == (not why)
    assert handle(starting.current).done == ([] if why else ["kill"])
    assert (leaving.successor, world.spawns.specs[-1].proves) == (None, bool(why))


async def test_a_reload_without_a_process_that_could_prove_it_replaces_no_one(
    world: World,
) -> None:
    first, other = (world.start(name, WorkerState.STANDBY) for name in ("node-0", "service"))
    world.spawns.failures = [OSError("too many open files")]
    failed = await world.children.replace_all()
    assert failed
    assert ("(too many open files)" in failed.why, failed.may_pass) == (True, True)
    assert (first.successor, other.successor) == (None, None)


async def test_a_reload_restarts_workers_that_have_nothing_to_hand_over(world: World) -> None:
    workers = world.start("node-0", WorkerState.SYNCING), world.start("service")
    assert await world.children.replace_all() is None
    assert [handle(child.current).done for child in workers] == [["kill"]] * 2


# The end of all of it, or of one worker.


async def test_a_worker_that_is_scaled_away_is_drained_and_forgotten(world: World) -> None:
    child, other = world.start("node-1", WorkerState.RUNNING), world.start("node-0")
    process = child.current
    assert process
    world.children.retire(child)
    assert world.reported == [("drain", process.ident, SHUTDOWN)]
    assert (child.life.state, child.is_leaving) == (WorkerState.DRAINING, True)
    assert [*world.children] == [child, other]
    handle(process).end(ExitCode.OK)
    await until(lambda: [*world.children] == [other])
    assert world.spawns.count == 2
    other.current = None
    for _ in range(2):
        world.children.retire(other)
        assert [*world.children] == []


async def test_a_process_that_has_not_said_hello_is_terminated_instead_of_drained(
    world: World,
) -> None:
    child = world.start()
    world.children.retire(child)
    assert (handle(child.current).done, world.reported) == (["terminate"], [])


async def test_a_stop_drains_all_processes_and_waits_for_their_ends(world: World) -> None:
    child, other = world.start("node-0", WorkerState.RUNNING), world.start("service")
    world.children.restart(child)
    old, new = child.processes()
    new.said_hello = True
    world.reported.clear()
    stopping = asyncio.create_task(world.children.stop_all(7.0))
    await let_run()
    assert world.reported == [("drain", old.ident, 7.0), ("drain", new.ident, 7.0)]
    assert handle(other.current).done == ["terminate"]
    assert other.current
    for process in (old, new, other.current):
        assert not stopping.done()
        handle(process).end(ExitCode.OK)
        await until(partial(world.is_gone, process))
    await stopping
    world.children.add({"route": "route"})
    assert world.spawns.count == 3
    assert not any("kill" in process.done for process in world.spawns.processes)


async def test_a_stop_kills_what_does_not_finish_in_time(world: World) -> None:
    child = world.start(state=WorkerState.RUNNING)
    stopping = asyncio.create_task(world.children.stop_all(7.0))
    await asyncio.sleep(7.5)
    assert handle(child.current).done == []
    await asyncio.sleep(1.0)
    assert handle(child.current).done == ["kill", "join 5"]
    await stopping


async def test_whoever_is_killed_is_not_started_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    child = world.start(state=WorkerState.RUNNING)
    process = child.current
    assert process
    world.children.kill_all()
    assert handle(process).done == ["kill", "join 5"]
    handle(process).end(-signal.SIGKILL)
    await until(lambda: not child.current)
    await let_run()
    assert world.spawns.count == 1
    assert "worker died" not in caplog.messages
