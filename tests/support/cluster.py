"""A Kubernetes API in memory: it holds objects, and takes writes as a real server does."""

import asyncio
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Protocol, cast

import orjson

from ccm.errors import KubernetesError
from ccm.kube.client import JSON_PATCH, METADATA_ONLY, Kube
from ccm.model.objects import Json, Node, mapping
from ccm.model.service import Service
from ccm.model.volume import PersistentVolume
from ccm.sandbox.kubernetes.errors import StatusError
from ccm.sandbox.kubernetes.kinds import NODE, PERSISTENT_VOLUME, SERVICE, ResourceKind
from ccm.sandbox.kubernetes.patch import parse_patch

KINDS = {kind.plural: kind for kind in (NODE, SERVICE, PERSISTENT_VOLUME)}
PATH = re.compile(r"/api/v1/(?:namespaces/([^/]+)/)?(\w+)/([^/]+?)(/status)?")
MOST_ANNOTATED = 256 * 1024  # bytes of all annotations of an object
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
EMPTY_IS_ABSENT = {"spec": ("taints",), "status": ("addresses",)}
"""Lists of a Node that the API server does not store while they are empty."""


class KubeObject(Protocol):
    """A view on an object of Kubernetes."""

    @property
    def raw(self) -> Json: ...


def key_of(raw: Json) -> str:
    """The key of an object: its name, behind its namespace where it has one."""
    meta = raw["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


def patched(
    raw: Json, body: Any, content_type: str = JSON_PATCH, kind: ResourceKind = NODE
) -> Json:
    """`raw` after a patch; raises `KubernetesError` 422 as the API server does."""
    try:
        return parse_patch(kind, content_type, orjson.dumps(body))(deepcopy(raw))
    except StatusError as error:
        raise KubernetesError(422, "Invalid", error.message, None) from error


class Cluster:
    """The part of `Kube` that controllers use, over objects by kind and key.

    Before each write it asks `fence`, as a real client does, and `before_write`; `failures` are
    what the next writes end with. A patch waits until `gate` is open. The tries whose numbers are
    in `kept` go no further than a proxy, which answers with the object as it is. `on_change` gets
    each change, as a watch does.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.events: list[Json] = []
        self.patches: list[tuple[str, Any]] = []  # path and body of those that were taken
        self.tries = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[KubernetesError] = []
        self.kept: set[int] = set()
        self.writes_until_cut_off = 10**9
        self.fence: Callable[[], None] = lambda: None
        self.before_write: Callable[[], None] = lambda: None
        self.on_change: Callable[[str, str, Json | None], None] = lambda kind, key, raw: None
        self._version = 100

    @property
    def kube(self) -> Kube:
        return cast(Kube, self)

    @property
    def writes(self) -> int:
        return len(self.patches)

    def put(self, *objects: KubeObject) -> None:
        """Create objects, or replace them as someone else would."""
        for one in objects:
            self._store(deepcopy(one.raw))

    def remove(self, kind: str, key: str) -> None:
        """The object disappears, whatever it waits for."""
        del self.objects[kind, key]
        self.on_change(kind, key, None)

    @property
    def nodes(self) -> dict[str, Node]:
        return {key: self.node(key) for kind, key in self.objects if kind == "Node"}

    def node(self, name: str = "node-1") -> Node:
        return Node(deepcopy(self.objects["Node", name]))

    def service(self, key: str = "default/web") -> Service:
        return Service(deepcopy(self.objects["Service", key]))

    def volume(self, name: str = "pv-1") -> PersistentVolume:
        return PersistentVolume(deepcopy(self.objects["PersistentVolume", name]))

    # What the client does.

    async def get(self, path: str, params: object = None) -> Json:
        assert params is None
        return deepcopy(self._find(path)[1])

    async def patch(
        self, path: str, content_type: str, body: Any, timeout: float = 30.0, accept: str = ""
    ) -> Json:
        assert timeout > 0
        self.tries += 1
        await self.gate.wait()
        self.fence()
        self.before_write()
        if self.failures:
            raise self.failures.pop(0)
        if self.writes >= self.writes_until_cut_off:
            raise KubernetesError(503, "ServiceUnavailable", "cut off by the test", None)
        kind, old = self._find(path)
        if self.tries in self.kept:
            return _answer(old, accept)
        if isinstance(body, dict):
            _check_same(old, body["metadata"])
        new = patched(old, body, content_type, kind)
        kept = "spec" if path.endswith("/status") else "status"
        if kept in old:
            new[kept] = old[kept]
        _check(old, new)
        self.patches.append((path, body))
        meta = new["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            self.remove(kind.name, key_of(new))
        else:
            self._store(new)
        return _answer(new, accept)

    async def post(self, path: str, body: Json, timeout: float = 30.0) -> Json:
        assert path.endswith("/events")
        self.events.append(body)
        return body

    def _find(self, path: str) -> tuple[ResourceKind, Json]:
        found = PATH.fullmatch(path)
        assert found, path
        namespace, plural, name, _ = found.groups()
        key = f"{namespace}/{name}" if namespace else name
        kind = KINDS[plural]
        if (kind.name, key) not in self.objects:
            raise KubernetesError(404, "NotFound", f'{plural} "{name}" not found', None)
        return kind, self.objects[kind.name, key]

    def _store(self, raw: Json) -> None:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        for part, lists in EMPTY_IS_ABSENT.items():
            for name in lists:
                if not mapping(raw.get(part)).get(name, True):
                    del raw[part][name]
        kind, key = raw["kind"], key_of(raw)
        self.objects[kind, key] = raw
        self.on_change(kind, key, raw)


def _answer(raw: Json, accept: str) -> Json:
    if accept == METADATA_ONLY:
        raw = {"kind": "PartialObjectMetadata", "metadata": raw["metadata"]}
    return deepcopy(raw)


def _check_same(old: Json, metadata: Json) -> None:
    """A patch that has them names the object and its version."""
    for member in ("uid", "resourceVersion"):
        if metadata.get(member) not in (None, old["metadata"].get(member)):
            raise KubernetesError(409, "Conflict", f"another {member}", None)


def _check(old: Json, new: Json) -> None:
    before, after = (mapping(one["metadata"]).get("finalizers") or () for one in (old, new))
    if old["metadata"].get("deletionTimestamp") and not set(after) <= set(before):
        raise KubernetesError(422, "Invalid", "no new finalizers on what is being deleted", None)
    affinity = old["spec"].get("nodeAffinity")
    if affinity and new["spec"].get("nodeAffinity") != affinity:
        raise KubernetesError(422, "Invalid", "nodeAffinity: field is immutable", None)
    annotations = new["metadata"].get("annotations") or {}
    if sum(len(key) + len(value) for key, value in annotations.items()) > MOST_ANNOTATED:
        raise KubernetesError(422, "Invalid", "metadata.annotations: Too long", None)
    labels = new["metadata"].get("labels") or {}
    if not all(LABEL.fullmatch(value) for value in labels.values()):
        raise KubernetesError(422, "Invalid", "metadata.labels: invalid value", None)
