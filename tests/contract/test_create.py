"""What a create stores, and what it refuses."""

import pytest

from tests.contract.client import CONFIG_MAPS, LEASES, NAMESPACES, NODES, SECRETS, Api
from tests.contract.objects import FINALIZER, NOT_READY, TAINT


async def test_a_create_answers_201_with_what_the_server_adds(api: Api) -> None:
    reply = await api.new(NODES, spec={"taints": [TAINT]})
    assert reply.body["kind"] == "Node"
    assert reply.body["apiVersion"] == "v1"
    meta = reply.body["metadata"]
    assert {"uid", "resourceVersion", "creationTimestamp"} <= meta.keys()
    assert "generation" not in meta


async def test_a_new_node_is_tainted_not_ready_after_its_own_taints(api: Api) -> None:
    reply = await api.new(NODES, spec={"taints": [TAINT]})
    assert reply.body["spec"]["taints"] == [TAINT, NOT_READY]


async def test_a_new_node_that_brings_the_taint_gets_it_once(api: Api) -> None:
    reply = await api.new(NODES, spec={"taints": [NOT_READY]})
    assert reply.body["spec"]["taints"] == [NOT_READY]


async def test_a_new_node_keeps_the_status_it_registers_with(api: Api) -> None:
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
    reply = await api.new(NODES, status={"addresses": addresses})
    assert reply.body["status"]["addresses"] == addresses
    assert reply.body["status"]["nodeInfo"]["kubeletVersion"] == ""


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


async def test_type_and_kind_may_be_left_out_but_not_be_others(api: Api) -> None:
    await api.new(NODES)
    wrong = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": api.new_name()}}
    assert (await api.create(NODES, wrong)).refusal == (400, "BadRequest")


@pytest.mark.parametrize(
    ("meta", "field"),
    [
        ({"name": "Upper_Case"}, "metadata.name"),
        ({"name": "x" * 254}, "metadata.name"),
        ({"name": "ok", "labels": {"a b": "c"}}, "metadata.labels"),
        ({"name": "ok", "labels": {"a": "c d"}}, "metadata.labels"),
        ({"name": "ok", "annotations": {"a b": "c"}}, "metadata.annotations"),
        ({"name": "ok", "finalizers": ["unqualified"]}, "metadata.finalizers[0]"),
    ],
)
async def test_bad_metadata_is_422_and_names_the_field(
    api: Api, meta: dict[str, object], field: str
) -> None:
    reply = await api.create(NODES, {"metadata": meta})
    assert reply.refusal == (422, "Invalid")
    assert reply.causes == {(field, "FieldValueInvalid")}
    assert reply.body["details"]["kind"] == "Node"


async def test_an_object_without_a_name_is_422(api: Api) -> None:
    reply = await api.create(NODES, {"metadata": {}})
    assert reply.causes == {("metadata.name", "FieldValueRequired")}


async def test_a_label_that_is_no_string_is_400(api: Api) -> None:
    body = {"metadata": {"name": api.new_name(), "labels": {"a": 1}}}
    assert (await api.create(NODES, body)).refusal == (400, "BadRequest")


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
    ("taints", "field", "reason"),
    [
        ([{"key": "a"}], "metadata.taints[0].effect", "FieldValueRequired"),
        ([{"effect": "NoSchedule"}], "metadata.taints[0].key", "FieldValueInvalid"),
        ([{"key": "a", "effect": "X"}], "metadata.taints[0].effect", "FieldValueNotSupported"),
        ([TAINT, {**TAINT, "value": "x"}], "metadata.taints[1]", "FieldValueDuplicate"),
    ],
)
async def test_a_bad_taint_is_422(api: Api, taints: object, field: str, reason: str) -> None:
    body = {"metadata": {"name": api.new_name()}, "spec": {"taints": taints}}
    reply = await api.create(NODES, body)
    assert reply.refusal == (422, "Invalid")
    assert reply.causes == {(field, reason)}


async def test_unknown_fields_are_dropped(api: Api) -> None:
    reply = await api.new(NODES, spec={"providerId": "misspelt"}, extra=1)
    assert "providerId" not in reply.body["spec"]
    assert "extra" not in reply.body


async def test_unknown_fields_are_400_when_validation_is_strict(api: Api) -> None:
    body = {"metadata": {"name": api.new_name()}, "spec": {"providerId": "misspelt"}}
    reply = await api.create(NODES, body, fieldValidation="Strict")
    assert reply.refusal == (400, "BadRequest")
    assert 'unknown field "spec.providerId"' in reply.body["message"]


async def test_a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    name = api.new_name()
    reply = await api.create(NODES, {"metadata": {"name": name}}, dryRun="All")
    assert reply.status == 201
    assert (await api.get(f"{NODES}/{name}")).status == 404


async def test_an_unknown_kind_of_dry_run_is_422(api: Api) -> None:
    reply = await api.create(NODES, {"metadata": {"name": api.new_name()}}, dryRun="Some")
    assert reply.causes == {("dryRun", "FieldValueNotSupported")}


async def test_a_namespace_that_is_not_there_is_404(api: Api) -> None:
    path = LEASES.replace("/default/", "/nowhere/")
    reply = await api.create(path, {"metadata": {"name": api.new_name()}})
    assert reply.refusal == (404, "NotFound")
    assert reply.body["details"] == {"name": "nowhere", "kind": "namespaces"}


async def test_an_object_for_another_namespace_is_400(api: Api) -> None:
    body = {"metadata": {"name": api.new_name(), "namespace": "kube-system"}}
    assert (await api.create(LEASES, body)).refusal == (400, "BadRequest")


async def test_empty_metadata_is_left_out(api: Api) -> None:
    reply = await api.new(
        CONFIG_MAPS, metadata={"labels": {}, "annotations": {}, "finalizers": [], "uid": "mine"}
    )
    assert not {"labels", "annotations", "finalizers"} & reply.body["metadata"].keys()
    assert reply.body["metadata"]["uid"] != "mine"


async def test_a_finalizer_may_be_there_from_the_start(api: Api) -> None:
    reply = await api.new(NODES, metadata={"finalizers": [FINALIZER]})
    assert reply.body["metadata"]["finalizers"] == [FINALIZER]


async def test_a_namespace_gets_its_label_and_its_phase(api: Api) -> None:
    reply = await api.new(NAMESPACES)
    label = {"kubernetes.io/metadata.name": reply.name}
    assert reply.body["metadata"]["labels"] == label
    assert reply.body["status"] == {"phase": "Active"}


async def test_a_secret_takes_plain_text_and_keeps_base64(api: Api) -> None:
    reply = await api.new(SECRETS, stringData={"key": "text"})
    assert reply.body["data"] == {"key": "dGV4dA=="}
    assert reply.body["type"] == "Opaque"
    assert "stringData" not in reply.body
