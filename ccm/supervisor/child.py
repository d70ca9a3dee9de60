"""One worker by its name, its processes, and how a process is started.

A spawned process imports this module first: it stays small.
"""

import importlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import multiprocess

from ccm.bus.frames import WorkerSpec
from ccm.decide.children import Life
from ccm.model.objects import Json


@dataclass
class WorkerProcess:
    """One process of a worker. `is_fenced`: it must not act yet, others still own its keys."""

    ident: str
    handle: Any
    journal_path: Path
    controllers: tuple[str, ...]
    is_fenced: bool = False
    said_hello: bool = False
    is_synced: bool = False
    heard_at: float = field(default_factory=time.monotonic)
    status: Json = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


@dataclass
class Child:
    """A worker: its current process, and during a hand-over the successor."""

    name: str
    controller: str
    life: Life = field(default_factory=Life)
    starts: int = 0
    current: WorkerProcess | None = None
    successor: WorkerProcess | None = None
    is_leaving: bool = False  # scaled away: it is not started again
    last_faults: list[str] = field(default_factory=list)

    def processes(self) -> list[WorkerProcess]:
        """Its running processes, the current one first."""
        return [process for process in (self.current, self.successor) if process]

    @property
    def pid(self) -> int | None:
        return self.current.handle.pid if self.current else None

    def describe(self, now: float) -> Json:
        """Its entry under `workers` in `status`."""
        silent = now - self.current.heard_at if self.current else 0.0
        return {
            "name": self.name,
            "state": self.life.state,
            "state_seconds": round(now - self.life.since, 1),
            "pid": self.pid,
            "restarts": max(self.starts - 1, 0),
            "deaths_in_a_row": self.life.deaths,
            "successor_pid": self.successor.handle.pid if self.successor else None,
            "silent_seconds": round(silent, 1),
            "faults": self.last_faults,
            **(self.current.status if self.current else {}),
        }


def run_worker(spec: WorkerSpec) -> None:
    """The first code of a spawned process; named by text, as the supervisor imports no worker."""
    importlib.import_module("workers.main").main(spec)


def start_process(spec: WorkerSpec) -> Any:
    """A running `multiprocess` process for `spec`.

    Call it from the main thread only: the kernel ends a child when the thread that started it ends.
    """
    context = multiprocess.get_context("spawn")
    process = context.Process(target=run_worker, args=(spec,), name=spec.name, daemon=True)
    process.start()
    return process
