"""What the status subresource may change, and what only the object itself may."""

from typing import Any

import pytest

from tests.contract.client import (
    FINALIZER,
    MERGE,
    NODES,
    STRATEGIC,
    TAINT,
    Api,
    address,
    addresses_of,
    new_balancer,
    new_volume,
)

OWNER = {"apiVersion": "v1", "kind": "Node", "name": "owner", "uid": "1"}
METADATA: list[tuple[str, Any]] = [
    ("labels", {"a": "b"}),
    ("annotations", {"a": "b"}),
    ("finalizers", [FINALIZER]),
    ("ownerReferences", [OWNER]),
]
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


@pytest.mark.parametrize("suffix", ["", "/status"])
@pytest.mark.parametrize(("member", "value"), METADATA)
async def test_both_ways_change_a_nodes_metadata(
    api: Api, suffix: str, member: str, value: Any
) -> None:
    node = await api.new(NODES)
    reply = await api.merge(f"{node.path}{suffix}", {"metadata": {member: value}})
    assert reply.status == 200
    assert reply.body["metadata"][member] == value


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
    status = await api.replace(f"{node.path}/status", body)
    assert addresses_of(status) == [("InternalIP", "10.0.0.1")]
    assert status.body["spec"] == node.body["spec"]
    plain = await api.replace(node.path, {**body, "status": {}})
    assert plain.body["spec"] == {"taints": [TAINT]}
    assert addresses_of(plain) == [("InternalIP", "10.0.0.1")]


async def test_the_status_can_be_read_alone(api: Api) -> None:
    node = await api.new(NODES)
    reply = await api.get(f"{node.path}/status")
    assert (reply.body["kind"], reply.name) == ("Node", node.name)


async def test_a_stale_version_is_409_on_the_status_too(api: Api) -> None:
    node = await api.new(NODES)
    await api.merge(node.path, {"metadata": {"labels": {"a": "b"}}})
    body = {"metadata": {"resourceVersion": node.version}, "status": {"phase": "Running"}}
    assert (await api.merge(f"{node.path}/status", body)).refusal == (409, "Conflict")


async def test_a_services_status_way_takes_metadata_and_ignores_the_spec(api: Api) -> None:
    service = await new_balancer(api)
    body = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": [FINALIZER]},
        "spec": {"externalTrafficPolicy": "Local"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    }
    reply = await api.merge(f"{service.path}/status", body)
    assert reply.status == 200
    assert reply.body["spec"] == service.body["spec"]
    assert reply.body["metadata"]["finalizers"] == [FINALIZER]
    ingress = reply.body["status"]["loadBalancer"]["ingress"]
    assert ingress == [{"ip": "192.0.2.1", "ipMode": "VIP"}]


async def test_a_services_plain_way_ignores_the_status(api: Api) -> None:
    service = await new_balancer(api)
    body = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    reply = await api.merge(service.path, body)
    assert reply.body["status"] == {"loadBalancer": {}}


async def test_a_volume_begins_pending_and_its_status_way_ignores_the_spec(api: Api) -> None:
    volume = await new_volume(api)
    assert volume.body["status"]["phase"] == "Pending"
    body = {"status": {"phase": "Available"}, "spec": {"capacity": {"storage": "2Gi"}}}
    reply = await api.merge(f"{volume.path}/status", body)
    assert reply.body["status"]["phase"] == "Available"
    assert reply.body["spec"] == volume.body["spec"]
