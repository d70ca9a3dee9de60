"""The sandbox alone: it starts, restarts, is steered, fails on demand and ends."""

import asyncio
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from ccm.sandbox.kubernetes.faults import KubeFault
from ccm.sandbox.kubernetes.server import SandboxServer
from tests.contract.client import CONFIG_MAPS, FINALIZER, LEASES, NAMESPACES, NODES, Api, new_volume
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
    await sandbox.stop()
    with pytest.raises(DROPPED):
        await api.get(NODES)
    await sandbox.start()
    assert (await api.get(node.path)).version == node.version
    async with api.watch(NODES, resourceVersion=node.version) as watch:
        other = await api.new(NODES)
        assert (await watch.next()).seen == ("ADDED", other.name)


async def test_the_history_is_bounded() -> None:
    async with SandboxServer(history=3) as server, aiohttp.ClientSession() as session:
        api = Api(session, server.url, Path())
        version = (await api.get(NODES)).version
        first = await api.get(NODES, limit=1)
        for _ in range(8):
            await api.new(NODES)
        token = (await api.get(NODES, limit=1)).body["metadata"]["continue"]
        async with api.watch(NODES, resourceVersion=version) as watch:
            assert [event.type for event in await watch.rest()] == ["ERROR"]
        old = await api.get(NODES, resourceVersion=first.version, resourceVersionMatch="Exact")
        assert old.refusal == (410, "Expired")
        await api.new(NODES)
        server.compact()
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
    assert [request.user_agent for request in requests] == [*["contract"] * 4, "other/1"]
    patch = requests[1]
    about = (patch.resource, patch.subresource, patch.name, patch.status)
    assert about == ("nodes", "status", node.name, 200)


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
    async with SandboxServer(tokens=["secret"]) as server, aiohttp.ClientSession() as session:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
        users = orjson.loads(kubeconfig.read_bytes())["users"]
        assert users[0]["user"] == {"token": "secret"}
        stranger = await Api(session, server.url, kubeconfig).get(NODES)
        assert stranger.refusal == (401, "Unauthorized")
        assert (await Api(session, server.url, kubeconfig, "secret").get(NODES)).status == 200


async def test_a_namespace_takes_its_objects_with_it_and_a_bound_volume_stays(api: Api) -> None:
    loose, bound = await new_volume(api), await new_volume(api)
    await api.merge(f"{bound.path}/status", {"status": {"phase": "Bound"}})
    for volume in (loose, bound):
        await api.delete(volume.path)
    assert [(await api.get(volume.path)).status for volume in (loose, bound)] == [404, 200]
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
    async with process(*flags) as child, aiohttp.ClientSession() as session:
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


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (429, "TooManyRequests"),
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ],
)
async def test_any_status_can_be_answered_and_nothing_is_done(
    sandbox: SandboxServer, api: Api, status: int, reason: str
) -> None:
    fault = KubeFault("respond", verb="create", resource="nodes", status=status, retry_after=7)
    sandbox.faults.add(fault)
    name = api.new_name()
    reply = await api.create(NODES, {"metadata": {"name": name}})
    assert reply.refusal == (status, reason)
    assert (reply.headers["Retry-After"], reply.body["details"]["retryAfterSeconds"]) == ("7", 7)
    assert (await api.get(f"{NODES}/{name}")).status == 404


async def test_faults_spare_and_hit_as_planned(sandbox: SandboxServer, api: Api) -> None:
    sandbox.faults.add(KubeFault("respond", verb="list", status=500, skip=1, times=2))
    statuses = [(await api.get(NODES)).status for _ in range(4)]
    assert statuses == [200, 500, 500, 200]
    sandbox.faults.add(KubeFault("delay", verb="list", seconds=0.2))
    began = time.monotonic()
    assert (await api.get(NODES)).status == 200
    assert time.monotonic() - began >= 0.2
    assert [fault["hit"] for fault in sandbox.faults.describe()] == [2, 1]


async def test_faults_are_for_a_resource_a_name_and_a_client(
    sandbox: SandboxServer, api: Api
) -> None:
    fault = KubeFault("respond", resource="nodes", name="a", user_agent="contract", times=None)
    number = sandbox.faults.add(fault)
    assert (await api.get(LEASES)).status == 200
    assert (await api.get(f"{NODES}/b")).status == 404
    assert (await api.get(f"{NODES}/a")).status == 429
    other = await api.call("GET", f"{NODES}/a", headers={"User-Agent": "other"})
    assert other.status == 404
    assert sandbox.faults.remove(number)
    assert (await api.get(f"{NODES}/a")).status == 404


@pytest.mark.parametrize(("when", "status"), [("before", 404), ("after", 200), ("middle", 200)])
async def test_a_reset_write_is_done_or_not_as_planned(
    sandbox: SandboxServer, api: Api, when: str, status: int
) -> None:
    name = api.new_name()
    body = {"metadata": {"name": name}}
    fault = KubeFault.parse({"action": "reset", "verb": "create", "when": when, "times": None})
    sandbox.faults.add(fault)
    with pytest.raises(DROPPED):
        await api.create(NODES, body)
    sandbox.faults.clear()
    assert (await api.get(f"{NODES}/{name}")).status == status


async def test_a_half_open_request_hears_nothing(sandbox: SandboxServer, api: Api) -> None:
    sandbox.faults.add(KubeFault("silence", verb="get"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await api.get(f"{NODES}/a")
    assert (await api.get(f"{NODES}/a")).status == 404
    assert [request.status for request in sandbox.requests] == [0, 404]


@pytest.mark.parametrize(
    ("fault", "seen", "error"),
    [
        (KubeFault("silence", verb="watch"), 0, TimeoutError),
        (KubeFault("silence", verb="event", resource="nodes", skip=1), 1, TimeoutError),
        (KubeFault("reset", verb="event", when="middle"), 0, DROPPED),
    ],
)
async def test_a_watch_is_half_open_from_the_start_or_later_or_cut_in_the_middle_of_an_event(
    sandbox: SandboxServer, api: Api, fault: KubeFault, seen: int, error: Any
) -> None:
    sandbox.faults.add(fault)
    async with api.watch_from_now(NODES) as watch:
        names = [(await api.new(NODES)).name for _ in range(2)]
        assert await watch.take(seen) == [("ADDED", name) for name in names[:seen]]
        with pytest.raises(error):
            await watch.next(within=0.2)


async def test_a_watch_and_a_list_can_be_told_that_their_version_is_gone(
    sandbox: SandboxServer, api: Api
) -> None:
    sandbox.faults.add(KubeFault("gone", verb="list"))
    assert (await api.get(NODES)).refusal == (410, "Expired")
    for verb in ("watch", "event"):
        sandbox.faults.add(KubeFault("gone", verb=verb))
        async with api.watch_from_now(NODES) as watch:
            await api.new(NODES)
            events = await watch.rest()
        assert [(event.type, event.object["code"]) for event in events] == [("ERROR", 410)]


async def test_garbage_comes_between_good_events_and_before_good_items(
    sandbox: SandboxServer, api: Api
) -> None:
    for text in ("", "{not json"):
        sandbox.faults.add(KubeFault("garbage", verb="event", text=text))
    async with api.watch_from_now(NODES) as watch:
        first, second = await api.new(NODES), await api.new(NODES)
        garbage = await watch.next()
        assert garbage.object["metadata"] == "garbage"
        assert (await watch.next()).seen == ("ADDED", first.name)
        assert await watch.response.content.readline() == b"{not json\n"
        assert (await watch.next()).seen == ("ADDED", second.name)
    sandbox.faults.add(KubeFault("garbage", verb="list"))
    items = (await api.get(NODES)).body["items"]
    assert items[0]["metadata"] == "garbage"
    assert [item["metadata"]["name"] for item in items[1:]] == [first.name, second.name]


@pytest.mark.parametrize(
    "raw", [{"action": "unknown"}, {"verb": "list"}, {"action": "delay", "sconds": 1}]
)
def test_a_fault_that_makes_no_sense_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"action must be|unknown fields"):
        KubeFault.parse(raw)
