"""How objects go: at once, after their finalizers, or not at all."""

from dataclasses import replace

import pytest

from tests.integration.api_server.client import (
    FINALIZER,
    LEASES,
    NODES,
    OTHER_FINALIZER,
    Api,
    Body,
    Reply,
)


async def test_a_delete_answers_with_a_status(api: Api) -> None:
    lease = await api.new(LEASES)
    reply = await api.delete(lease.path)
    assert reply.status == 200
    assert reply.body["status"] == "Success"
    assert reply.body["details"] == {
        "name": lease.name,
        "group": "coordination.k8s.io",
        "kind": "leases",
        "uid": lease.body["metadata"]["uid"],
    }
    assert (await api.get(lease.path)).refusal == (404, "NotFound")


@pytest.fixture
async def marked(api: Api) -> Reply:
    """A deleted node that a finalizer holds, as the delete answered."""
    path = (await api.new(NODES, metadata={"finalizers": [FINALIZER]})).path
    return replace(await api.delete(path), path=path)


async def test_a_finalizer_turns_the_delete_into_a_mark(api: Api, marked: Reply) -> None:
    assert marked.status == 200
    assert marked.body["kind"] == "Node"
    meta = (await api.get(marked.path)).body["metadata"]
    assert "deletionTimestamp" in meta
    assert meta["deletionGracePeriodSeconds"] == 0
    assert meta["finalizers"] == [FINALIZER]
    second = await api.delete(marked.path)
    assert (second.status, second.version) == (200, marked.version)
    taken = await api.create(NODES, {"metadata": {"name": marked.name}})
    assert taken.refusal == (409, "AlreadyExists")


@pytest.mark.parametrize("suffix", ["", "/status"])
async def test_the_object_goes_with_its_last_finalizer(api: Api, suffix: str) -> None:
    path = (await api.new(NODES, metadata={"finalizers": [FINALIZER, OTHER_FINALIZER]})).path
    await api.delete(path)
    await api.merge(path, {"metadata": {"finalizers": [OTHER_FINALIZER]}})
    assert (await api.get(path)).status == 200
    last = await api.merge(f"{path}{suffix}", {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert "finalizers" not in last.body["metadata"]
    assert (await api.get(path)).status == 404


async def test_a_marked_object_takes_no_new_finalizer_but_other_changes(
    api: Api, marked: Reply
) -> None:
    body: Body = {"metadata": {"finalizers": [FINALIZER, OTHER_FINALIZER]}}
    assert (await api.merge(marked.path, body)).causes == {"metadata.finalizers Forbidden"}
    body = {"metadata": {"labels": {"a": "b"}, "deletionTimestamp": None}}
    reply = await api.merge(marked.path, body)
    assert reply.status == 200
    assert "deletionTimestamp" in reply.body["metadata"]


async def test_preconditions_must_hold(api: Api) -> None:
    node = await api.new(NODES)
    meta = node.body["metadata"]
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        reply = await api.delete(node.path, {"preconditions": wrong})
        assert reply.refusal == (409, "Conflict")
    right = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    assert (await api.delete(node.path, {"preconditions": right})).status == 200
