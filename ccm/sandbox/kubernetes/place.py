"""What a path below /api or /apis names, and what a method does there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ccm.sandbox.kubernetes.kinds import NAMESPACE, Kind

VERB_OF_METHOD = {"POST": "create", "PUT": "update", "PATCH": "patch"}
NAMESPACE_SUBRESOURCES = ("status", "finalize")


@dataclass(frozen=True, slots=True)
class Place:
    """A resource, one of its objects when `name` is there, or an object's subresource."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        return self.kind.key(self.namespace, self.name)


class Places:
    """Finds the resource that a path names."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in kinds}

    def find(self, path: str) -> Place | None:
        """Return what `path` names, or None when it is not a resource."""
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return None
        namespace = ""
        if rest[0] == NAMESPACE.plural and len(rest) > 2 and rest[2] not in NAMESPACE_SUBRESOURCES:
            namespace, rest = rest[1], rest[2:]
        kind = self._kinds.get((group, version, rest[0]))
        if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
            return None
        name, subresource = [*rest[1:], "", ""][:2]
        place = Place(kind, namespace, name, subresource)
        return place if _exists(place) else None


def _exists(place: Place) -> bool:
    kind = place.kind
    if place.name and kind.namespaced and not place.namespace:
        return False
    return not place.subresource or (place.subresource == "status" and kind.has_status)


def verb_of(method: str, place: Place, query: Mapping[str, str]) -> str:
    """Return Kubernetes' verb for a request, or nothing when there is none."""
    name, subresource = place.name, place.subresource
    if subresource and method not in ("GET", "PUT", "PATCH"):
        return ""
    if method == "GET":
        if query and query.get("watch", "").lower() not in ("", "0", "false"):
            return "watch"
        return "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    if (method == "POST") is bool(name):
        return ""
    return VERB_OF_METHOD.get(method, "")
