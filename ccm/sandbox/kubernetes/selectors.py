"""Label and field selectors: text to a predicate on objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ccm.sandbox.kubernetes.failures import Failure, bad_request
from ccm.sandbox.kubernetes.kinds import Kind
from ccm.sandbox.kubernetes.objects import Object, lookup

Matcher = Callable[[Object], bool]
Requirement = Callable[[Mapping[str, Any]], bool]

KEY = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
SET = re.compile(rf"^{KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
EQUALITY = re.compile(rf"^{KEY}\s*(?P<operator>==|=|!=)\s*(?P<value>[-A-Za-z0-9_.]*)$")
ORDER = re.compile(rf"^{KEY}\s*(?P<operator>[<>])\s*(?P<value>-?\d+)$")
EXISTS = re.compile(rf"^(?P<absent>!?)\s*{KEY}$")
FIELD_TERM = re.compile(r"^(?P<key>[^=!]+)(?P<operator>==|=|!=)(?P<value>.*)$")


def matcher(kind: Kind, labels: str, fields: str) -> Matcher | None:
    """Return the predicate of both selectors, or None when everything matches."""
    by_label = [_label_requirement(term) for term in _terms(labels)]
    by_field = [_field_requirement(kind, term) for term in fields.split(",") if term]
    if not by_label and not by_field:
        return None

    def matches(obj: Object) -> bool:
        labels_of = lookup(obj, "metadata.labels") or {}
        return all(wanted(labels_of) for wanted in by_label) and all(
            wanted(obj) for wanted in by_field
        )

    return matches


def _terms(selector: str) -> Iterator[str]:
    """Split at commas outside parentheses."""
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
    if found := ORDER.match(term):
        return _order_requirement(found["key"], found["operator"], int(found["value"]))
    if found := EXISTS.match(term):
        key, wanted = found["key"], not found["absent"]
        return lambda labels: (key in labels) is wanted
    raise bad_request(f"unable to parse requirement: found '{term}'")


def _order_requirement(key: str, operator: str, bound: int) -> Requirement:
    def holds(labels: Mapping[str, Any]) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > bound if operator == ">" else value < bound

    return holds


def _field_requirement(kind: Kind, term: str) -> Requirement:
    found = FIELD_TERM.match(term)
    if found is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path, value = found["key"].strip(), found["value"].strip()
    selectable = path == "metadata.name" or (path == "metadata.namespace" and kind.namespaced)
    if not selectable and path not in kind.selectable:
        raise unsupported_field(path)
    wanted = found["operator"] != "!="
    return lambda obj: (field_text(obj, path) == value) is wanted


def unsupported_field(path: str) -> Failure:
    return bad_request(f"field label not supported: {path}")


def field_text(obj: Mapping[str, Any], path: str) -> str:
    """Return a selectable field as the real server compares it: always a string."""
    value = lookup(dict(obj), path)
    if path == "source":
        value = lookup(dict(obj), "source.component") or obj.get("reportingComponent")
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if path == "spec.unschedulable" else ""
    return str(value)
