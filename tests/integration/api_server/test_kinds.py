"""What is special about PersistentVolumes, Events and Leases."""

import asyncio

from tests.integration.api_server.client import (
    EVENTS,
    LEASES,
    STAMP,
    Api,
    event,
    new_volume,
    zone_affinity,
)


async def test_a_node_affinity_may_be_set_once_together_with_labels(api: Api) -> None:
    volume = await new_volume(api)
    path, spec = volume.path, volume.body["spec"]
    assert (spec["persistentVolumeReclaimPolicy"], spec["volumeMode"]) == ("Retain", "Filesystem")
    labels = {"topology.kubernetes.io/zone": "a"}
    body = {"metadata": {"labels": labels}, "spec": {"nodeAffinity": zone_affinity("a")}}
    first = await api.strategic(path, body)
    assert first.body["metadata"]["labels"] == labels
    assert first.body["spec"]["nodeAffinity"] == zone_affinity("a")
    for other in (zone_affinity("b"), None):
        reply = await api.merge(path, {"spec": {"nodeAffinity": other}})
        assert reply.causes == {"nodeAffinity Invalid"}


async def test_an_event_is_counted_up_by_a_patch(api: Api) -> None:
    node = {"kind": "Node", "name": "a", "uid": "a"}
    created = await api.create(EVENTS, event(api, node))
    assert created.status == 201
    body = {"count": 2, "lastTimestamp": "2026-01-02T03:04:06Z"}
    repeated = await api.strategic(created.path, body)
    assert (repeated.body["count"], repeated.body["firstTimestamp"]) == (2, STAMP)


async def test_of_many_that_create_a_lease_one_succeeds(api: Api) -> None:
    name = api.new_name()

    async def take(holder: int) -> int:
        body = {"metadata": {"name": name}, "spec": {"holderIdentity": f"{holder}"}}
        return (await api.create(LEASES, body)).status

    statuses = await asyncio.gather(*(take(holder) for holder in range(8)))
    assert sorted(statuses) == [201] + [409] * 7


async def test_of_many_that_update_one_version_one_succeeds(api: Api) -> None:
    lease = await api.new(LEASES, spec={"holderIdentity": "nobody"})

    async def take(holder: int) -> int:
        body = {**lease.body, "spec": {"holderIdentity": f"{holder}"}}
        return (await api.replace(lease.path, body)).status

    statuses = await asyncio.gather(*(take(holder) for holder in range(8)))
    assert sorted(statuses) == [200] + [409] * 7
    released = await api.merge(lease.path, {"spec": {"holderIdentity": ""}})
    assert (released.status, released.body["spec"]) == (200, {"holderIdentity": ""})
    missing = await api.get(f"{LEASES}/{api.new_name()}")
    assert missing.refusal == (404, "NotFound")
    assert missing.body["details"]["group"] == "coordination.k8s.io"
    assert missing.body["details"]["kind"] == "leases"
