"""What create, update, patch and delete mean: the one place that changes the storage."""

import uuid

from ccm.sandbox.kubernetes import errors
from ccm.sandbox.kubernetes.errors import bad_request, forbidden_field, invalid_field
from ccm.sandbox.kubernetes.kinds import NAMESPACE, ResourceKind
from ccm.sandbox.kubernetes.objects import Object, clone, section, strip_empty, timestamp
from ccm.sandbox.kubernetes.patch import Patch
from ccm.sandbox.kubernetes.reads import get_object
from ccm.sandbox.kubernetes.request import RequestInfo
from ccm.sandbox.kubernetes.storage import Storage, StoredObject
from ccm.sandbox.kubernetes.strategies import strategy_for

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
# What a client may leave out of an update, what it may never change, and what is not stored empty.
OPTIONAL_IN_UPDATE = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
FIXED = ("uid", "deletionTimestamp")
OMIT_EMPTY = ("labels", "annotations", "finalizers")


class Registry:
    """Performs writes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def create(self, info: RequestInfo, body: Object) -> StoredObject:
        kind = info.kind
        obj = strip_empty(body)
        check_type(kind, obj)
        self._check_namespace(info, obj)
        meta = section(obj, "metadata")
        if not meta.get("name"):
            raise bad_request("metadata.name: Required value: the sandbox generates no names")
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            meta.pop(name, None)
        meta.update(uid=str(uuid.uuid4()), creationTimestamp=timestamp())
        if kind.has_status and not kind.keep_status_on_create:
            obj["status"] = {}
        key = kind.key(info.namespace, meta["name"])
        if self._storage.get(kind, key) is not None:
            raise errors.already_exists(kind, meta["name"])
        self._admit(kind, obj, None)
        return self._write(kind, key, obj)

    def update(self, info: RequestInfo, body: Object) -> StoredObject:
        """Update an object as a whole."""
        obj = strip_empty(body)
        self._check_namespace(info, obj)
        current = get_object(self._storage, info)
        _check_uid(info.kind, current, section(obj, "metadata").get("uid"))
        return self._update(info, current, obj)

    def patch(self, info: RequestInfo, patch: Patch) -> StoredObject:
        current = get_object(self._storage, info)
        return self._update(info, current, strip_empty(patch(current.obj)))

    def delete(self, info: RequestInfo, delete_options: Object) -> tuple[StoredObject, bool]:
        """Remove an object, or mark it when finalizers hold it; return whether it is gone."""
        kind, current = info.kind, get_object(self._storage, info)
        if kind == NAMESPACE:
            raise errors.forbidden(kind, info.name, "the sandbox deletes no namespaces")
        preconditions = delete_options.get("preconditions") or {}
        _check_uid(kind, current, preconditions.get("uid"))
        meta = current.obj["metadata"]
        if preconditions.get("resourceVersion") not in (None, meta["resourceVersion"]):
            raise errors.conflict(kind, info.name, MODIFIED)
        if not meta.get("finalizers"):
            return self._storage.remove(kind, info.key), True
        if "deletionTimestamp" in meta:
            return current, False
        obj = clone(current.obj)
        obj["metadata"].update(deletionTimestamp=timestamp(), deletionGracePeriodSeconds=0)
        return self._write(kind, info.key, obj), False

    def _update(self, info: RequestInfo, current: StoredObject, obj: Object) -> StoredObject:
        kind, old = info.kind, current.obj
        check_type(kind, obj)
        check_name(info, obj)
        meta = section(obj, "metadata")
        if meta.get("resourceVersion", "0") not in ("0", str(current.revision)):
            raise errors.conflict(kind, info.name, MODIFIED)
        meta["resourceVersion"] = str(current.revision)
        if info.subresource == "status":
            obj = {**_shared(old), "metadata": meta, "status": obj.get("status", {})}
        elif kind.has_status:
            obj["status"] = dict(old.get("status", {}))
        _carry_over_metadata(meta, old["metadata"])
        _check_metadata(kind, obj, old)
        self._admit(kind, obj, old)
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            removed = self._storage.remove(kind, info.key)
            return StoredObject(kind, info.key, obj, removed.revision).at(removed.revision)
        if obj == old:
            return current
        return self._write(kind, info.key, obj)

    def _admit(self, kind: ResourceKind, obj: Object, old: Object | None) -> None:
        meta = section(obj, "metadata")
        for name in OMIT_EMPTY:
            if name in meta and not meta[name]:
                del meta[name]
        meta.pop("managedFields", None)
        strategy_for(kind)(obj, old, self._storage)

    def _write(self, kind: ResourceKind, key: str, obj: Object) -> StoredObject:
        obj["kind"], obj["apiVersion"] = kind.name, kind.api_version
        return self._storage.write(kind, key, obj)

    def _check_namespace(self, info: RequestInfo, obj: Object) -> None:
        """Refuse an object that is for another namespace or for none that exists."""
        meta = section(obj, "metadata")
        if not info.kind.namespaced:
            meta.pop("namespace", None)
            return
        if meta.setdefault("namespace", info.namespace) != info.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        if self._storage.get(NAMESPACE, info.namespace) is None:
            raise errors.not_found(NAMESPACE, info.namespace)


def check_type(kind: ResourceKind, obj: Object) -> None:
    """Refuse an object of another kind; one that does not say is of the right kind."""
    named = obj.setdefault("kind", kind.name), obj.setdefault("apiVersion", kind.api_version)
    if named != (kind.name, kind.api_version):
        raise bad_request(f"{named[1]}.{named[0]} cannot be handled as a {kind.name}")


def check_name(info: RequestInfo, obj: Object) -> None:
    """Refuse an object that is not the one the path names."""
    name = section(obj, "metadata").get("name")
    if name != info.name:
        about = f"the name of the object ({name})"
        raise bad_request(f"{about} does not match the name on the URL ({info.name})")


def _check_uid(kind: ResourceKind, current: StoredObject, wanted: object) -> None:
    meta = current.obj["metadata"]
    if wanted not in (None, "", meta["uid"]):
        why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: "
        raise errors.conflict(kind, meta["name"], why + meta["uid"])


def _carry_over_metadata(meta: Object, old_meta: Object) -> None:
    for name in OPTIONAL_IN_UPDATE:
        if name in old_meta:
            meta.setdefault(name, old_meta[name])
    meta["creationTimestamp"] = old_meta["creationTimestamp"]


def _check_metadata(kind: ResourceKind, obj: Object, old: Object) -> None:
    """Refuse what no update may change, and new finalizers of an object that is being deleted."""
    meta, old_meta = obj["metadata"], old["metadata"]
    for name in FIXED:
        if meta.get(name) != old_meta.get(name):
            raise invalid_field(kind, obj, f"metadata.{name}", "field is immutable")
    added = set(meta.get("finalizers", ())) - set(old_meta.get("finalizers", ()))
    if "deletionTimestamp" in old_meta and added:
        why = "no new finalizers can be added if the object is being deleted"
        raise forbidden_field(kind, obj, "metadata.finalizers", why)


def _shared(old: Object) -> Object:
    """Return a copy of an object whose members may be replaced, but not changed further down."""
    return {key: dict(part) if isinstance(part, dict) else part for key, part in old.items()}
