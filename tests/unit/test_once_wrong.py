"""What was wrong once; each of these failed before it was mended."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ccm.bus import control
from ccm.decide.children import STEADY_TIME, Life, WorkerEvent, WorkerState, next_life
from ccm.durations import format_duration, parse_duration
from ccm.errors import CloudError
from ccm.model.objects import Json
from ccm.model.projection import project
from ccm.supervisor.delivery import MAX_UNACKED_FRAMES
from tests.node.world import world
from tests.worlds.context import frame
from tests.worlds.nodes import addresses, node, tainted
from tests.worlds.waiting import let_run
from workers.node.plan import CannotPlan, prefer
from workers.queue import ReconcileLog, WorkQueue

from .delivery_world import World as Deliveries


def test_store_delete_inside_snapshot() -> None:
    from .test_worker_store import entry, filled

    store = filled()
    store.absorb(frame(1, entry("a", 1), epoch=2))
    store.absorb(frame(2, entry("b", 2), entry("a", 0, None), epoch=2, complete=True))
    assert store.names() == [("Node", "b")]


def test_store_wrote_after_newer_delta() -> None:
    from .test_worker_store import answer, entry, filled, value

    store = filled(entry("a", 1, "old"))
    store.absorb(frame(2, entry("a", 6, "theirs, newer")))
    store.wrote("Node", "a", answer(5, "mine, older"))
    assert store.get("Node", "a") == value("theirs, newer")


def test_store_wrote_during_snapshot() -> None:
    from .test_worker_store import answer, entry, filled, value

    store = filled(entry("a", 1, "old"))
    store.absorb(frame(1, entry("a", 1, "old"), epoch=2))
    store.wrote("Node", "a", answer(5, "mine"))
    store.absorb(frame(2, epoch=2, complete=True))
    assert store.get("Node", "a") == value("mine")


@pytest.mark.parametrize("answers", [None, [], {"node-1": "running"}, {"node-1": None}])
async def test_odd_answer_from_provider(answers: Any) -> None:
    async with world() as w:
        w.cluster.put(node(tainted))
        w.machines.describe = lambda nodes: answers  # type: ignore[method-assign, assignment]
        with pytest.raises(CloudError):
            await w.sync()


@pytest.mark.parametrize("s", [60.00001, 1e-8])
def test_duration_tiny(s: float) -> None:
    parse_duration(format_duration(s))


def test_projection_two_fields_of_entry() -> None:
    raw = {"c": [{"type": "Ready", "status": "True", "reason": "x"}]}
    paths = [("c", ("type", "Ready"), "status"), ("c", ("type", "Ready"), "reason")]
    assert project(raw, paths) == raw


def test_projection_mutates() -> None:
    raw = {"s": {"c": [{"type": "Ready"}]}}
    project(raw, [("s",), ("s", "c", ("type", "Ready"))])
    assert raw == {"s": {"c": [{"type": "Ready"}]}}


def test_log_wait_text_equals_failure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = ReconcileLog()
    log.failed("a", "x")
    log.waiting("b", "x")
    log.done("b", "done")
    assert "reconcile recovered" not in caplog.messages


def test_log_another_reason_is_no_recovery(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = ReconcileLog()
    log.failed("a", "x")
    log.failed("a", "y")
    assert "reconcile recovered" not in caplog.messages


async def test_control_answer_fails(short_dir: Path) -> None:
    async def answer(request: Json) -> Json:
        raise KeyError("bug")

    server = control.ControlServer(short_dir / "c.sock", answer)
    await server.start()
    try:
        assert "error" in await asyncio.to_thread(control.ask, short_dir / "c.sock", {})
    finally:
        server.close()


async def test_other_users_are_refused(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_peer_uid", lambda writer: 12345)

    async def answer(request: Json) -> Json:
        return {}

    server = control.ControlServer(short_dir / "c.sock", answer)
    await server.start()
    try:
        answered = await asyncio.to_thread(control.ask, short_dir / "c.sock", {"command": "stop"})
        assert "may ask" in answered["error"]
    finally:
        server.close()


def test_moved_back() -> None:
    world = Deliveries().listed()
    world.put("a", 1)
    world.settle()
    for n in range(MAX_UNACKED_FRAMES + 2):
        world.put("b", n)
    world.move("a")
    world.move()
    world.settle()
    assert world.known() == world.owned()


def test_own_before_begin() -> None:
    world = Deliveries()
    world.put("a", 1)
    world.move("b")
    assert not world.worker.in_transit


def test_standby_steady() -> None:
    life = Life(WorkerState.STANDBY, since=0.0, deaths=5)
    assert next_life(life, WorkerEvent.DIED, 10 * STEADY_TIME).deaths == 1


@pytest.mark.parametrize("state", [WorkerState.FAILED, WorkerState.SKIPPED])
def test_a_worker_that_is_started_again_by_command_is_starting(state: WorkerState) -> None:
    assert next_life(Life(state), WorkerEvent.STARTED, 1.0).state is WorkerState.STARTING


async def test_queue_lost_wakeup() -> None:
    queue = WorkQueue()
    a = asyncio.create_task(queue.get())
    await let_run()
    b = asyncio.create_task(queue.get())
    await let_run()
    queue.add("k")
    b.cancel()
    await let_run()
    done = a.done()
    a.cancel()
    assert done


def test_huge_octet() -> None:
    with pytest.raises(CannotPlan):
        prefer([], "1" * 5000 + ".0.0.0")


def test_v4_mapped() -> None:
    assert prefer(addresses("InternalIP 10.0.0.1"), "::ffff:10.0.0.1")


def test_isdigit() -> None:
    from ccm.http import HttpResponse
    from ccm.kube.client import _failure

    assert _failure(HttpResponse(429, "x", {b"retry-after": b"\xb2"}, b"{}")).retry_after is None


def test_log_surrogate() -> None:
    from ccm.log import _Line

    from .test_log import record

    assert _Line("p", as_json=True).format(record("x", path="\udc80"))
