"""Duties of kube-controller-manager without which deletions in a sandbox would never end.

A volume that is not bound loses its protection, a namespace takes its objects with it, and the
finalizers that wait for a garbage collector go, though nothing is collected.
"""

from __future__ import annotations

from collections.abc import Iterator

from ccm.sandbox.kubernetes.deletion import (
    COLLECTOR_FINALIZERS,
    is_held,
    marked_for_deletion,
)
from ccm.sandbox.kubernetes.history import Stored
from ccm.sandbox.kubernetes.kinds import NAMESPACE, PERSISTENT_VOLUME, Kind, stored_kinds
from ccm.sandbox.kubernetes.objects import clone, metadata
from ccm.sandbox.kubernetes.rules.volumes import PROTECTION
from ccm.sandbox.kubernetes.store import Store


class Controllers:
    """Acts on objects that were marked or removed, at once and in the same step."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def settle(self, changed: Stored) -> None:
        """Do what follows from an object being marked for deletion or removed."""
        self._release(changed.kind, changed.key)
        if changed.kind == NAMESPACE:
            self._empty_namespace(changed.key)
        elif changed.kind.namespaced:
            self._finish_namespace(changed.obj["metadata"]["namespace"])

    def _release(self, kind: Kind, key: str) -> None:
        found = self._store.get(kind, key)
        if found is None:
            return
        ours = set(COLLECTOR_FINALIZERS.values())
        if kind == PERSISTENT_VOLUME and found.obj["status"].get("phase") != "Bound":
            ours.add(PROTECTION)
        obj = clone(found.obj)
        held = metadata(obj).get("finalizers", [])
        rest = [finalizer for finalizer in held if finalizer not in ours]
        if rest == held:
            return
        metadata(obj)["finalizers"] = rest
        if rest:
            self._store.write(kind, key, obj)
        elif not is_held(Stored(kind, key, obj, found.revision)):
            self._store.remove(kind, key)

    def _empty_namespace(self, name: str) -> None:
        for kind, stored in list(self._contents(name)):
            if not is_held(stored):
                self._store.remove(kind, stored.key)
            elif "deletionTimestamp" not in stored.obj["metadata"]:
                self._store.write(kind, stored.key, marked_for_deletion(stored.obj))
        self._finish_namespace(name)

    def _finish_namespace(self, name: str) -> None:
        found = self._store.get(NAMESPACE, name)
        if found is None or "deletionTimestamp" not in found.obj["metadata"]:
            return
        if found.obj["metadata"].get("finalizers"):
            return
        if next(self._contents(name), None) is None:
            self._store.remove(NAMESPACE, name)

    def _contents(self, name: str) -> Iterator[tuple[Kind, Stored]]:
        for kind in stored_kinds():
            if kind.namespaced:
                for key, stored in self._store.current(kind).items():
                    if key.startswith(f"{name}/"):
                        yield kind, stored
