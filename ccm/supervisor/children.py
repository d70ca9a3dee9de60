"""The worker processes of this supervisor: start, watch, replace and end them."""

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ccm.bus.spec import WorkerSpec
from ccm.decide.children import Event, Life, State, follow, restart_delay
from ccm.errors import ExitCode
from ccm.model.node import Json
from ccm.settings import Settings
from ccm.supervisor import spawn

log = logging.getLogger(__name__)

LAST_WORDS = 2.0  # seconds a silent worker gets to write its stacks before it is killed


@dataclass
class Child:
    """One worker by its name, over all its starts."""

    name: str
    duty: str
    life: Life = field(default_factory=Life)
    starts: int = 0
    process: Any = None
    heard_at: float = 0.0
    facts: Json = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def ident(self) -> str:
        """The name of its present start on the bus."""
        return f"{self.name}.{self.starts}"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None


@dataclass(frozen=True, slots=True)
class Hooks:
    """Whom the children tell: the hub admits them, the feed and the budget forget them."""

    admit: Callable[[str, int], None]
    gone: Callable[[str], None]
    refused: Callable[[Child], None]
    drain: Callable[[str, float], None]


class Children:
    """Every worker of this supervisor. All methods run in the main thread, in its loop."""

    def __init__(
        self, duties: Mapping[str, str], bus_path: str, settings: Settings, hooks: Hooks
    ) -> None:
        self._bus_path, self._settings, self._hooks = bus_path, settings, hooks
        self._children = {name: Child(name, duty) for name, duty in duties.items()}
        self._is_ending = False
        self._ended = asyncio.Event()

    def __iter__(self) -> "Any":
        return iter(self._children.values())

    def find(self, ident: str) -> Child | None:
        """The child whose present start has this name on the bus."""
        child = self._children.get(ident.rpartition(".")[0])
        return child if child and child.ident == ident else None

    def named(self, name: str) -> Child | None:
        return self._children.get(name)

    def start_all(self) -> None:
        for child in self:
            self._start(child)

    def note(self, child: Child, event: Event) -> None:
        """Move the child along its table."""
        before = child.life.state
        child.life = follow(child.life, event, time.monotonic())
        if child.life.state is not before:
            log.info(
                "worker changed state",
                extra={"worker": child.name, "was": before, "now": child.life.state},
            )

    def heard(self, child: Child, facts: Json | None = None) -> None:
        """The child gave a sign of life."""
        child.heard_at = time.monotonic()
        if facts is not None:
            child.facts = facts

    def restart(self, child: Child) -> None:
        """Let the worker finish what it has in hand; its successor starts when it has ended."""
        if child.life.state is State.BACKOFF or not child.process:
            self._start(child)
            return
        self.note(child, Event.TOLD_TO_DRAIN)
        self._hooks.drain(child.ident, self._settings.shutdown_timeout)

    async def end_all(self, seconds: float) -> None:
        """Drain every worker, and kill those that are not done in time."""
        self._is_ending = True
        for child in self:
            if child.process:
                self.note(child, Event.TOLD_TO_DRAIN)
                self._hooks.drain(child.ident, seconds)
        try:
            async with asyncio.timeout(seconds + 1.0):
                while any(child.process for child in self):
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            log.warning("workers did not finish in time and are killed")
            self.kill_all()

    def kill_all(self) -> None:
        """End every worker now."""
        self._is_ending = True
        for child in self:
            if child.process:
                child.process.kill()
                child.process.join(5.0)

    async def watch_silence(self) -> None:
        """Kill workers whose loop hangs, with a stack trace first."""
        while True:
            await asyncio.sleep(1.0)
            for child in self:
                silent = time.monotonic() - child.heard_at
                if not child.process or silent < self._settings.worker_silence_limit:
                    continue
                log.error(
                    "worker is silent and will be killed",
                    extra={"worker": child.name, "pid": child.pid, "seconds": silent},
                )
                self._signal(child, signal.SIGABRT)
                self._signal(child, signal.SIGCONT)
                asyncio.get_running_loop().call_later(LAST_WORDS, self._kill, child, child.starts)
                child.heard_at = time.monotonic()

    def _signal(self, child: Child, number: signal.Signals) -> None:
        if child.pid:
            os.kill(child.pid, number)

    def _kill(self, child: Child, start: int) -> None:
        if child.process and child.starts == start:
            child.process.kill()

    def _start(self, child: Child) -> None:
        if self._is_ending or child.process:
            return
        child.starts += 1
        spec = WorkerSpec(
            name=child.name,
            ident=child.ident,
            duty=child.duty,
            bus_path=self._bus_path,
            supervisor_pid=os.getpid(),
            settings=self._settings,
        )
        child.process = spawn.start(spec)
        self.heard(child, {})
        self._hooks.admit(child.ident, child.process.pid)
        self.note(child, Event.STARTED)
        loop = asyncio.get_running_loop()
        loop.add_reader(child.process.sentinel, self._on_end, child, child.process)

    def _on_end(self, child: Child, process: Any) -> None:
        asyncio.get_running_loop().remove_reader(process.sentinel)
        process.join(0.5)  # the sentinel may be faster than the exit code
        code = process.exitcode
        ident, child.process = child.ident, None
        self._hooks.gone(ident)
        self._ended.set()
        if code == ExitCode.CONFIGURATION:
            self.note(child, Event.REFUSED)
            self._hooks.refused(child)
            return
        was_told = child.life.state is State.DRAINING
        self.note(child, Event.ENDED if was_told and code == ExitCode.OK else Event.DIED)
        if was_told:
            self._start(child)
            return
        log.error("worker died", extra={"worker": child.name, "exit_code": code})
        delay = restart_delay(child.life, random.random())
        asyncio.get_running_loop().call_later(delay, self._start, child)
