"""Projections: the fields of an object that a worker wants, as data, and how they are cut out."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Step = str | tuple[str, str]
FieldPath = tuple[Step, ...]


NODE_IDENTITY = "NodeIdentity"
"""All Nodes, for a worker that owns only some; what `Node` is to it are those."""
VIEWS = {NODE_IDENTITY: "Node"}


def watched_kind(kind: str) -> str:
    """The kind of the API server's objects behind a projection's."""
    return VIEWS.get(kind, kind)


@dataclass(frozen=True, slots=True)
class Projection:
    """The objects of one kind, cut down to `paths`.

    A step of a path is a key of an object, or `(key, value)`: the entries of a list of objects that
    carry that value, as in `("status", "conditions", ("type", "Ready"), "status")`.
    """

    kind: str
    paths: tuple[FieldPath, ...]


def paths_from_json(paths: Iterable[Iterable[Any]]) -> tuple[FieldPath, ...]:
    """Paths as they arrive over the wire, where a pair is a list of two texts."""
    return tuple(
        tuple(step if isinstance(step, str) else (str(step[0]), str(step[1])) for step in path)
        for path in paths
    )


def project(raw: Any, paths: Iterable[FieldPath]) -> dict[str, Any]:
    """The part of `raw` that `paths` select, in its shape; missing stays missing."""
    return _select(raw, _cut(tuple(paths))) if isinstance(raw, dict) else {}


@dataclass(slots=True)
class _Cut:
    """What is kept of an object; None in place of a cut keeps all of it.

    `entries` are the `(key, value)` steps, for the case that the object is a list of such.
    """

    fields: list[tuple[str, "_Cut | None"]]
    entries: list[tuple[str, str, "_Cut | None"]]


_Tree = dict[Step, "_Tree | None"]  # None: all of it


@lru_cache(maxsize=64)
def _cut(paths: tuple[FieldPath, ...]) -> _Cut:
    """Paths that begin alike, joined; a path within another one adds nothing to it."""
    tree: _Tree = {}
    for path in sorted(paths, key=len):
        at: _Tree | None = tree
        for step in path[:-1]:
            at = at.setdefault(step, {}) if at is not None else None
        if at is not None:
            at.setdefault(path[-1], None)
    return _compiled(tree)


def _compiled(tree: _Tree) -> _Cut:
    cut = _Cut([], [])
    for step, inner in tree.items():
        below = None if inner is None else _compiled(inner)
        if isinstance(step, str):
            cut.fields.append((step, below))
        else:
            cut.entries.append((*step, below))
    return cut


def _select(source: dict[str, Any], cut: _Cut) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, inner in cut.fields:
        if key not in source:
            continue
        value = source[key]
        if inner is None:
            result[key] = value
        elif isinstance(value, dict):
            result[key] = _select(value, inner)
        elif isinstance(value, list):
            result[key] = _picked(value, inner)
    return result


def _picked(items: list[Any], cut: _Cut) -> list[Any]:
    """The entries that any `(key, value)` step matches, each cut down to all that match it."""
    picked = []
    for item in items:
        part: dict[str, Any] = {}
        for key, value, inner in cut.entries:
            if not isinstance(item, dict) or item.get(key) != value:
                continue
            if inner is None:
                part = item
                break
            part |= {key: value, **_select(item, inner)}
        if part:
            picked.append(part)
    return picked
