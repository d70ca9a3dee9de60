"""What create, update, patch and delete mean: the one place that changes the storage."""

from dataclasses import dataclass

from ccm.sandbox.kubernetes import errors
from ccm.sandbox.kubernetes.decoding import check_name, check_type, decode
from ccm.sandbox.kubernetes.deletion import (
    DeletionController,
    check_preconditions,
    finalizer_of,
    has_finalizers,
    marked_for_deletion,
)
from ccm.sandbox.kubernetes.errors import InvalidObject
from ccm.sandbox.kubernetes.kinds import NAMESPACE, ResourceKind
from ccm.sandbox.kubernetes.objects import (
    Object,
    generate_name,
    metadata,
    new_uid,
    strip_empty,
    timestamp,
)
from ccm.sandbox.kubernetes.patch import Patch
from ccm.sandbox.kubernetes.request import RequestInfo
from ccm.sandbox.kubernetes.storage import Storage, StoredObject
from ccm.sandbox.kubernetes.strategies import strategy_for
from ccm.sandbox.kubernetes.strategies.strategy import (
    carry_over_metadata,
    drop_empty_metadata,
    validate_metadata,
)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a write is performed: not stored at all, or refused for unknown fields."""

    dry_run: bool = False
    strict: bool = False


DEFAULT_OPTIONS = WriteOptions()
PERMANENT_NAMESPACES = frozenset({"default", "kube-public", "kube-system"})


class Registry:
    """Performs writes; with `dry_run` everything happens except the storing."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._deletion = DeletionController(storage)

    def create(
        self, info: RequestInfo, body: Object, options: WriteOptions = DEFAULT_OPTIONS
    ) -> StoredObject:
        """Store a new object."""
        kind = info.kind
        obj = strip_empty(body)
        check_type(kind, obj, errors.bad_request)
        self._check_namespace(info, obj)
        meta = metadata(obj)
        if meta.get("resourceVersion") not in (None, "", "0"):
            raise errors.raw_error("resourceVersion should not be set on objects to be created")
        decode(kind, obj, errors.bad_request, strict=options.strict)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generated_name(info, meta["generateName"])
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            meta.pop(name, None)
        meta.update(uid=new_uid(), creationTimestamp=timestamp())
        if kind.has_status and not kind.keep_status_on_create:
            obj["status"] = {}
        self._admit(kind, obj, None)
        key = kind.key(info.namespace, meta["name"])
        if (found := self._storage.get(kind, key)) is not None:
            terminating = "deletionTimestamp" in found.obj["metadata"]
            raise errors.already_exists(kind, meta["name"], terminating=terminating)
        return self._write(kind, key, obj, options)

    def update(
        self, info: RequestInfo, body: Object, options: WriteOptions = DEFAULT_OPTIONS
    ) -> tuple[StoredObject, bool]:
        """Update an object as a whole; tell whether that created it."""
        kind = info.kind
        obj = strip_empty(body)
        check_type(kind, obj, errors.bad_request)
        self._check_namespace(info, obj)
        check_name(info, obj)
        current = self._storage.get(kind, info.key)
        if current is None:
            if kind.allow_create_on_update and not info.subresource:
                return self.create(info, obj, options), True
            raise errors.not_found(kind, info.name)
        decode(kind, obj, errors.bad_request, strict=options.strict)
        meta = metadata(obj)
        _check_uid(kind, current, meta.get("uid"))
        if not kind.allow_unconditional_update and not meta.get("resourceVersion"):
            raise errors.version_required(kind, info.name)
        return self._update(info, current, obj, options), False

    def patch(
        self, info: RequestInfo, patch: Patch, options: WriteOptions = DEFAULT_OPTIONS
    ) -> StoredObject:
        """Update an object by what `patch` makes of it."""
        current = self._existing(info)
        obj = strip_empty(patch(current.obj))
        check_type(info.kind, obj, errors.undecodable_patch)
        check_name(info, obj)
        decode(info.kind, obj, errors.undecodable_patch, strict=options.strict)
        return self._update(info, current, obj, options)

    def delete(
        self, info: RequestInfo, delete_options: Object, options: WriteOptions = DEFAULT_OPTIONS
    ) -> tuple[StoredObject, bool]:
        """Remove an object, or mark it when finalizers hold it; tell whether it is gone."""
        finalizer = finalizer_of(delete_options)
        kind, current = info.kind, self._existing(info)
        if kind == NAMESPACE and info.name in PERMANENT_NAMESPACES:
            raise errors.forbidden(kind, info.name, "this namespace may not be deleted")
        check_preconditions(current, delete_options)
        if not has_finalizers(current) and not finalizer:
            return current if options.dry_run else self._remove(kind, info.key), True
        if "deletionTimestamp" in current.obj["metadata"]:
            return current, False
        obj = marked_for_deletion(current.obj, finalizer)
        marked = self._write(kind, info.key, obj, options)
        if not options.dry_run:
            self._deletion.reconcile(marked)
        return marked, False

    def _remove(self, kind: ResourceKind, key: str) -> StoredObject:
        removed = self._storage.remove(kind, key)
        self._deletion.reconcile(removed)
        return removed

    def _update(
        self, info: RequestInfo, current: StoredObject, obj: Object, options: WriteOptions
    ) -> StoredObject:
        kind, old = info.kind, current.obj
        meta = metadata(obj)
        version = meta.get("resourceVersion") or "0"
        if not version.isdecimal():
            raise errors.raw_error(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if version not in ("0", str(current.revision)):
            raise errors.modified(kind, info.name)
        meta["resourceVersion"] = str(current.revision)
        if info.subresource == "status":
            obj = {**_shared(old), "metadata": meta, "status": obj.get("status", {})}
        elif kind.has_status:
            obj["status"] = dict(old.get("status", {}))
        carry_over_metadata(obj, old)
        self._admit(kind, obj, old)
        meta = metadata(obj)
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not options.dry_run:
            removed = self._remove(kind, info.key)
            return StoredObject(kind, info.key, obj, removed.revision).at(removed.revision)
        if obj == old:
            return current
        return self._write(kind, info.key, obj, options)

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

    def _write(
        self, kind: ResourceKind, key: str, obj: Object, options: WriteOptions
    ) -> StoredObject:
        obj["kind"], obj["apiVersion"] = kind.name, kind.api_version
        if options.dry_run:
            current = self._storage.get(kind, key)
            return StoredObject(kind, key, obj, current.revision if current else 0)
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
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        found = self._storage.get(NAMESPACE, info.namespace)
        if found is None:
            raise errors.not_found(NAMESPACE, info.namespace)
        if "deletionTimestamp" in found.obj["metadata"] and not info.name:
            name = meta.get("name", "")
            raise errors.terminating_namespace(info.kind, name, info.namespace)

    def _generated_name(self, info: RequestInfo, base: str) -> str:
        taken = self._storage.current(info.kind)
        while info.kind.key(info.namespace, name := generate_name(base)) in taken:
            pass
        return name


def _check_uid(kind: ResourceKind, current: StoredObject, wanted: object) -> None:
    meta = current.obj["metadata"]
    if wanted not in (None, "", meta["uid"]):
        why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: "
        raise errors.conflict(kind, meta["name"], why + meta["uid"])


def _shared(old: Object) -> Object:
    """Return a copy of an object whose members may be replaced, but not changed further down."""
    return {key: dict(part) if isinstance(part, dict) else part for key, part in old.items()}
