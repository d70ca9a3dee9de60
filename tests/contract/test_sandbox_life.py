"""The sandbox as a thing that starts, restarts, is steered and ends."""

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

from ccm.sandbox.kubernetes.server import SandboxServer
from tests.contract.client import CONFIG_MAPS, FINALIZER, NAMESPACES, NODES, Api, new_volume
from tests.proc.running import is_alive

DROPPED = (aiohttp.ClientError, ConnectionError)


@pytest.fixture
def server(sandbox: SandboxServer) -> SandboxServer:
    """Only the sandbox can be made to do this."""
    return sandbox


async def test_a_restart_keeps_objects_and_address_and_drops_watches(
    sandbox: SandboxServer, api: Api
) -> None:
    url, node = sandbox.url, await api.new(NODES)
    async with api.watch(NODES, resourceVersion=node.version) as watch:
        await sandbox.restart()
        with pytest.raises(DROPPED):
            await watch.next()
    assert sandbox.url == url
    assert (await api.get(node.path)).version == node.version
    async with api.watch(NODES, resourceVersion=node.version) as watch:
        other = await api.new(NODES)
        assert (await watch.next()).seen == ("ADDED", other.name)


async def test_while_it_is_down_connections_are_refused(sandbox: SandboxServer, api: Api) -> None:
    await sandbox.stop()
    with pytest.raises(DROPPED):
        await api.get(NODES)
    await sandbox.start()
    assert (await api.get(NODES)).status == 200


async def test_the_history_is_bounded() -> None:
    async with SandboxServer(history=3) as server, _session() as session:
        api = Api(session, server.url, Path())
        version = (await api.get(NODES)).version
        first = await api.get(NODES, limit=1)
        for _ in range(8):
            await api.new(NODES)
        async with api.watch(NODES, resourceVersion=version) as watch:
            assert [event.type for event in await watch.rest()] == ["ERROR"]
        old = await api.get(NODES, resourceVersion=first.version, resourceVersionMatch="Exact")
        assert old.refusal == (410, "Expired")


async def test_a_page_of_forgotten_history_is_410(sandbox: SandboxServer, api: Api) -> None:
    for _ in range(2):
        await api.new(NODES)
    token = (await api.get(NODES, limit=1)).body["metadata"]["continue"]
    await api.new(NODES)
    sandbox.compact()
    assert (await api.get(NODES, **{"continue": token})).refusal == (410, "Expired")


async def test_requests_are_counted_by_client(sandbox: SandboxServer, api: Api) -> None:
    node = await api.new(NODES)
    await api.merge(f"{node.path}/status", {"status": {"phase": "Running"}})
    await api.get(NODES)
    async with api.watch(NODES):
        pass
    await api.call("GET", NODES, headers={"User-Agent": "other/1"})
    requests = sandbox.requests
    assert [request.verb for request in requests] == ["create", "patch", "list", "watch", "list"]
    patch = requests.select(writes=True, user_agent="contract")[-1]
    assert (patch.resource, patch.subresource, patch.name) == ("nodes", "status", node.name)
    assert patch.status == 200
    assert len(requests.select(user_agent="other", verb="list")) == 1
    requests.clear()
    assert len(requests) == 0


async def test_the_sandbox_is_steered_over_http(sandbox: SandboxServer, api: Api) -> None:
    fault = {"action": "respond", "verb": "list", "status": 503, "times": None}
    number = (await api.create("/sandbox/faults", fault)).body["id"]
    assert (await api.get(NODES)).status == 503
    told = (await api.get("/sandbox/faults")).body
    assert [(each["id"], each["hit"], each["status"]) for each in told] == [(number, 1, 503)]
    assert (await api.delete(f"/sandbox/faults/{number}")).status == 200
    assert (await api.delete(f"/sandbox/faults/{number}")).status == 404
    assert (await api.create("/sandbox/faults", {"action": "x"})).refusal[0] == 400
    logged = (await api.get("/sandbox/requests")).body
    assert [each["status"] for each in logged] == [503]
    assert (await api.delete("/sandbox/requests")).status == 200
    version = (await api.get(NODES)).version
    await api.new(NODES)
    assert (await api.create("/sandbox/compact", {})).status == 200
    async with api.watch(NODES, resourceVersion=version) as watch:
        assert [event.type for event in await watch.rest()] == ["ERROR"]
    assert (await api.get("/sandbox/unknown")).status == 404


async def test_connections_are_dropped_over_http(api: Api) -> None:
    version = (await api.get(NODES)).version
    for steer in ("drop", "restart"):
        async with api.watch(NODES, resourceVersion=version) as watch:
            assert (await api.create(f"/sandbox/{steer}", {})).status == 200
            with pytest.raises(DROPPED):
                await watch.next()


async def test_tokens_are_insisted_on(tmp_path: Path) -> None:
    async with SandboxServer(tokens=["secret"]) as server, _session() as session:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
        users = orjson.loads(kubeconfig.read_bytes())["users"]
        assert users[0]["user"] == {"token": "secret"}
        stranger = await Api(session, server.url, kubeconfig).get(NODES)
        assert stranger.refusal == (401, "Unauthorized")
        assert (await Api(session, server.url, kubeconfig, "secret").get(NODES)).status == 200


async def test_a_namespace_takes_its_objects_with_it(api: Api) -> None:
    name = (await api.new(NAMESPACES)).name
    maps = CONFIG_MAPS.replace("/default/", f"/{name}/")
    free = await api.new(maps)
    held = await api.new(maps, metadata={"finalizers": [FINALIZER]})
    await api.delete(f"{NAMESPACES}/{name}")
    assert (await api.get(free.path)).status == 404
    assert (await api.get(f"{NAMESPACES}/{name}")).status == 200
    refused = await api.create(maps, {"metadata": {"name": "late"}})
    assert refused.refusal == (403, "Forbidden")
    await api.merge(held.path, {"metadata": {"finalizers": None}})
    assert (await api.get(f"{NAMESPACES}/{name}")).status == 404


async def test_a_volume_that_is_not_bound_goes_when_it_is_deleted(api: Api) -> None:
    free, bound = await new_volume(api), await new_volume(api)
    await api.merge(f"{bound.path}/status", {"status": {"phase": "Bound"}})
    for volume in (free, bound):
        await api.delete(volume.path)
    assert (await api.get(free.path)).status == 404
    assert (await api.get(bound.path)).status == 200


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
    flags = [f"--url-file={url_file}", f"--kubeconfig={kubeconfig}", "--die-with-parent"]
    async with process(*flags) as child, _session() as session:
        assert child.stdout is not None
        async with asyncio.timeout(10):
            url = (await child.stdout.readline()).decode().strip()
        assert url_file.read_text().strip() == url
        assert orjson.loads(kubeconfig.read_bytes())["clusters"][0]["cluster"]["server"] == url
        api = Api(session, url, kubeconfig)
        node = await api.new(NODES)
        async with api.watch(NODES, resourceVersion=node.version):
            child.send_signal(signal.SIGTERM)
            async with asyncio.timeout(5):
                assert await child.wait() == 0


async def test_the_process_ends_with_its_parent() -> None:
    script = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'ccm.sandbox.kubernetes', '--die-with-parent']\n"
        "child = subprocess.Popen(command, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(10):
        output, _ = await parent.communicate()
        while is_alive(int(output)):  # noqa: ASYNC110 - it is no child of ours
            await asyncio.sleep(0.01)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()
