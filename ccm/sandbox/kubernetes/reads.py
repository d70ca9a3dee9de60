"""What get and list mean, and which objects label and field selectors name."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import orjson

from ccm.sandbox.kubernetes.errors import StatusError, bad_request, not_found
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


CONTINUE = re.compile(r"(?P<snapshot>[0-9]{1,18})-(?P<start>[0-9]{1,18})")
SNAPSHOTS = 32  # lists whose pages are still read


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The objects, or a page of them, that a list asked for, as they were at one version."""

    kind: ResourceKind
    items: list[StoredObject]
    revision: int
    next_page: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> Object:
        return {"resourceVersion": str(self.revision), **self.next_page}

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


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists, whole or in pages: all pages of a list show the objects as they were at its first.

    The last `SNAPSHOTS` lists in pages can be continued; a token of an older one is expired.
    """

    storage: Storage
    _snapshots: OrderedDict[int, ObjectList] = field(default_factory=OrderedDict)
    _numbers: "count[int]" = field(default_factory=count)

    def page(self, request: ApiRequest) -> ObjectList:
        """Return the objects that a list asks for, at most as many as its limit."""
        limit = _limit(request.query.get("limit", ""))
        if token := request.query.get("continue", ""):
            return self._continued(token, limit, request)
        found = self._now(request)
        if not 0 < limit < len(found.items):
            return found
        number = next(self._numbers)
        self._snapshots[number] = found
        if len(self._snapshots) > SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return _page(found, number, 0, limit, request)

    def _now(self, request: ApiRequest) -> ObjectList:
        kind, selects = request.target.kind, selector_of(request)
        objects = self.storage.current(kind)
        prefix = kind.prefix(request.target.namespace)
        keys = sorted(key for key in objects if key.startswith(prefix))
        items = [objects[key] for key in keys if selects(objects[key].obj)]
        return ObjectList(kind, items, self.storage.revision)

    def _continued(self, token: str, limit: int, request: ApiRequest) -> ObjectList:
        parts = CONTINUE.fullmatch(token)
        if parts is None:
            raise bad_request("continue key is not valid")
        number, start = int(parts["snapshot"]), int(parts["start"])
        snapshot = self._snapshots.get(number)
        if snapshot is None:
            raise StatusError(410, "The provided continue parameter is too old to list the rest.")
        return _page(snapshot, number, start, limit or len(snapshot.items), request)


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{0,18}", text):
        raise bad_request(f"limit: invalid value {text!r}")
    return int(text or 0)


def _page(
    whole: ObjectList, number: int, start: int, limit: int, request: ApiRequest
) -> ObjectList:
    end = start + limit
    items, left = whole.items[start:end], len(whole.items) - end
    next_page: Object = {}
    if left > 0:
        next_page["continue"] = f"{number}-{end}"
        # As of the real server, which does not know how many of the rest a selector names.
        if not (request.query.get("labelSelector") or request.query.get("fieldSelector")):
            next_page["remainingItemCount"] = left
    return ObjectList(whole.kind, items, whole.revision, next_page)
