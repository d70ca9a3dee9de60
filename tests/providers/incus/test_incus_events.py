"""What happens to instances is heard of at once, from a real Incus' stream of events."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from ccm.cloud.interface import ProviderContext
from ccm.cloud.testkit.gate import KitGate
from ccm.errors import NotLeading
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.providers.incus import events
from ccm.providers.incus.api import IncusApi
from ccm.providers.incus.config import Remote
from ccm.providers.incus.events import EventListener, is_about_instances
from ccm.providers.incus.provider import IncusCloud
from ccm.sandbox.kubelets import ready_condition, registration
from tests.e2e.conftest import api, cluster
from tests.labs.incus.lab import Lab
from tests.providers.incus.test_incus_traffic import LIMIT, Site, has_taint
from tests.support.environment import NODES
from tests.support.kube.cluster import RealCluster
from tests.support.running import Where, long, until

__all__ = ["api", "cluster"]

T = TypeVar("T")

SOON = 2.0  # seconds, on a machine that does something else as well


@pytest.mark.parametrize(
    ("data", "is_news"),
    [
        ('{"metadata": {"action": "instance-stopped"}}', True),
        ('{"metadata": {"action": "instance-exec"}}', False),
        ('{"metadata": {"action": "network-updated"}}', False),
        ('{"metadata": null}', False),
        ("[]", False),
        ("nonsense", False),
    ],
)
def test_only_changes_of_instances_are_news(data: str, is_news: bool) -> None:
    assert is_about_instances(data) is is_news


PING, EMPTY = b"\x89\x00", b"\x81\x00"


@asynccontextmanager
async def listening(
    send: Callable[[web.WebSocketResponse, asyncio.Transport], Awaitable[None]],
    on_change: Callable[[], None],
) -> AsyncIterator[EventListener]:
    """A listener to a server that sends what `send` does."""

    async def answer(request: web.Request) -> web.WebSocketResponse:
        stream = web.WebSocketResponse(autoping=False)
        await stream.prepare(request)
        assert request.transport
        await send(stream, request.transport)
        return stream

    app = web.Application()
    app.router.add_get("/1.0/events", answer)
    async with TestServer(app) as server:
        remote = Remote(str(server.make_url("")).rstrip("/"), project=("default",))
        api = IncusApi("", remote, KitGate(10.0), "")
        yield EventListener([api], on_change)
        await api.close()


@pytest.mark.parametrize("frame", [PING, EMPTY], ids=["ping", "empty"])
async def test_a_turn_of_the_loop_has_one_message(frame: bytes) -> None:
    """Of what comes without end, 256 KiB were handled in one turn: of pings by TLS, in 2 s."""
    count, turns, heard, pongs = 10_000, 0, list[int](), 0
    news = b'{"metadata": {"action": "instance-stopped"}}'

    async def send(stream: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        nonlocal pongs
        transport.write(frame * count + bytes((0x81, len(news))) + news)
        async for message in stream:
            pongs += message.type is WSMsgType.PONG

    async with listening(send, lambda: heard.append(turns)) as listener:
        while len(heard) < 2:
            await asyncio.sleep(0)
            turns += len(heard)  # those since it is open
        await listener.close()
    assert heard[1] >= count
    assert pongs == (count if frame == PING else 0)


async def test_a_stream_without_end_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited for its end, did so again with each message: no worker stopped by itself."""
    monkeypatch.setattr("ccm.providers.incus.api.CLOSE_TIMEOUT", 0.1)
    opened = asyncio.Event()

    async def send(_: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        while not transport.is_closing():
            transport.write(EMPTY)
            await asyncio.sleep(0)

    async with listening(send, opened.set) as listener:
        await opened.wait()
        closing = asyncio.create_task(listener.close())
        await until("it is closed", closing.done, 10 * SOON)


class StandbyGate(KitGate):
    """Of a replica that does not lead before `may_act` is set."""

    may_act, refused = False, 0

    async def call(
        self, operation: str, budget: str, function: Callable[[], Awaitable[T]], *, is_write: bool
    ) -> T:
        if not self.may_act:
            self.refused += 1
            raise NotLeading("not yet")
        return await super().call(operation, budget, function, is_write=is_write)


@asynccontextmanager
async def heard(config: str, gate: KitGate | None = None) -> AsyncIterator[list[float]]:
    """The times at which the provider says that something changed."""
    times, cloud = list[float](), IncusCloud()
    context = ProviderContext(
        gate or KitGate(15.0),
        config.encode(),
        "incus.conf",
        "kit",
        "test",
        on_change=lambda: times.append(time.monotonic()),
    )
    await cloud.initialize(context)
    try:
        yield times
    finally:
        await cloud.close()


async def more_than(times: list[float], count: int) -> None:
    await until("something is heard", lambda: len(times) > count, SOON)


@pytest.mark.parametrize("way", ["INCUS_URL", "INCUS_SOCKET"])
async def test_a_stop_is_heard_of_at_once(lab: Lab, way: str) -> None:
    url = lab.env[way] if way == "INCUS_URL" else f"unix://{lab.env[way]}"
    lab.create("ev-1")
    try:
        async with heard(lab.config(url)) as times:
            await more_than(times, 0)
            count = len(times)
            await asyncio.to_thread(lab.set_state, ["ev-1"], "stop")
            await more_than(times, count)
    finally:
        lab.remove("ev-1")


async def test_without_rights_nothing_is_heard_and_nothing_fails(lab: Lab) -> None:
    async with heard(lab.config(who="OTHER")) as times:
        await asyncio.sleep(1)  # nothing announces that nothing comes
    assert times == []


async def test_a_standby_that_takes_over_listens_at_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it stood by: no waits that grow."""
    monkeypatch.setattr(events, "FIRST_RETRY", 0.1)
    gate = StandbyGate(15.0)
    async with heard(lab.config(), gate) as times:
        await until("it asks again and again", lambda: gate.refused > 6, 10 * SOON)
        gate.may_act = True
        await more_than(times, 0)


async def test_a_stream_that_broke_is_opened_again(lab: Lab) -> None:
    async with heard(lab.config(f"unix://{lab.env['INCUS_SOCKET']}")) as times:
        await more_than(times, 0)
        count = len(times)
        await asyncio.to_thread(lab.run, "api", "kill")
        await until("it is heard of again", lambda: len(times) > count, LIMIT)


@long
@pytest.mark.real
@pytest.mark.timeout(300)
async def test_a_node_whose_instance_stops_has_its_taint_in_a_moment(
    tmp_path: Path, cluster: RealCluster, api: Kube, lab: Lab
) -> None:
    """Passes are a minute apart here; only what Incus tells of itself comes sooner."""
    config = tmp_path / "incus.conf"
    config.write_text(lab.config())
    where = Where(tmp_path, cluster.kubeconfig("ccm"), config)
    site = Site(api, lab, where)
    lab.create("ev-1")
    await api.post(NODES, registration("ev-1"))

    async def is_tainted() -> bool:
        return has_taint((await site.nodes())["ev-1"], "shutdown")

    try:
        with site.supervisor("one", "--node-monitor-period=60s"):
            await until("it is initialized", site.are_initialized, LIMIT)
            status = {"status": {"conditions": [ready_condition(False)]}}
            await api.patch(f"{NODES}/ev-1/status", MERGE_PATCH, status)
            await asyncio.sleep(2.0)  # the pass that a kubelet's silence begins is over
            await asyncio.to_thread(lab.set_state, ["ev-1"], "stop")
            stopped = time.monotonic()
            await until("the taint", is_tainted, SOON)
            took = time.monotonic() - stopped
            print(f"shutdown taint {took:.2f} s after the stop")
    finally:
        lab.remove("ev-1")
