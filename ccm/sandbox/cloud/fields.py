"""Reading a JSON object strictly, as a cloud does: a wrong or unknown field is a 400."""

import ipaddress
from collections.abc import Mapping
from typing import Any, NoReturn

from ccm.sandbox.cloud.problems import invalid

REQUIRED: Any = object()


def cidr(value: str) -> str:
    """`value` as the network it names, in its one canonical spelling."""
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as wrong:
        raise invalid(f"{value!r} is not a network: {wrong}") from wrong


class Fields:
    """The fields of one JSON object, each read once; `done` refuses what nobody asked for."""

    def __init__(self, body: object, what: str) -> None:
        if not isinstance(body, dict):
            raise invalid(f"{what} must be a JSON object")
        self._body: dict[str, Any] = body
        self._what = what
        self._known: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether the field is there with a value; null is the same as not there."""
        self._known.add(key)
        return self._body.get(key) is not None

    def is_named(self, key: str) -> bool:
        """Whether the field is there, even with null."""
        return key in self._body

    def flag(self, key: str) -> bool:
        value = self._take(key, False)
        return value if isinstance(value, bool) else self._refuse(key, "true or false")

    def text(self, key: str, default: str = REQUIRED) -> str:
        value = self._take(key, default)
        return value if isinstance(value, str) else self._refuse(key, "text")

    def number(self, key: str, default: float = REQUIRED) -> float:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(key, "a number")
        return value

    def whole(self, key: str, default: int = REQUIRED) -> int:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self._refuse(key, "a whole number")
        return value

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            return self._refuse(key, "a list of texts")
        return tuple(value)

    def objects(self, key: str) -> list[object]:
        value = self._take(key, [])
        return value if isinstance(value, list) else self._refuse(key, "a list")

    def mapping(self, key: str) -> dict[str, Any]:
        value = self._take(key, {})
        return value if isinstance(value, dict) else self._refuse(key, "an object")

    def labels(self, key: str) -> Mapping[str, str]:
        value = self.mapping(key)
        if not all(isinstance(text, str) for text in value.values()):
            return self._refuse(key, "an object of texts")
        return value

    def done(self) -> None:
        """Refuse fields that were never read: a cloud that ignores a field hides a mistake."""
        unknown = sorted(self._body.keys() - self._known)
        if unknown:
            raise invalid(f"{self._what} has unknown fields: {', '.join(unknown)}")

    def _take(self, key: str, default: object) -> Any:
        self._known.add(key)
        value = self._body.get(key, default)
        if value is REQUIRED:
            raise invalid(f"{self._what} needs {key!r}")
        return value

    def _refuse(self, key: str, kind: str) -> NoReturn:
        raise invalid(f"{key!r} of {self._what} must be {kind}")
