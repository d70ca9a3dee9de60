"""Who may write an object may write its managed fields, which a real API server keeps."""

from pathlib import Path

import orjson
import pytest

from ccm.kube.client import Kube
from ccm.kube.config import load
from ccm.kube.watch import list_once
from ccm.model.objects import mapping
from tests.integration.api_server.client import NODES
from tests.integration.api_server.conftest import client_of
from tests.support.kube.cluster import RealCluster

DEEP = b'{"f:metadata":{"f:annotations":' + b'{"f:a":' * 1100 + b"{}" + b"}" * 1100 + b"}}"
NO_TEXT = b'{"f:metadata":{"f:annotations":{"f:\xff":{}}}}'
ENTRY = {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}


@pytest.mark.real
@pytest.mark.parametrize("fields", [DEEP, NO_TEXT], ids=["deep", "not-utf-8"])
async def test_managed_fields_that_only_go_reads_hide_no_node(
    kube: RealCluster, tmp_path: Path, fields: bytes
) -> None:
    async with client_of(kube, tmp_path) as api:
        node, other = await api.new(NODES), await api.new(NODES)
        meta = {**node.body["metadata"], "managedFields": [ENTRY | {"fieldsV1": "FIELDS"}]}
        body = orjson.dumps(node.body | {"metadata": meta}).replace(b'"FIELDS"', fields)
        put = await api.replace(node.path, body)
        assert put.status == 200, put.body
        assert isinstance(put.body, str), "orjson reads it"
        ours = Kube(await load(str(kube.kubeconfig("admin"))), "test")
        try:
            names = {mapping(raw["metadata"])["name"] for raw in await list_once(ours, NODES)}
        finally:
            await ours.close()
        assert {node.name, other.name} <= names
