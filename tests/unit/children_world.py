"""Workers whose processes are only a pipe, and what the supervisor did with each of them."""

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any, cast

import pytest

from ccm.bus.frames import WorkerSpec
from ccm.decide.children import Life, WorkerState
from ccm.settings import Settings
from ccm.supervisor.child import Child, WorkerProcess
from ccm.supervisor.children import Children, Hooks
from ccm.tls import Server

NO_PID = 1 << 24  # more than Linux gives to any process: a stray signal meets nobody

WORKING = (WorkerState.STANDBY, WorkerState.RUNNING)
SERVER = Server("https://127.0.0.1:1")


class FakeProcess:
    """A process that ends when a test says so; `done` is what was done to it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exitcode: int | None = None
        self.done: list[str] = []
        self.sentinel, self.other = os.pipe()

    def kill(self) -> None:
        self.done.append("kill")

    def terminate(self) -> None:
        self.done.append("terminate")

    def join(self, timeout: float) -> None:
        self.done.append(f"join {timeout:g}")

    def end(self, code: int | None = None) -> None:
        self.exitcode = code if code is not None else self.exitcode
        os.write(self.other, b".")


class Spawns:
    """All processes that were spawned; `failures` are raised first, one a spawn."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.specs: list[WorkerSpec] = []
        self.processes: list[FakeProcess] = []

    @property
    def count(self) -> int:
        return len(self.processes)

    def start(self, spec: WorkerSpec) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        self.specs.append(spec)
        self.processes.append(FakeProcess(NO_PID + self.count))
        return self.processes[-1]

    def close(self) -> None:
        for process in self.processes:
            asyncio.get_running_loop().remove_reader(process.sentinel)
            os.close(process.sentinel)
            os.close(process.other)


class World:
    """Workers, what the rest of the supervisor was told of them, and their processes."""

    def __init__(self, path: Path, spawns: Spawns, settings: Settings | None = None) -> None:
        self.spawns = spawns
        self.reported: list[tuple[object, ...]] = []
        self.settings = settings or Settings()
        self.of_controller: dict[str, Settings] = {}
        hooks = Hooks(
            admit=lambda child, process: self.reported.append(("admit", child.name, process.ident)),
            gone=lambda ident: self.reported.append(("gone", ident)),
            drain=lambda ident, seconds: self.reported.append(("drain", ident, seconds)),
            permit=lambda child: self.reported.append(("permit", child.name)),
            refused=lambda child: self.reported.append(("refused", child.name)),
            settings_for=lambda name: self.of_controller.get(name, self.settings),
        )
        self.children = Children(path / "bus", self.settings, SERVER, spawns.start, "cluster")
        self.children.bind(hooks)

    def has_started(self, count: int) -> bool:
        return self.spawns.count == count

    def is_gone(self, process: WorkerProcess) -> bool:
        return ("gone", process.ident) in self.reported

    def start(self, name: str = "node-0", state: WorkerState = WorkerState.STARTING) -> Child:
        """A worker that has come so far."""
        self.children.add({name: name.partition("-")[0]})
        child = self.children.get(name)
        assert child
        assert child.current
        if state is not WorkerState.STARTING:
            child.current.said_hello = True
        child.current.is_synced = state in WORKING
        child.current.heard_at = child.current.started_at = time.monotonic()  # virtual, perhaps
        child.life = Life(state)
        self.reported.clear()
        return child


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings and errors of the log."""
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def handle(process: WorkerProcess | None) -> FakeProcess:
    assert process
    return cast(FakeProcess, process.handle)
