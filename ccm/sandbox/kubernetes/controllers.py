"""Two duties of kube-controller-manager without which deletions in a sandbox would never end.

A volume that is not bound loses its protection, and a namespace takes its objects with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ccm.sandbox.kubernetes.history import Stored
from ccm.sandbox.kubernetes.kinds import NAMESPACE, PERSISTENT_VOLUME, Kind, stored_kinds
from ccm.sandbox.kubernetes.objects import Object, clone, metadata, timestamp
from ccm.sandbox.kubernetes.rules.volumes import PROTECTION
from ccm.sandbox.kubernetes.store import Store


def is_held(stored: Stored) -> bool:
    """Tell whether something must happen before the object may go."""
    held = stored.obj["metadata"].get("finalizers")
    if stored.kind == NAMESPACE:
        held = held or stored.obj["spec"].get("finalizers")
    return bool(held)


def marked_for_deletion(obj: Object) -> Object:
    """Return the object as it waits for its finalizers."""
    marked = clone(obj)
    meta = metadata(marked)
    meta.update(deletionTimestamp=timestamp(), deletionGracePeriodSeconds=0)
    if marked["kind"] == NAMESPACE.name:
        del meta["deletionGracePeriodSeconds"]
        marked["status"]["phase"] = "Terminating"
    return marked


class Controllers:
    """Acts on objects that were marked or removed, at once and in the same step."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def settle(self, changed: Stored) -> None:
        """Do what follows from an object being marked for deletion or removed."""
        if changed.kind == PERSISTENT_VOLUME:
            self._release_volume(changed.key)
        elif changed.kind == NAMESPACE:
            self._empty_namespace(changed.key)
        elif changed.kind.namespaced:
            self._finish_namespace(changed.obj["metadata"]["namespace"])

    def _release_volume(self, key: str) -> None:
        found = self._store.get(PERSISTENT_VOLUME, key)
        if found is None or found.obj["status"].get("phase") == "Bound":
            return
        volume = clone(found.obj)
        meta = metadata(volume)
        if meta.get("finalizers") == [PROTECTION]:
            self._store.remove(PERSISTENT_VOLUME, key)
        elif PROTECTION in meta.get("finalizers", []):
            meta["finalizers"].remove(PROTECTION)
            self._store.write(PERSISTENT_VOLUME, key, volume)

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
