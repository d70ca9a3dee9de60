"""The sandbox alone: what it counts and forgets, and its life as a process."""

import asyncio
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest

from ccm.sandbox.kubernetes.reads import SNAPSHOTS
from ccm.sandbox.kubernetes.server import SandboxServer
from tests.integration.api_server.client import NAMESPACES, NODES, Api
from tests.support.deadlines import within


@pytest.fixture
def server(sandbox: SandboxServer) -> SandboxServer:
    """Only the sandbox can be made to do this."""
    return sandbox


async def test_the_history_is_bounded() -> None:
    async with SandboxServer(history=3) as server, aiohttp.ClientSession() as session:
        api = Api(session, server.url, Path())
        version = (await api.get(NODES)).version
        for _ in range(8):
            await api.new(NODES)
        async with api.watch(NODES, resourceVersion=version) as watch:
            assert [event.type for event in await watch.rest()] == ["ERROR"]


async def test_requests_are_listed_by_client(api: Api) -> None:
    node = await api.new(NODES)
    await api.merge(f"{node.path}/status", {"status": {"phase": "Running"}})
    async with api.watch(NODES):
        pass
    await api.call("GET", NODES, headers={"User-Agent": "other/1"})
    logged = (await api.get("/sandbox/requests")).body
    assert [each["verb"] for each in logged] == ["create", "patch", "watch", "list"]
    assert [each["user_agent"] for each in logged] == [*["contract"] * 3, "other/1"]
    assert {each["resource"] for each in logged} == {"nodes"}


# --- as a process


@asynccontextmanager
async def process(*flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    program = [sys.executable, "-m", "ccm.sandbox.kubernetes", *flags]
    child = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def test_the_process_tells_where_it_is_and_ends_on_sigterm(tmp_path: Path) -> None:
    url_file, kubeconfig = tmp_path / "url", tmp_path / "kubeconfig"
    flags = [f"--url-file={url_file}", f"--kubeconfig={kubeconfig}"]
    async with process(*flags) as child, aiohttp.ClientSession() as session:
        assert child.stdout is not None
        async with within():
            url = (await child.stdout.readline()).decode().strip()
        assert url_file.read_text().strip() == url
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
        assert orjson.loads(kubeconfig.read_bytes())["clusters"][0]["cluster"]["server"] == url
        api = Api(session, url, kubeconfig)
        node = await api.new(NODES)
        async with api.watch(NODES, resourceVersion=node.version):
            child.send_signal(signal.SIGTERM)
            async with within():
                assert await child.wait() == 0


async def test_an_old_list_cannot_be_continued(api: Api) -> None:
    first = await api.get(NAMESPACES, limit=1)
    for _ in range(SNAPSHOTS):
        await api.get(NAMESPACES, limit=1)
    late = await api.get(NAMESPACES, **{"continue": first.body["metadata"]["continue"]})
    assert late.refusal == (410, "Expired")
