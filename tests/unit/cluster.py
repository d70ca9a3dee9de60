"""A Kubernetes API of Nodes and Events in memory: it holds state and takes patches."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import jsonpatch

from ccm.errors import KubernetesError
from ccm.kube.client import JSON_PATCH, Kube
from ccm.model.objects import Json, Node


def patched(raw: Json, operations: Any) -> Json:
    """`raw` after a JSON patch; raises `KubernetesError` 422 as the API server does."""
    result = deepcopy(raw)
    for operation in operations:
        if _tests_that_a_member_is_missing(result, operation):
            continue
        try:
            result = jsonpatch.apply_patch(result, [operation])
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise KubernetesError(422, "Invalid", str(error), None) from error
    return result


def _tests_that_a_member_is_missing(raw: Json, operation: Json) -> bool:
    # The API server's library takes a missing member for null; Python's does not.
    if operation["op"] != "test" or operation["value"] is not None:
        return False
    pointer = jsonpatch.JsonPointer(operation["path"])
    return pointer.resolve(raw, None) is None


EMPTY_IS_ABSENT = {"spec": ("taints",), "status": ("addresses",)}
"""Lists that the API server does not store while they are empty."""


class Cluster:
    """The part of `Kube` that controllers write with."""

    def __init__(self) -> None:
        self._nodes: dict[str, Json] = {}
        self._version = 100
        self.events: list[Json] = []
        self.writes = 0
        self.writes_until_cut_off = 10**9
        self.fence: Callable[[], None] = lambda: None  # asked before a Node is written

    @property
    def kube(self) -> Kube:
        return cast(Kube, self)

    def put(self, node: Node) -> None:
        """Create the Node, or replace it as somebody else would."""
        self._version += 1
        raw = deepcopy(node.raw)
        raw["metadata"]["resourceVersion"] = str(self._version)
        for part, lists in EMPTY_IS_ABSENT.items():
            for name in lists:
                if not raw.get(part, {}).get(name, True):
                    del raw[part][name]
        self._nodes[node.name] = raw

    def remove(self, name: str) -> None:
        del self._nodes[name]

    def get(self, name: str) -> Node | None:
        raw = self._nodes.get(name)
        return Node(deepcopy(raw)) if raw is not None else None

    def names(self) -> list[str]:
        return list(self._nodes)

    async def patch(self, path: str, kind: str, body: Any, timeout: float = 30.0) -> Json:
        assert kind == JSON_PATCH
        assert timeout > 0
        self.fence()
        if self.writes >= self.writes_until_cut_off:
            raise KubernetesError(503, "ServiceUnavailable", "cut off by the test", None)
        name, _, part = path.removeprefix("/api/v1/nodes/").partition("/")
        old = self._nodes.get(name)
        if old is None:
            raise KubernetesError(404, "NotFound", f'nodes "{name}" not found', None)
        new = patched(old, body)
        kept = "spec" if part == "status" else "status"
        new[kept] = old[kept]
        self.writes += 1
        self.put(Node(new))
        return deepcopy(self._nodes[name])

    async def post(self, path: str, body: Json, timeout: float = 30.0) -> Json:
        assert path.endswith("/events")
        self.events.append(body)
        return body
