"""What a create stores, and what it refuses."""

from typing import Any

import pytest

from ccm.sandbox.kubernetes.objects import lookup
from tests.integration.api_server.client import (
    CONFIG_MAPS,
    FINALIZER,
    JSON,
    LEASES,
    NAMESPACES,
    NODES,
    NOT_READY,
    TAINT,
    Api,
    Body,
    address,
)

BAD_REQUEST = (400, "BadRequest")


def named(name: str) -> Body:
    return {"metadata": {"name": name}}


async def test_a_name_that_is_taken_is_409_and_a_namespace_that_is_not_there_404(api: Api) -> None:
    node = await api.new(NODES)
    taken = await api.create(NODES, {"metadata": {"name": node.name}})
    assert taken.refusal == (409, "AlreadyExists")
    assert taken.body["message"] == f'nodes "{node.name}" already exists'
    assert taken.body["details"] == {"name": node.name, "kind": "nodes"}
    nowhere = await api.try_new(LEASES.replace("/default/", "/nowhere/"))
    assert nowhere.refusal == (404, "NotFound")
    assert nowhere.body["details"] == {"name": "nowhere", "kind": "namespaces"}


async def test_a_create_answers_201_with_what_the_server_adds(api: Api) -> None:
    reply = await api.new(NODES, spec={"taints": [TAINT]})
    assert reply.body["kind"] == "Node"
    assert reply.body["apiVersion"] == "v1"
    meta = reply.body["metadata"]
    assert {"uid", "resourceVersion", "creationTimestamp"} <= meta.keys()
    assert "generation" not in meta
    namespace = await api.new(NAMESPACES, metadata={"uid": "mine"})
    meta = namespace.body["metadata"]
    assert meta["uid"] != "mine"
    assert meta["labels"] == {"kubernetes.io/metadata.name": namespace.name}


@pytest.mark.parametrize("own", [TAINT, NOT_READY])
async def test_a_new_node_is_tainted_not_ready_once_after_its_own_taints(
    api: Api, own: dict[str, str]
) -> None:
    reply = await api.new(NODES, spec={"taints": [own]})
    assert reply.body["spec"]["taints"] == ([own] if own == NOT_READY else [own, NOT_READY])


ADDRESSES = [address("InternalIP", "10.0.0.1")]


@pytest.mark.parametrize(
    ("path", "members", "field", "stored"),
    [
        (NODES, {"status": {"addresses": ADDRESSES}}, "status.addresses", ADDRESSES),
        (NODES, {"metadata": {"finalizers": [FINALIZER]}}, "metadata.finalizers", [FINALIZER]),
        (
            NODES,
            {"spec": {"podCIDRs": ["10.1.0.0/24", "fd00::/64"]}},
            "spec.podCIDR",
            "10.1.0.0/24",
        ),
        # empty metadata is left out
        (CONFIG_MAPS, {"metadata": {"labels": {}}}, "metadata.labels", None),
        (NAMESPACES, {}, "status", {"phase": "Active"}),
    ],
)
async def test_a_create_stores_what_it_is_to(
    api: Api, path: str, members: Body, field: str, stored: Any
) -> None:
    assert lookup((await api.new(path, **members)).body, field) == stored


@pytest.mark.parametrize(
    ("path", "body", "content_type", "refusal"),
    [
        # of another kind, for elsewhere
        (NODES, {"kind": "Service", "apiVersion": "v1", **named("a")}, JSON, BAD_REQUEST),
        (LEASES, {"metadata": {"name": "a", "namespace": "kube-system"}}, JSON, BAD_REQUEST),
        # no object, or not JSON
        (NODES, b"{", JSON, BAD_REQUEST),
        (NODES, b"{}", "application/unknown", (415, "UnsupportedMediaType")),
    ],
)
async def test_what_does_not_fit_the_path_or_the_type_is_refused(
    api: Api, path: str, body: Any, content_type: str, refusal: tuple[int, str | None]
) -> None:
    assert (await api.call("POST", path, body, content_type=content_type)).refusal == refusal
