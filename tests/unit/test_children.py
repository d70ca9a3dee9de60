"""What becomes of workers that cannot be spawned or refuse, and of a change of their number."""

import asyncio
import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ccm.decide.children import Life, WorkerState
from ccm.errors import ExitCode
from ccm.settings import Settings
from ccm.supervisor import children as module
from ccm.supervisor import shards as shards_module
from ccm.supervisor.child import Child, WorkerProcess
from ccm.supervisor.children import Children, Hooks
from ccm.supervisor.shards import Shards
from tests.support.waiting import until

from .children_world import Spawns, handle

pytestmark = pytest.mark.virtual_time


def new_children(
    path: Path, spawns: Spawns, refused: Callable[[Child], None] = lambda _: None
) -> Children:
    def ignore(*_: object) -> None: ...

    hooks = Hooks(ignore, ignore, ignore, ignore, refused, lambda _: Settings())
    children = Children(path / "bus", Settings(), cast(Any, None), spawns.start, "")
    children.bind(hooks)
    return children


def started(
    path: Path, spawns: Spawns, refused: Callable[[Child], None] = lambda _: None
) -> tuple[Children, Child, WorkerProcess]:
    """All children, the only one of them, and its process."""
    children = new_children(path, spawns, refused)
    children.add({"node-0": "node"})
    [child] = children
    assert child.current
    return children, child, child.current


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM])
async def test_a_worker_that_cannot_be_spawned_is_tried_again(
    short_dir: Path, spawns: Spawns, number: int
) -> None:
    spawns.failures = [OSError(number, os.strerror(number)) for _ in range(4)]
    children = new_children(short_dir, spawns)
    children.add({"node-0": "node"})
    child = children.get("node-0")
    assert child
    assert child.life.state is WorkerState.BACKOFF
    await until(lambda: child.life.state is WorkerState.STARTING)
    assert (spawns.count, child.life.deaths) == (1, 4)


async def refuse(child: Child) -> None:
    """Its process ends because of its configuration."""
    process = child.current
    assert process
    process.faults = ["--cloud-config: it cannot be read"]
    handle(process).end(ExitCode.CONFIGURATION)
    await until(lambda: child.current is not process)


async def test_a_refusal_counts_for_the_supervisor_while_no_worker_was_ever_up(
    short_dir: Path, spawns: Spawns
) -> None:
    refused: list[str] = []
    _, child, _ = started(short_dir, spawns, lambda child: refused.append(child.name))
    await refuse(child)
    assert (refused, child.life.state) == (["node-0"], WorkerState.FAILED)


async def test_a_worker_that_is_down_is_reported_with_its_faults(
    short_dir: Path, spawns: Spawns
) -> None:
    children = new_children(short_dir, spawns)
    children.add({"node-0": "node", "service": "service", "route": "route"})
    node, service, route = children
    for child in (node, service):
        assert child.current
        children.on_hello(child, child.current)
    assert children.down() == {"route": "it is starting, deaths in a row: 0"}
    await refuse(node)
    service.life, route.life = replace(service.life, deaths=2), Life(WorkerState.SKIPPED)
    assert children.down() == {
        "node-0": "--cloud-config: it cannot be read",
        "service": "it is syncing, deaths in a row: 2",  # it has not been up for long
    }
    children.kill_all()
    assert children.down() == {}


@pytest.mark.parametrize("before", [WorkerState.SYNCING, WorkerState.STANDBY, WorkerState.RUNNING])
async def test_a_refusal_once_a_worker_was_up_is_a_failure_with_back_off(
    short_dir: Path, spawns: Spawns, before: WorkerState, caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[str] = []
    children = new_children(short_dir, spawns, lambda child: refused.append(child.name))
    children.add({"node-0": "node", "service": "service"})
    child, other = children
    assert child.current
    children.on_hello(child, child.current)
    child.life = Life(before)
    for worker in (child, other):
        await refuse(worker)
    assert worker.last_faults == ["--cloud-config: it cannot be read"]
    assert caplog.messages.count("worker refused to start") == 2
    for times in (2, 3):
        await until(lambda: child.current)
        await refuse(child)
        assert (child.life.state, child.life.deaths) == (WorkerState.BACKOFF, times)
    assert child.describe(0.0)["faults"] == ["--cloud-config: it cannot be read"]
    await until(lambda: child.current and other.current)
    children.on_hello(child, child.current)
    assert (refused, child.last_faults, child.life.state) == ([], [], WorkerState.SYNCING)


async def test_a_successor_that_cannot_be_spawned_leaves_the_worker_as_it_is(
    short_dir: Path, spawns: Spawns
) -> None:
    children, child, _ = started(short_dir, spawns)
    child.life = Life(WorkerState.RUNNING)
    spawns.failures = [OSError(errno.EMFILE, "too many open files")]
    assert "goes on as it is" in children.restart(child)
    assert child.successor is None


async def test_a_start_has_a_deadline_whatever_the_worker_says(
    short_dir: Path, spawns: Spawns, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append(number))
    children, child, process = started(short_dir, spawns)
    limit = module.STARTUP_SILENCE_FACTOR * Settings().worker_silence_limit
    process.started_at = time.monotonic() - (limit - 5.0)
    children._check_silence(child, process)
    assert ended == []
    process.started_at -= 5.0
    children._check_silence(child, process)
    assert ended == [signal.SIGABRT, signal.SIGCONT]


async def test_a_change_of_shards_that_is_given_up_leaves_no_key_without_a_worker(
    short_dir: Path, spawns: Spawns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "SCALE_TIMEOUT", 0.05)
    children = new_children(short_dir, spawns)
    children.add({"node-0": "node", "node-1": "node"})
    for child in children:
        assert child.current
        child.current.said_hello = child.current.is_synced = True
        child.life = Life(WorkerState.RUNNING)
    informer = SimpleNamespace(is_caught_up=lambda _: True, reassign=lambda *_: None)
    shards = Shards(2, children, cast(Any, informer), lambda _: None)
    assert "there are still 2" in await shards.scale(1)
    old = children.get("node-1")
    assert old
    assert old.life.state is WorkerState.DRAINING
    assert not old.is_leaving


async def test_a_worker_that_is_scaled_away_finishes_its_keys_whoever_asks_for_a_restart(
    short_dir: Path, spawns: Spawns
) -> None:
    children, child, process = started(short_dir, spawns)
    process.said_hello = True
    children.retire(child)
    assert "node-0 is scaled away" in children.restart(child)
    assert (handle(process).done, child.successor) == ([], None)


async def test_a_joining_worker_that_starts_again_may_act_once_it_owns_its_keys(
    short_dir: Path, spawns: Spawns
) -> None:
    """It is in back-off as the move of the keys ends."""
    children, _, _ = started(short_dir, spawns)
    asked: list[str] = []

    def is_caught_up(worker: str) -> bool:
        asked.append(worker)
        return is_moved

    informer = SimpleNamespace(is_caught_up=is_caught_up, reassign=lambda *_: None)
    shards = Shards(1, children, cast(Any, informer), lambda _: None)
    is_moved = False
    scaling = asyncio.create_task(shards.scale(2))
    await until(lambda: children.get("node-1"))
    joining = children.get("node-1")
    assert joining
    assert [child.is_joining for child in children] == [False, True]
    assert joining.current
    joining.current.is_synced = True
    await until(lambda: asked)  # the keys move now
    joining.current, joining.life = None, Life(WorkerState.BACKOFF)
    is_moved = True
    assert await scaling == "2 node workers instead of 1"
    assert not any(child.is_joining for child in children)
