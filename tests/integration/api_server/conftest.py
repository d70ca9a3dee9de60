"""The servers under test: the sandbox in this process, and a real kube-apiserver with etcd."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from ccm.sandbox.kubernetes.server import SandboxServer
from tests.integration.api_server.client import Api
from tests.support.kube.cluster import RealCluster

BOTH = ("sandbox", pytest.param("real", marks=pytest.mark.real))


@pytest.fixture
async def sandbox() -> AsyncIterator[SandboxServer]:
    async with SandboxServer() as server:
        yield server


@pytest.fixture(params=BOTH)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> RealCluster | SandboxServer:
    """Each server in turn."""
    name = "kube" if request.param == "real" else "sandbox"
    found: RealCluster | SandboxServer = request.getfixturevalue(name)
    return found


@pytest.fixture
async def api(server: RealCluster | SandboxServer, tmp_path: Path) -> AsyncIterator[Api]:
    """A client of each server in turn."""
    async with client_of(server, tmp_path) as client:
        yield client


@asynccontextmanager
async def client_of(server: RealCluster | SandboxServer, directory: Path) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession(headers={"User-Agent": "contract"}) as session:
        if isinstance(server, SandboxServer):
            api = Api(session, server.url, server.kubeconfig(directory / "kubeconfig"))
        else:
            kubeconfig = server.kubeconfig("admin")
            api = Api(session, server.url, kubeconfig, server.token("admin"), server.ca_file)
        try:
            yield api
        finally:
            await api.clean()
