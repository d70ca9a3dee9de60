"""The three kinds of patch: what they change, and what they refuse."""

from typing import Any

import pytest

from ccm.sandbox.kubernetes.objects import lookup
from tests.integration.api_server.client import (
    FINALIZER,
    JSON,
    JSON_PATCH,
    MERGE,
    NODES,
    NOT_READY,
    OTHER_FINALIZER,
    STRATEGIC,
    TAINT,
    Api,
    Body,
    address,
)

LABELS, FINALIZERS = "metadata.labels", "metadata.finalizers"
TAINTS, UNSCHEDULABLE, ADDRESSES = "spec.taints", "spec.unschedulable", "status.addresses"

REPLACE = {"$patch": "replace"}
DELETE = {"type": "Hostname", "$patch": "delete"}
OLD = [address("InternalIP", "10.0.0.1"), address("Hostname", "host")]
NEW = [address("InternalIP", "10.0.0.8"), address("InternalIP", "10.0.0.9")]


def labels(**found: Any) -> Body:
    return {"metadata": {"labels": found}}


def finalizers(*found: str) -> Body:
    return {"metadata": {"finalizers": found}}


def taints(*found: Body) -> Body:
    return {"spec": {"taints": found}}


def unschedulable(found: bool) -> Body:
    return {"spec": {"unschedulable": found}}


def addresses(*found: Body) -> Body:
    return {"status": {"addresses": found}}


def op(name: str, path: str, value: Any = None) -> Body:
    return {"op": name, "path": path, "value": value}


async def patch(api: Api, path: str, content_type: str, body: Any) -> Any:
    """A body with a status goes to the subresource."""
    suffix = "/status" if isinstance(body, dict) and "status" in body else ""
    return await api.call("PATCH", path + suffix, body, content_type=content_type)


@pytest.mark.parametrize(
    ("content_type", "members", "body", "field", "found"),
    [
        # null removes a member
        (MERGE, labels(a="b", c="d"), labels(a=None), LABELS, {"c": "d"}),
        (STRATEGIC, labels(a="b", c="d"), labels(a=None), LABELS, {"c": "d"}),
        # a merge patch replaces every list, and an empty one is left out
        (MERGE, taints(TAINT), taints(NOT_READY), TAINTS, [NOT_READY]),
        (MERGE, finalizers(FINALIZER), finalizers(OTHER_FINALIZER), FINALIZERS, [OTHER_FINALIZER]),
        (MERGE, taints(TAINT), taints(), TAINTS, None),
        # fields that belong together
        (MERGE, {}, {"spec": {"podCIDR": "10.1.0.0/24"}}, "spec.podCIDRs", ["10.1.0.0/24"]),
        (MERGE, unschedulable(True), unschedulable(False), UNSCHEDULABLE, None),
        # JSON patch: a test that holds, null is a missing member, paths into lists
        (
            JSON_PATCH,
            taints(TAINT),
            [
                op("test", "/spec/taints", [TAINT, NOT_READY]),
                op("replace", "/spec/taints", [NOT_READY]),
            ],
            TAINTS,
            [NOT_READY],
        ),
        (JSON_PATCH, {}, [op("test", "/spec/providerID")], "spec.providerID", None),
        (JSON_PATCH, {}, [op("replace", "/spec/providerID", "x://1")], "spec.providerID", "x://1"),
        (
            JSON_PATCH,
            taints(TAINT),
            [op("remove", "/spec/taints/0"), op("add", "/spec/taints/-", TAINT)],
            TAINTS,
            [NOT_READY, TAINT],
        ),
        # strategic addresses merge by type; two of one type collide
        (
            STRATEGIC,
            addresses(*OLD),
            addresses(address("Hostname", "other")),
            ADDRESSES,
            [OLD[0], address("Hostname", "other")],
        ),
        (STRATEGIC, addresses(*OLD), addresses(*NEW), ADDRESSES, [NEW[1], OLD[1]]),
        # they are replaced on demand, and deleted by type
        (STRATEGIC, addresses(*OLD), addresses(*NEW, REPLACE), ADDRESSES, NEW),
        (STRATEGIC, addresses(*OLD), addresses(DELETE), ADDRESSES, OLD[:1]),
        # strategic taints are replaced as a whole
        (STRATEGIC, taints(TAINT), taints(NOT_READY), TAINTS, [NOT_READY]),
        # strategic finalizers are a set
        (
            STRATEGIC,
            finalizers(FINALIZER, OTHER_FINALIZER),
            {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}},
            FINALIZERS,
            [OTHER_FINALIZER],
        ),
    ],
)
async def test_a_patch_changes_what_it_names(
    api: Api, content_type: str, members: Body, body: Any, field: str, found: Any
) -> None:
    reply = await patch(api, (await api.new(NODES, **members)).path, content_type, body)
    assert reply.status == 200
    assert lookup(reply.body, field) == found


@pytest.mark.parametrize(
    ("content_type", "body", "refusal"),
    [
        (JSON, {}, (415, "UnsupportedMediaType")),
        # unreadable
        (MERGE, b"{", (400, "BadRequest")),
        (JSON_PATCH, b"{}", (400, "BadRequest")),
        # operations that cannot be applied, after one that can
        (JSON_PATCH, [op("remove", "/spec/providerID")], (422, "Invalid")),
        (JSON_PATCH, [op("add", "/metadata/labels/a", "b")], (422, "Invalid")),
        (JSON_PATCH, [op("replace", "/spec/taints/7", {})], (422, "Invalid")),
        (
            JSON_PATCH,
            [op("add", "/metadata/labels", {"a": "b"}), op("test", "/spec/taints", [TAINT])],
            (422, "Invalid"),
        ),
        # tests that fail; true is not 1, and null needs a parent
        (JSON_PATCH, [op("test", "/spec/providerID", "x")], (422, "Invalid")),
        (JSON_PATCH, [op("test", "/spec/unschedulable", 1)], (422, "Invalid")),
        (JSON_PATCH, [op("test", "/spec/nothing/here")], (422, "Invalid")),
        (JSON_PATCH, [op("test", "/metadata/resourceVersion", "1")], (422, "Invalid")),
    ],
)
async def test_a_refused_patch_changes_nothing(
    api: Api, content_type: str, body: Any, refusal: tuple[int, str | None]
) -> None:
    spec = {"taints": [TAINT], "unschedulable": True}
    node = await api.new(NODES, spec=spec, status={"addresses": OLD})
    assert (await patch(api, node.path, content_type, body)).refusal == refusal
    assert (await api.get(node.path)).version == node.version


@pytest.mark.parametrize(
    ("members", "body", "cause"),
    [
        # not for clients
        ({}, {"metadata": {"uid": "other"}}, "metadata.uid Invalid"),
        # to be set once
        (
            {"spec": {"providerID": "x://1"}},
            {"spec": {"providerID": "x://2"}},
            "spec.providerID Invalid",
        ),
        (
            {"spec": {"podCIDR": "10.1.0.0/24"}},
            {"spec": {"podCIDR": "10.2.0.0/24"}},
            "spec.podCIDRs Forbidden",
        ),
    ],
)
async def test_a_patch_to_a_node_that_may_not_be_is_422_and_names_the_field(
    api: Api, members: Body, body: Body, cause: str
) -> None:
    reply = await patch(api, (await api.new(NODES, **members)).path, MERGE, body)
    assert reply.causes == {cause}


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
async def test_a_patch_takes_the_version_it_names_and_no_older_one(
    api: Api, content_type: str
) -> None:
    node = await api.new(NODES)
    body = {"metadata": {"resourceVersion": node.version, "labels": {"a": "c"}}}
    assert (await patch(api, node.path, content_type, body)).status == 200
    body["metadata"]["labels"] = {"a": "d"}
    assert (await patch(api, node.path, content_type, body)).refusal == (409, "Conflict")
    missing = await patch(api, f"{NODES}/{api.new_name()}", content_type, {})
    assert missing.refusal == (404, "NotFound")
    stale = op("test", "/metadata/resourceVersion", node.version)
    assert (await api.json_patch(node.path, stale)).refusal == (422, "Invalid")


async def test_strategic_finalizers_are_added_and_conditions_merge_by_type(api: Api) -> None:
    had = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    node = await api.new(NODES, status={"conditions": [had]})
    new = [{"type": "Ready", "status": "False"}, {"type": "NetworkUnavailable", "status": "True"}]
    reply = await patch(api, node.path, STRATEGIC, {"status": {"conditions": new}})
    found = [(each["type"], each["status"]) for each in reply.body["status"]["conditions"]]
    assert found == [("Ready", "False"), ("NetworkUnavailable", "True")]
    assert reply.body["status"]["conditions"][0]["reason"] == "KubeletReady"
    held = await api.new(NODES, **finalizers(FINALIZER))
    reply = await patch(api, held.path, STRATEGIC, finalizers(OTHER_FINALIZER, FINALIZER))
    assert sorted(reply.body["metadata"]["finalizers"]) == sorted([FINALIZER, OTHER_FINALIZER])
