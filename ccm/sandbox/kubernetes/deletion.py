"""Preconditions, finalizers, and the controllers without which a deletion would never end."""

from collections.abc import Iterator

from ccm.sandbox.kubernetes.errors import failed_precondition, unsupported_option
from ccm.sandbox.kubernetes.kinds import NAMESPACE, PERSISTENT_VOLUME, STORED_KINDS, ResourceKind
from ccm.sandbox.kubernetes.objects import Object, clone, metadata, timestamp
from ccm.sandbox.kubernetes.storage import Storage, StoredObject
from ccm.sandbox.kubernetes.strategies.simple import PROTECTION_FINALIZER

COLLECTOR_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def finalizer_of(options: Object) -> str:
    """Return the finalizer that a propagation policy asks for, or nothing."""
    policy = options.get("propagationPolicy")
    if policy in (None, "Background"):
        return ""
    if policy not in COLLECTOR_FINALIZERS:
        supported = '"Foreground", "Background", "Orphan", "nil"'
        raise unsupported_option("DeleteOptions", "propagationPolicy", f'"{policy}"', supported)
    return COLLECTOR_FINALIZERS[policy]


def check_preconditions(current: StoredObject, options: Object) -> None:
    """Refuse to delete another object, or another version, than the client has seen."""
    wanted, meta = options.get("preconditions") or {}, current.obj["metadata"]
    for name, what, event in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        if wanted.get(name) not in (None, meta[name]):
            why = (
                f"the {what} in the precondition ({wanted[name]}) does not match the {what} in"
                f" record ({meta[name]}). The object might have been {event}"
            )
            raise failed_precondition(current.kind, meta["name"], why)


def has_finalizers(stored: StoredObject) -> bool:
    """Tell whether something must happen before the object may go."""
    held = stored.obj["metadata"].get("finalizers")
    if stored.kind == NAMESPACE:
        held = held or stored.obj["spec"].get("finalizers")
    return bool(held)


def marked_for_deletion(obj: Object, finalizer: str = "") -> Object:
    """Return the object as it waits for its finalizers, and for one more when it is given."""
    marked = clone(obj)
    meta = metadata(marked)
    meta.update(deletionTimestamp=timestamp(), deletionGracePeriodSeconds=0)
    if finalizer and finalizer not in meta.get("finalizers", []):
        meta["finalizers"] = [*meta.get("finalizers", []), finalizer]
    if marked["kind"] == NAMESPACE.name:
        del meta["deletionGracePeriodSeconds"]
        marked["status"]["phase"] = "Terminating"
    return marked


class DeletionController:
    """Does at once what parts of kube-controller-manager do to objects that are being deleted.

    A volume that is not bound loses its protection, a namespace takes its objects with it, and the
    finalizers that wait for a garbage collector go, though nothing is collected.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def reconcile(self, changed: StoredObject) -> None:
        """Do what follows from an object being marked for deletion or removed."""
        self._release(changed.kind, changed.key)
        if changed.kind == NAMESPACE:
            self._empty_namespace(changed.key)
        elif changed.kind.namespaced:
            self._finish_namespace(changed.obj["metadata"]["namespace"])

    def _release(self, kind: ResourceKind, key: str) -> None:
        found = self._storage.get(kind, key)
        if found is None:
            return
        ours = set(COLLECTOR_FINALIZERS.values())
        if kind == PERSISTENT_VOLUME and found.obj["status"].get("phase") != "Bound":
            ours.add(PROTECTION_FINALIZER)
        obj = clone(found.obj)
        held = metadata(obj).get("finalizers", [])
        rest = [finalizer for finalizer in held if finalizer not in ours]
        if rest == held:
            return
        metadata(obj)["finalizers"] = rest
        if rest:
            self._storage.write(kind, key, obj)
        elif not has_finalizers(StoredObject(kind, key, obj, found.revision)):
            self._storage.remove(kind, key)

    def _empty_namespace(self, name: str) -> None:
        for kind, stored in list(self._contents(name)):
            if not has_finalizers(stored):
                self._storage.remove(kind, stored.key)
            elif "deletionTimestamp" not in stored.obj["metadata"]:
                self._storage.write(kind, stored.key, marked_for_deletion(stored.obj))
        self._finish_namespace(name)

    def _finish_namespace(self, name: str) -> None:
        found = self._storage.get(NAMESPACE, name)
        meta = found.obj["metadata"] if found else {}
        is_waiting = "deletionTimestamp" in meta and not meta.get("finalizers")
        if is_waiting and next(self._contents(name), None) is None:
            self._storage.remove(NAMESPACE, name)

    def _contents(self, name: str) -> Iterator[tuple[ResourceKind, StoredObject]]:
        for kind in STORED_KINDS:
            if kind.namespaced:
                for key, stored in self._storage.current(kind).items():
                    if key.startswith(f"{name}/"):
                        yield kind, stored
