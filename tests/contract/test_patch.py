"""The three kinds of patch and where they differ."""

from typing import Any

import pytest

from tests.contract.client import JSON, JSON_PATCH, MERGE, NODES, STRATEGIC, Api
from tests.contract.objects import (
    FINALIZER,
    NOT_READY,
    OTHER_FINALIZER,
    TAINT,
    address,
    addresses_of,
)


async def node_path(api: Api, **members: Any) -> str:
    return f"{NODES}/{(await api.new(NODES, **members)).name}"


# --- all of them


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
async def test_null_removes_a_member(api: Api, content_type: str) -> None:
    path = await node_path(api, metadata={"labels": {"a": "b", "c": "d"}})
    body = {"metadata": {"labels": {"a": None, "e": "f"}}}
    reply = await api.call("PATCH", path, body, content_type=content_type)
    assert reply.body["metadata"]["labels"] == {"c": "d", "e": "f"}


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
async def test_a_stale_version_in_a_patch_is_409(api: Api, content_type: str) -> None:
    node = await api.new(NODES)
    path = f"{NODES}/{node.name}"
    await api.merge(path, {"metadata": {"labels": {"a": "b"}}})
    body = {"metadata": {"resourceVersion": node.version, "labels": {"a": "c"}}}
    reply = await api.call("PATCH", path, body, content_type=content_type)
    assert reply.refusal == (409, "Conflict")


async def test_a_fresh_version_in_a_patch_is_taken(api: Api) -> None:
    node = await api.new(NODES)
    body = {"metadata": {"resourceVersion": node.version, "labels": {"a": "c"}}}
    assert (await api.merge(f"{NODES}/{node.name}", body)).status == 200


async def test_an_unreadable_version_is_a_500_without_a_reason(api: Api) -> None:
    path = await node_path(api)
    body = {"metadata": {"resourceVersion": "x", "labels": {"a": "c"}}}
    assert (await api.merge(path, body)).refusal == (500, None)


async def test_a_patch_without_a_patch_type_is_415(api: Api) -> None:
    path = await node_path(api)
    reply = await api.call("PATCH", path, {}, content_type=JSON)
    assert reply.refusal == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [(MERGE, b"{"), (MERGE, b"[]"), (STRATEGIC, b"[]"), (JSON_PATCH, b"{}"), (JSON_PATCH, b"[1]")],
)
async def test_an_unreadable_patch_is_400(api: Api, content_type: str, body: bytes) -> None:
    path = await node_path(api)
    reply = await api.call("PATCH", path, body, content_type=content_type)
    assert reply.refusal == (400, "BadRequest")


async def test_a_patch_to_the_wrong_type_is_422_where_a_create_is_400(api: Api) -> None:
    path = await node_path(api)
    reply = await api.merge(path, {"metadata": {"labels": {"a": 1}}})
    assert reply.causes == {("patch", "FieldValueInvalid")}
    reply = await api.merge(path, {"spec": {"taints": "text"}})
    assert reply.causes == {("patch", "FieldValueInvalid")}


async def test_a_patch_of_nothing_is_404(api: Api) -> None:
    reply = await api.merge(f"{NODES}/{api.new_name()}", {})
    assert reply.refusal == (404, "NotFound")


# --- merge patch


async def test_a_merge_patch_replaces_every_list(api: Api) -> None:
    path = await node_path(api, spec={"taints": [TAINT]}, metadata={"finalizers": [FINALIZER]})
    body = {"spec": {"taints": [NOT_READY]}, "metadata": {"finalizers": [OTHER_FINALIZER]}}
    reply = await api.merge(path, body)
    assert reply.body["spec"]["taints"] == [NOT_READY]
    assert reply.body["metadata"]["finalizers"] == [OTHER_FINALIZER]


async def test_an_empty_list_is_left_out(api: Api) -> None:
    path = await node_path(api, spec={"taints": [TAINT]})
    reply = await api.merge(path, {"spec": {"taints": []}})
    assert "taints" not in reply.body["spec"]


# --- JSON patch


async def test_a_json_patch_with_a_test_that_holds_is_applied(api: Api) -> None:
    path = await node_path(api, spec={"taints": [TAINT]})
    reply = await api.json_patch(
        path,
        {"op": "test", "path": "/spec/taints", "value": [TAINT, NOT_READY]},
        {"op": "replace", "path": "/spec/taints", "value": [NOT_READY]},
    )
    assert reply.status == 200
    assert reply.body["spec"]["taints"] == [NOT_READY]


async def test_a_json_patch_with_a_test_that_fails_is_422_and_changes_nothing(api: Api) -> None:
    path = await node_path(api, spec={"taints": [TAINT]})
    before = await api.get(path)
    reply = await api.json_patch(
        path,
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "test", "path": "/spec/taints", "value": [TAINT]},
    )
    assert reply.refusal == (422, "Invalid")
    assert (await api.get(path)).version == before.version


async def test_a_test_for_null_holds_where_the_member_is_missing(api: Api) -> None:
    path = await node_path(api)
    missing = {"op": "test", "path": "/spec/providerID", "value": None}
    assert (await api.json_patch(path, missing)).status == 200
    no_parent = {"op": "test", "path": "/spec/nothing/here", "value": None}
    assert (await api.json_patch(path, no_parent)).refusal == (422, "Invalid")


async def test_a_test_tells_true_from_one(api: Api) -> None:
    path = await node_path(api, spec={"unschedulable": True})
    reply = await api.json_patch(path, {"op": "test", "path": "/spec/unschedulable", "value": 1})
    assert reply.refusal == (422, "Invalid")


async def test_replacing_a_missing_member_adds_it(api: Api) -> None:
    path = await node_path(api)
    operation = {"op": "replace", "path": "/spec/providerID", "value": "x://1"}
    assert (await api.json_patch(path, operation)).body["spec"]["providerID"] == "x://1"


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/spec/providerID"},
        {"op": "add", "path": "/metadata/labels/a", "value": "b"},
        {"op": "test", "path": "/spec/providerID", "value": "x"},
        {"op": "unknown", "path": "/spec"},
        {"op": "replace", "path": "/spec/taints/7", "value": {}},
    ],
)
async def test_an_operation_that_cannot_be_applied_is_422(
    api: Api, operation: dict[str, object]
) -> None:
    path = await node_path(api)
    assert (await api.json_patch(path, operation)).refusal == (422, "Invalid")


async def test_a_json_patch_reaches_into_lists(api: Api) -> None:
    path = await node_path(api, spec={"taints": [TAINT]})
    reply = await api.json_patch(
        path,
        {"op": "remove", "path": "/spec/taints/0"},
        {"op": "add", "path": "/spec/taints/-", "value": TAINT},
    )
    assert reply.body["spec"]["taints"] == [NOT_READY, TAINT]


async def test_a_json_patch_can_test_the_version(api: Api) -> None:
    node = await api.new(NODES)
    path = f"{NODES}/{node.name}"
    await api.merge(path, {"metadata": {"labels": {"a": "b"}}})
    stale = {"op": "test", "path": "/metadata/resourceVersion", "value": node.version}
    assert (await api.json_patch(path, stale)).refusal == (422, "Invalid")


# --- strategic merge patch


async def patched_addresses(api: Api, *addresses: dict[str, str]) -> list[tuple[str, str]]:
    """Return what becomes of two addresses when these are patched in."""
    had = [address("InternalIP", "10.0.0.1"), address("Hostname", "host")]
    path = await node_path(api, status={"addresses": had})
    return addresses_of(await api.strategic(f"{path}/status", {"status": {"addresses": addresses}}))


async def test_strategic_addresses_merge_by_type_with_new_ones_first(api: Api) -> None:
    found = await patched_addresses(
        api, address("ExternalIP", "1.1.1.1"), address("Hostname", "other")
    )
    assert found == [("ExternalIP", "1.1.1.1"), ("InternalIP", "10.0.0.1"), ("Hostname", "other")]


async def test_two_strategic_addresses_of_one_type_collide(api: Api) -> None:
    found = await patched_addresses(
        api, address("InternalIP", "10.0.0.8"), address("InternalIP", "10.0.0.9")
    )
    assert found == [("InternalIP", "10.0.0.9"), ("Hostname", "host")]


async def test_strategic_addresses_are_replaced_on_demand(api: Api) -> None:
    found = await patched_addresses(
        api,
        address("InternalIP", "10.0.0.8"),
        address("InternalIP", "10.0.0.9"),
        {"$patch": "replace"},
    )
    assert found == [("InternalIP", "10.0.0.8"), ("InternalIP", "10.0.0.9")]


async def test_a_strategic_address_is_deleted_by_type(api: Api) -> None:
    found = await patched_addresses(api, {"type": "Hostname", "$patch": "delete"})
    assert found == [("InternalIP", "10.0.0.1")]


async def test_replacing_with_nothing_removes_the_strategic_list(api: Api) -> None:
    assert await patched_addresses(api, {"$patch": "replace"}) == []


@pytest.mark.parametrize(
    "item", [{"address": "1.1.1.1"}, {"type": "Hostname", "$patch": "unknown"}]
)
async def test_a_strategic_item_without_key_or_sense_is_a_500_without_a_reason(
    api: Api, item: dict[str, str]
) -> None:
    path = await node_path(api, status={"addresses": [address("Hostname", "host")]})
    reply = await api.strategic(f"{path}/status", {"status": {"addresses": [item]}})
    assert reply.refusal == (500, None)


async def test_where_there_is_no_list_the_strategic_one_is_taken_as_it_is(api: Api) -> None:
    path = await node_path(api)
    new = [
        address("InternalIP", "10.0.0.8"),
        address("InternalIP", "10.0.0.9"),
        {"type": "Hostname", "$patch": "unknown"},
    ]
    reply = await api.strategic(f"{path}/status", {"status": {"addresses": new}})
    assert addresses_of(reply) == [("InternalIP", "10.0.0.8"), ("InternalIP", "10.0.0.9")]


async def test_strategic_conditions_merge_by_type_and_keep_their_other_members(api: Api) -> None:
    had = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    path = await node_path(api, status={"conditions": [had]})
    new = [{"type": "Ready", "status": "False"}, {"type": "NetworkUnavailable", "status": "True"}]
    reply = await api.strategic(f"{path}/status", {"status": {"conditions": new}})
    told = [(each["type"], each["status"]) for each in reply.body["status"]["conditions"]]
    assert told == [("Ready", "False"), ("NetworkUnavailable", "True")]
    assert reply.body["status"]["conditions"][0]["reason"] == "KubeletReady"


async def test_an_order_is_obeyed_even_without_a_change(api: Api) -> None:
    had = [{"type": name, "status": "True"} for name in ("A", "B", "C")]
    path = await node_path(api, status={"conditions": had})
    order = [{"type": "C"}, {"type": "A"}]
    reply = await api.strategic(
        f"{path}/status", {"status": {"$setElementOrder/conditions": order}}
    )
    assert [each["type"] for each in reply.body["status"]["conditions"]] == ["B", "C", "A"]


async def test_strategic_finalizers_are_a_set(api: Api) -> None:
    path = await node_path(api, metadata={"finalizers": [FINALIZER]})
    body = {"metadata": {"finalizers": [OTHER_FINALIZER, FINALIZER]}}
    both = (await api.strategic(path, body)).body["metadata"]["finalizers"]
    assert sorted(both) == sorted([FINALIZER, OTHER_FINALIZER])
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
    assert (await api.strategic(path, body)).body["metadata"]["finalizers"] == [OTHER_FINALIZER]


async def test_strategic_taints_are_replaced_as_a_whole(api: Api) -> None:
    path = await node_path(api, spec={"taints": [TAINT]})
    reply = await api.strategic(path, {"spec": {"taints": [NOT_READY]}})
    assert reply.body["spec"]["taints"] == [NOT_READY]


async def test_a_strategic_map_is_replaced_or_deleted_on_demand(api: Api) -> None:
    path = await node_path(api, metadata={"labels": {"a": "b"}})
    reply = await api.strategic(path, {"metadata": {"labels": {"$patch": "replace", "c": "d"}}})
    assert reply.body["metadata"]["labels"] == {"c": "d"}
    reply = await api.strategic(path, {"metadata": {"labels": {"$patch": "delete"}}})
    assert "labels" not in reply.body["metadata"]
