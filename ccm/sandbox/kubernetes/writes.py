"""What create, update, patch and delete mean: the one place that changes the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ccm.sandbox.kubernetes import failures
from ccm.sandbox.kubernetes.controllers import Controllers, is_held, marked_for_deletion
from ccm.sandbox.kubernetes.failures import Undecodable
from ccm.sandbox.kubernetes.history import Stored
from ccm.sandbox.kubernetes.kinds import NAMESPACE, Kind
from ccm.sandbox.kubernetes.objects import (
    Object,
    clone,
    generate_name,
    metadata,
    new_uid,
    timestamp,
    without_nulls,
)
from ccm.sandbox.kubernetes.patch import Patch
from ccm.sandbox.kubernetes.place import Place
from ccm.sandbox.kubernetes.rules import rules_of
from ccm.sandbox.kubernetes.rules.metadata import (
    decode_metadata,
    drop_empty,
    keep_system_metadata,
    validate_metadata,
)
from ccm.sandbox.kubernetes.store import Store

Refuse = Callable[[str], failures.Failure]


class Writes:
    """Performs writes; with `dry_run` everything happens except the storing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._controllers = Controllers(store)

    def create(self, place: Place, body: Object, *, dry_run: bool = False) -> Stored:
        """Store a new object."""
        kind = place.kind
        obj = clone(without_nulls(body))
        _check_type(kind, obj, failures.bad_request)
        self._check_namespace(place, obj)
        meta = metadata(obj)
        if meta.get("resourceVersion") not in (None, "", "0"):
            raise failures.raw_error("resourceVersion should not be set on objects to be created")
        _decode(kind, obj, failures.bad_request)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._unused_name(place, meta["generateName"])
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            meta.pop(name, None)
        meta.update(uid=new_uid(), creationTimestamp=timestamp())
        if kind.has_status and not kind.keeps_status_on_create:
            obj.pop("status", None)
        self._finish(kind, obj, None)
        key = kind.key(place.namespace, meta["name"])
        if self._store.get(kind, key) is not None:
            raise failures.already_exists(kind, meta["name"])
        return self._write(kind, key, obj, dry_run=dry_run)

    def replace(self, place: Place, body: Object, *, dry_run: bool = False) -> tuple[Stored, bool]:
        """Update an object as a whole; tell whether that created it."""
        kind = place.kind
        obj = clone(without_nulls(body))
        _check_type(kind, obj, failures.bad_request)
        self._check_namespace(place, obj)
        _check_name(place, obj)
        current = self._store.get(kind, place.key)
        if current is None:
            if kind.creates_on_update and not place.subresource:
                return self.create(place, obj, dry_run=dry_run), True
            raise failures.not_found(kind, place.name)
        _decode(kind, obj, failures.bad_request)
        meta = metadata(obj)
        _check_precondition(kind, current, "UID", meta.get("uid"))
        if not kind.unconditional_update and not meta.get("resourceVersion"):
            raise failures.needs_version(kind, place.name)
        return self._update(place, current, obj, dry_run=dry_run), False

    def patch(self, place: Place, patch: Patch, *, dry_run: bool = False) -> Stored:
        """Update an object by what `patch` makes of it."""
        current = self._existing(place)
        obj = clone(without_nulls(patch(current.obj)))
        _check_type(place.kind, obj, failures.undecodable_patch)
        _check_name(place, obj)
        _decode(place.kind, obj, failures.undecodable_patch)
        return self._update(place, current, obj, dry_run=dry_run)

    def delete(
        self, place: Place, options: Object, *, dry_run: bool = False
    ) -> tuple[Stored, bool]:
        """Remove an object, or mark it when finalizers hold it; tell whether it is gone."""
        kind, current = place.kind, self._existing(place)
        preconditions = options.get("preconditions") or {}
        _check_precondition(kind, current, "UID", preconditions.get("uid"))
        _check_precondition(kind, current, "ResourceVersion", preconditions.get("resourceVersion"))
        meta = current.obj["metadata"]
        if not is_held(current):
            return current if dry_run else self._remove(kind, place.key), True
        if "deletionTimestamp" in meta:
            return current, False
        marked = self._write(kind, place.key, marked_for_deletion(current.obj), dry_run=dry_run)
        if not dry_run:
            self._controllers.settle(marked)
        return marked, False

    def _remove(self, kind: Kind, key: str) -> Stored:
        removed = self._store.remove(kind, key)
        self._controllers.settle(removed)
        return removed

    def _update(self, place: Place, current: Stored, obj: Object, *, dry_run: bool) -> Stored:
        kind, old = place.kind, current.obj
        meta = metadata(obj)
        version = meta.get("resourceVersion") or "0"
        if not version.isdecimal():
            raise failures.raw_error(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if version not in ("0", str(current.revision)):
            raise failures.modified(kind, place.name)
        meta["resourceVersion"] = str(current.revision)
        if place.subresource == "status":
            obj = {**old, "metadata": meta, **_only(obj, "status")}
        elif kind.has_status:
            obj = {**_without(obj, "status"), **_only(old, "status")}
        obj = clone(obj)
        keep_system_metadata(obj, old)
        self._finish(kind, obj, old)
        meta = metadata(obj)
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not dry_run:
            return self._remove(kind, place.key)
        if obj == old:
            return current
        return self._write(kind, place.key, obj, dry_run=dry_run)

    def _finish(self, kind: Kind, obj: Object, old: Object | None) -> None:
        rules = rules_of(kind)
        rules.default(obj)
        drop_empty(obj)
        causes = list(validate_metadata(kind, obj, old))
        if not causes:
            rules.admit(obj, old, self._store)
            causes = list(rules.validate(obj, old))
        if causes:
            raise failures.invalid(kind, metadata(obj).get("name", ""), causes)

    def _write(self, kind: Kind, key: str, obj: Object, *, dry_run: bool) -> Stored:
        obj["kind"], obj["apiVersion"] = kind.name, kind.api_version
        if dry_run:
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
            why = f"unable to create new content in namespace {place.namespace} because it is being"
            raise failures.forbidden(place.kind, meta.get("name", ""), f"{why} terminated")

    def _unused_name(self, place: Place, base: str) -> str:
        def names() -> Iterator[str]:
            while True:
                yield generate_name(base)

        taken = self._store.current(place.kind)
        return next(name for name in names() if place.kind.key(place.namespace, name) not in taken)


def _check_type(kind: Kind, obj: Object, refuse: Refuse) -> None:
    named = obj.setdefault("kind", kind.name), obj.setdefault("apiVersion", kind.api_version)
    if named != (kind.name, kind.api_version):
        raise refuse(
            f'{named[0]} in version "{named[1]}" cannot be handled as a {kind.name}: converting'
            f" ({named[1]}.{named[0]}) to ({kind.api_version}.{kind.name}): unknown conversion"
        )


def _check_name(place: Place, obj: Object) -> None:
    name = metadata(obj).get("name")
    if not name:
        raise failures.bad_request(
            f"the name of the object ({place.name} based on URL) was undeterminable: name must be"
            " provided"
        )
    if name != place.name:
        raise failures.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({place.name})"
        )


def _check_precondition(kind: Kind, current: Stored, what: str, wanted: object) -> None:
    field = {"UID": "uid", "ResourceVersion": "resourceVersion"}[what]
    meta = current.obj["metadata"]
    if wanted not in (None, "", meta[field]):
        why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: "
        raise failures.conflict(kind, meta["name"], why + meta[field])


def _decode(kind: Kind, obj: Object, refuse: Refuse) -> None:
    try:
        decode_metadata(obj)
        rules_of(kind).decode(obj)
    except Undecodable as fault:
        raise refuse(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {fault}'
        ) from fault


def _only(obj: Object, name: str) -> Object:
    return {name: obj[name]} if name in obj else {}


def _without(obj: Object, name: str) -> Object:
    return {key: value for key, value in obj.items() if key != name}
