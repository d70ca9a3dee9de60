"""A planned action on a Node as the JSON patch that performs it, with tests of what was seen."""

from typing import assert_never
from urllib.parse import quote

from ccm.model.node import Node
from ccm.model.objects import Json
from workers.apply import Patch
from workers.node.plan import Action, Initialize, SetAddresses, SetTaints


def patch_for(node: Node, action: Action) -> Patch:
    """The write for `action`; it fails with 422 when `node` is not what it was.

    No `resourceVersion` is involved, because that changes with every heartbeat: each patch tests
    the identity of the object and the very list that it replaces.
    """
    path = f"/api/v1/nodes/{quote(node.name)}"
    same_object: Json = {"op": "test", "path": "/metadata/uid", "value": node.uid}
    match action:
        case SetAddresses(addresses):
            seen: Json = {
                "op": "test",
                "path": "/status/addresses",
                "value": node.addresses or None,
            }
            change: Json = {"op": "add", "path": "/status/addresses", "value": addresses}
            return Patch(f"{path}/status", (same_object, seen, change))
        case Initialize():
            taints = _taints(node, action.taints_left)
            return Patch(path, (same_object, *taints, *_rest(node, action)))
        case SetTaints(wanted):
            return Patch(path, (same_object, *_taints(node, wanted)))
        case _:
            assert_never(action)


def _taints(node: Node, wanted: list[Json]) -> tuple[Json, Json]:
    """Replace the list that we saw; a missing list tests equal to null and cannot be replaced."""
    seen: Json = {"op": "test", "path": "/spec/taints", "value": node.taints or None}
    if not wanted:
        return seen, {"op": "remove", "path": "/spec/taints"}
    return seen, {"op": "add", "path": "/spec/taints", "value": wanted}


def _rest(node: Node, action: Initialize) -> list[Json]:
    operations: list[Json] = []
    if action.labels and not node.has_labels:
        operations.append({"op": "test", "path": "/metadata/labels", "value": None})
        operations.append({"op": "add", "path": "/metadata/labels", "value": dict(action.labels)})
    elif action.labels:
        operations += [
            {"op": "add", "path": f"/metadata/labels/{_escaped(key)}", "value": value}
            for key, value in action.labels.items()
        ]
    if action.provider_id:
        operations.append({"op": "add", "path": "/spec/providerID", "value": action.provider_id})
    return operations


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
