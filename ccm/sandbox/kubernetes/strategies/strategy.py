"""The steps of a write that depend on the kind, and the rules of metadata, which do not."""

import ipaddress
import re
from collections.abc import Iterable, Iterator

from ccm.sandbox.kubernetes.errors import DecodeError, FieldError
from ccm.sandbox.kubernetes.kinds import NAMESPACE, SERVICE, ResourceKind
from ccm.sandbox.kubernetes.objects import Object, metadata
from ccm.sandbox.kubernetes.storage import Storage

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})

SUBDOMAIN_HINT = f"a lowercase RFC 1123 subdomain must match '{SUBDOMAIN.pattern}'"
LABEL_HINT = f"a lowercase RFC 1123 label must match '{LABEL.pattern}'"
QUALIFIED_HINT = f"name part must match '{QUALIFIED.pattern}'"
LABEL_VALUE_HINT = f"a valid label must match '{LABEL_VALUE.pattern}'"

KINDS_NAMED_BY_LABEL = frozenset({SERVICE.plural, NAMESPACE.plural})
# What a client may leave out of an update and what it may never change.
OPTIONAL_IN_UPDATE = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
SYSTEM_FIELDS = ("creationTimestamp", "generation")
OMIT_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences", "generateName")


class RESTStrategy:
    """The steps of one write, in this order; a kind without rules is stored as it comes.

    `old` is None in a create. In an update, what the request may not change is shared with `old`
    below its first level: `admit` replaces there and does not change in place.
    """

    def decode(self, obj: Object) -> None:
        """Raise DecodeError for what Go's types cannot hold."""

    def default(self, obj: Object) -> None:
        """Fill in what the client left out, before it is known what may change."""

    def admit(self, obj: Object, old: Object | None, storage: Storage) -> None:
        """Change what the server decides, as allocations and taints; raise InvalidObject."""

    def validate(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        return ()


def is_cidr(text: str) -> bool:
    """Tell whether this is an address block, with its prefix length."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def decode_metadata(obj: Object) -> None:
    """Refuse metadata that is not of the right types."""
    meta = metadata(obj)
    for name in ("labels", "annotations"):
        members = meta.get(name) or {}
        if not isinstance(members, dict) or any(type(v) is not str for v in members.values()):
            raise DecodeError(f"ObjectMeta.metadata.{name} must be a map of strings to strings")
    for name in ("name", "namespace", "resourceVersion", "uid", "generateName"):
        if not isinstance(meta.get(name, ""), str):
            raise DecodeError(f"ObjectMeta.metadata.{name} must be a string")
    finalizers = meta.get("finalizers", [])
    if not isinstance(finalizers, list) or any(type(each) is not str for each in finalizers):
        raise DecodeError("ObjectMeta.metadata.finalizers must be a list of strings")


def drop_empty_metadata(obj: Object) -> None:
    """Drop the empty members that the real server leaves out when it encodes."""
    meta = metadata(obj)
    for name in OMIT_EMPTY:
        if name in meta and not meta[name]:
            del meta[name]
    meta.pop("managedFields", None)
    meta.pop("selfLink", None)


def carry_over_metadata(obj: Object, old: Object) -> None:
    """Carry over from the old object what a client may leave out."""
    new_meta, old_meta = metadata(obj), metadata(old)
    for name in OPTIONAL_IN_UPDATE:
        if name in old_meta:
            new_meta.setdefault(name, old_meta[name])
    for name in SYSTEM_FIELDS:
        new_meta.pop(name, None)
        if name in old_meta:
            new_meta[name] = old_meta[name]


def validate_metadata(kind: ResourceKind, obj: Object, old: Object | None) -> Iterator[FieldError]:
    """Yield what is wrong with names, labels and finalizers, and what may not change."""
    meta = metadata(obj)
    yield from _name_errors(kind, meta.get("name", ""))
    yield from _label_errors(meta.get("labels") or {})
    for key in meta.get("annotations") or {}:
        if not _is_qualified(key.lower()):
            yield FieldError.invalid("metadata.annotations", key, QUALIFIED_HINT)
    for index, finalizer in enumerate(meta.get("finalizers") or []):
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield FieldError.invalid(f"metadata.finalizers[{index}]", finalizer, why)
        elif not _is_qualified(finalizer):
            yield FieldError.invalid("metadata.finalizers", finalizer, QUALIFIED_HINT)
    if old is not None:
        yield from _change_errors(meta, metadata(old))


def _change_errors(meta: Object, old_meta: Object) -> Iterator[FieldError]:
    for name in ("name", "namespace", "uid", "deletionTimestamp"):
        if meta.get(name) != old_meta.get(name):
            yield FieldError.immutable(f"metadata.{name}", meta.get(name))
    if "deletionTimestamp" in old_meta:
        had = old_meta.get("finalizers") or []
        new = [each for each in meta.get("finalizers") or [] if each not in had]
        if new:
            listed = ", ".join(f'"{each}"' for each in new)
            why = "no new finalizers can be added if the object is being deleted"
            found = f"found new finalizers []string{{{listed}}}"
            yield FieldError.forbidden("metadata.finalizers", f"{why}, {found}")


def _name_errors(kind: ResourceKind, name: str) -> Iterator[FieldError]:
    if not name:
        yield FieldError.required("metadata.name", "name or generateName is required")
    elif kind.plural in KINDS_NAMED_BY_LABEL:
        if not LABEL.fullmatch(name) or len(name) > 63:
            yield FieldError.invalid("metadata.name", name, LABEL_HINT)
    elif not SUBDOMAIN.fullmatch(name) or len(name) > 253:
        yield FieldError.invalid("metadata.name", name, SUBDOMAIN_HINT)


def _label_errors(labels: dict[str, str]) -> Iterator[FieldError]:
    for key, value in labels.items():
        if not _is_qualified(key):
            yield FieldError.invalid("metadata.labels", key, QUALIFIED_HINT)
        if len(value) > 63 or not LABEL_VALUE.fullmatch(value):
            yield FieldError.invalid("metadata.labels", value, LABEL_VALUE_HINT)


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (not SUBDOMAIN.fullmatch(prefix) or len(prefix) > 253):
        return False
    return len(name) <= 63 and QUALIFIED.fullmatch(name) is not None
