"""A cluster as the deletion governor sees it, for tests of what it permits over time."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from ccm.bus.frames import ProposeDeletions
from ccm.decide.deletion import DeletionPolicy, ObservedNode
from ccm.supervisor.deletions import DeletionGovernor
from ccm.supervisor.freeze import DeletionCommands

POLICY = DeletionPolicy(
    period=5.0, confirmation=0.0, limit=10, limit_percent=10.0, window=600.0, vanish_share=0.3
)
"""Two answers do; how long they have to go on by default is tested in `test_evidence`."""
NOT_READY = ObservedNode("", is_ready=False, is_foreign=False, has_provider_id=True)


@dataclass
class Cluster:
    """A cluster as the supervisor sees it, its clock, and the governor with its state file."""

    path: Path
    policy: DeletionPolicy = POLICY
    now: float = 1000.0
    nodes: dict[str, ObservedNode] = field(default_factory=dict)
    warnings: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.governor = DeletionGovernor(
            self.policy,
            self.path,
            self,
            lambda reason, message: self.warnings.append((reason, message)),
            lambda: self.now,
        )

    def ask(self, action: str, **request: str) -> dict[str, Any]:
        """The answer to a person, without a Lease that replicas share."""
        commands = DeletionCommands(self.governor, None, lambda: "")
        return {**asyncio.run(commands.answer({"action": action, **request}))}

    def get(self, name: str) -> ObservedNode | None:
        return self.nodes.get(name)

    def count(self) -> int:
        return len(self.nodes)

    def fill(self, count: int) -> "Cluster":
        for number in range(count):
            self.nodes[f"n{number}"] = replace(NOT_READY, uid=f"u{number}", is_ready=True)
        return self

    def change(self, name: str, **status: Any) -> None:
        self.nodes[name] = replace(self.nodes[name], **status)

    def report(
        self,
        gone: Iterable[str] = (),
        not_gone: Iterable[str] = (),
        worker: str = "node-0.1",
        is_final: bool = False,
    ) -> list[str]:
        """One pass of a worker, answered by the cloud right now; the names permitted after it."""
        entries = [
            [name, self.nodes[name].uid, "no such machine", self.now, is_final] for name in gone
        ]
        names = list(not_gone)
        message = ProposeDeletions(len(entries) + len(names), entries, names)
        return [entry[0] for entry in self.governor.on_message(worker, message).nodes]

    def advance(self, seconds: float = 5.0) -> "Cluster":
        self.now += seconds
        return self

    def kill(self, *names: str) -> "Cluster":
        for name in names:
            self.change(name, is_ready=False)
        return self

    def why(self, name: str) -> str:
        found = [c for c in self.status()["candidates"] if c["node"] == name]
        return str(found[0]["reason"]) if found else ""

    def status(self) -> dict[str, Any]:
        """What a person gets: it must be JSON at any time."""
        status: dict[str, Any] = orjson.loads(orjson.dumps(self.governor.status(self.now)))
        return status


def names(count: int, first: int = 0) -> list[str]:
    return [f"n{number}" for number in range(first, first + count)]
