"""One worker by its name, over all its starts."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ccm.decide.children import Life
from ccm.model.objects import Json


@dataclass
class Start:
    """One process of a worker. `is_held`: others still have its keys, so it must not act yet."""

    ident: str
    process: Any
    journal_path: Path
    controllers: tuple[str, ...]
    is_held: bool = False
    said_hello: bool = False
    is_synced: bool = False
    heard_at: float = field(default_factory=time.monotonic)
    status: Json = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


@dataclass
class Child:
    """A worker: the start that works, and during a hand-over the one that will."""

    name: str
    controller: str
    life: Life = field(default_factory=Life)
    starts: int = 0
    current: Start | None = None
    successor: Start | None = None
    is_leaving: bool = False  # it is not started again: there are fewer workers from now on
    last_faults: list[str] = field(default_factory=list)

    def running(self) -> list[Start]:
        """Its processes, the working one first."""
        return [start for start in (self.current, self.successor) if start]

    @property
    def pid(self) -> int | None:
        return self.current.process.pid if self.current else None

    def describe(self, now: float) -> Json:
        """What `status` shows."""
        silent = now - self.current.heard_at if self.current else 0.0
        return {
            "name": self.name,
            "state": self.life.state,
            "state_seconds": round(now - self.life.since, 1),
            "pid": self.pid,
            "restarts": max(self.starts - 1, 0),
            "deaths_in_a_row": self.life.deaths,
            "successor_pid": self.successor.process.pid if self.successor else None,
            "silent_seconds": round(silent, 1),
            "faults": self.last_faults,
            **(self.current.status if self.current else {}),
        }
