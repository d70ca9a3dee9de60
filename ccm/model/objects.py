"""What every Kubernetes object has, read leniently: a wrong object must hold up nobody."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


def mapping(value: object) -> Mapping[str, Any]:
    """`value` when it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Json]:
    """The JSON objects in `value` when it is a list, else none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    """`value` when it is text, else empty text."""
    return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class KubernetesObject:
    """A view on raw JSON; everything that no property reads passes through unread."""

    raw: Json

    @property
    def meta(self) -> Mapping[str, Any]:
        return mapping(self.raw.get("metadata"))

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping(self.raw.get("spec"))

    @property
    def status(self) -> Mapping[str, Any]:
        return mapping(self.raw.get("status"))

    @property
    def name(self) -> str:
        return text(self.meta.get("name"))

    @property
    def namespace(self) -> str:
        return text(self.meta.get("namespace"))

    @property
    def uid(self) -> str:
        return text(self.meta.get("uid"))

    @property
    def labels(self) -> Mapping[str, str]:
        return mapping(self.meta.get("labels"))

    @property
    def annotations(self) -> Mapping[str, str]:
        return mapping(self.meta.get("annotations"))

    @property
    def is_being_deleted(self) -> bool:
        return bool(self.meta.get("deletionTimestamp"))
