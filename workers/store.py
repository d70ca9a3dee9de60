"""A worker's copy of the objects it wants: snapshots, deltas, and its own writes read back."""

from dataclasses import dataclass, field

from ccm.bus.frames import Objects
from ccm.model.node import Json, mapping, text
from ccm.model.projection import Path, Want, project

Name = tuple[str, str]  # kind, key


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

    wants: tuple[Want, ...]
    _objects: dict[Name, Json] = field(default_factory=dict)
    _floor: dict[Name, int] = field(default_factory=dict)
    _coming: dict[Name, Json] | None = None
    _epoch: int = 0
    _seq: int = 0

    def get(self, kind: str, key: str) -> Json | None:
        return self._objects.get((kind, key))

    def count(self, kind: str) -> int:
        return sum(1 for known, _ in self._objects if known == kind)

    def names(self) -> list[Name]:
        return list(self._objects)

    def absorb(self, frame: Objects) -> Absorbed:
        """Take in a frame of the feed; raises `Gap` when one before it is missing."""
        if frame.epoch != self._epoch:
            self._epoch, self._seq, self._coming = frame.epoch, 0, {}
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
            if value is not None:
                self._coming[(kind, key)] = self._newer((kind, key), version, value)
        return self._complete() if frame.complete else Absorbed([], completed=False)

    def wrote(self, kind: str, key: str, answer: Json) -> None:
        """Remember what a write of ours answered, and ignore anything older from the feed."""
        name = (kind, key)
        if name not in self._objects:
            return
        version = text(mapping(answer.get("metadata")).get("resourceVersion"))
        self._floor[name] = int(version) if version.isdigit() else 0
        self._objects[name] = project(answer, self._paths(kind))

    def _complete(self) -> Absorbed:
        new = self._coming or {}
        changed = [*new, *(name for name in self._objects if name not in new)]
        self._objects, self._coming = new, None
        self._floor = {name: at for name, at in self._floor.items() if name in new}
        return Absorbed(changed, completed=True)

    def _put(self, name: Name, version: int, value: Json | None) -> bool:
        if value is None:
            self._floor.pop(name, None)
            return self._objects.pop(name, None) is not None
        if version < self._floor.get(name, 0):
            return False
        self._floor.pop(name, None)
        self._objects[name] = value
        return True

    def _newer(self, name: Name, version: int, value: Json) -> Json:
        known = self._objects.get(name)
        return known if known is not None and version < self._floor.get(name, 0) else value

    def _paths(self, kind: str) -> tuple[Path, ...]:
        return next(want.paths for want in self.wants if want.kind == kind)
