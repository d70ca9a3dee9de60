"""What create, update, patch and delete mean: the one place that changes the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ccm.sandbox.kubernetes import failures
from ccm.sandbox.kubernetes.controllers import Controllers
from ccm.sandbox.kubernetes.decoding import check_name, check_type, decode
from ccm.sandbox.kubernetes.deletion import (
    check_preconditions,
    finalizer_of,
    is_held,
    marked_for_deletion,
)
from ccm.sandbox.kubernetes.history import Stored
from ccm.sandbox.kubernetes.kinds import NAMESPACE, Kind
from ccm.sandbox.kubernetes.objects import (
    Object,
    generate_name,
    metadata,
    new_uid,
    received,
    timestamp,
)
from ccm.sandbox.kubernetes.patch import Patch
from ccm.sandbox.kubernetes.place import Place
from ccm.sandbox.kubernetes.rules import rules_of
from ccm.sandbox.kubernetes.rules.metadata import (
    drop_empty,
    keep_system_metadata,
    validate_metadata,
)
from ccm.sandbox.kubernetes.rules.rule import Wrong
from ccm.sandbox.kubernetes.store import Store


@dataclass(frozen=True, slots=True)
class Mode:
    """How a write is performed: not stored at all, or without mercy for unknown fields."""

    dry_run: bool = False
    strict: bool = False


NORMALLY = Mode()
UNDYING_NAMESPACES = frozenset({"default", "kube-public", "kube-system"})


class Writes:
    """Performs writes; with `dry_run` everything happens except the storing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._controllers = Controllers(store)

    def create(self, place: Place, body: Object, mode: Mode = NORMALLY) -> Stored:
        """Store a new object."""
        kind = place.kind
        obj = received(body)
        check_type(kind, obj, failures.bad_request)
        self._check_namespace(place, obj)
        meta = metadata(obj)
        if meta.get("resourceVersion") not in (None, "", "0"):
            raise failures.raw_error("resourceVersion should not be set on objects to be created")
        decode(kind, obj, failures.bad_request, strict=mode.strict)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._unused_name(place, meta["generateName"])
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            meta.pop(name, None)
        meta.update(uid=new_uid(), creationTimestamp=timestamp())
        if kind.has_status and not kind.keeps_status_on_create:
            obj["status"] = {}
        self._finish(kind, obj, None)
        key = kind.key(place.namespace, meta["name"])
        if (found := self._store.get(kind, key)) is not None:
            terminating = "deletionTimestamp" in found.obj["metadata"]
            raise failures.already_exists(kind, meta["name"], terminating=terminating)
        return self._write(kind, key, obj, mode)

    def replace(self, place: Place, body: Object, mode: Mode = NORMALLY) -> tuple[Stored, bool]:
        """Update an object as a whole; tell whether that created it."""
        kind = place.kind
        obj = received(body)
        check_type(kind, obj, failures.bad_request)
        self._check_namespace(place, obj)
        check_name(place, obj)
        current = self._store.get(kind, place.key)
        if current is None:
            if kind.creates_on_update and not place.subresource:
                return self.create(place, obj, mode), True
            raise failures.not_found(kind, place.name)
        decode(kind, obj, failures.bad_request, strict=mode.strict)
        meta = metadata(obj)
        _check_uid(kind, current, meta.get("uid"))
        if not kind.unconditional_update and not meta.get("resourceVersion"):
            raise failures.needs_version(kind, place.name)
        return self._update(place, current, obj, mode), False

    def patch(self, place: Place, patch: Patch, mode: Mode = NORMALLY) -> Stored:
        """Update an object by what `patch` makes of it."""
        current = self._existing(place)
        obj = received(patch(current.obj))
        check_type(place.kind, obj, failures.undecodable_patch)
        check_name(place, obj)
        decode(place.kind, obj, failures.undecodable_patch, strict=mode.strict)
        return self._update(place, current, obj, mode)

    def delete(self, place: Place, options: Object, mode: Mode = NORMALLY) -> tuple[Stored, bool]:
        """Remove an object, or mark it when finalizers hold it; tell whether it is gone."""
        finalizer = finalizer_of(options)
        kind, current = place.kind, self._existing(place)
        if kind == NAMESPACE and place.name in UNDYING_NAMESPACES:
            raise failures.forbidden(kind, place.name, "this namespace may not be deleted")
        check_preconditions(current, options)
        if not is_held(current) and not finalizer:
            return current if mode.dry_run else self._remove(kind, place.key), True
        if "deletionTimestamp" in current.obj["metadata"]:
            return current, False
        obj = marked_for_deletion(current.obj, finalizer)
        marked = self._write(kind, place.key, obj, mode)
        if not mode.dry_run:
            self._controllers.settle(marked)
        return marked, False

    def _remove(self, kind: Kind, key: str) -> Stored:
        removed = self._store.remove(kind, key)
        self._controllers.settle(removed)
        return removed

    def _update(self, place: Place, current: Stored, obj: Object, mode: Mode) -> Stored:
        kind, old = place.kind, current.obj
        meta = metadata(obj)
        version = meta.get("resourceVersion") or "0"
        if not version.isdecimal():
            raise failures.raw_error(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if version not in ("0", str(current.revision)):
            raise failures.modified(kind, place.name)
        meta["resourceVersion"] = str(current.revision)
        if place.subresource == "status":
            obj = {**_shared(old), "metadata": meta, "status": obj.get("status", {})}
        elif kind.has_status:
            obj["status"] = dict(old.get("status", {}))
        keep_system_metadata(obj, old)
        self._finish(kind, obj, old)
        meta = metadata(obj)
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not mode.dry_run:
            removed = self._remove(kind, place.key)
            return Stored(kind, place.key, obj, removed.revision).at(removed.revision)
        if obj == old:
            return current
        return self._write(kind, place.key, obj, mode)

    def _finish(self, kind: Kind, obj: Object, old: Object | None) -> None:
        rules = rules_of(kind)
        drop_empty(obj)
        causes = list(validate_metadata(kind, obj, old))
        try:
            if not causes:
                rules.admit(obj, old, self._store)
                causes = list(rules.validate(obj, old))
        except Wrong as refusal:
            causes = refusal.causes
        if causes:
            raise failures.invalid(kind, metadata(obj).get("name", ""), causes)

    def _write(self, kind: Kind, key: str, obj: Object, mode: Mode) -> Stored:
        obj["kind"], obj["apiVersion"] = kind.name, kind.api_version
        if mode.dry_run:
            current = self._store.get(kind, key)
            return Stored(kind, key, obj, current.revision if current else 0)
        return self._store.write(kind, key, obj)

    def _existing(self, place: Place) -> Stored:
        found = self._store.get(place.kind, place.key)
        if found is None:
            raise failures.not_found(place.kind, place.name)
        return found

    def _check_namespace(self, place: Place, obj: Object) -> None:
        """Refuse an object that is for another namespace or for none that exists."""
        meta = metadata(obj)
        if not place.kind.namespaced:
            meta.pop("namespace", None)
            return
        if meta.setdefault("namespace", place.namespace) != place.namespace:
            raise failures.bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        found = self._store.get(NAMESPACE, place.namespace)
        if found is None:
            raise failures.not_found(NAMESPACE, place.namespace)
        if "deletionTimestamp" in found.obj["metadata"] and not place.name:
            name = meta.get("name", "")
            raise failures.terminating_namespace(place.kind, name, place.namespace)

    def _unused_name(self, place: Place, base: str) -> str:
        def names() -> Iterator[str]:
            while True:
                yield generate_name(base)

        taken = self._store.current(place.kind)
        return next(name for name in names() if place.kind.key(place.namespace, name) not in taken)


def _check_uid(kind: Kind, current: Stored, wanted: object) -> None:
    meta = current.obj["metadata"]
    if wanted not in (None, "", meta["uid"]):
        why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: "
        raise failures.conflict(kind, meta["name"], why + meta["uid"])


def _shared(old: Object) -> Object:
    """Return a copy of an object whose members may be replaced, but not changed further down."""
    return {key: dict(part) if isinstance(part, dict) else part for key, part in old.items()}
