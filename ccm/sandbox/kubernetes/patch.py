"""Merge and JSON patches, with Kubernetes' answers where the standards leave room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jsonpatch
import orjson

from ccm.sandbox.kubernetes.failures import bad_request, rejected_patch, unsupported_media_type
from ccm.sandbox.kubernetes.kinds import Kind
from ccm.sandbox.kubernetes.objects import Object, clone
from ccm.sandbox.kubernetes.strategic import strategic_merge

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH)

MOST_OPERATIONS = 10_000

Patch = Callable[[Object], Object]


def parse_patch(kind: Kind, content_type: str, body: bytes) -> Patch:
    """Return the function that applies the patch to an object without changing the object."""
    if content_type not in TYPES:
        raise unsupported_media_type(content_type, TYPES)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as fault:
        raise bad_request(f"error decoding patch: {fault}") from fault
    if content_type == JSON_PATCH:
        return _json_patch(document)
    if not isinstance(document, dict):
        raise bad_request("error decoding patch: a JSON object is needed")
    if content_type == MERGE_PATCH:
        return lambda obj: cast(Object, merge(obj, document))
    return lambda obj: strategic_merge(kind, obj, document)


def merge(target: Any, patch: Any) -> Any:
    """Apply RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def _json_patch(document: Any) -> Patch:
    if not isinstance(document, list) or not all(isinstance(each, dict) for each in document):
        raise bad_request("error decoding patch: an array of operations is needed")
    if len(document) > MOST_OPERATIONS:
        raise bad_request("The allowed maximum operations in a JSON patch is 10000")

    def apply(obj: Object) -> Object:
        result: Any = clone(obj)
        for operation in document:
            result = _apply_operation(result, operation)
        if not isinstance(result, dict):
            raise rejected_patch()
        return cast(Object, result)

    return apply


def _apply_operation(obj: Any, operation: Object) -> Any:
    """Apply one operation; as the real server's library does, take a missing member for null.

    So a test for null holds where the member is missing, and replacing what is missing adds it.
    """
    try:
        parent, member = jsonpatch.JsonPointer(operation["path"]).to_last(obj)
        is_missing = isinstance(parent, dict) and member is not None and member not in parent
        if operation["op"] == "test":
            found = parent if member is None else None if is_missing else parent[member]
            if not _same(found, operation.get("value")):
                raise rejected_patch()
            return obj
        if operation["op"] == "replace" and is_missing:
            operation = {**operation, "op": "add"}
        return jsonpatch.apply_patch(obj, [operation], in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as fault:
        raise rejected_patch() from fault
    except (KeyError, TypeError, IndexError) as fault:
        raise rejected_patch() from fault


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON does: unlike Python, true is not 1."""
    return orjson.dumps(left, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        right, option=orjson.OPT_SORT_KEYS
    )
