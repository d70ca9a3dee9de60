"""What a worker wants of an object, as data: field paths, and the part that they select."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Step = str | tuple[str, str]
Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Want:
    """The objects of one kind, cut down to `paths`.

    A step of a path is a key of an object, or `(key, value)`: the entries of a list of objects that
    carry that value, as in `("status", "conditions", ("type", "Ready"), "status")`.
    """

    kind: str
    paths: tuple[Path, ...]


def paths_from_json(paths: Iterable[Iterable[Any]]) -> tuple[Path, ...]:
    """Paths as they arrive over the wire, where a pair is a list of two texts."""
    return tuple(
        tuple(step if isinstance(step, str) else (str(step[0]), str(step[1])) for step in path)
        for path in paths
    )


def project(raw: Any, paths: Iterable[Path]) -> dict[str, Any]:
    """The part of `raw` that `paths` select, in its shape; missing stays missing."""
    return _select(raw, _tree(tuple(paths))) if isinstance(raw, dict) else {}


Tree = dict[Step, "Tree | None"]  # None: the whole of what is there


@lru_cache(maxsize=64)
def _tree(paths: tuple[Path, ...]) -> Tree:
    """Paths that begin alike, joined; a path within another one adds nothing to it."""
    tree: Tree = {}
    for path in sorted(paths, key=len):
        at: Tree | None = tree
        for step in path[:-1]:
            at = at.setdefault(step, {}) if at is not None else None
        if at is not None:
            at.setdefault(path[-1], None)
    return tree


def _select(source: dict[str, Any], tree: Tree) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for step, inner in tree.items():
        if not isinstance(step, str) or step not in source:
            continue
        value = source[step]
        if inner is None:
            result[step] = value
        elif isinstance(value, dict):
            result[step] = _select(value, inner)
        elif isinstance(value, list):
            result[step] = list(_picked(value, inner))
    return result


def _picked(items: list[Any], tree: Tree) -> Iterator[Any]:
    """The entries that any `(key, value)` step matches, each cut down to all that match it."""
    for item in items:
        if not isinstance(item, dict):
            continue
        matching = {step: inner for step, inner in tree.items() if _matches(item, step)}
        if any(inner is None for inner in matching.values()):
            yield item
        elif matching:
            part: dict[str, Any] = {}
            for step, inner in matching.items():
                part |= {step[0]: step[1], **_select(item, inner or {})}
            yield part


def _matches(item: dict[str, Any], step: Step) -> bool:
    return not isinstance(step, str) and item.get(step[0]) == step[1]
