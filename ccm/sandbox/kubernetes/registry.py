"""What create, update, patch and delete mean: the one place that changes the storage."""

import uuid
from collections.abc import Callable

from ccm.sandbox.kubernetes import errors
from ccm.sandbox.kubernetes.errors import (
    DecodeError,
    InvalidObject,
    StatusError,
    bad_request,
)
from ccm.sandbox.kubernetes.kinds import NAMESPACE, ResourceKind
from ccm.sandbox.kubernetes.objects import (
    Object,
    clone,
    metadata,
    strip_empty,
    timestamp,
)
from ccm.sandbox.kubernetes.patch import Patch
from ccm.sandbox.kubernetes.request import RequestInfo
from ccm.sandbox.kubernetes.storage import Storage, StoredObject
from ccm.sandbox.kubernetes.strategies.by_kind import strategy_for
from ccm.sandbox.kubernetes.strategies.strategy import (
    carry_over_metadata,
    decode_metadata,
    drop_empty_metadata,
    validate_metadata,
)

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)

Refuse = Callable[[str], StatusError]


class Registry:
    """Performs writes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def create(self, info: RequestInfo, body: Object) -> StoredObject:
        kind = info.kind
        obj = strip_empty(body)
        check_type(kind, obj, bad_request)
        self._check_namespace(info, obj)
        meta = metadata(obj)
        if meta.get("resourceVersion") not in (None, "", "0"):
            raise errors.raw_error("resourceVersion should not be set on objects to be created")
        decode(kind, obj, bad_request)
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            meta.pop(name, None)
        meta.update(uid=str(uuid.uuid4()), creationTimestamp=timestamp())
        if kind.has_status and not kind.keep_status_on_create:
            obj["status"] = {}
        self._admit(kind, obj, None)
        key = kind.key(info.namespace, meta["name"])
        if (found := self._storage.get(kind, key)) is not None:
            terminating = "deletionTimestamp" in found.obj["metadata"]
            raise errors.already_exists(kind, meta["name"], terminating=terminating)
        return self._write(kind, key, obj)

    def update(self, info: RequestInfo, body: Object) -> StoredObject:
        """Update an object as a whole."""
        kind = info.kind
        obj = strip_empty(body)
        check_type(kind, obj, bad_request)
        self._check_namespace(info, obj)
        check_name(info, obj)
        current = self._existing(info)
        decode(kind, obj, bad_request)
        _check_uid(kind, current, metadata(obj).get("uid"))
        return self._update(info, current, obj)

    def patch(self, info: RequestInfo, patch: Patch) -> StoredObject:
        current = self._existing(info)
        obj = strip_empty(patch(current.obj))
        check_type(info.kind, obj, errors.undecodable_patch)
        check_name(info, obj)
        decode(info.kind, obj, errors.undecodable_patch)
        return self._update(info, current, obj)

    def delete(self, info: RequestInfo, delete_options: Object) -> tuple[StoredObject, bool]:
        """Remove an object, or mark it when finalizers hold it; tell whether it is gone."""
        kind, current = info.kind, self._existing(info)
        if kind == NAMESPACE:
            raise errors.forbidden(kind, info.name, "the sandbox deletes no namespaces")
        check_preconditions(current, delete_options)
        meta = current.obj["metadata"]
        if not meta.get("finalizers"):
            return self._storage.remove(kind, info.key), True
        if "deletionTimestamp" in meta:
            return current, False
        obj = clone(current.obj)
        obj["metadata"].update(deletionTimestamp=timestamp(), deletionGracePeriodSeconds=0)
        return self._write(kind, info.key, obj), False

    def _update(self, info: RequestInfo, current: StoredObject, obj: Object) -> StoredObject:
        kind, old = info.kind, current.obj
        meta = metadata(obj)
        version = meta.get("resourceVersion") or "0"
        if not version.isdecimal():
            raise errors.raw_error(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if version not in ("0", str(current.revision)):
            raise errors.conflict(kind, info.name, MODIFIED)
        meta["resourceVersion"] = str(current.revision)
        if info.subresource == "status":
            obj = {**_shared(old), "metadata": meta, "status": obj.get("status", {})}
        elif kind.has_status:
            obj["status"] = dict(old.get("status", {}))
        carry_over_metadata(obj, old)
        self._admit(kind, obj, old)
        meta = metadata(obj)
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            removed = self._storage.remove(kind, info.key)
            return StoredObject(kind, info.key, obj, removed.revision).at(removed.revision)
        if obj == old:
            return current
        return self._write(kind, info.key, obj)

    def _admit(self, kind: ResourceKind, obj: Object, old: Object | None) -> None:
        strategy = strategy_for(kind)
        drop_empty_metadata(obj)
        wrong = tuple(validate_metadata(kind, obj, old))
        try:
            if not wrong:
                strategy.admit(obj, old, self._storage)
                wrong = tuple(strategy.validate(obj, old))
        except InvalidObject as error:
            wrong = error.errors
        if wrong:
            raise errors.invalid(kind, metadata(obj).get("name", ""), wrong)

    def _write(self, kind: ResourceKind, key: str, obj: Object) -> StoredObject:
        obj["kind"], obj["apiVersion"] = kind.name, kind.api_version
        return self._storage.write(kind, key, obj)

    def _existing(self, info: RequestInfo) -> StoredObject:
        found = self._storage.get(info.kind, info.key)
        if found is None:
            raise errors.not_found(info.kind, info.name)
        return found

    def _check_namespace(self, info: RequestInfo, obj: Object) -> None:
        """Refuse an object that is for another namespace or for none that exists."""
        meta = metadata(obj)
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


def check_type(kind: ResourceKind, obj: Object, refuse: Refuse) -> None:
    """Refuse an object of another kind; one that does not say is of the right kind."""
    named = obj.setdefault("kind", kind.name), obj.setdefault("apiVersion", kind.api_version)
    if named != (kind.name, kind.api_version):
        raise refuse(
            f'{named[0]} in version "{named[1]}" cannot be handled as a {kind.name}: converting'
            f" ({named[1]}.{named[0]}) to ({kind.api_version}.{kind.name}): unknown conversion"
        )


def check_name(info: RequestInfo, obj: Object) -> None:
    """Refuse an object that is not the one the path names."""
    name = metadata(obj).get("name")
    if not name:
        about = f"the name of the object ({info.name} based on URL)"
        raise bad_request(f"{about} was undeterminable: name must be provided")
    if name != info.name:
        about = f"the name of the object ({name})"
        raise bad_request(f"{about} does not match the name on the URL ({info.name})")


def decode(kind: ResourceKind, obj: Object, refuse: Refuse) -> None:
    """Refuse what Go's types cannot hold and fill in defaults."""
    strategy = strategy_for(kind)
    try:
        decode_metadata(obj)
        strategy.decode(obj)
    except DecodeError as error:
        context = f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}'
        raise refuse(f"{context}: {error}") from error
    strategy.default(obj)


def _check_uid(kind: ResourceKind, current: StoredObject, wanted: object) -> None:
    meta = current.obj["metadata"]
    if wanted not in (None, "", meta["uid"]):
        why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: "
        raise errors.conflict(kind, meta["name"], why + meta["uid"])


def _shared(old: Object) -> Object:
    """Return a copy of an object whose members may be replaced, but not changed further down."""
    return {key: dict(part) if isinstance(part, dict) else part for key, part in old.items()}


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
            about = f'{current.kind.qualified_name} "{meta["name"]}"'
            # For once the details name the kind and not the resource.
            details = {**errors.details_of(current.kind, meta["name"]), "kind": current.kind.name}
            message = f"Operation cannot be fulfilled on {about}: {why}"
            raise StatusError(409, message, details=details)
