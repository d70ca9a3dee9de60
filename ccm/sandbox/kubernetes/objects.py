"""Raw Kubernetes objects and what they all have; no rule of a particular kind lives here."""

import datetime
from typing import Any, cast

import orjson

Object = dict[str, Any]


def clone(obj: Object) -> Object:
    """Return a deep copy that may be changed in place."""
    return cast(Object, orjson.loads(orjson.dumps(obj)))


def section(obj: Object, name: str) -> Object:
    """Return a nested object for reading and changing, created when it is missing."""
    found = obj.get(name)
    if not isinstance(found, dict):
        found = obj[name] = {}
    return cast(Object, found)


def lookup(obj: Object, path: str) -> Any:
    """Return what a dotted path names, or None."""
    found: Any = obj
    for part in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def strip_empty(obj: Object) -> Object:
    """Return a deep copy without members that are null or an empty list.

    To the API they are the same as absent.
    """
    return cast(Object, _without_empty(clone(obj)))


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_empty(item)
            for key, item in value.items()
            if item is not None and item != []
        }
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    return value


def timestamp() -> str:
    """Return the present as metav1.Time has it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
