"""What is special about PersistentVolumes and Events."""

import pytest

from tests.contract.client import (
    EVENTS,
    STAMP,
    VOLUME,
    VOLUMES,
    Api,
    event,
    new_volume,
    zone_affinity,
)


async def test_a_volume_gets_its_defaults(api: Api) -> None:
    spec = (await new_volume(api)).body["spec"]
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert spec["volumeMode"] == "Filesystem"


async def test_a_node_affinity_may_be_set_once(api: Api) -> None:
    path = f"{VOLUMES}/{(await new_volume(api)).name}"
    first = await api.merge(path, {"spec": {"nodeAffinity": zone_affinity("a")}})
    assert first.body["spec"]["nodeAffinity"] == zone_affinity("a")
    for other in (zone_affinity("b"), None):
        reply = await api.merge(path, {"spec": {"nodeAffinity": other}})
        assert reply.refusal == (422, "Invalid")
        assert reply.causes == {"nodeAffinity Invalid"}


async def test_an_affinity_and_labels_fit_into_one_patch(api: Api) -> None:
    volume = await new_volume(api)
    label = {"topology.kubernetes.io/zone": "a"}
    body = {"metadata": {"labels": label}, "spec": {"nodeAffinity": zone_affinity("a")}}
    reply = await api.strategic(volume.path, body)
    assert reply.body["metadata"]["labels"] == label
    assert reply.body["spec"]["nodeAffinity"] == zone_affinity("a")


async def test_the_source_of_a_volume_cannot_change(api: Api) -> None:
    volume = await new_volume(api)
    body = {"spec": {"csi": {"volumeHandle": "other"}}}
    reply = await api.merge(volume.path, body)
    assert reply.causes == {"spec.persistentvolumesource Forbidden"}


@pytest.mark.parametrize(
    ("member", "field"),
    [("accessModes", "spec.accessModes"), ("csi", "spec")],
)
async def test_a_volume_needs_modes_and_a_source(api: Api, member: str, field: str) -> None:
    spec = {key: value for key, value in VOLUME.items() if key != member}
    reply = await api.create(VOLUMES, {"metadata": {"name": api.new_name()}, "spec": spec})
    assert reply.causes == {f"{field} Required"}


async def test_an_event_lives_with_what_it_is_about_or_in_default(api: Api) -> None:
    node = {"kind": "Node", "name": "a", "uid": "a"}
    service = {"kind": "Service", "name": "a", "namespace": "kube-system"}
    elsewhere = EVENTS.replace("/default/", "/kube-system/")
    created = await api.create(EVENTS, event(api, node))
    assert created.status == 201
    assert created.body["eventTime"] is None
    for path, about in ((elsewhere, node), (EVENTS, service)):
        reply = await api.create(path, event(api, about))
        assert reply.causes == {"involvedObject.namespace Invalid"}


async def test_an_event_is_repeated_by_a_patch(api: Api) -> None:
    created = await api.create(EVENTS, event(api, {"kind": "Node", "name": "a"}))
    body = {"count": 2, "lastTimestamp": "2026-01-02T03:04:06Z"}
    reply = await api.strategic(created.path, body)
    assert (reply.body["count"], reply.body["firstTimestamp"]) == (2, STAMP)


async def test_an_event_with_event_time_needs_its_reporter_and_action(api: Api) -> None:
    body = event(api, {"kind": "Node", "name": "a"}, eventTime="2026-01-02T03:04:05.000000Z")
    reply = await api.create(EVENTS, body)
    fields = ("reportingComponent", "reportingInstance", "action")
    assert {cause.split()[0] for cause in reply.causes} == set(fields)


@pytest.mark.parametrize("field", ["involvedObject.name", "involvedObject.uid"])
async def test_events_are_found_by_what_they_are_about(api: Api, field: str) -> None:
    name = api.new_name()
    created = await api.create(EVENTS, event(api, {"kind": "Node", "name": name, "uid": name}))
    found = await api.get(EVENTS, fieldSelector=f"{field}={name},reason=Tested,type=Normal")
    assert found.names == [created.name]
