"""What get and list mean: resource versions, pages, label and field selectors."""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ccm.sandbox.kubernetes import errors
from ccm.sandbox.kubernetes.errors import bad_request
from ccm.sandbox.kubernetes.kinds import ResourceKind
from ccm.sandbox.kubernetes.objects import Object, lookup
from ccm.sandbox.kubernetes.request import ApiRequest
from ccm.sandbox.kubernetes.storage import Storage, StoredObject, VersionTooOld

PAGE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start"
    " a new list without the continue parameter."
)

Selector = Callable[[Object], bool]
Requirement = Callable[[Mapping[str, Any]], bool]

KEY = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
SET = re.compile(rf"^{KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
EQUALITY = re.compile(rf"^{KEY}\s*(?P<operator>==|=|!=)\s*(?P<value>[-A-Za-z0-9_.]*)$")
EXISTS = re.compile(rf"^(?P<absent>!?)\s*{KEY}$")
FIELD_TERM = re.compile(r"^(?P<key>[^=!]+)(?P<operator>==|=|!=)(?P<value>.*)$")


def selector_of(request: ApiRequest) -> Selector | None:
    """Return the predicate of a request's selectors, or None when everything matches."""
    kind, query = request.target.kind, request.query
    by_label = [_label_requirement(term) for term in _terms(query.get("labelSelector", ""))]
    fields = query.get("fieldSelector", "").split(",")
    by_field = [_field_requirement(kind, term) for term in fields if term]
    if not by_label and not by_field:
        return None

    def matches(obj: Object) -> bool:
        labels_of = lookup(obj, "metadata.labels") or {}
        return all(wanted(labels_of) for wanted in by_label) and all(
            wanted(obj) for wanted in by_field
        )

    return matches


def _terms(selector: str) -> Iterator[str]:
    for term in re.split(r",(?![^()]*\))", selector):
        if term.strip():
            yield term.strip()


def _label_requirement(term: str) -> Requirement:
    if found := SET.match(term):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["operator"] == "in":
            return lambda labels: key in labels and labels[key] in values
        return lambda labels: key not in labels or labels[key] not in values
    if found := EQUALITY.match(term):
        key, value = found["key"], found["value"]
        if found["operator"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := EXISTS.match(term):
        key, wanted = found["key"], not found["absent"]
        return lambda labels: (key in labels) is wanted
    raise bad_request(f"unable to parse requirement: found '{term}'")


def _field_requirement(kind: ResourceKind, term: str) -> Requirement:
    found = FIELD_TERM.match(term)
    if found is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path, value = found["key"].strip(), found["value"].strip()
    always = ("metadata.name", "metadata.namespace" if kind.namespaced else "metadata.name")
    if path not in kind.selectable_fields and path not in always:
        raise bad_request(f"field label not supported: {path}")
    wanted = found["operator"] != "!="
    return lambda obj: (_field_text(obj, path) == value) is wanted


def _field_text(obj: Mapping[str, Any], path: str) -> str:
    """Return a selectable field as the real server compares it: always a string."""
    value = lookup(dict(obj), path)
    if path == "source":
        value = lookup(dict(obj), "source.component") or obj.get("reportingComponent")
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if path == "spec.unschedulable" else ""
    return str(value)


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A list, or the part of it that was asked for."""

    kind: ResourceKind
    items: list[StoredObject]
    metadata: Object

    @property
    def encoded(self) -> bytes:
        named = {"kind": f"{self.kind.name}List", "apiVersion": self.kind.api_version}
        head = orjson.dumps({**named, "metadata": self.metadata})
        return head[:-1] + b',"items":[' + b",".join(each.item for each in self.items) + b"]}"


def get_object(storage: Storage, request: ApiRequest) -> StoredObject:
    """Return one object."""
    info = request.target
    if request.version() > storage.revision:
        raise errors.too_large_version(request.version(), storage.revision)
    found = storage.get(info.kind, info.key)
    if found is None:
        raise errors.not_found(info.kind, info.name)
    return found


def list_objects(storage: Storage, request: ApiRequest) -> ObjectList:
    """Return the objects that a list asks for, as they were at one version."""
    start, revision = _snapshot(storage, request)
    kind = request.target.kind
    prefix = kind.prefix(request.target.namespace)
    selector = selector_of(request)
    try:
        objects = storage.at(kind, revision)
    except VersionTooOld as fault:
        raise errors.StatusError(410, PAGE_TOO_OLD) from fault
    keys = sorted(key for key in objects if key.startswith(prefix) and key >= start)
    items = [objects[key] for key in keys if selector is None or selector(objects[key].obj)]
    limit = request.number("limit")
    metadata: Object = {"resourceVersion": str(revision)}
    # As the real server's cache does: a list at any version is never cut into pages.
    if limit <= 0 or len(items) <= limit or request.query.get("resourceVersion") == "0":
        return ObjectList(kind, items, metadata)
    token = orjson.dumps({"rv": revision, "start": items[limit].key})
    metadata["continue"] = base64.urlsafe_b64encode(token).decode()
    if selector is None:
        metadata["remainingItemCount"] = len(items) - limit
    return ObjectList(kind, items[:limit], metadata)


def _snapshot(storage: Storage, request: ApiRequest) -> tuple[str, int]:
    """Return the first key and the version that a list is about."""
    token = request.query.get("continue", "")
    wanted = request.version(bad_request)
    if token:
        if wanted:
            raise bad_request("specifying resource version is not allowed when using continue")
        return _decode_token(token)
    if wanted > storage.revision:
        raise errors.too_large_version(wanted, storage.revision)
    return "", storage.revision


def _decode_token(token: str) -> tuple[str, int]:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(token))
        return str(found["start"]), int(found["rv"])
    except (ValueError, KeyError, TypeError):
        raise bad_request("continue key is not valid") from None
