"""A copy of the cluster that takes writes as the API server would, and what they changed."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, assert_never
from urllib.parse import unquote

from ccm.errors import TEST_FAILED, KubernetesError
from ccm.model.objects import Json, mapping, object_key, resource_version
from ccm.model.patches import MERGE_KEYS, RejectedPatch, json_patch, strategic_merge
from ccm.model.writes import Delete, Merge, Patch, Write

KINDS = {"nodes": "Node", "services": "Service", "persistentvolumes": "PersistentVolume"}
"""What controllers write to, by the resource in paths."""

UNPLANNED = {
    ("metadata", "generation"),
    ("metadata", "managedFields"),
    ("metadata", "resourceVersion"),
}
"""Fields that the API server sets by itself."""
TIMESTAMPS = ("lastHeartbeatTime", "lastProbeTime", "lastTransitionTime")
MAPS = {("metadata", "annotations"), ("metadata", "labels")}
"""Maps in which each key is a field of its own."""

Objects = Mapping[str, Json]
"""Objects of one kind by `namespace/name`, or by name when they have no namespace."""


class ClusterCopy:
    """Nodes, Services and PersistentVolumes as they were listed, and as they are after each write.

    `on_change` is called with kind, key and the object after a write, None when that is gone.
    """

    def __init__(self, listed: Mapping[str, list[Json]]) -> None:
        self.before = {
            kind: {object_key(obj): obj for obj in objs} for kind, objs in listed.items()
        }
        self.now = deepcopy(self.before)
        self.on_change: Callable[[str, str, Json | None], None] = lambda *_: None
        self.writes = 0
        versions = (resource_version(obj) for objs in listed.values() for obj in objs)
        self._version = max(versions, default=0)

    def apply(self, write: Write) -> Json:
        """The object as it is then; raises `KubernetesError` as the API server would."""
        kind, key = _target(write.path)
        found = self.now[kind].get(key)
        if found is None:
            raise KubernetesError(404, "NotFound", f"{kind} {key} not found", None)
        changed = deepcopy(found)
        match write:
            case Patch(_, operations):
                try:
                    changed = json_patch(list(operations))(changed)
                except RejectedPatch as error:
                    raise KubernetesError(422, "Invalid", TEST_FAILED, None) from error
            case Merge(_, body):
                _check_uid(changed, mapping(body.get("metadata")).get("uid"))
                changed = strategic_merge(MERGE_KEYS.get(kind, {}), changed, body)
            case Delete(_, uid):
                _check_uid(changed, uid)
                changed["metadata"].setdefault("deletionTimestamp", "1970-01-01T00:00:00Z")
            case _:
                assert_never(write)
        self.writes += 1
        self._version += 1
        changed["metadata"]["resourceVersion"] = str(self._version)
        self._put(kind, key, changed)
        return changed

    def changes(self) -> "Iterator[Change]":
        """What differs from the objects as they were listed, in the order of kinds and names."""
        for kind, objects in self.before.items():
            yield from differences(kind, objects, self.now[kind])

    def _put(self, kind: str, key: str, obj: Json) -> None:
        meta = obj["metadata"]
        is_gone = "deletionTimestamp" in meta and not meta.get("finalizers")
        if is_gone:
            del self.now[kind][key]
        else:
            self.now[kind][key] = obj
        self.on_change(kind, key, None if is_gone else obj)


def _target(path: str) -> tuple[str, str]:
    """Kind and key in a path such as `/api/v1/namespaces/default/services/web/status`."""
    parts = [unquote(part) for part in path.split("/")[3:]]
    if parts[0] == "namespaces":
        _, namespace, resource, name, *_ = parts
        return KINDS[resource], f"{namespace}/{name}"
    return KINDS[parts[0]], parts[1]


def _check_uid(obj: Json, uid: object) -> None:
    if obj["metadata"].get("uid") != uid:
        raise KubernetesError(409, "Conflict", "the object is another one by now", None)


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
    """What changed in the objects of `before`, without what the API server sets by itself."""
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
            if (section, name) in UNPLANNED:
                continue
            if (section, name) in MAPS:
                yield from ((f"{section}.{name}[{key}]", item) for key, item in value.items())
            elif name == "conditions":
                yield from _conditions(section, value)
            else:
                yield f"{section}.{name}", value


def _conditions(section: str, conditions: list[Json]) -> Iterator[tuple[str, Any]]:
    for condition in conditions:
        stable = {key: value for key, value in condition.items() if key not in TIMESTAMPS}
        yield f"{section}.conditions[{stable.pop('type', '')}]", stable
