"""The handlers of every verb on a stored resource but watch."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import orjson

from ccm.sandbox.kubernetes.errors import details_of
from ccm.sandbox.kubernetes.faults import GARBAGE, KubeFault
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.patch import parse_patch
from ccm.sandbox.kubernetes.printers import encode_table, table_version
from ccm.sandbox.kubernetes.reads import ObjectList, get_object, list_objects
from ccm.sandbox.kubernetes.registry import Registry, WriteOptions
from ccm.sandbox.kubernetes.request import ApiRequest, RequestInfo
from ccm.sandbox.kubernetes.storage import Storage, StoredObject

HandlerResponse: TypeAlias = tuple[int, bytes]
"""The HTTP status and the body of an answer."""


class ResourceHandlers:
    """The stored resources as HTTP sees them."""

    def __init__(self, storage: Storage, registry: Registry) -> None:
        self._storage = storage
        self._registry = registry
        self._handlers: Mapping[str, Callable[[ApiRequest], HandlerResponse]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def handle(self, request: ApiRequest, fault: KubeFault | None = None) -> HandlerResponse:
        """Perform a request and return the code and the body to answer with."""
        request.check_accept()
        status, body = self._handlers[request.verb](request)
        if fault is not None and fault.action == "garbage":
            body = _with_garbage(body, fault.text.encode() or GARBAGE)
        return status, body

    def _get(self, request: ApiRequest) -> HandlerResponse:
        return 200, render(request, get_object(self._storage, request))

    def _list(self, request: ApiRequest) -> HandlerResponse:
        found = list_objects(self._storage, request)
        if version := table_version(request.accept):
            include = request.query.get("includeObject", "")
            return 200, encode_table(found.kind, found.items, found.metadata, version, include)
        return 200, found.encoded

    def _create(self, request: ApiRequest) -> HandlerResponse:
        options, body = _write_options(request), request.document()
        return 201, render(request, self._registry.create(request.target, body, options))

    def _update(self, request: ApiRequest) -> HandlerResponse:
        options, body = _write_options(request), request.document()
        stored, created = self._registry.update(request.target, body, options)
        return (201 if created else 200), render(request, stored)

    def _patch(self, request: ApiRequest) -> HandlerResponse:
        patch = parse_patch(request.target.kind, request.content_type, request.body)
        stored = self._registry.patch(request.target, patch, _write_options(request))
        return 200, render(request, stored)

    def _delete(self, request: ApiRequest) -> HandlerResponse:
        info, options = request.target, _write_options(request)
        removed, is_gone = self._registry.delete(info, request.delete_options(), options)
        if not is_gone or info.kind.return_deleted_object:
            return 200, removed.encoded
        return 200, orjson.dumps(_success(info, removed.obj))

    def _delete_collection(self, request: ApiRequest) -> HandlerResponse:
        found = list_objects(self._storage, request)
        delete_options, options = request.delete_options(), _write_options(request)
        for stored in found.items:
            meta = stored.obj["metadata"]
            info = RequestInfo(found.kind, meta.get("namespace", ""), meta["name"])
            self._registry.delete(info, delete_options, options)
        return 200, ObjectList(found.kind, found.items, self._storage.revision).encoded


def render(request: ApiRequest, stored: StoredObject) -> bytes:
    """Return an object as the client wants it: as JSON or as a Table of one row."""
    version = table_version(request.accept) if request.accept else ""
    if not version:
        return stored.encoded
    meta = {"resourceVersion": stored.obj["metadata"].get("resourceVersion", "")}
    include = request.query.get("includeObject", "")
    return encode_table(stored.kind, [stored], meta, version, include)


def _write_options(request: ApiRequest) -> WriteOptions:
    return WriteOptions(request.dry_run, request.query.get("fieldValidation") == "Strict")


def _with_garbage(body: bytes, item: bytes) -> bytes:
    """Put an item in front of the items of an encoded list."""
    head, mark, tail = body.partition(b'"items":[')
    if not mark:
        return item
    return head + mark + item + (b"" if tail.startswith(b"]") else b",") + tail


def _success(info: RequestInfo, removed: Object) -> Object:
    details = {**details_of(info.kind, info.name), "uid": removed["metadata"]["uid"]}
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    return {**body, "status": "Success", "details": details}
