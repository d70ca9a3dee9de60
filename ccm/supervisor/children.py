"""The worker processes of this supervisor: start, watch, replace and end them."""

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ccm.bus.frames import WorkerSpec
from ccm.bus.in_flight import read_in_flight
from ccm.decide.children import Life, WorkerEvent, WorkerState, follow, restart_delay
from ccm.errors import ExitCode
from ccm.model.server import Server
from ccm.settings import Settings
from ccm.supervisor import spawn
from ccm.supervisor.child import Child, Start
from ccm.supervisor.suspects import Suspects

log = logging.getLogger(__name__)

ORDERLY = (ExitCode.OK, ExitCode.NOT_NEEDED, ExitCode.CONFIGURATION, -signal.SIGTERM)
WHILE_STARTING = 3  # times as long may a worker be silent that still loads its code
LAST_WORDS = 2.0  # seconds a silent worker gets to write its stacks before it is killed


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the children tell of a start, by its name on the bus, and ask for a duty."""

    admit: Callable[[str, int], None]
    gone: Callable[[str], None]
    drain: Callable[[str, float], None]
    permit: Callable[[Child], None]
    refused: Callable[[Child], None]
    settings_for: Callable[[str], Settings]


class Children:
    """Every worker of this supervisor. All methods run in the main thread, in its loop."""

    def __init__(
        self,
        bus_path: Path,
        settings: Settings,
        server: Server,
        hooks: Hooks,
    ) -> None:
        self._bus_path, self._settings, self._hooks = bus_path, settings, hooks
        self._server = server
        self._children: dict[str, Child] = {}
        self.suspects = Suspects()
        self.watched_at = time.monotonic()
        self._is_ending = False
        self._ended = asyncio.Event()

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def named(self, name: str) -> Child | None:
        return self._children.get(name)

    def find(self, ident: str) -> tuple[Child, Start] | None:
        """The worker and the start that has this name on the bus."""
        child = self._children.get(ident.rpartition(".")[0])
        for start in child.running() if child else ():
            if child and start.ident == ident:
                return child, start
        return None

    def add(self, controllers: Mapping[str, str], is_held: bool = False) -> None:
        """Start workers: name → duty. Held ones get ready but must not act yet."""
        for name, controller in controllers.items():
            child = self._children[name] = Child(name, controller)
            self._begin(child, is_held)

    def note(self, child: Child, event: WorkerEvent) -> None:
        """Move the worker along its table."""
        before = child.life.state
        child.life = follow(child.life, event, time.monotonic(), self._settings.worker_steady_time)
        if child.life.state is not before:
            log.info(
                "worker changed state",
                extra={"worker": child.name, "was": before, "now": child.life.state},
            )

    def synced(self, child: Child, start: Start) -> None:
        """A start has everything it needs; a successor now takes over."""
        start.is_synced = True
        if start is child.current:
            self.note(child, WorkerEvent.SYNCED)
        elif child.current:
            self._drain(child, child.current, self._settings.shutdown_timeout)

    def restart(self, child: Child) -> str:
        """Hand the work over to a new process; the sentence says what happens."""
        if child.successor:
            return f"{child.name} is being replaced already"
        if child.current and child.life.state in (WorkerState.STANDBY, WorkerState.RUNNING):
            child.successor = self._spawn(child)
            child.successor.is_held = True
            return f"{child.name} hands over to a new process as soon as that has everything"
        if child.current:
            child.current.process.kill()
            return f"{child.name} was not ready to hand over and is started anew"
        self._begin(child)
        return f"{child.name} is started"

    def let_go(self, child: Child) -> None:
        """Drain a worker for good."""
        child.is_leaving = True
        for start in child.running():
            self._drain(child, start, self._settings.shutdown_timeout)
        if not child.running():
            self._children.pop(child.name, None)

    async def end_all(self, seconds: float) -> None:
        """Drain every worker, and kill those that are not done in time."""
        self._is_ending = True
        for child in self:
            for start in child.running():
                self._drain(child, start, seconds)
        try:
            async with asyncio.timeout(seconds + 1.0):
                while any(child.running() for child in self):
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            log.warning("workers did not finish in time and are killed")
            self.kill_all()

    def kill_all(self) -> None:
        """End every worker now."""
        self._is_ending = True
        for child in self:
            for start in child.running():
                start.process.kill()
                start.process.join(5.0)

    async def watch(self) -> None:
        """Replace workers whose loop hangs, that grew too large, or that do not do all they may."""
        while True:
            await asyncio.sleep(1.0)
            self.watched_at = time.monotonic()
            for child in self:
                for start in child.running():
                    self._check_silence(child, start)
                self._check_size(child)
                self._check_controllers(child)

    def _check_silence(self, child: Child, start: Start) -> None:
        silent = time.monotonic() - start.heard_at
        patience = 1 if start.said_hello else WHILE_STARTING
        if silent < patience * self._settings.worker_silence_limit:
            return
        pid = start.process.pid
        log.error(
            "worker is silent and will be killed",
            extra={"worker": child.name, "pid": pid, "seconds": silent},
        )
        os.kill(pid, signal.SIGABRT)  # it writes its stacks and ends
        os.kill(pid, signal.SIGCONT)
        asyncio.get_running_loop().call_later(LAST_WORDS, start.process.kill)
        start.heard_at = time.monotonic()

    def _check_size(self, child: Child) -> None:
        limit = self._settings.worker_memory_limit
        size = child.current.status.get("rss_bytes", 0) if child.current else 0
        if limit and size > limit and not child.successor:
            log.warning("worker grew too large", extra={"worker": child.name, "rss_bytes": size})
            self.restart(child)

    def _check_controllers(self, child: Child) -> None:
        start = child.current
        is_at_work = child.life.state in (WorkerState.STANDBY, WorkerState.RUNNING)
        if not start or not is_at_work or start.is_held or child.successor:
            return
        if start.controllers != self._hooks.settings_for(child.controller).controllers:
            log.info("worker gets more to do", extra={"worker": child.name})
            self.restart(child)

    def _begin(self, child: Child, is_held: bool = False) -> None:
        if self._is_ending or child.current or child.is_leaving:
            return
        child.current = self._spawn(child)
        child.current.is_held = is_held
        self.note(child, WorkerEvent.STARTED)

    def _spawn(self, child: Child) -> Start:
        child.starts += 1
        settings = self._hooks.settings_for(child.controller)
        ident = f"{child.name}.{child.starts}"
        journal_path = self._bus_path.with_name(f"{ident}.hand")
        spec = WorkerSpec(
            name=child.name,
            ident=ident,
            controller=child.controller,
            bus_path=str(self._bus_path),
            journal_path=str(journal_path),
            supervisor_pid=os.getpid(),
            settings=settings,
            server=self._server,
            suspects=self.suspects.suspects(child.controller),
            quarantined=self.suspects.quarantined(child.controller),
        )
        start = Start(ident, spawn.start(spec), journal_path, settings.controllers)
        self._hooks.admit(ident, start.process.pid)
        loop = asyncio.get_running_loop()
        loop.add_reader(start.process.sentinel, self._on_end, child, start)
        return start

    def _drain(self, child: Child, start: Start, seconds: float) -> None:
        if start is child.current:
            self.note(child, WorkerEvent.TOLD_TO_DRAIN)
        if start.said_hello:
            self._hooks.drain(start.ident, seconds)
        else:
            start.process.terminate()  # it has nothing in hand, and hears nothing yet

    def _on_end(self, child: Child, start: Start) -> None:
        asyncio.get_running_loop().remove_reader(start.process.sentinel)
        start.process.join(0.5)  # the sentinel may be faster than the exit code
        code = start.process.exitcode
        self._hooks.gone(start.ident)
        who = {"worker": child.name, "pid": start.process.pid, "exit_code": code}
        was_told = start is child.current and child.life.state is WorkerState.DRAINING
        if code == -signal.SIGALRM:
            log.error("worker ended by itself: it hung and its permission ran out", extra=who)
        elif code not in ORDERLY and not self._is_ending:
            self.suspects.after_death(
                child.controller, read_in_flight(start.journal_path), time.monotonic()
            )
            log.error("worker died", extra=who)
        start.journal_path.unlink(missing_ok=True)
        if start is child.successor:
            self._lose_successor(child, start)
        else:
            child.current = None
            self._after_end(child, start, code, was_told)
        self._ended.set()

    def _lose_successor(self, child: Child, start: Start) -> None:
        """The hand-over failed: the one that works goes on, unless it was draining already."""
        child.successor, child.last_faults = None, start.faults
        log.error(
            "successor failed; the worker goes on as it is",
            extra={"worker": child.name, "why": "; ".join(start.faults) or "it died"},
        )

    def _after_end(self, child: Child, start: Start, code: int | None, was_told: bool) -> None:
        if child.successor:
            self._promote(child, child.successor)
        elif child.is_leaving:
            self._children.pop(child.name, None)
        elif code == ExitCode.NOT_NEEDED:
            self.note(child, WorkerEvent.NOT_NEEDED)
        elif code == ExitCode.CONFIGURATION:
            child.last_faults = start.faults
            self.note(child, WorkerEvent.REFUSED)
            self._hooks.refused(child)
        elif was_told:
            self.note(child, WorkerEvent.ENDED)
            self._begin(child, start.is_held)
        else:
            self.note(child, WorkerEvent.DIED)
            delay = restart_delay(child.life, random.random())
            loop = asyncio.get_running_loop()
            loop.call_later(delay, self._begin, child, start.is_held)

    def _promote(self, child: Child, successor: Start) -> None:
        """The successor is the worker now, in whatever state it is."""
        child.current, child.successor = successor, None
        child.last_faults = []
        successor.is_held = False
        state = WorkerState.SYNCING if successor.said_hello else WorkerState.STARTING
        state = WorkerState.STANDBY if successor.is_synced else state
        child.life = Life(state, time.monotonic())
        log.info("work handed over", extra={"worker": child.name, "pid": child.pid})
        self._hooks.permit(child)
