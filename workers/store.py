"""A worker's copy of the objects it wants, own writes read back; and which Node has a machine."""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ccm.bus.frames import Objects
from ccm.model.objects import (
    FieldPath,
    Json,
    KubernetesObject,
    Node,
    Projection,
    project,
    resource_version,
)

log = logging.getLogger(__name__)

K = TypeVar("K", bound=KubernetesObject)

Name = tuple[str, str]  # kind, key

DUPLICATE = "DuplicateProviderID"
"""The reason of the Event on a Node that gets nothing."""


class Gap(Exception):
    """A frame is missing; only a new snapshot helps."""


@dataclass(frozen=True, slots=True)
class Absorbed:
    """What a frame did: the objects that changed, and whether a snapshot became complete."""

    changed: list[Name]
    completed: bool


@dataclass
class Store:
    """The newest known state of every wanted object, by kind and key."""

    projections: tuple[Projection, ...]
    _objects: dict[Name, Json] = field(default_factory=dict)
    _versions: dict[Name, int] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)  # by kind
    _coming: dict[Name, tuple[int, Json]] | None = None
    _epoch: int = 0
    _seq: int = 0
    _restores: int = 0

    def get(self, kind: str, key: str) -> Json | None:
        return self._objects.get((kind, key))

    def view(self, kind: type[K], key: str) -> K | None:
        """The object of this kind; None when there is none."""
        raw = self.get(kind.KIND, key)
        return kind(raw) if raw is not None else None

    def count(self, kind: str) -> int:
        return self._counts[kind]

    def names(self) -> list[Name]:
        return list(self._objects)

    def absorb(self, frame: Objects) -> Absorbed:
        """Take in a frame of objects; raises `Gap` when one before it is missing."""
        if frame.epoch != self._epoch:
            self._epoch, self._seq, self._coming = frame.epoch, 0, {}
        if frame.restores != self._restores:
            self._restores = frame.restores
            self._versions.clear()
        if frame.seq != self._seq + 1:
            raise Gap(f"frame {frame.seq} of epoch {frame.epoch} after {self._seq}")
        self._seq = frame.seq
        if self._coming is None:
            changed = [
                (kind, key)
                for kind, key, version, value in frame.entries
                if self._put((kind, key), version, value)
            ]
            return Absorbed(changed, completed=False)
        for kind, key, version, value in frame.entries:
            if value is None:
                self._coming.pop((kind, key), None)
            else:
                self._coming[(kind, key)] = version, value
        return self._complete() if frame.complete else Absorbed([], completed=False)

    def wrote(self, kind: str, key: str, answer: Json) -> None:
        """Remember what a write of ours answered; older entries of a frame are ignored."""
        if (kind, key) in self._objects:
            value = project(answer, self._paths(kind))
            self._put((kind, key), resource_version(answer), value)

    def _complete(self) -> Absorbed:
        """The snapshot replaces everything but the answers to our own writes that are newer."""
        coming, self._coming = self._coming or {}, None
        gone = [name for name in self._objects if name not in coming]
        for name in gone:
            self._put(name, 0, None)
        for name, (version, value) in coming.items():
            self._put(name, version, value)
        return Absorbed([*coming, *gone], completed=True)

    def _put(self, name: Name, version: int, value: Json | None) -> bool:
        """Whether this is news: what has the higher version is newer; 0 is not known.

        What we wrote comes back from the watch, and is no news then.
        """
        if value is None:
            self._versions.pop(name, None)
            was_there = self._objects.pop(name, None) is not None
            self._counts[name[0]] -= was_there
            return was_there
        known = self._versions.get(name, 0)
        if version and version < known:
            return False
        if version == known and value == self._objects.get(name):
            return False
        self._counts[name[0]] += name not in self._objects
        self._versions[name] = version
        self._objects[name] = value
        return True

    def _paths(self, kind: str) -> tuple[FieldPath, ...]:
        return next(want.paths for want in self.projections if want.kind == kind)


class MachineHolders:
    """The Nodes of each machine, for a kubelet may write any provider ID.

    All Nodes have to be in here, not only those that this worker owns.
    """

    def __init__(self, machine_of: Callable[[str], str]) -> None:
        self._machine_of = machine_of
        self._nodes: dict[str, dict[str, tuple[str, str]]] = {}  # by machine: name → age
        self._machines: dict[str, str] = {}  # by the name of the Node

    def update(self, name: str, node: Node | None) -> set[str]:
        """Take in a Node, or that there is none; the other Nodes of its machines, old and new."""
        before = self._machines.pop(name, "")
        machine = self._machine(node.provider_id) if node and node.provider_id else ""
        if before:
            self._nodes[before].pop(name)
        if node and machine:
            self._machines[name] = machine
            self._nodes.setdefault(machine, {})[name] = node.age_order
        others = {*self._nodes.get(before, ()), *self._nodes.get(machine, ())} - {name}
        if before and not self._nodes[before]:
            del self._nodes[before]
        return others

    def holder(self, name: str) -> str:
        """The older Node that has this one's machine; empty when this Node has it."""
        nodes = self._nodes.get(self._machines.get(name, ""), {})
        oldest = min(nodes, key=nodes.__getitem__, default=name)
        return "" if oldest == name else oldest

    def older_on(self, provider_id: str, node: Node) -> str:
        """The older Node that has the machine of a provider ID which `node` is about to get."""
        nodes = self._nodes.get(self._machine(provider_id), {})
        older = {name: age for name, age in nodes.items() if age < node.age_order}
        older.pop(node.name, None)
        return min(older, key=older.__getitem__, default="")

    def _machine(self, provider_id: str) -> str:
        try:
            return self._machine_of(provider_id)
        except Exception:  # a provider's code, about whatever a kubelet wrote
            log.exception("provider ID not understood", extra={"provider_id": provider_id})
            return provider_id


def duplicate_message(holder: str) -> str:
    """What people are told of a Node that gets nothing, because an older one has its machine."""
    return f"Node {holder} is older and has the same machine: delete the one that is not on it"
