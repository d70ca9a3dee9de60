"""The life of any worker: connect, take in its objects, reconcile key by key, beat, drain."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ccm import metrics
from ccm.background import start_task
from ccm.bus.frames import (
    Ack,
    Drain,
    Explain,
    Explained,
    Granted,
    Heartbeat,
    Hello,
    LogLevel,
    Message,
    Objects,
    Resync,
    Synced,
)
from ccm.bus.sockets import Permission
from ccm.cloud.gate import SupervisorGrants, WorkerGate
from ccm.counters import Counters, Numbers
from ccm.decide.backoff import Backoff
from ccm.errors import (
    CloudError,
    Contested,
    KubernetesError,
    NotLeading,
    Refused,
    RetryAfter,
    Unreachable,
)
from ccm.kube.events import Event
from ccm.log import set_verbosity
from ccm.model.objects import Json
from ccm.model.status import WorkerReport
from ccm.processes import open_files, open_files_limit, resident_bytes, thread_count
from workers.controller import Controller, ControllerContext, Result
from workers.queue import ReconcileLog
from workers.store import Gap

log = logging.getLogger(__name__)

HEARTBEAT_INTERVAL = 1.0  # seconds between two signs of life
PENDING_SHOWN = 20  # pending keys in a sign of life
NOT_LEADING_RETRY = 0.1  # seconds until a key that met the end of our leadership is tried again
RACE = Backoff(first=0.05, most=60.0)  # of a plan that met a changed object
RACES = 8  # in a row without a change of the object; more are a failure like any other
REFUSAL = Backoff(first=10.0, most=60.0)  # of a write whose content the API server refuses
WAITS_FOR_CLOUD = "waits for the cloud's answer"
QUARANTINED = "quarantined: its reconcile ended this worker again and again; tried again later"
SUSPECT = "suspect: it was executing when workers died; it waits for its turn"


class SupervisorPort(Protocol):
    """The way to the supervisor, and its permission to act."""

    permission: Permission

    def send(self, message: Message) -> bool: ...


@dataclass(frozen=True, slots=True)
class Connection:
    """What ties this process to its supervisor."""

    port: SupervisorPort
    grants: SupervisorGrants
    gate: WorkerGate
    counter_sets: tuple[Counters, ...] = ()  # what is counted outside of the runner and its context


class Runner:
    """Moves keys from the supervisor's messages through the queue to the controller."""

    def __init__(
        self, connection: Connection, context: ControllerContext, controller: Controller
    ) -> None:
        self._port, self._connection = connection.port, connection
        self._counter_sets = (
            context.counters,
            context.queue.counters,
            *connection.counter_sets,
        )
        self._context, self._controller = context, controller
        self._executor, self._queue = context.executor, context.queue
        self._log = ReconcileLog()
        self._unacked: deque[tuple[Ack, tuple[str, ...]]] = deque()  # and the keys moved away
        self._reconciling: set[asyncio.Task[None]] = set()
        self._loop_lag = 0.0
        self._drain: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def run(self, hello: Hello) -> None:
        """Work until the drain message, then finish the keys in flight; parked ones are let go."""
        self._port.send(hello)
        parts = (
            self._controller.run(),
            self._context.recorder.run(),
            self._send_heartbeats(),
            self._dispatch(),
        )
        tasks = [asyncio.create_task(self._guard(part)) for part in parts]
        seconds = await self._drain
        self._queue.close()
        log.info("draining", extra={"seconds": seconds, "in_flight": len(self._reconciling)})
        if self._reconciling:
            await asyncio.wait(self._reconciling, timeout=max(seconds - 1.0, 0.5))
        await self._context.recorder.drain(1.0)
        self._port.send(self._heartbeat())  # what was counted since the last one
        tasks += self._reconciling
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_message(self, message: Message) -> None:
        """A message from the supervisor."""
        match message:
            case Objects():
                self._apply(message)
            case Granted():
                self._connection.grants.on_granted(message)
            case Drain(seconds):
                self.drain(seconds)
            case LogLevel(verbosity):
                set_verbosity(verbosity)
            case Explain(number, key):
                self._port.send(Explained(number, self._explain(key)))
            case _:
                self._controller.on_message(message)

    def drain(self, seconds: float) -> None:
        """Take no new keys, and end `run` when those in flight are done or `seconds` are over."""
        if not self._drain.done():
            self._drain.set_result(seconds)

    # Objects.

    def _apply(self, frame: Objects) -> None:
        try:
            applied = self._context.store.apply(frame)
        except Gap as gap:
            self._port.send(Resync(str(gap)))
            return
        for kind, key in applied.changed:
            for affected in self._controller.map_to_keys(kind, key):
                self._queue.add(affected)
        if frame.seq == 1:
            self._unacked.clear()  # a new snapshot: what came before is not awaited any more
        self._unacked.append((Ack(frame.epoch, frame.seq), tuple(key for _, key in frame.moved)))
        self._acknowledge()
        if applied.completed:
            self._port.send(Synced())
            self._port.send(self._heartbeat())

    def _acknowledge(self) -> None:
        """Acknowledge frames in order; one that moves a key away waits while that is in flight.

        So the supervisor knows, once all is acknowledged, that another worker may have the key.
        """
        newest: Ack | None = None
        while self._unacked and not any(map(self._queue.is_in_flight, self._unacked[0][1])):
            newest, _ = self._unacked.popleft()
        if newest:
            self._port.send(newest)

    # Keys.

    async def _dispatch(self) -> None:
        """Start a reconcile for every key that is due and has a slot, while this worker leads."""
        while not self._drain.done():
            await self._queue.wait()  # without a slot, which keys that got their answer need
            await self._port.permission.wait()
            await self._executor.acquire_slot()
            key = await self._queue.get()
            if key is None:
                self._executor.release_slot()
                return
            self._reconciling.add(start_task(self._process(key), self._reconciling.discard))
            await asyncio.sleep(0)  # one key begins in a turn of the loop: it may compute for long

    async def _process(self, key: str) -> None:
        """One key in its turn, or not yet when it is suspected."""
        try:
            wait = self._executor.seconds_to_wait(key)
            if wait > 0:
                self._postpone(key, wait)
            else:
                with self._executor.executing(key):
                    await self._reconcile(key)
        except Exception as error:  # around one key: a bug with one object holds up no other
            log.exception("reconcile failed", extra={"key": key})
            self._fail(key, repr(error))
        finally:
            self._executor.release_slot(key)
            self._queue.done(key)
            self._acknowledge()

    def _postpone(self, key: str, seconds: float) -> None:
        self._queue.add_after(key, seconds)
        if not self._executor.is_quarantined(key):
            self._log.waiting(key, SUSPECT)
            return
        self._log.failed(key, QUARANTINED)
        self._record(key, "Quarantined", QUARANTINED)

    async def _reconcile(self, key: str) -> None:
        """One key, and what its end means."""
        try:
            self._end(key, await self._controller.reconcile(key))
        except NotLeading:
            self._wait(key, "this replica does not lead now", NOT_LEADING_RETRY)
        except Contested as contest:
            self._wait(key, str(contest), contest.seconds)
            self._record(key, "WriteReverted", str(contest))
        except RetryAfter as wait:
            self._wait(key, str(wait), wait.seconds)
        except Refused as refusal:
            self._fail(key, f"rejected until it changes: {refusal}", "refused")
        except (CloudError, Unreachable) as error:
            self._fail(key, str(error))
        except KubernetesError as error:
            self._end_with(key, error)

    def _end(self, key: str, result: Result) -> None:
        log.debug("decided", extra={"key": key, "decision": result.message})
        if not result.is_done:
            self._wait(key, result.message, result.requeue_after)
            return
        self._context.counters.count(metrics.RECONCILES, "success")
        self._log.done(key, result.message)
        self._queue.forget_failures(key)
        self._executor.survived(key)

    def _end_with(self, key: str, error: KubernetesError) -> None:
        # What is gone the watch takes away; a 404 may be about the object of another client.
        if (error.is_race or error.is_gone) and self._queue.failures(key) < RACES:
            self._wait(key, f"changed meanwhile ({error.reason})", None)
            self._queue.add_failed(key, RACE)
        elif error.is_refusal:
            why = f"the API server refuses what is to be written: {error}"
            self._fail(key, why, "refused")
            self._queue.add_failed(key, REFUSAL)
            self._record(key, "WriteRefused", why)
        else:
            self._fail(key, str(error))

    def _wait(self, key: str, why: str, requeue_after: float | None) -> None:
        self._context.counters.count(metrics.RECONCILES, "waiting")
        self._log.waiting(key, why)
        if requeue_after is not None:
            self._queue.add_after(key, requeue_after)

    def _fail(self, key: str, why: str, result: str = "failed") -> None:
        self._context.counters.count(metrics.RECONCILES, result)
        self._log.failed(key, why, result)
        self._executor.survived(key)
        if result == "failed":
            self._queue.add_failed(key)

    def _record(self, key: str, reason: str, message: str) -> None:
        """Record an Event on the object, if the key is one."""
        if object_ref := self._controller.object_ref(key):
            self._context.recorder.record(Event(object_ref, "Warning", reason, message))

    # Signs of life.

    def _explain(self, key: str) -> Json:
        """What is known here about one key; times are seconds from now."""
        now, queue = time.monotonic(), self._queue
        last, due = self._log.last(key), queue.due_in(key)
        return {
            "exists": self._controller.object_ref(key) is not None,
            "result": last.result if last else "",
            "decided": last.message if last else "nothing yet",
            "decided_seconds_ago": round(now - last.at, 1) if last else None,
            "in_flight": queue.is_in_flight(key),
            "failures": queue.failures(key),
            "next_try_seconds": None if due is None else round(due, 1),
            "details": self._controller.details(key),
        }

    async def _send_heartbeats(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._acknowledge()  # a key that is only parked by now is not in flight
            for key in self._queue.parked:
                if key not in self._log:
                    self._log.waiting(key, WAITS_FOR_CLOUD)
            if not self._connection.gate.outage():  # which the supervisor logs for all workers
                self._log.summarize(loop.time())
            self._port.send(self._heartbeat())
            due = loop.time() + HEARTBEAT_INTERVAL
            await asyncio.sleep(HEARTBEAT_INTERVAL)
            self._loop_lag = loop.time() - due

    def _heartbeat(self) -> Heartbeat:
        numbers: Numbers = {metrics.WORKER_CPU_SECONDS.name: [[[], round(time.process_time(), 3)]]}
        for counters in self._counter_sets:
            numbers |= counters.export()
        return Heartbeat({**self.status()}, numbers)

    def status(self) -> WorkerReport:
        """What `ccm-supervisor status` shows of this worker."""
        queue, now = self._queue, asyncio.get_running_loop().time()
        gate = self._connection.gate
        report: WorkerReport = {
            "queue": {
                "ready": len(queue),
                "parked": len(queue.parked),
                "later": queue.waiting,
                "next_seconds": queue.next_due(now),
                "oldest_seconds": round(queue.oldest_in_flight(now), 3),
                "unfinished_seconds": round(queue.unfinished(now), 3),
            },
            "done": self._log.done_count,
            "pending": len(self._log),
            "failing": self._log.failing,
            "reasons": self._log.first(PENDING_SHOWN),
            "pending_groups": self._log.groups(time.monotonic()),
            "recent": self._log.recent(now),
            "loop_lag": round(max(self._loop_lag, 0.0), 4),
            "tasks": len(asyncio.all_tasks()),
            "cpu_seconds": round(time.process_time(), 3),
            "kube_writes": self._context.performer.kube.writes,
            "events_waiting": self._context.recorder.waiting,
            "cloud_outage": gate.outage(),
            "cloud_calls": {f"{op} {result}": n for (op, result), n in gate.calls.items()},
        }
        report.update(_size())
        report.update(cast("WorkerReport", self._controller.status()))
        return report

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """A part that fails ends the worker in order; the supervisor starts it again."""
        try:
            await work
        except Exception:
            log.exception("part of the worker failed")
            self.drain(1.0)
            raise


def _size() -> WorkerReport:
    """What this process has; without a descriptor to read it by, it has all that it may have."""
    limit = open_files_limit()
    try:
        return {
            "rss_bytes": resident_bytes(),
            "threads": thread_count(),
            "open_files": open_files()[0],
            "open_files_limit": limit,
        }
    except OSError:
        return {"open_files": limit, "open_files_limit": limit}
