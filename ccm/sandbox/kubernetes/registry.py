"""What create, update, patch and delete mean: the one place that changes the storage."""

import secrets
import uuid
from collections.abc import Iterator

from ccm.sandbox.kubernetes import errors
from ccm.sandbox.kubernetes.decoding import check_name, check_type, decode
from ccm.sandbox.kubernetes.errors import FieldError, InvalidObject, StatusError
from ccm.sandbox.kubernetes.kinds import NAMESPACE, PERSISTENT_VOLUME, STORED_KINDS, ResourceKind
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
from ccm.sandbox.kubernetes.strategies.by_kind import PROTECTION_FINALIZER, strategy_for
from ccm.sandbox.kubernetes.strategies.strategy import (
    carry_over_metadata,
    drop_empty_metadata,
    validate_metadata,
)

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
MAX_GENERATED_BASE = 58
# Without vowels and look-alikes, as the real server chooses them.
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
VERSION_FIELD = "metadata.resourceVersion"
PERMANENT_NAMESPACES = frozenset({"default", "kube-public", "kube-system"})
COLLECTOR_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


class Registry:
    """Performs writes; `dry_run` stores nothing, `strict` refuses unknown fields."""

    def __init__(self, storage: Storage, *, dry_run: bool = False, strict: bool = False) -> None:
        self._storage = storage
        self._dry_run, self._strict = dry_run, strict
        self._deletion = DeletionController(storage)

    def create(self, info: RequestInfo, body: Object) -> StoredObject:
        kind = info.kind
        obj = strip_empty(body)
        check_type(kind, obj, errors.bad_request)
        self._check_namespace(info, obj)
        meta = metadata(obj)
        if meta.get("resourceVersion") not in (None, "", "0"):
            raise errors.raw_error("resourceVersion should not be set on objects to be created")
        decode(kind, obj, errors.bad_request, strict=self._strict)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generated_name(info, meta["generateName"])
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

    def update(self, info: RequestInfo, body: Object) -> tuple[StoredObject, bool]:
        """Update an object as a whole; tell whether that created it."""
        kind = info.kind
        obj = strip_empty(body)
        check_type(kind, obj, errors.bad_request)
        self._check_namespace(info, obj)
        check_name(info, obj)
        current = self._storage.get(kind, info.key)
        if current is None:
            if kind.allow_create_on_update and not info.subresource:
                return self.create(info, obj), True
            raise errors.not_found(kind, info.name)
        decode(kind, obj, errors.bad_request, strict=self._strict)
        meta = metadata(obj)
        _check_uid(kind, current, meta.get("uid"))
        if not kind.allow_unconditional_update and not meta.get("resourceVersion"):
            wrong = FieldError.invalid(VERSION_FIELD, 0, "must be specified for an update")
            message = f'{kind.qualified_plural} "{info.name}" is invalid: {VERSION_FIELD}: '
            details = {**errors.details_of(kind, info.name), "causes": [wrong]}
            raise StatusError(422, message + wrong.message, details=details)
        return self._update(info, current, obj), False

    def patch(self, info: RequestInfo, patch: Patch) -> StoredObject:
        current = self._existing(info)
        obj = strip_empty(patch(current.obj))
        check_type(info.kind, obj, errors.undecodable_patch)
        check_name(info, obj)
        decode(info.kind, obj, errors.undecodable_patch, strict=self._strict)
        return self._update(info, current, obj)

    def delete(self, info: RequestInfo, delete_options: Object) -> tuple[StoredObject, bool]:
        """Remove an object, or mark it when finalizers hold it; tell whether it is gone."""
        finalizer = finalizer_of(delete_options)
        kind, current = info.kind, self._existing(info)
        if kind == NAMESPACE and info.name in PERMANENT_NAMESPACES:
            raise errors.forbidden(kind, info.name, "this namespace may not be deleted")
        check_preconditions(current, delete_options)
        if not has_finalizers(current) and not finalizer:
            return current if self._dry_run else self._remove(kind, info.key), True
        if "deletionTimestamp" in current.obj["metadata"]:
            return current, False
        obj = marked_for_deletion(current.obj, finalizer)
        marked = self._write(kind, info.key, obj)
        if not self._dry_run:
            self._deletion.reconcile(marked)
        return marked, False

    def _remove(self, kind: ResourceKind, key: str) -> StoredObject:
        removed = self._storage.remove(kind, key)
        self._deletion.reconcile(removed)
        return removed

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
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not self._dry_run:
            removed = self._remove(kind, info.key)
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
        if self._dry_run:
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
            why = f"namespace {info.namespace} is being terminated"
            error = errors.forbidden(
                info.kind,
                meta.get("name", ""),
                f"unable to create new content in namespace {info.namespace} because it is being"
                " terminated",
            )
            cause = FieldError("metadata.namespace", "NamespaceTerminating", why)
            error.details["causes"] = [cause]
            raise error

    def _generated_name(self, info: RequestInfo, base: str) -> str:
        taken = self._storage.current(info.kind)
        while True:
            suffix = "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(5))
            name = base[:MAX_GENERATED_BASE] + suffix
            if info.kind.key(info.namespace, name) not in taken:
                return name


def _check_uid(kind: ResourceKind, current: StoredObject, wanted: object) -> None:
    meta = current.obj["metadata"]
    if wanted not in (None, "", meta["uid"]):
        why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: "
        raise errors.conflict(kind, meta["name"], why + meta["uid"])


def _shared(old: Object) -> Object:
    """Return a copy of an object whose members may be replaced, but not changed further down."""
    return {key: dict(part) if isinstance(part, dict) else part for key, part in old.items()}


def finalizer_of(options: Object) -> str:
    """Return the finalizer that a propagation policy asks for, or nothing."""
    policy = options.get("propagationPolicy")
    if policy in (None, "Background"):
        return ""
    if policy not in COLLECTOR_FINALIZERS:
        supported = '"Foreground", "Background", "Orphan", "nil"'
        raise errors.unsupported_option(
            "DeleteOptions", "propagationPolicy", f'"{policy}"', supported
        )
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
            about = f'{current.kind.qualified_name} "{meta["name"]}"'
            # For once the details name the kind and not the resource.
            details = {**errors.details_of(current.kind, meta["name"]), "kind": current.kind.name}
            message = f"Operation cannot be fulfilled on {about}: {why}"
            raise StatusError(409, message, details=details)


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
