"""The patch in the body of a request, and the Status for one that cannot be applied."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import orjson

from ccm.model.patches import (
    InvalidPatch,
    RejectedPatch,
    json_patch,
    merge_patch,
    strategic_merge,
)
from ccm.sandbox.kubernetes import errors
from ccm.sandbox.kubernetes.kinds import ResourceKind
from ccm.sandbox.kubernetes.objects import Object

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH)

Patch = Callable[[Object], Object]


def parse_patch(kind: ResourceKind, content_type: str, body: bytes) -> Patch:
    """Return the function that applies the patch to an object without changing the object."""
    if content_type not in PATCH_TYPES:
        raise errors.unsupported_media_type(content_type, PATCH_TYPES)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"error decoding patch: {error}") from error
    if content_type != JSON_PATCH and not isinstance(document, dict):
        raise errors.bad_request("error decoding patch: a JSON object is needed")

    def apply(obj: Object) -> Object:
        with _as_status():
            if content_type == JSON_PATCH:
                return json_patch(document)(obj)
            if content_type == MERGE_PATCH:
                return cast(Object, merge_patch(obj, document))
            return strategic_merge(kind.merge_keys, obj, document)

    return apply


@contextmanager
def _as_status() -> Iterator[None]:
    try:
        yield
    except InvalidPatch as error:
        raise errors.bad_request(str(error)) from error
    except RejectedPatch as error:
        raise errors.rejected_patch() from error
