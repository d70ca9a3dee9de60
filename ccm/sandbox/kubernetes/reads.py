"""What get and list mean, and which objects label and field selectors name."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ccm.sandbox.kubernetes.errors import bad_request, not_found
from ccm.sandbox.kubernetes.kinds import ResourceKind
from ccm.sandbox.kubernetes.objects import Object, lookup
from ccm.sandbox.kubernetes.request import ApiRequest, RequestInfo
from ccm.sandbox.kubernetes.storage import Storage, StoredObject

Selector = Callable[[Object], bool]
Requirement = Callable[[Mapping[str, Any]], bool]

KEY = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
SET = re.compile(rf"^{KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
EQUALITY = re.compile(rf"^{KEY}\s*(?P<operator>==|=|!=)\s*(?P<value>[-A-Za-z0-9_.]*)$")
EXISTS = re.compile(rf"^(?P<absent>!?)\s*{KEY}$")
FIELD_TERM = re.compile(r"^(?P<key>[^=!]+)(?P<operator>==|=|!=)(?P<value>.*)$")


def selector_of(request: ApiRequest) -> Selector:
    """Return the predicate of a request's selectors; a field selector may name any field."""
    query = request.query
    by_label = [_label_requirement(term) for term in _terms(query.get("labelSelector", ""))]
    fields = query.get("fieldSelector", "").split(",")
    by_field = [_field_requirement(term) for term in fields if term]

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


def _field_requirement(term: str) -> Requirement:
    found = FIELD_TERM.match(term)
    if found is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path, value = found["key"].strip(), found["value"].strip()
    wanted = found["operator"] != "!="
    return lambda obj: (str(lookup(dict(obj), path) or "") == value) is wanted


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The objects that a list asked for, and the version at which they were so."""

    kind: ResourceKind
    items: list[StoredObject]
    revision: int

    @property
    def metadata(self) -> Object:
        return {"resourceVersion": str(self.revision)}

    @property
    def encoded(self) -> bytes:
        named = {"kind": f"{self.kind.name}List", "apiVersion": self.kind.api_version}
        head = orjson.dumps({**named, "metadata": self.metadata})
        return head[:-1] + b',"items":[' + b",".join(each.item for each in self.items) + b"]}"


def get_object(storage: Storage, info: RequestInfo) -> StoredObject:
    """Return one object; raises the 404 when it is not there."""
    found = storage.get(info.kind, info.key)
    if found is None:
        raise not_found(info.kind, info.name)
    return found


def list_objects(storage: Storage, request: ApiRequest) -> ObjectList:
    """Return all objects that a list asks for, as they are now and in one page."""
    kind = request.target.kind
    objects, selects = storage.current(kind), selector_of(request)
    prefix = kind.prefix(request.target.namespace)
    keys = sorted(key for key in objects if key.startswith(prefix))
    items = [objects[key] for key in keys if selects(objects[key].obj)]
    return ObjectList(kind, items, storage.revision)
