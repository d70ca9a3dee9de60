"""Answers every verb on a stored resource but watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import orjson

from ccm.sandbox.kubernetes.call import Call, check_accept
from ccm.sandbox.kubernetes.failures import details_of
from ccm.sandbox.kubernetes.faults import GARBAGE, Fault
from ccm.sandbox.kubernetes.history import Stored
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.patch import parse_patch
from ccm.sandbox.kubernetes.place import Place
from ccm.sandbox.kubernetes.reads import Page, read_list, read_object
from ccm.sandbox.kubernetes.store import Store
from ccm.sandbox.kubernetes.tables import encode_table, table_version
from ccm.sandbox.kubernetes.writes import Mode, Writes

Reply: TypeAlias = tuple[int, bytes]


class Resources:
    """The stored resources as HTTP sees them."""

    def __init__(self, store: Store, writes: Writes) -> None:
        self._store = store
        self._writes = writes
        self._handlers: Mapping[str, Callable[[Call], Reply]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def reply(self, call: Call, fault: Fault | None = None) -> Reply:
        """Perform a request and return the code and the body to answer with."""
        check_accept(call.accept)
        status, body = self._handlers[call.verb](call)
        if fault is not None and fault.action == "garbage":
            body = with_garbage(body, fault.text.encode() or GARBAGE)
        return status, body

    def _get(self, call: Call) -> Reply:
        stored = read_object(self._store, call)
        return 200, render(call, stored)

    def _list(self, call: Call) -> Reply:
        page = read_list(self._store, call)
        if version := table_version(call.accept):
            include = call.query.get("includeObject", "")
            return 200, encode_table(page.kind, page.items, page.metadata, version, include)
        return 200, page.encoded

    def _create(self, call: Call) -> Reply:
        place, body = call.place, call.document()
        stored = self._writes.create(place, body, mode_of(call))
        return 201, render(call, stored)

    def _update(self, call: Call) -> Reply:
        stored, created = self._writes.replace(call.place, call.document(), mode_of(call))
        return (201 if created else 200), render(call, stored)

    def _patch(self, call: Call) -> Reply:
        patch = parse_patch(call.place.kind, call.content_type, call.body)
        stored = self._writes.patch(call.place, patch, mode_of(call))
        return 200, render(call, stored)

    def _delete(self, call: Call) -> Reply:
        removed, is_gone = self._writes.delete(call.place, call.options(), mode_of(call))
        if not is_gone or call.place.kind.returns_deleted:
            return 200, removed.encoded
        return 200, orjson.dumps(_success(call.place, removed.obj))

    def _delete_collection(self, call: Call) -> Reply:
        page = read_list(self._store, call)
        options = call.options()
        for stored in page.items:
            meta = stored.obj["metadata"]
            place = Place(page.kind, meta.get("namespace", ""), meta["name"])
            self._writes.delete(place, options, mode_of(call))
        return 200, Page(page.kind, page.items, self._store.revision).encoded


def mode_of(call: Call) -> Mode:
    return Mode(call.dry_run, call.query.get("fieldValidation") == "Strict")


def render(call: Call, stored: Stored) -> bytes:
    """Return an object as the client wants it: as JSON or as a Table of one row."""
    version = table_version(call.accept) if call.accept else ""
    if not version:
        return stored.encoded
    meta = {"resourceVersion": stored.obj["metadata"].get("resourceVersion", "")}
    include = call.query.get("includeObject", "")
    return encode_table(stored.kind, [stored], meta, version, include)


def with_garbage(body: bytes, item: bytes) -> bytes:
    """Put an item in front of the items of an encoded list."""
    head, mark, tail = body.partition(b'"items":[')
    if not mark:
        return item
    return head + mark + item + (b"" if tail.startswith(b"]") else b",") + tail


def _success(place: Place, removed: Object) -> Object:
    details = details_of(place.kind, place.name)
    details["uid"] = removed["metadata"]["uid"]
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    return {**body, "status": "Success", "details": details}
