"""Server-side tables: what `kubectl get` asks for instead of objects."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import orjson

from ccm.sandbox.kubernetes.columns import Column, columns_of
from ccm.sandbox.kubernetes.history import Stored
from ccm.sandbox.kubernetes.kinds import Kind
from ccm.sandbox.kubernetes.objects import Object

GROUP = "meta.k8s.io"


def table_version(accept: str) -> str:
    """Return the version of Table that an Accept header prefers, or nothing."""
    for choice in accept.split(","):
        parts = [part.strip() for part in choice.split(";")]
        if "as=Table" in parts and f"g={GROUP}" in parts:
            for version in ("v1", "v1beta1"):
                if f"v={version}" in parts:
                    return version
        if parts[0] in ("application/json", "*/*") and len(parts) == 1:
            return ""
    return ""


def encode_table(
    kind: Kind, items: Iterable[Stored], list_metadata: Object, version: str, include: str
) -> bytes:
    """Return the Table of some objects; `include` is what each row carries of its object."""
    now = datetime.datetime.now(datetime.UTC)
    columns = columns_of(kind)
    table = {
        "kind": "Table",
        "apiVersion": f"{GROUP}/{version}",
        "metadata": list_metadata,
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [_row(columns, stored, include, now) for stored in items],
    }
    return orjson.dumps(table)


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.name,
        "priority": column.priority,
    }


def _row(
    columns: tuple[Column, ...], stored: Stored, include: str, now: datetime.datetime
) -> Object:
    row: Object = {"cells": [column.cell(stored.obj, now) for column in columns]}
    if include == "Object":
        row["object"] = stored.obj
    elif include != "None":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"{GROUP}/v1",
            "metadata": stored.obj["metadata"],
        }
    return row
