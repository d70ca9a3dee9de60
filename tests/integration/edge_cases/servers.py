"""The embedded API server and a real one, for rows whose outcome an API server decides."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from uuid import uuid4

import pytest

from ccm.errors import KubernetesError
from ccm.kube import config
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.model.volume import PersistentVolume
from ccm.sandbox.kubernetes.server import SandboxServer
from tests.support.kube.cluster import RealCluster

NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
VOLUMES = "/api/v1/persistentvolumes"
COLLECTIONS = {Node: NODES, Service: SERVICES, PersistentVolume: VOLUMES}


class ApiServer:
    """One of them, through an administrator's client; what a test creates goes away after it."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self._made: list[str] = []

    async def node(self, like: Node) -> Node:
        """A Node like this under a name of its own, with exactly these taints."""
        path = await self._create(NODES, like.raw)
        taints = {"spec": {"taints": like.taints or None}}  # it came with one of not being Ready
        return Node(await self.kube.patch(path, MERGE_PATCH, taints))

    async def service(self, like: Service) -> Service:
        """A Service like this under a name of its own."""
        return Service(await self.kube.get(await self._create(SERVICES, like.raw)))

    async def volume(self, like: PersistentVolume) -> PersistentVolume:
        """A volume like this under a name of its own."""
        return PersistentVolume(await self.kube.get(await self._create(VOLUMES, like.raw)))

    async def find(self, of: Node | Service | PersistentVolume) -> Json | None:
        """What it is by now; None when it is gone."""
        try:
            return await self.kube.get(f"{COLLECTIONS[type(of)]}/{of.name}")
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise

    async def delete(self, path: str) -> None:
        try:
            await self.kube.request("DELETE", path)
            await self.kube.patch(path, MERGE_PATCH, {"metadata": {"finalizers": None}})
        except KubernetesError as error:
            if error.status != 404:
                raise

    async def clean(self) -> None:
        for path in self._made:
            await self.delete(path)

    async def _create(self, collection: str, like: Json) -> str:
        raw = deepcopy(like)
        # A Node comes with its status, as from its kubelet: without, it is one nobody hears of.
        status = None if collection == NODES else raw.pop("status", None)
        raw["metadata"] |= {"name": f"row-{uuid4().hex[:8]}"}
        for key in ("uid", "resourceVersion"):
            raw["metadata"].pop(key, None)
        made = await self.kube.post(collection, raw)
        path = f"{collection}/{made['metadata']['name']}"
        self._made.append(path)
        if status:
            await self.kube.patch(f"{path}/status", MERGE_PATCH, {"status": status})
        return path


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.real)])
async def api_server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiServer]:
    """Each of the two in turn."""
    if request.param == "sandbox":
        kubeconfig = tmp_path / "kubeconfig"
        async with SandboxServer() as server, _client(server.kubeconfig(kubeconfig)) as made:
            yield made
        return
    cluster: RealCluster = request.getfixturevalue("kube")
    async with _client(cluster.kubeconfig("admin")) as made:
        yield made


@asynccontextmanager
async def _client(kubeconfig: Path) -> AsyncIterator[ApiServer]:
    kube = Kube(await config.load(str(kubeconfig)), "edge-cases")
    server = ApiServer(kube)
    try:
        yield server
    finally:
        await server.clean()
        await kube.close()
