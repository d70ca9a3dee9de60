"""A planned action on a Node as the JSON patch that performs it, with tests of what was seen."""

from collections.abc import Mapping
from typing import assert_never
from urllib.parse import quote

from ccm.model.objects import Json, Node
from workers.node.plan import Action, Initialize, SetAddresses, SetLabels, SetTaints
from workers.performer import Patch


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
        case Initialize(labels, provider_id, taints_left):
            taints = _taints(node, taints_left)
            set_id: Json = {"op": "add", "path": "/spec/providerID", "value": provider_id}
            rest = [*_labels(node, labels), *([set_id] if provider_id else ())]
            return Patch(path, (same_object, *taints, *rest))
        case SetLabels(labels):
            return Patch(path, (same_object, *_labels(node, labels)))
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


def _labels(node: Node, labels: Mapping[str, str]) -> list[Json]:
    if labels and not node.has_labels:
        return [
            {"op": "test", "path": "/metadata/labels", "value": None},
            {"op": "add", "path": "/metadata/labels", "value": dict(labels)},
        ]
    return [
        {"op": "add", "path": f"/metadata/labels/{_escaped(key)}", "value": value}
        for key, value in labels.items()
    ]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
