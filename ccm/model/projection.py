"""What a worker wants of an object, as data: field paths, and the part that they select."""

from collections.abc import Iterable
from dataclasses import dataclass
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
    result: dict[str, Any] = {}
    for path in paths:
        _copy(raw, result, path)
    return result


def _copy(source: Any, target: dict[str, Any], path: Path) -> None:
    step, rest = path[0], path[1:]
    if not isinstance(step, str) or not isinstance(source, dict) or step not in source:
        return
    value = source[step]
    if not rest:
        target[step] = value
    elif not isinstance(rest[0], str):
        target[step] = list(_picked(value, rest[0], rest[1:], target.get(step)))
    elif isinstance(value, dict):
        _copy(value, target.setdefault(step, {}), rest)


def _picked(items: Any, match: tuple[str, str], rest: Path, so_far: Any) -> Iterable[Any]:
    key, wanted = match
    yield from so_far or ()
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict) or item.get(key) != wanted:
            continue
        if not rest:
            yield item
            continue
        part: dict[str, Any] = {key: wanted}
        _copy(item, part, rest)
        yield part
