"""The workers of this supervisor and their processes: start, check, replace and stop them."""

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from ccm.background import call_later, call_until_done
from ccm.bus.frames import WorkerSpec
from ccm.bus.in_flight import read_in_flight
from ccm.decide.children import (
    DOWN_STATES,
    RENEWAL_INTERVAL,
    Life,
    WorkerEvent,
    WorkerState,
    is_up,
    next_life,
    restart_delay,
    why_renew,
)
from ccm.decide.quarantine import Quarantine
from ccm.errors import ExitCode
from ccm.settings import Settings
from ccm.supervisor.child import Child, NotReplaced, WorkerProcess
from ccm.supervisor.starter import Process
from ccm.tls import Server

log = logging.getLogger(__name__)

USUAL_STATES = {
    WorkerState.STOPPED,
    WorkerState.STARTING,
    WorkerState.SYNCING,
    WorkerState.STANDBY,
    WorkerState.RUNNING,
    WorkerState.SKIPPED,
}
"""Of workers that come up: the log has what is unlike that."""

ORDERLY_EXITS = {*ExitCode, -signal.SIGTERM} - {ExitCode.FAILED, ExitCode.USAGE}
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


class Children:
    """Every worker of this supervisor. All methods run in the main thread, in its event loop."""

    def __init__(
        self,
        bus_path: Path,
        settings: Settings,
        server: Server,
        start_process: Callable[[WorkerSpec], Process],
        cluster_uid: str,
    ) -> None:
        self._start_process = start_process
        self._bus_path, self._settings = bus_path, settings
        self._hooks: Hooks
        self._server, self._cluster_uid = server, cluster_uid
        self._children: dict[str, Child] = {}
        self.quarantine = Quarantine()
        self.checked_at = time.monotonic()
        self._is_stopping = False
        self._was_up = False  # whether any worker ever took its configuration
        self._process_ended = asyncio.Event()

    def bind(self, hooks: Hooks) -> None:
        """Name the parts that hear of processes, which know the workers; before the first `add`."""
        self._hooks = hooks

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def get(self, name: str) -> Child | None:
        """The worker of this name."""
        return self._children.get(name)

    def are_up(self) -> bool:
        """Whether each worker has come up with its configuration."""
        return all(child.life.state not in DOWN_STATES for child in self)

    def down(self) -> dict[str, str]:
        """Workers that do not run, or never for long, and why; none once all are to end."""
        now, steady = time.monotonic(), self._settings.worker_steady_time
        return {
            child.name: "; ".join(child.last_faults)
            or f"it is {child.life.state}, deaths in a row: {child.life.deaths}"
            for child in self
            if not self._is_stopping and not is_up(child.life, now, steady)
        }

    def add(self, controllers: Mapping[str, str], is_joining: bool = False) -> None:
        """Start workers: name → controller."""
        for name, controller in controllers.items():
            child = self._children[name] = Child(name, controller, is_joining=is_joining)
            self._start(child)

    def transition(self, child: Child, event: WorkerEvent) -> None:
        """Move the worker along its state table."""
        before = child.life.state
        child.life = next_life(
            child.life, event, time.monotonic(), self._settings.worker_steady_time
        )
        if child.life.state is not before:
            is_usual = child.life.deaths == 0 and {before, child.life.state} <= USUAL_STATES
            log.log(
                logging.DEBUG if is_usual else logging.INFO,
                "worker changed state",
                extra={"worker": child.name, "was": before, "now": child.life.state},
            )

    def on_hello(self, child: Child, process: WorkerProcess) -> None:
        """A process took its configuration and is subscribed."""
        process.said_hello = self._was_up = True
        process.end_proof(None)
        if process is child.current:
            child.last_faults = []
            self.transition(child, WorkerEvent.CONNECTED)

    def on_synced(self, child: Child, process: WorkerProcess) -> None:
        """A process has its snapshot; a successor now takes over."""
        process.is_synced = True
        if process is child.current:
            self.transition(child, WorkerEvent.SYNCED)
        elif child.current:
            self._drain(child, child.current, self._settings.shutdown_timeout)

    async def replace_all(self) -> NotReplaced | None:
        """Hand the work of all workers over to new processes; returns why not, None when they do.

        The first of them proves the cloud's credentials before it takes over; if they do not work,
        all workers go on as they are. While no worker can hand over, there is nothing to lose.
        """
        first = next((item for item in self if self._can_hand_over(item)), None)
        if first:
            happens = self.restart(first, proves=True)
            if not first.successor:
                return NotReplaced(happens, may_pass=True)
            proof: asyncio.Future[NotReplaced | None] = asyncio.get_running_loop().create_future()
            first.successor.proof = proof
            if why := await proof:
                return why
        for child in self:
            if child is not first:
                self.restart(child)
        return None

    @staticmethod
    def _can_hand_over(child: Child) -> bool:
        is_working = child.life.state in (WorkerState.STANDBY, WorkerState.RUNNING)
        return bool(child.current and is_working and not child.successor and not child.is_leaving)

    def restart(self, child: Child, *, proves: bool = False) -> str:
        """Hand the work over to a new process; returns a sentence that says what happens."""
        if child.is_leaving:
            return f"{child.name} is scaled away, and finishes what it has in flight"
        if child.successor:
            return f"{child.name} is being replaced already"
        if self._can_hand_over(child):
            try:
                child.successor = self._spawn(child, proves)
            except (OSError, MemoryError) as error:
                log.error("successor not spawned", extra={"worker": child.name, "why": str(error)})
                return f"{child.name} goes on as it is: no successor could be spawned ({error})"
            return f"{child.name} hands over to a new process once that is synced"
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
            now = time.monotonic()
            deaf, self.checked_at = now - self.checked_at - CHECK_INTERVAL, now
            if deaf > CHECK_INTERVAL:  # this process was stopped, and heard no one meanwhile
                for process in (each for child in self for each in child.processes()):
                    process.heard_at = min(process.heard_at + deaf, now)
                    process.started_at = min(process.started_at + deaf, now)
            for child in self:
                for process in child.processes():
                    self._check_silence(child, process)
                self._check_growth(child, now)
                self._check_controllers(child)

    def _check_silence(self, child: Child, process: WorkerProcess) -> None:
        is_up = process.said_hello
        silent = time.monotonic() - (process.heard_at if is_up else process.started_at)
        factor = 1 if is_up else STARTUP_SILENCE_FACTOR  # a start has a deadline, whatever it says
        if silent < factor * self._settings.worker_silence_limit:
            return
        pid = process.handle.pid
        log.error(
            "worker is silent and will be killed",
            extra={"worker": child.name, "pid": pid, "seconds": silent},
        )
        os.kill(pid, signal.SIGABRT)  # it writes its stacks and ends
        os.kill(pid, signal.SIGCONT)
        call_later(KILL_DELAY, process.handle.kill)
        process.heard_at = process.started_at = time.monotonic()

    def _check_growth(self, child: Child, now: float) -> None:
        """Renew a worker before what its provider leaks ends it, once in a while."""
        if not child.current or child.successor or now < child.renewed_at + RENEWAL_INTERVAL:
            return
        if why := why_renew(child.current.report, self._settings.worker_memory_limit):
            log.warning("worker grew too large", extra={"worker": child.name, "why": why})
            child.renewed_at, child.grew = now, why
            self.restart(child)

    def _check_controllers(self, child: Child) -> None:
        process = child.current
        if not process or child.is_joining or not self._can_hand_over(child):
            return
        if process.controllers != self._hooks.settings_for(child.controller).controllers:
            log.info("worker restarts with more controllers", extra={"worker": child.name})
            self.restart(child)

    def _start(self, child: Child) -> None:
        if self._is_stopping or child.current or child.is_leaving:
            return
        try:
            child.current = self._spawn(child)
        except (OSError, MemoryError) as error:  # no descriptor, process or memory is to be had
            log.error("worker not spawned", extra={"worker": child.name, "why": str(error)})
            self._restart_later(child, WorkerEvent.NOT_SPAWNED)
            return
        self.transition(child, WorkerEvent.STARTED)

    def _restart_later(self, child: Child, event: WorkerEvent) -> None:
        self.transition(child, event)
        call_later(restart_delay(child.life, random.random()), self._start, child)

    def _spawn(self, child: Child, proves: bool = False) -> WorkerProcess:
        child.starts += 1
        settings = self._hooks.settings_for(child.controller)
        start = f"{child.name}.{child.starts}"
        ident = f"{start}-{token_hex(8)}"  # no other process can take the name before it does
        journal_path = self._bus_path.with_name(f"{start}.journal")
        spec = WorkerSpec(
            name=child.name,
            ident=ident,
            controller=child.controller,
            bus_path=str(self._bus_path),
            journal_path=str(journal_path),
            supervisor_pid=os.getpid(),
            settings=settings,
            server=self._server,
            cluster_uid=self._cluster_uid,
            suspicions=self.quarantine.suspicions(child.controller),
            proves=proves,
        )
        process = WorkerProcess(
            ident, self._start_process(spec), journal_path, settings.controllers
        )
        self._hooks.admit(child, process)
        loop = asyncio.get_running_loop()
        loop.add_reader(process.handle.sentinel, call_until_done, self._on_exit, child, process)
        return process

    def _drain(self, child: Child, process: WorkerProcess, seconds: float) -> None:
        if process is child.current:
            self.transition(child, WorkerEvent.DRAIN_SENT)
        if process.said_hello:
            self._hooks.drain(process.ident, seconds)
        else:
            process.handle.terminate()  # nothing is in flight, and it reads no messages yet

    def _on_exit(self, child: Child, process: WorkerProcess) -> None:
        asyncio.get_running_loop().remove_reader(process.handle.sentinel)
        process.handle.join(0.5)  # the sentinel may be faster than the exit code
        code = process.handle.exitcode
        self._hooks.gone(process.ident)
        extra = {"worker": child.name, "pid": process.handle.pid}
        was_draining = process is child.current and child.life.state is WorkerState.DRAINING
        if code == -signal.SIGALRM:
            log.warning("worker exited in order: its leadership deadline passed", extra=extra)
        elif code not in ORDERLY_EXITS and not self._is_stopping:
            in_flight = read_in_flight(process.journal_path)
            log.error("worker died", extra=extra | {"exit_code": code})
            culprits = self.quarantine.record_death(child.controller, in_flight, time.monotonic())
            for key, suspicion in culprits.items():
                log.error(
                    "quarantined: its reconcile ended a worker again",
                    extra={"controller": child.controller, "key": key, "deaths": suspicion.deaths},
                )
        with suppress(OSError):  # what stands above must not happen twice
            process.journal_path.unlink()
        why = "; ".join(process.faults) or "the new process died"
        process.end_proof(NotReplaced(why, may_pass=code != ExitCode.CONFIGURATION))
        if process is child.successor:
            self._lose_successor(child, process)
        else:
            child.current = None
            self._after_exit(child, process, code, was_draining)
        self._process_ended.set()

    def _lose_successor(self, child: Child, process: WorkerProcess) -> None:
        """The hand-over failed: the current process goes on, unless it was draining already."""
        child.successor, child.last_faults = None, process.faults
        if process.proof is None:  # else the reload that asked for the proof reports it
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
            del self._children[child.name]
        elif code == ExitCode.NOT_NEEDED and not process.said_hello:
            child.last_faults = process.faults
            self.transition(child, WorkerEvent.NOT_NEEDED)
        elif code == ExitCode.CONFIGURATION:
            self._on_refusal(child, process.faults)
        elif was_draining:
            self.transition(child, WorkerEvent.ENDED)
            self._start(child)
        else:
            child.last_faults = process.faults or child.last_faults
            self._restart_later(child, WorkerEvent.DIED)

    def _on_refusal(self, child: Child, faults: list[str]) -> None:
        """Final at the first start only; later it may pass, as does a file that is replaced."""
        child.last_faults = faults or [f"worker {child.name} refused to start"]
        for line in child.last_faults:
            log.error("worker refused to start", extra={"worker": child.name, "why": line})
        if self._was_up:
            self._restart_later(child, WorkerEvent.DIED)
        else:
            self.transition(child, WorkerEvent.REFUSED)
            self._hooks.refused(child)

    def _promote(self, child: Child, successor: WorkerProcess) -> None:
        """The successor is the worker now, in whatever state it is."""
        child.current, child.successor = successor, None
        child.last_faults = []
        state = WorkerState.SYNCING if successor.said_hello else WorkerState.STARTING
        state = WorkerState.STANDBY if successor.is_synced else state
        child.life = Life(state, time.monotonic())
        log.info("work handed over", extra={"worker": child.name, "pid": child.pid})
        self._hooks.permit(child)
