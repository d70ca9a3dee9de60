"""What the record that a cloud has of a thing lacks of the one that is desired."""

from collections.abc import Callable
from typing import Any

from ccm.model.objects import Json


def differences(
    desired: Json, record: Json, counts: Callable[[str, Any], Any] = lambda _, value: value
) -> Json:
    """The fields of `desired` that `record` has otherwise.

    The order in lists says nothing, and what is empty, false or zero is as good as missing.
    `counts` is what counts of the value of a field, where that is not all.
    """
    return {
        key: value
        for key, value in desired.items()
        if value != record.get(key)
        and _comparable(counts(key, value)) != _comparable(counts(key, record.get(key)))
    }


def _comparable(value: Any) -> Any:
    match value:
        case dict():
            counted = {key: _comparable(item) for key, item in sorted(value.items())}
            return {key: item for key, item in counted.items() if item is not None} or None
        case list() | tuple():
            return sorted(map(repr, map(_comparable, value))) or None
    return value or None
