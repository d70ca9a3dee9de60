"""The worker processes of this supervisor: start, check, replace and stop them."""

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ccm.bus.frames import WorkerSpec
from ccm.bus.in_flight import read_in_flight
from ccm.decide.children import Life, WorkerEvent, WorkerState, next_life, restart_delay
from ccm.decide.quarantine import Suspicion, after_death, after_survival
from ccm.errors import ExitCode
from ccm.http import Server
from ccm.model.objects import Json
from ccm.settings import Settings
from ccm.supervisor.child import Child, WorkerProcess, start_process

log = logging.getLogger(__name__)

ORDERLY_EXITS = (ExitCode.OK, ExitCode.NOT_NEEDED, ExitCode.CONFIGURATION, -signal.SIGTERM)
CHECK_INTERVAL = 1.0  # seconds between two checks of all workers
STARTUP_SILENCE_FACTOR = 3  # a worker that still loads its code may be silent so much longer
KILL_DELAY = 2.0  # seconds a silent worker gets to write its stacks before SIGKILL


@dataclass(frozen=True, slots=True)
class Hooks:
    """What happens to a process, by its name on the bus, and the settings for a controller."""

    admit: Callable[[Child, WorkerProcess], None]
    gone: Callable[[str], None]
    drain: Callable[[str, float], None]
    permit: Callable[[Child], None]
    refused: Callable[[Child], None]
    settings_for: Callable[[str], Settings]


class Quarantine:
    """Keys in flight when a worker died, by controller: they stay suspect in any shard."""

    def __init__(self) -> None:
        self._suspicions: dict[str, dict[str, Suspicion]] = {}

    def record_death(self, controller: str, in_flight: Iterable[str], now: float) -> None:
        """A worker died with these keys in flight."""
        before = self._suspicions.get(controller, {})
        after = self._suspicions[controller] = after_death(before, in_flight, now)
        for key, suspicion in after.items():
            if suspicion.is_quarantined and suspicion != before.get(key):
                log.error(
                    "quarantined: its reconcile ended a worker again",
                    extra={"controller": controller, "key": key, "deaths": suspicion.deaths},
                )

    def record_survival(self, controller: str, key: str) -> None:
        """A suspect was reconciled alone, and the worker lives."""
        self._suspicions[controller] = after_survival(self._suspicions.get(controller, {}), key)

    def suspects(self, controller: str) -> tuple[str, ...]:
        """Keys to reconcile alone, at once."""
        known = self._suspicions.get(controller, {})
        return tuple(key for key, suspicion in known.items() if not suspicion.is_quarantined)

    def quarantined(self, controller: str) -> dict[str, float]:
        """Keys to leave alone until a monotonic time, and then to reconcile alone."""
        known = self._suspicions.get(controller, {})
        return {key: entry.until for key, entry in known.items() if entry.is_quarantined}

    def status(self, now: float) -> Json:
        """Quarantined keys by controller, each with the seconds until its next try."""
        return {
            controller: {
                key: round(until - now, 1) for key, until in self.quarantined(controller).items()
            }
            for controller in self._suspicions
            if self.quarantined(controller)
        }


class Children:
    """Every worker of this supervisor. All methods run in the main thread, in its event loop."""

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
        self.quarantine = Quarantine()
        self.checked_at = time.monotonic()
        self._is_stopping = False
        self._process_ended = asyncio.Event()

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def get(self, name: str) -> Child | None:
        """The worker of this name."""
        return self._children.get(name)

    def add(self, controllers: Mapping[str, str], is_fenced: bool = False) -> None:
        """Start workers: name → controller. Fenced ones sync but must not act yet."""
        for name, controller in controllers.items():
            child = self._children[name] = Child(name, controller)
            self._start(child, is_fenced)

    def transition(self, child: Child, event: WorkerEvent) -> None:
        """Move the worker along its state table."""
        before = child.life.state
        child.life = next_life(
            child.life, event, time.monotonic(), self._settings.worker_steady_time
        )
        if child.life.state is not before:
            log.info(
                "worker changed state",
                extra={"worker": child.name, "was": before, "now": child.life.state},
            )

    def on_synced(self, child: Child, process: WorkerProcess) -> None:
        """A process has its snapshot; a successor now takes over."""
        process.is_synced = True
        if process is child.current:
            self.transition(child, WorkerEvent.SYNCED)
        elif child.current:
            self._drain(child, child.current, self._settings.shutdown_timeout)

    def restart(self, child: Child) -> str:
        """Hand the work over to a new process; returns a sentence that says what happens."""
        if child.successor:
            return f"{child.name} is being replaced already"
        if child.current and child.life.state in (WorkerState.STANDBY, WorkerState.RUNNING):
            child.successor = self._spawn(child)
            child.successor.is_fenced = True
            return f"{child.name} hands over to a new process as soon as that has everything"
        if child.current:
            child.current.handle.kill()
            return f"{child.name} was not ready to hand over and is restarted"
        self._start(child)
        return f"{child.name} is started"

    def retire(self, child: Child) -> None:
        """Drain a worker for good."""
        child.is_leaving = True
        for process in child.processes():
            self._drain(child, process, self._settings.shutdown_timeout)
        if not child.processes():
            self._children.pop(child.name, None)

    async def stop_all(self, seconds: float) -> None:
        """Drain every worker, and kill those that do not finish in time."""
        self._is_stopping = True
        for child in self:
            for process in child.processes():
                self._drain(child, process, seconds)
        try:
            async with asyncio.timeout(seconds + 1.0):
                while any(child.processes() for child in self):
                    self._process_ended.clear()
                    await self._process_ended.wait()
        except TimeoutError:
            log.warning("workers did not finish in time and are killed")
            self.kill_all()

    def kill_all(self) -> None:
        """End every worker now."""
        self._is_stopping = True
        for child in self:
            for process in child.processes():
                process.handle.kill()
                process.handle.join(5.0)

    async def run(self) -> None:
        """Replace workers that hang, grew too large, or may run more controllers than they do."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            self.checked_at = time.monotonic()
            for child in self:
                for process in child.processes():
                    self._check_silence(child, process)
                self._check_size(child)
                self._check_controllers(child)

    def _check_silence(self, child: Child, process: WorkerProcess) -> None:
        silent = time.monotonic() - process.heard_at
        factor = 1 if process.said_hello else STARTUP_SILENCE_FACTOR
        if silent < factor * self._settings.worker_silence_limit:
            return
        pid = process.handle.pid
        log.error(
            "worker is silent and will be killed",
            extra={"worker": child.name, "pid": pid, "seconds": silent},
        )
        os.kill(pid, signal.SIGABRT)  # it writes its stacks and ends
        os.kill(pid, signal.SIGCONT)
        asyncio.get_running_loop().call_later(KILL_DELAY, process.handle.kill)
        process.heard_at = time.monotonic()

    def _check_size(self, child: Child) -> None:
        limit = self._settings.worker_memory_limit
        size = child.current.status.get("rss_bytes", 0) if child.current else 0
        if limit and size > limit and not child.successor:
            log.warning("worker grew too large", extra={"worker": child.name, "rss_bytes": size})
            self.restart(child)

    def _check_controllers(self, child: Child) -> None:
        process = child.current
        is_working = child.life.state in (WorkerState.STANDBY, WorkerState.RUNNING)
        if not process or not is_working or process.is_fenced or child.successor:
            return
        if process.controllers != self._hooks.settings_for(child.controller).controllers:
            log.info("worker restarts with more controllers", extra={"worker": child.name})
            self.restart(child)

    def _start(self, child: Child, is_fenced: bool = False) -> None:
        if self._is_stopping or child.current or child.is_leaving:
            return
        child.current = self._spawn(child)
        child.current.is_fenced = is_fenced
        self.transition(child, WorkerEvent.STARTED)

    def _spawn(self, child: Child) -> WorkerProcess:
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
            suspects=self.quarantine.suspects(child.controller),
            quarantined=self.quarantine.quarantined(child.controller),
        )
        process = WorkerProcess(ident, start_process(spec), journal_path, settings.controllers)
        self._hooks.admit(child, process)
        loop = asyncio.get_running_loop()
        loop.add_reader(process.handle.sentinel, self._on_exit, child, process)
        return process

    def _drain(self, child: Child, process: WorkerProcess, seconds: float) -> None:
        if process is child.current:
            self.transition(child, WorkerEvent.TOLD_TO_DRAIN)
        if process.said_hello:
            self._hooks.drain(process.ident, seconds)
        else:
            process.handle.terminate()  # nothing is in flight, and it reads no messages yet

    def _on_exit(self, child: Child, process: WorkerProcess) -> None:
        asyncio.get_running_loop().remove_reader(process.handle.sentinel)
        process.handle.join(0.5)  # the sentinel may be faster than the exit code
        code = process.handle.exitcode
        self._hooks.gone(process.ident)
        extra = {"worker": child.name, "pid": process.handle.pid, "exit_code": code}
        was_draining = process is child.current and child.life.state is WorkerState.DRAINING
        if code == -signal.SIGALRM:
            log.error("worker ended by itself: it hung and its permission ran out", extra=extra)
        elif code not in ORDERLY_EXITS and not self._is_stopping:
            in_flight = read_in_flight(process.journal_path)
            self.quarantine.record_death(child.controller, in_flight, time.monotonic())
            log.error("worker died", extra=extra)
        process.journal_path.unlink(missing_ok=True)
        if process is child.successor:
            self._lose_successor(child, process)
        else:
            child.current = None
            self._after_exit(child, process, code, was_draining)
        self._process_ended.set()

    def _lose_successor(self, child: Child, process: WorkerProcess) -> None:
        """The hand-over failed: the current process goes on, unless it was draining already."""
        child.successor, child.last_faults = None, process.faults
        log.error(
            "successor failed; the worker goes on as it is",
            extra={"worker": child.name, "why": "; ".join(process.faults) or "it died"},
        )

    def _after_exit(
        self, child: Child, process: WorkerProcess, code: int | None, was_draining: bool
    ) -> None:
        if child.successor:
            self._promote(child, child.successor)
        elif child.is_leaving:
            self._children.pop(child.name, None)
        elif code == ExitCode.NOT_NEEDED:
            self.transition(child, WorkerEvent.NOT_NEEDED)
        elif code == ExitCode.CONFIGURATION:
            child.last_faults = process.faults
            self.transition(child, WorkerEvent.REFUSED)
            self._hooks.refused(child)
        elif was_draining:
            self.transition(child, WorkerEvent.ENDED)
            self._start(child, process.is_fenced)
        else:
            self.transition(child, WorkerEvent.DIED)
            delay = restart_delay(child.life, random.random())
            loop = asyncio.get_running_loop()
            loop.call_later(delay, self._start, child, process.is_fenced)

    def _promote(self, child: Child, successor: WorkerProcess) -> None:
        """The successor is the worker now, in whatever state it is."""
        child.current, child.successor = successor, None
        child.last_faults = []
        successor.is_fenced = False
        state = WorkerState.SYNCING if successor.said_hello else WorkerState.STARTING
        state = WorkerState.STANDBY if successor.is_synced else state
        child.life = Life(state, time.monotonic())
        log.info("work handed over", extra={"worker": child.name, "pid": child.pid})
        self._hooks.permit(child)
