"""A worker and the processes that run it, as its supervisor sees them."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from ccm.decide.children import Life
from ccm.model.status import WorkerReport, WorkerStatus
from ccm.supervisor.starter import Process

GROWTH_SHOWN = 3600.0  # seconds for which the status has that a worker grew too large


@dataclass(frozen=True, slots=True)
class NotReplaced:
    """Why a reload replaced no worker, and whether that may pass without a change by anybody."""

    why: str
    may_pass: bool


@dataclass
class WorkerProcess:
    """One process of a worker."""

    ident: str
    handle: Process
    journal_path: Path
    controllers: tuple[str, ...]
    said_hello: bool = False  # and that was taken in
    is_synced: bool = False
    fenced_since: int = 0  # the last change of permissions since which it does not act any more
    heard_at: float = field(default_factory=time.monotonic)
    started_at: float = field(default_factory=time.monotonic)
    report: WorkerReport = field(default_factory=WorkerReport)
    faults: list[str] = field(default_factory=list)
    proof: "asyncio.Future[NotReplaced | None] | None" = None
    """Has why the process cannot read the cloud, once that is known; None when it can."""

    def end_proof(self, why: NotReplaced | None) -> None:
        if self.proof and not self.proof.done():
            self.proof.set_result(why)


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
    is_joining: bool = False  # scaled up: it must not act, as others still own its keys
    last_faults: list[str] = field(default_factory=list)
    renewed_at: float = float("-inf")
    grew: str = ""  # to what, when it was renewed last

    def processes(self) -> list[WorkerProcess]:
        """Its running processes, the current one first."""
        return [process for process in (self.current, self.successor) if process]

    @property
    def pid(self) -> int | None:
        return self.current.handle.pid if self.current else None

    def describe(self, now: float) -> WorkerStatus:
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
            "grew": self.grew if now - self.renewed_at < GROWTH_SHOWN else "",
            **(self.current.report if self.current else WorkerReport()),
        }
