"""What becomes of watches and pages whose version the server has forgotten."""

import asyncio
from pathlib import Path

import pytest

from ccm.sandbox.kubernetes.server import SandboxServer
from tests.contract.client import NODES, Watch
from tests.contract.conftest import BOTH, client_of
from tests.kube.cluster import RealCluster


@pytest.fixture(params=BOTH)
def forgetful(request: pytest.FixtureRequest) -> RealCluster | SandboxServer:
    """Each server in turn; the real one is a cluster of its own, for it is restarted."""
    name = "fresh_kube" if request.param == "real" else "sandbox"
    found: RealCluster | SandboxServer = request.getfixturevalue(name)
    return found


async def forget(server: RealCluster | SandboxServer) -> None:
    if isinstance(server, SandboxServer):
        server.compact()
    else:
        await asyncio.to_thread(server.restart_apiserver)


async def test_a_watch_from_a_forgotten_version_is_a_200_with_an_error_410(
    forgetful: RealCluster | SandboxServer, tmp_path: Path
) -> None:
    async with client_of(forgetful, tmp_path) as api:
        version = (await api.new(NODES)).version
        await api.new(NODES)
        await forget(forgetful)
        async with api.watch(NODES, resourceVersion=version) as watch:
            assert_gone(await watch_rest(watch), version)


async def watch_rest(watch: Watch) -> list[tuple[str, dict[str, object]]]:
    return [(event.type, event.object) for event in await watch.rest()]


def assert_gone(events: list[tuple[str, dict[str, object]]], version: str) -> None:
    assert [name for name, _ in events] == ["ERROR"]
    status = events[0][1]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert str(status["message"]).startswith(f"too old resource version: {version} (")
