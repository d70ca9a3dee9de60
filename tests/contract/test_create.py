"""What a create stores, and what it refuses."""

from typing import Any

import pytest

from ccm.sandbox.kubernetes.objects import lookup
from tests.contract.client import (
    CONFIG_MAPS,
    FINALIZER,
    LEASES,
    NAMESPACES,
    NODES,
    NOT_READY,
    SECRETS,
    TAINT,
    Api,
    Body,
    address,
)


async def test_a_create_answers_201_with_what_the_server_adds(api: Api) -> None:
    reply = await api.new(NODES, spec={"taints": [TAINT]})
    assert reply.body["kind"] == "Node"
    assert reply.body["apiVersion"] == "v1"
    meta = reply.body["metadata"]
    assert {"uid", "resourceVersion", "creationTimestamp"} <= meta.keys()
    assert "generation" not in meta


@pytest.mark.parametrize("own", [TAINT, NOT_READY])
async def test_a_new_node_is_tainted_not_ready_once_after_its_own_taints(
    api: Api, own: dict[str, str]
) -> None:
    reply = await api.new(NODES, spec={"taints": [own]})
    assert reply.body["spec"]["taints"] == ([own] if own == NOT_READY else [own, NOT_READY])


ADDRESSES = [address("InternalIP", "10.0.0.1")]
TEXT = {"stringData": {"key": "text"}}
MOMENT = "2026-01-02T03:04:05.123456Z"
LEASE = {"holderIdentity": "a", "acquireTime": MOMENT, "renewTime": MOMENT}


@pytest.mark.parametrize(
    ("path", "members", "field", "stored"),
    [
        (NODES, {"status": {"addresses": ADDRESSES}}, "status.addresses", ADDRESSES),
        (NODES, {}, "status.nodeInfo.kubeletVersion", ""),
        (NODES, {"metadata": {"finalizers": [FINALIZER]}}, "metadata.finalizers", [FINALIZER]),
        (
            NODES,
            {"spec": {"podCIDRs": ["10.1.0.0/24", "fd00::/64"]}},
            "spec.podCIDR",
            "10.1.0.0/24",
        ),
        # unknown fields are dropped, empty metadata is left out
        (NODES, {"spec": {"providerId": "misspelt"}}, "spec.providerId", None),
        (NODES, {"extra": 1}, "extra", None),
        (CONFIG_MAPS, {"metadata": {"labels": {}}}, "metadata.labels", None),
        (CONFIG_MAPS, {"metadata": {"annotations": {}}}, "metadata.annotations", None),
        (CONFIG_MAPS, {"metadata": {"finalizers": []}}, "metadata.finalizers", None),
        (NAMESPACES, {}, "status", {"phase": "Active"}),
        # a secret takes plain text and keeps base64
        (SECRETS, TEXT, "data", {"key": "dGV4dA=="}),
        (SECRETS, TEXT, "type", "Opaque"),
        (SECRETS, TEXT, "stringData", None),
        # a lease keeps its times to the microsecond and in UTC
        (LEASES, {"spec": LEASE}, "spec", LEASE),
        (
            LEASES,
            {"spec": {"renewTime": "2026-01-02T03:04:05.000001+02:00"}},
            "spec.renewTime",
            "2026-01-02T01:04:05.000001Z",
        ),
    ],
)
async def test_a_create_stores_what_it_is_to(
    api: Api, path: str, members: Body, field: str, stored: Any
) -> None:
    assert lookup((await api.new(path, **members)).body, field) == stored


async def test_a_name_that_is_taken_is_409_already_exists(api: Api) -> None:
    node = await api.new(NODES)
    reply = await api.create(NODES, {"metadata": {"name": node.name}})
    assert reply.refusal == (409, "AlreadyExists")
    assert reply.body["message"] == f'nodes "{node.name}" already exists'
    assert reply.body["details"] == {"name": node.name, "kind": "nodes"}


async def test_a_generated_name_has_a_suffix_of_five(api: Api) -> None:
    base = f"{api.new_name()}-"
    first = await api.create(NODES, {"metadata": {"generateName": base}})
    second = await api.create(NODES, {"metadata": {"generateName": base}})
    assert first.name.startswith(base)
    assert len(first.name) == len(base) + 5
    assert first.name != second.name
    assert first.body["metadata"]["generateName"] == base


@pytest.mark.parametrize(
    ("meta", "cause"),
    [
        ({"name": "Upper_Case"}, "metadata.name Invalid"),
        ({"name": "x" * 254}, "metadata.name Invalid"),
        ({"name": "ok", "labels": {"a b": "c"}}, "metadata.labels Invalid"),
        ({"name": "ok", "labels": {"a": "c d"}}, "metadata.labels Invalid"),
        ({"name": "ok", "annotations": {"a b": "c"}}, "metadata.annotations Invalid"),
        ({"name": "ok", "finalizers": ["unqualified"]}, "metadata.finalizers[0] Invalid"),
        ({}, "metadata.name Required"),
    ],
)
async def test_bad_metadata_is_422_and_names_the_field(
    api: Api, meta: dict[str, object], cause: str
) -> None:
    reply = await api.create(NODES, {"metadata": meta})
    assert reply.refusal == (422, "Invalid")
    assert reply.causes == {cause}
    assert reply.body["details"]["kind"] == "Node"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (NODES, {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "of-another-kind"}}),
        (NODES, {"metadata": {"name": "label-is-no-string", "labels": {"a": 1}}}),
        (LEASES, {"metadata": {"name": "for-elsewhere", "namespace": "kube-system"}}),
    ],
)
async def test_an_object_that_does_not_fit_the_path_or_the_type_is_400(
    api: Api, path: str, body: object
) -> None:
    assert (await api.create(path, body)).refusal == (400, "BadRequest")


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"'])
async def test_a_body_that_is_no_object_is_400(api: Api, body: bytes) -> None:
    assert (await api.create(NODES, body)).refusal == (400, "BadRequest")


async def test_a_body_of_another_media_type_is_415(api: Api) -> None:
    reply = await api.call("POST", NODES, b"{}", content_type="application/unknown")
    assert reply.refusal == (415, "UnsupportedMediaType")


async def test_a_version_in_a_create_is_a_500_without_a_reason(api: Api) -> None:
    body = {"metadata": {"name": api.new_name(), "resourceVersion": "5"}}
    assert (await api.create(NODES, body)).refusal == (500, None)


@pytest.mark.parametrize(
    ("taints", "cause"),
    [
        ([{"key": "a"}], "metadata.taints[0].effect Required"),
        ([{"effect": "NoSchedule"}], "metadata.taints[0].key Invalid"),
        ([{"key": "a", "effect": "X"}], "metadata.taints[0].effect NotSupported"),
        ([TAINT, {**TAINT, "value": "x"}], "metadata.taints[1] Duplicate"),
    ],
)
async def test_a_bad_taint_is_422(api: Api, taints: object, cause: str) -> None:
    body = {"metadata": {"name": api.new_name()}, "spec": {"taints": taints}}
    reply = await api.create(NODES, body)
    assert reply.refusal == (422, "Invalid")
    assert reply.causes == {cause}


async def test_unknown_fields_are_400_when_validation_is_strict(api: Api) -> None:
    body = {"metadata": {"name": api.new_name()}, "spec": {"providerId": "misspelt"}}
    reply = await api.create(NODES, body, fieldValidation="Strict")
    assert reply.refusal == (400, "BadRequest")
    assert 'unknown field "spec.providerId"' in reply.body["message"]


async def test_a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    body = {"metadata": {"name": api.new_name()}}
    reply = await api.create(NODES, body, dryRun="All")
    assert reply.status == 201
    assert (await api.get(reply.path)).status == 404
    assert (await api.create(NODES, body, dryRun="Some")).causes == {"dryRun NotSupported"}


async def test_a_namespace_that_is_not_there_is_404(api: Api) -> None:
    path = LEASES.replace("/default/", "/nowhere/")
    reply = await api.create(path, {"metadata": {"name": api.new_name()}})
    assert reply.refusal == (404, "NotFound")
    assert reply.body["details"] == {"name": "nowhere", "kind": "namespaces"}


async def test_a_uid_is_not_for_clients_and_a_namespace_is_labelled_with_its_name(
    api: Api,
) -> None:
    reply = await api.new(NAMESPACES, metadata={"uid": "mine"})
    assert reply.body["metadata"]["uid"] != "mine"
    assert reply.body["metadata"]["labels"] == {"kubernetes.io/metadata.name": reply.name}
