"""Rules for the metadata that every object has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ccm.sandbox.kubernetes.failures import Cause, Undecodable
from ccm.sandbox.kubernetes.kinds import NAMESPACE, SERVICE, Kind
from ccm.sandbox.kubernetes.objects import Object, metadata
from ccm.sandbox.kubernetes.rules.rule import immutable, refused, required, wrong

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})

SUBDOMAIN_HINT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used"
    " for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_HINT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
    " must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex"
    " used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)

QUALIFIED_HINT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    " validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE_HINT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',"
    "  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

KINDS_NAMED_BY_LABEL = frozenset({SERVICE.plural, NAMESPACE.plural})
# What a client may leave out of an update and what it may never change.
LEFT_OUT_AT_WILL = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
KEPT_WHATEVER_IS_SENT = ("creationTimestamp", "generation")
DROPPED_WHEN_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences", "generateName")


def decode_metadata(obj: Object) -> None:
    """Refuse metadata that is not of the right types."""
    meta = metadata(obj)
    for name in ("labels", "annotations"):
        members = meta.get(name) or {}
        if not isinstance(members, dict) or any(type(v) is not str for v in members.values()):
            raise Undecodable(f"ObjectMeta.metadata.{name} must be a map of strings to strings")
    for name in ("name", "namespace", "resourceVersion", "uid", "generateName"):
        if not isinstance(meta.get(name, ""), str):
            raise Undecodable(f"ObjectMeta.metadata.{name} must be a string")
    finalizers = meta.get("finalizers", [])
    if not isinstance(finalizers, list) or any(type(each) is not str for each in finalizers):
        raise Undecodable("ObjectMeta.metadata.finalizers must be a list of strings")


def drop_empty(obj: Object) -> None:
    """Drop the empty members that the real server leaves out when it encodes."""
    meta = metadata(obj)
    for name in DROPPED_WHEN_EMPTY:
        if name in meta and not meta[name]:
            del meta[name]
    meta.pop("managedFields", None)
    meta.pop("selfLink", None)


def keep_system_metadata(obj: Object, old: Object) -> None:
    """Carry over from the old object what a client may leave out."""
    new_meta, old_meta = metadata(obj), metadata(old)
    for name in LEFT_OUT_AT_WILL:
        if name in old_meta:
            new_meta.setdefault(name, old_meta[name])
    for name in KEPT_WHATEVER_IS_SENT:
        new_meta.pop(name, None)
        if name in old_meta:
            new_meta[name] = old_meta[name]


def validate_metadata(kind: Kind, obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield what is wrong with names, labels and finalizers, and what may not change."""
    meta = metadata(obj)
    yield from _name_faults(kind, meta.get("name", ""))
    yield from _label_faults(meta.get("labels") or {})
    for key in meta.get("annotations") or {}:
        if not _is_qualified(key.lower()):
            yield wrong("metadata.annotations", key, QUALIFIED_HINT)
    for index, finalizer in enumerate(meta.get("finalizers") or []):
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield wrong(f"metadata.finalizers[{index}]", finalizer, why)
        elif not _is_qualified(finalizer):
            yield wrong("metadata.finalizers", finalizer, QUALIFIED_HINT)
    if old is not None:
        yield from _change_faults(meta, metadata(old))


def _change_faults(meta: Object, old_meta: Object) -> Iterator[Cause]:
    for name in ("name", "namespace", "uid", "deletionTimestamp"):
        if meta.get(name) != old_meta.get(name):
            yield immutable(f"metadata.{name}", meta.get(name))
    if "deletionTimestamp" in old_meta:
        had = old_meta.get("finalizers") or []
        new = [each for each in meta.get("finalizers") or [] if each not in had]
        if new:
            listed = ", ".join(f'"{each}"' for each in new)
            yield refused(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new"
                f" finalizers []string{{{listed}}}",
            )


def _name_faults(kind: Kind, name: str) -> Iterator[Cause]:
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif kind.plural in KINDS_NAMED_BY_LABEL:
        if not LABEL.fullmatch(name) or len(name) > 63:
            yield wrong("metadata.name", name, LABEL_HINT)
    elif not SUBDOMAIN.fullmatch(name) or len(name) > 253:
        yield wrong("metadata.name", name, SUBDOMAIN_HINT)


def _label_faults(labels: dict[str, str]) -> Iterator[Cause]:
    for key, value in labels.items():
        if not _is_qualified(key):
            yield wrong("metadata.labels", key, QUALIFIED_HINT)
        if len(value) > 63 or not LABEL_VALUE.fullmatch(value):
            yield wrong("metadata.labels", value, LABEL_VALUE_HINT)


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (not SUBDOMAIN.fullmatch(prefix) or len(prefix) > 253):
        return False
    return len(name) <= 63 and QUALIFIED.fullmatch(name) is not None
