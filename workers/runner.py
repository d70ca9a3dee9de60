"""The life of any worker: connect, take in the feed, reconcile key by key, beat, drain."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from ccm import metrics
from ccm.bus.frames import (
    Beat,
    CallsShut,
    Drain,
    Explain,
    Explained,
    Granted,
    Hello,
    LogLevel,
    Message,
    Objects,
    Resync,
    Synced,
)
from ccm.bus.port import Port
from ccm.cloud.gate import WorkerGate
from ccm.cloud.rehearsal import Changes
from ccm.counters import Counters, Numbers
from ccm.errors import CloudError, KubernetesError, NoPermit, Refused, RetryAfter, Unreachable
from ccm.kube.events import Event
from ccm.log import set_verbosity
from ccm.model.objects import Json
from ccm.processes import resident_bytes
from workers.acks import Acks
from workers.controller import Controller, ControllerContext, Result
from workers.decisions import Decisions
from workers.grants import Grants
from workers.ledger import Ledger
from workers.store import Gap

log = logging.getLogger(__name__)

BEAT = 1.0  # seconds between two signs of life
SHOWN = 20  # unsettled keys in a sign of life
REPLAN = (409, 422)  # the object changed since the plan was made: plan again


@dataclass(frozen=True, slots=True)
class Ties:
    """What ties this process to its supervisor."""

    port: Port
    grants: Grants
    gate: WorkerGate
    rehearsed: Changes = field(default_factory=dict)  # empty unless this is a rehearsal
    counter_sets: tuple[Counters, ...] = ()  # what is counted outside of the runner and its tools


class Runner:
    """Moves keys from the feed through the queue to the duty, one at a time per key."""

    def __init__(self, ties: Ties, context: ControllerContext, controller: Controller) -> None:
        self._port, self._grants, self._gate = ties.port, ties.grants, ties.gate
        self._rehearsed = ties.rehearsed
        self._tallies = (context.counters, context.queue.counters, *ties.counter_sets)
        self._quarantine = context.quarantine
        self._context, self._controller = context, controller
        self._ledger, self._decisions = Ledger(), Decisions()
        self._acks = Acks(context.queue, ties.port)
        self._busy: set[asyncio.Task[Any] | None] = set()
        self._lag = 0.0
        self._drain: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def run(self, hello: Hello, concurrency: int) -> None:
        """Work until told to drain, then finish what is in hand."""
        self._port.send(hello)
        helpers = [
            asyncio.create_task(self._guard(work))
            for work in (self._controller.run(), self._context.recorder.run(), self._beat())
        ]
        consumers = [asyncio.create_task(self._guard(self._consume())) for _ in range(concurrency)]
        seconds = await self._drain
        self._context.queue.close()
        log.info("draining", extra={"seconds": seconds, "in_hand": len(self._busy)})
        if busy := [task for task in consumers if task in self._busy]:
            await asyncio.wait(busy, timeout=max(seconds - 1.0, 0.5))
        await self._context.recorder.drain(1.0)
        self._port.send(self._sign_of_life())  # what was counted since the last one
        for task in (*consumers, *helpers):
            task.cancel()
        await asyncio.gather(*consumers, *helpers, return_exceptions=True)

    def on_message(self, message: Message) -> None:
        """What the supervisor says."""
        match message:
            case Objects():
                self._absorb(message)
            case Granted():
                self._grants.granted(message)
            case CallsShut():
                self._grants.shut(message)
            case Drain(seconds):
                self.drain(seconds)
            case LogLevel(verbosity):
                set_verbosity(verbosity)
            case Explain(number, key):
                self._port.send(Explained(number, self._explain(key)))
            case _:
                self._controller.on_message(message)

    def drain(self, seconds: float) -> None:
        if not self._drain.done():
            self._drain.set_result(seconds)

    def _absorb(self, frame: Objects) -> None:
        try:
            absorbed = self._context.store.absorb(frame)
        except Gap as gap:
            self._port.send(Resync(str(gap)))
            return
        for kind, key in absorbed.changed:
            for affected in self._controller.map_to_keys(kind, key):
                self._context.queue.add(affected)
        self._acks.after(frame)
        if absorbed.completed:
            self._port.send(Synced())
            self._port.send(self._sign_of_life())

    async def _consume(self) -> None:
        queue, permission = self._context.queue, self._port.permission
        while not self._drain.done():
            await permission.wait()
            key = await queue.get()
            if key is None:
                return
            self._busy.add(asyncio.current_task())
            try:
                await self._handle(key)
            finally:
                self._busy.discard(asyncio.current_task())
                queue.done(key)
                self._acks.settle()

    async def _handle(self, key: str) -> None:
        """One key in its turn: side by side with others, alone when suspected, or not yet."""
        wait = self._quarantine.seconds_to_wait(key)
        if wait > 0:
            why = "quarantined: its reconcile ended this worker twice; tried again later, alone"
            self._ledger.fail(key, why)
            self._context.queue.add_after(key, wait)
            if object_ref := self._controller.object_ref(key):
                self._context.recorder.record(Event(object_ref, "Warning", "Quarantined", why))
            return
        async with self._quarantine.turn(key):
            await self._reconcile(key)

    async def _reconcile(self, key: str) -> None:
        """One key, whatever may happen in it."""
        try:
            self._note(key, await self._controller.reconcile(key))
        except NoPermit:
            self._wait(key, "may not act now", 0.1)
        except RetryAfter as wait:
            self._wait(key, str(wait), wait.seconds)
        except Refused as refusal:
            self._decided(key, "refused", f"refused until it changes: {refusal}")
            self._ledger.fail(key, f"refused until it changes: {refusal}")
            self._quarantine.survived(key)
        except (CloudError, Unreachable) as error:
            self._fail(key, str(error))
        except KubernetesError as error:
            self._after_answer(key, error)
        except Exception as error:  # around one key: a bug with one object holds up no other
            log.exception("reconcile failed", extra={"key": key})
            self._fail(key, repr(error))

    def _note(self, key: str, result: Result) -> None:
        log.debug("decided", extra={"key": key, "decision": result.message})
        if result.is_done:
            self._settle(key, result.message)
        else:
            self._wait(key, result.message, result.requeue_after)

    def _settle(self, key: str, message: str) -> None:
        self._decided(key, "settled", message)
        self._context.queue.forget_failures(key)
        self._ledger.settle(key)
        self._quarantine.survived(key)

    def _after_answer(self, key: str, error: KubernetesError) -> None:
        if error.status == 404:
            self._settle(key, "it is gone, and so is the work")
        elif error.status in REPLAN:
            self._wait(key, f"changed meanwhile ({error.reason})", 0.05)
        else:
            self._fail(key, str(error))

    def _wait(self, key: str, why: str, requeue_after: float | None) -> None:
        self._decided(key, "waiting", why)
        self._ledger.wait(key, why)
        if requeue_after is not None:
            self._context.queue.add_after(key, requeue_after)

    def _fail(self, key: str, why: str) -> None:
        self._decided(key, "failed", why)
        self._ledger.fail(key, why)
        self._quarantine.survived(key)
        self._context.queue.add_failed(key)

    def _decided(self, key: str, result: str, message: str) -> None:
        self._context.counters.count(metrics.RECONCILES, result)
        self._decisions.note(key, result, message)

    def _explain(self, key: str) -> Json:
        """What is known here about one key; times are seconds from now."""
        now, queue = time.monotonic(), self._context.queue
        last, due = self._decisions.last(key), queue.due_in(key)
        return {
            "result": last.result if last else "",
            "decided": last.message if last else "nothing yet",
            "decided_seconds_ago": round(now - last.at, 1) if last else None,
            "in_hand": queue.is_in_flight(key),
            "failures": queue.failures(key),
            "next_try_seconds": None if due is None else round(due, 1),
            "evidence": self._controller.details(key),
        }

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._port.send(self._sign_of_life())
            due = loop.time() + BEAT
            await asyncio.sleep(BEAT)
            self._lag = loop.time() - due

    def _sign_of_life(self) -> Beat:
        numbers: Numbers = {metrics.WORKER_CPU.name: [[[], round(time.process_time(), 3)]]}
        for counters in self._tallies:
            numbers |= counters.export()
        return Beat(self._status(), numbers)

    def _status(self) -> Json:
        queue, now = self._context.queue, asyncio.get_running_loop().time()
        calls = {f"{op} {result}": n for (op, result), n in self._gate.calls.items()}
        return {
            "queue": {
                "ready": len(queue),
                "later": queue.waiting,
                "next_seconds": queue.next_due(now),
                "oldest_seconds": round(queue.oldest_in_flight(now), 3),
                "unfinished_seconds": round(queue.unfinished(now), 3),
            },
            "settled": self._ledger.settled,
            "unsettled": len(self._ledger),
            "failing": self._ledger.failing,
            "reasons": self._ledger.first(SHOWN),
            "news": self._ledger.news(now),
            "loop_lag": round(max(self._lag, 0.0), 4),
            "cpu_seconds": round(time.process_time(), 3),
            "rss_bytes": resident_bytes(),
            "kube_writes": self._context.performer.kube.writes,
            "events_waiting": self._context.recorder.waiting,
            "cloud_calls": calls,
            **({"rehearsed": self._rehearsed} if self._rehearsed else {}),
            **self._controller.status(),
        }

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """A part that fails ends the worker in order; the supervisor starts it again."""
        try:
            await work
        except Exception:
            log.exception("part of the worker failed")
            self.drain(1.0)
            raise
