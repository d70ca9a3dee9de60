"""JSON, merge and strategic merge patches, as Kubernetes applies them."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import jsonpatch
import orjson

from ccm.model.objects import Json

DIRECTIVE = "$patch"
DELETE_VALUES = "$deleteFromPrimitiveList/"

BY_VALUE = ""
"""The merge key of a list of plain values, which a strategic merge patch treats as a set."""
METADATA_LISTS = {"metadata.finalizers": BY_VALUE, "metadata.ownerReferences": "uid"}
MERGE_KEYS: Mapping[str, Mapping[str, str]] = {
    "Node": {
        "spec.podCIDRs": BY_VALUE,
        "status.addresses": "type",
        "status.conditions": "type",
    },
    "Service": {"spec.ports": "port", "status.conditions": "type"},
}
"""By kind: the path of each list that a strategic merge patch merges, and its patchMergeKey."""


class InvalidPatch(Exception):
    """A patch of no valid form: 400."""


class RejectedPatch(Exception):
    """A JSON patch that cannot be applied to the object: 422."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(document: Any) -> Callable[[Json], Json]:
    """Return the function that performs the operations on a copy of an object, or refuses."""
    if not isinstance(document, list) or not all(isinstance(each, dict) for each in document):
        raise InvalidPatch("error decoding patch: an array of operations is needed")

    def apply(obj: Json) -> Json:
        result: Any = deepcopy(obj)
        for operation in document:
            result = _apply_operation(result, operation)
        if not isinstance(result, dict):
            raise RejectedPatch()
        return cast(Json, result)

    return apply


def _apply_operation(obj: Any, operation: Json) -> Any:
    """Apply one operation; as the real server's library does, take a missing member for null.

    So a test for null holds where the member is missing, and replacing what is missing adds it.
    """
    try:
        parent, member = jsonpatch.JsonPointer(operation["path"]).to_last(obj)
        is_missing = isinstance(parent, dict) and member is not None and member not in parent
        if operation["op"] == "test":
            found = parent if member is None else None if is_missing else parent[member]
            if not _same(found, operation.get("value")):
                raise RejectedPatch()
            return obj
        if operation["op"] == "replace" and is_missing:
            operation = {**operation, "op": "add"}
        return jsonpatch.apply_patch(obj, [operation], in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise RejectedPatch() from error
    except (KeyError, TypeError, IndexError) as error:
        raise RejectedPatch() from error


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON does: unlike Python, true is not 1."""
    return orjson.dumps(left, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        right, option=orjson.OPT_SORT_KEYS
    )


def strategic_merge(merge_keys: Mapping[str, str], obj: Json, patch: Json) -> Json:
    """Return `obj` with the patch merged in; lists without a merge key are replaced.

    `merge_keys` are as in `MERGE_KEYS`. What is new in a list comes last, and what is in it stays
    where it is.
    """
    return _Merger({**METADATA_LISTS, **merge_keys}).merge_object(obj, patch, "")


@dataclass(frozen=True, slots=True)
class _Merger:
    merge_keys: Mapping[str, str]

    def merge_object(self, original: Json, patch: Json, path: str) -> Json:
        directive = patch.get(DIRECTIVE)
        if directive == "replace":
            return {key: value for key, value in patch.items() if key != DIRECTIVE}
        if directive == "delete":
            return {}
        if directive is not None:
            raise InvalidPatch(f"unknown patch type: {directive} in map: {patch}")
        merged = dict(original)
        for key, value in patch.items():
            if key.startswith(DELETE_VALUES):
                member = key.removeprefix(DELETE_VALUES)
                merged[member] = [each for each in merged.get(member) or [] if each not in value]
            elif not key.startswith("$"):
                self._merge_member(merged, key, value, f"{path}.{key}" if path else key)
        return merged

    def _merge_member(self, merged: Json, key: str, value: Any, path: str) -> None:
        original = merged.pop(key, None)
        if value is None:
            return
        if isinstance(value, dict) and isinstance(original, dict):
            merged[key] = self.merge_object(original, value, path)
        elif isinstance(value, list) and isinstance(original, list) and path in self.merge_keys:
            merged[key] = self._merge_list(original, value, path)
        elif not _is_directive(value):
            merged[key] = _without_directives(value)

    def _merge_list(self, original: list[Any], patch: list[Any], path: str) -> list[Any]:
        merge_key = self.merge_keys[path]
        if merge_key == BY_VALUE:
            return list(dict.fromkeys([*original, *patch]))
        merged, patch = _obey_directives(original, patch, merge_key)
        for item in patch:
            self._merge_item(merged, item, merge_key, path)
        return merged

    def _merge_item(self, merged: list[Any], item: Any, merge_key: str, path: str) -> None:
        identity = _identity(item, merge_key)
        for index, found in enumerate(merged):
            if found.get(merge_key) == identity:
                merged[index] = self.merge_object(found, item, path)
                return
        merged.append(_without_directives(item))


def _is_directive(value: Any) -> bool:
    return isinstance(value, dict) and DIRECTIVE in value


def _without_directives(value: Any) -> Any:
    """Return a patch's value where there is nothing to merge it with: directives mean nothing."""
    if isinstance(value, dict):
        return {
            key: _without_directives(member)
            for key, member in value.items()
            if member is not None and not _is_directive(member)
        }
    if isinstance(value, list):
        return [_without_directives(item) for item in value if not _is_directive(item)]
    return value


def _identity(item: Any, merge_key: str) -> Any:
    if not isinstance(item, dict) or merge_key not in item:
        raise InvalidPatch(f"map: {item} does not contain declared merge key: {merge_key}")
    return item[merge_key]


def _obey_directives(
    original: list[Any], patch: list[Any], merge_key: str
) -> tuple[list[Any], list[Any]]:
    """Return both lists after the `$patch` members have had their effect."""
    plain: list[Any] = []
    replace = False
    for item in patch:
        directive = item.get(DIRECTIVE) if isinstance(item, dict) else None
        if directive is None:
            plain.append(item)
        elif directive == "replace":
            replace = True
        elif directive == "delete":
            gone = _identity(item, merge_key)
            original = [each for each in original if each.get(merge_key) != gone]
        else:
            raise InvalidPatch(f"unknown patch type: {directive} in map: {item}")
    return (plain, []) if replace else (list(original), plain)
