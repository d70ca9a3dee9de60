"""Objects in memory under one resourceVersion counter; it knows no rules and no HTTP."""

from __future__ import annotations

from collections.abc import Iterable

from ccm.sandbox.kubernetes.history import Change, History, Stored
from ccm.sandbox.kubernetes.kinds import Kind
from ccm.sandbox.kubernetes.objects import Object


class Store:
    """The current objects of every kind and a bounded history of each kind."""

    def __init__(self, kinds: Iterable[Kind], history: int) -> None:
        self.revision = 1
        self._objects: dict[str, dict[str, Stored]] = {}
        self._histories: dict[str, History] = {}
        for kind in kinds:
            self._objects[kind.qualified_plural] = {}
            self._histories[kind.qualified_plural] = History(history, self.revision)

    def get(self, kind: Kind, key: str) -> Stored | None:
        return self._objects[kind.qualified_plural].get(key)

    def current(self, kind: Kind) -> dict[str, Stored]:
        """Return the kind's objects by key; to be read, not changed."""
        return self._objects[kind.qualified_plural]

    def history(self, kind: Kind) -> History:
        return self._histories[kind.qualified_plural]

    def write(self, kind: Kind, key: str, obj: Object) -> Stored:
        """Store `obj`, which the store now owns, as the next version."""
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        objects = self.current(kind)
        before, after = objects.get(key), Stored(kind, key, obj, self.revision)
        objects[key] = after
        self.history(kind).append(Change(self.revision, key, before, after))
        return after

    def remove(self, kind: Kind, key: str) -> Stored:
        """Remove an object and return its last state under the version of its removal."""
        self.revision += 1
        before = self.current(kind).pop(key)
        self.history(kind).append(Change(self.revision, key, before, None))
        return before.at(self.revision)

    def at(self, kind: Kind, revision: int) -> dict[str, Stored]:
        """Return the kind's objects as they were: the present with later changes undone.

        Raises TooOld when those changes are forgotten.
        """
        history = self.history(kind)
        later = history.read(history.position(revision))
        if not later:
            return self.current(kind)
        past = dict(self.current(kind))
        for change in reversed(later):
            if change.before is None:
                del past[change.key]
            else:
                past[change.key] = change.before
        return past

    def compact(self) -> None:
        """Forget all history: every watch or page from before now is too old."""
        for history in self._histories.values():
            history.compact(self.revision)
