"""A JSON document of another process, perhaps of another version, as the TypedDict it should be."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

from ccm.model.objects import MAX_NUMBER

T = TypeVar("T")

_WRONG = object()
_EMPTY: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False}


def conform(kind: type[T], value: object) -> T:
    """`value` as a document of this kind, whatever it is.

    What has another type than it should is left out, or empty where the kind requires it. Keys
    that the kind does not have are kept as they are.
    """
    document = _read(kind, value)
    return _empty(kind) if document is _WRONG else document  # type: ignore[no-any-return]


def _read(kind: Any, value: object) -> Any:
    """`_WRONG` for another type."""
    if is_typeddict(kind):
        return _read_document(kind, value) if isinstance(value, dict) else _WRONG
    origin, parts = get_origin(kind), get_args(kind)
    if origin is list:
        return [*_right(parts[0], value)] if isinstance(value, list) else _WRONG
    if origin is dict:
        return dict(_right_items(parts[1], value)) if isinstance(value, dict) else _WRONG
    if parts:  # a union
        return next((read for part in parts for read in _right(part, [value])), _WRONG)
    return value if _is_scalar(kind, value) else _WRONG


def _right(kind: Any, items: Iterable[object]) -> Iterator[Any]:
    return (read for item in items if (read := _read(kind, item)) is not _WRONG)


def _right_items(kind: Any, value: Mapping[Any, object]) -> Iterator[tuple[Any, Any]]:
    return ((key, read) for key, item in value.items() for read in _right(kind, [item]))


def _is_scalar(kind: Any, value: object) -> bool:
    if kind is float:
        kind = int | float
    if isinstance(value, bool) and kind is not bool:
        return False
    return isinstance(value, kind) and (not isinstance(value, float) or abs(value) < MAX_NUMBER)


def _read_document(kind: Any, value: Mapping[Any, Any]) -> dict[Any, Any]:
    document = dict(value)
    for key, part in _parts(kind).items():
        read = _read(part, value[key]) if key in value else _WRONG
        if read is not _WRONG:
            document[key] = read
        elif key in kind.__required_keys__:
            document[key] = _empty(part)
        else:
            document.pop(key, None)
    return document


def _empty(kind: Any) -> Any:
    if is_typeddict(kind):
        return _read_document(kind, {})
    if NoneType in get_args(kind):
        return None
    return _EMPTY[kind] if kind in _EMPTY else get_origin(kind)()


@lru_cache
def _parts(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
