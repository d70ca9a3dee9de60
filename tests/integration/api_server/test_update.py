"""What a PUT and the status subresource change: versions, conflicts, and what may not change."""

from typing import Any

import pytest

from tests.integration.api_server.client import (
    MERGE,
    NODES,
    STRATEGIC,
    TAINT,
    Api,
    address,
    addresses_of,
)

SPEC: list[tuple[str, Any]] = [
    ("taints", [TAINT]),
    ("unschedulable", True),
    ("providerID", "x://1"),
    ("podCIDR", "10.1.0.0/24"),
]
STATUS: list[tuple[str, Any]] = [
    ("addresses", [address("Anything", "not an address")]),
    ("capacity", {"cpu": "4"}),
    ("phase", "Running"),
]


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
@pytest.mark.parametrize(("member", "value"), SPEC)
async def test_the_status_way_ignores_a_nodes_spec(
    api: Api, member: str, value: Any, content_type: str
) -> None:
    node = await api.new(NODES)
    body = {"spec": {member: value}}
    ignored = await api.call("PATCH", f"{node.path}/status", body, content_type=content_type)
    assert ignored.status == 200
    assert ignored.body["spec"] == node.body["spec"]
    changed = await api.call("PATCH", node.path, body, content_type=content_type)
    assert changed.body["spec"][member] == value


@pytest.mark.parametrize(("member", "value"), STATUS)
async def test_the_plain_way_ignores_a_nodes_status(api: Api, member: str, value: Any) -> None:
    node = await api.new(NODES)
    body = {"status": {member: value}}
    ignored = await api.merge(node.path, body)
    assert ignored.status == 200
    assert member not in ignored.body["status"]
    changed = await api.merge(f"{node.path}/status", body)
    assert changed.body["status"][member] == value


async def test_a_put_splits_the_same_way(api: Api) -> None:
    node = await api.new(NODES)
    body = {
        "metadata": {"name": node.name},
        "spec": {"taints": [TAINT]},
        "status": {"addresses": [address("InternalIP", "10.0.0.1")]},
    }
    alone = await api.get(f"{node.path}/status")
    assert (alone.body["kind"], alone.name) == ("Node", node.name)
    status = await api.replace(f"{node.path}/status", body)
    assert addresses_of(status) == [("InternalIP", "10.0.0.1")]
    assert status.body["spec"] == node.body["spec"]
    plain = await api.replace(node.path, {**body, "status": {}})
    assert plain.body["spec"] == {"taints": [TAINT]}
    assert addresses_of(plain) == [("InternalIP", "10.0.0.1")]


async def test_only_a_write_that_changes_something_raises_the_version(api: Api) -> None:
    node = await api.new(NODES, metadata={"labels": {"a": "b"}})
    patched = await api.merge(node.path, {"metadata": {"labels": {"a": "b"}}})
    put = await api.replace(node.path, node.body)
    assert (patched.version, put.version) == (node.version, node.version)
    meta = {"labels": {"a": "c"}, "creationTimestamp": "2020-01-01T00:00:00Z"}
    changed = await api.merge(node.path, {"metadata": meta})
    assert int(changed.version) > int(node.version)
    had = node.body["metadata"]["creationTimestamp"]  # it is not for clients
    assert changed.body["metadata"]["creationTimestamp"] == had


async def test_a_stale_version_or_another_uid_is_409_conflict(api: Api) -> None:
    node = await api.new(NODES)
    await api.merge(node.path, {"metadata": {"labels": {"a": "b"}}})
    reply = await api.replace(node.path, node.body)
    assert reply.refusal == (409, "Conflict")
    assert reply.body["details"] == {"name": node.name, "kind": "nodes"}
    assert "the object has been modified" in reply.body["message"]
    status = {"metadata": {"resourceVersion": node.version}, "status": {"phase": "Running"}}
    assert (await api.merge(f"{node.path}/status", status)).refusal == (409, "Conflict")
    other = await api.replace(node.path, {"metadata": {"name": node.name, "uid": "other"}})
    assert other.refusal == (409, "Conflict")


async def test_without_a_version_a_put_is_unconditional(api: Api) -> None:
    node = await api.new(NODES)
    await api.merge(node.path, {"metadata": {"labels": {"a": "b"}}})
    body = {"metadata": {"name": node.name, "labels": {"c": "d"}}}
    reply = await api.replace(node.path, body)
    assert reply.status == 200
    assert reply.body["metadata"]["labels"] == {"c": "d"}
    assert reply.body["metadata"]["uid"] == node.body["metadata"]["uid"]


async def test_the_name_must_be_that_of_the_path(api: Api) -> None:
    path = (await api.new(NODES)).path
    assert (await api.replace(path, {"metadata": {"name": "other"}})).refusal[0] == 400
    assert (await api.replace(path, {"metadata": {}})).refusal[0] == 400
    assert (await api.merge(path, {"metadata": {"name": "other"}})).refusal[0] == 400
