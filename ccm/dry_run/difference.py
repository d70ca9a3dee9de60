"""How two states of a cluster differ, field by field, without what changes by itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.model.objects import Json

Objects = Mapping[str, Json]
"""Objects of one kind by `namespace/name`, or by name when they have no namespace."""

BY_ITSELF = {
    ("metadata", "generation"),
    ("metadata", "managedFields"),
    ("metadata", "resourceVersion"),
}
STAMPS = ("lastHeartbeatTime", "lastProbeTime", "lastTransitionTime")
MAPS = {("metadata", "annotations"), ("metadata", "labels")}
"""Maps in which each key is a field of its own."""


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """One field of one object; the values are JSON, None where there is none.

    A `field` of "" is the object itself, which goes.
    """

    kind: str
    name: str
    field: str
    before: Any = None
    after: Any = None


def differences(kind: str, before: Objects, after: Objects) -> Iterator[Change]:
    """What changed in the objects of `before`, in the order of their names."""
    for name in sorted(before):
        if name not in after:
            yield Change(kind, name, "")
            continue
        old, new = dict(_fields(before[name])), dict(_fields(after[name]))
        for field in sorted(old.keys() | new.keys()):
            if old.get(field) != new.get(field):
                yield Change(kind, name, field, old.get(field), new.get(field))


def _fields(obj: Json) -> Iterator[tuple[str, Any]]:
    for section, content in obj.items():
        if not isinstance(content, dict):
            continue
        for name, value in content.items():
            if (section, name) in BY_ITSELF:
                continue
            if (section, name) in MAPS:
                yield from ((f"{section}.{name}[{key}]", item) for key, item in value.items())
            elif name == "conditions":
                yield from _conditions(section, value)
            else:
                yield f"{section}.{name}", value


def _conditions(section: str, conditions: list[Json]) -> Iterator[tuple[str, Any]]:
    for condition in conditions:
        status = {key: value for key, value in condition.items() if key not in STAMPS}
        yield f"{section}.conditions[{status.pop('type', '')}]", status
