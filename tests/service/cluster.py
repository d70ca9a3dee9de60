"""A Kubernetes API of Services, Nodes and Events in memory: it holds state and takes patches."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

from ccm.errors import KubernetesError
from ccm.kube.client import JSON_PATCH, Kube
from ccm.model.objects import Json, Node, mapping
from ccm.model.service import Service
from tests.unit.cluster import patched

Name = tuple[str, str]  # kind, key
SERVICES = "/api/v1/namespaces/"


class Cluster:
    """The part of `Kube` that controllers use. `on_change` gets each change, as a watch does."""

    def __init__(self) -> None:
        self.objects: dict[Name, Json] = {}
        self.events: list[Json] = []
        self.patches: list[tuple[str, Any]] = []  # path, operations; those that were taken
        self.failures: list[KubernetesError] = []  # what the next patches end with
        self.before_write: Callable[[], None] = lambda: None
        self.on_change: Callable[[str, str, Json | None], None] = lambda kind, key, raw: None
        self._version = 100

    @property
    def kube(self) -> Kube:
        return cast(Kube, self)

    @property
    def writes(self) -> int:
        return len(self.patches)

    @property
    def written(self) -> list[str]:
        """What the patches changed, in their order."""
        return [operations[-1]["path"].split("/")[2] for _, operations in self.patches]

    def put(self, thing: Service | Node) -> None:
        """Create an object, or replace it as somebody else would."""
        self._version += 1
        raw = deepcopy(thing.raw)
        raw["metadata"]["resourceVersion"] = str(self._version)
        name = (raw["kind"], thing.key if isinstance(thing, Service) else thing.name)
        self.objects[name] = raw
        self.on_change(*name, raw)

    def remove(self, kind: str, key: str) -> None:
        """The object disappears, whatever it waits for."""
        del self.objects[kind, key]
        self.on_change(kind, key, None)

    def service(self, key: str) -> Service:
        return Service(deepcopy(self.objects["Service", key]))

    async def get(self, path: str, params: object = None) -> Json:
        assert params is None
        return deepcopy(self._at(path)[1])

    async def patch(self, path: str, kind: str, body: Any, timeout: float = 30.0) -> Json:
        assert kind == JSON_PATCH
        assert timeout > 0
        self.before_write()
        if self.failures:
            raise self.failures.pop(0)
        key, old = self._at(path)
        new = patched(old, body)
        kept = "spec" if path.endswith("/status") else "status"
        new[kept] = old[kept]
        self.patches.append((path, body))
        meta = mapping(new["metadata"])
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            self.remove("Service", key)
            return new
        self.put(Service(new))
        return deepcopy(self.objects["Service", key])

    async def post(self, path: str, body: Json, timeout: float = 30.0) -> Json:
        assert path.endswith("/events")
        self.events.append(body)
        return body

    def _at(self, path: str) -> tuple[str, Json]:
        namespace, _, name = path.removeprefix(SERVICES).removesuffix("/status").split("/")
        key = f"{namespace}/{name}"
        if ("Service", key) not in self.objects:
            raise KubernetesError(404, "NotFound", f'services "{name}" not found', None)
        return key, self.objects["Service", key]
