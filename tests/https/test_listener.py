"""Connections: clients that are rude, slow or many cost nobody else anything."""

import asyncio
import os
import socket
import ssl
from contextlib import ExitStack

import pytest

from ccm.settings import Settings
from ccm.supervisor.https.server import HttpsServer
from tests.edge_cases.rows import row
from tests.https.pki import trusting_anybody
from tests.https.reviewer import Reviewer
from tests.https.served import Site, serving
from tests.unit.waiting import until


def connected(site: Site) -> socket.socket:
    """A connection that says nothing."""
    return socket.create_connection(("127.0.0.1", site.port))


async def greeted(site: Site) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with TLS that asks for nothing."""
    return await asyncio.open_connection("127.0.0.1", site.port, ssl=trusting_anybody())


@pytest.mark.parametrize("words", [b"", b"GET /healthz HTTP/1.1\r\n\r\n", b"\x16\x03\x01" * 99])
async def test_a_client_without_tls_harms_nobody(
    reviewer: Reviewer, words: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(reviewer) as site:
        for _ in range(20):
            with connected(site) as rude:
                rude.sendall(words)
        assert (await site.get("/healthz")).status == 200
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


@pytest.mark.parametrize("is_greeted", [False, True])
async def test_when_there_are_too_many_the_oldest_goes_and_a_probe_gets_its_answer(
    reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch, is_greeted: bool
) -> None:
    monkeypatch.setattr("ccm.supervisor.https.listener.MOST", 10)
    async with serving(reviewer) as site:
        with ExitStack() as held:
            first = await greeted(site)
            held.callback(first[1].close)
            for _ in range(30):
                if is_greeted:
                    held.callback((await greeted(site))[1].close)
                else:
                    held.enter_context(connected(site))
                assert (await site.get("/healthz")).status == 200
            # One is accepted before the oldest goes, and that takes a turn of the loop.
            await until(lambda: site_connections(site) <= 10)
            assert await first[0].read() == b""


def site_connections(site: Site) -> int:
    """Sockets of the server that are connected."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    port = f"0100007F:{site.port:04X}"
    return sum(row[1] == port and row[3] == "01" and row[9] != "0" for row in rows)


async def test_a_handshake_that_takes_too_long_is_given_up(
    reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm.supervisor.https.listener.HANDSHAKE", 0.05)
    async with serving(reviewer) as site:
        with connected(site) as slow:
            slow.settimeout(5)
            assert await asyncio.to_thread(slow.recv, 1) == b""


async def test_a_request_that_never_ends_leaves_the_stop_to_others(reviewer: Reviewer) -> None:
    reviewer.hangs = asyncio.Event()
    async with serving(reviewer) as site:
        asking = asyncio.create_task(site.get("/page"))
        await until(lambda: reviewer.asked["SubjectAccessReview"])
        asking.add_done_callback(lambda task: task.exception())
    async with asyncio.timeout(5):
        await asyncio.wait({asking})


def mute(site: Site) -> ssl.SSLSocket:
    """A connection that was answered and does nothing by itself any more, not even TLS."""
    made = trusting_anybody().wrap_socket(connected(site))
    made.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert made.recv(1)
    return made


async def test_a_client_that_does_not_say_goodbye_is_not_waited_for(reviewer: Reviewer) -> None:
    async with serving(reviewer) as site:
        with await asyncio.to_thread(mute, site):
            await site.server.close()
            await until(lambda: not site_connections(site))


async def test_no_server_means_no_listening(reviewer: Reviewer) -> None:
    server = HttpsServer(Settings(master=reviewer.url, secure_port=0))
    await server.start()
    running = asyncio.create_task(server.run())
    await asyncio.sleep(0)
    assert not running.done()
    assert server.certificate_ends_at() is None
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await server.close()


async def test_a_plain_http_client_of_a_kept_connection_may_ask_twice(reviewer: Reviewer) -> None:
    async with serving(reviewer) as site:
        reader, writer = await greeted(site)
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(4) == b"page"
        writer.close()


async def test_the_server_offers_no_http2(reviewer: Reviewer) -> None:
    async with serving(reviewer) as site:
        tls = trusting_anybody()
        tls.set_alpn_protocols(["h2", "http/1.1"])
        _, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=tls)
        connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
        assert connection.selected_alpn_protocol() != "h2"
        writer.close()


@row("OP3", "OP5")
async def test_only_the_flags_address_and_port_are_listened_on(reviewer: Reviewer) -> None:
    """There are no webhooks, so their port has a default and no listener."""
    before = listening()
    async with serving(reviewer, webhook_bind_address="127.0.0.1") as site:
        assert listening() - before == {("0100007F", site.port)}
    assert listening() == before


def listening() -> set[tuple[str, int]]:
    """Addresses, in the kernel's hexadecimal form, and ports that this process listens on."""
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    sockets = {os.readlink(link) for link in links if os.path.islink(link)}
    with open("/proc/self/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    found = (
        row[1].split(":") for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets
    )
    return {(address, int(port, 16)) for address, port in found}


@pytest.mark.parametrize(
    "nonsense", [b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"A" * 20_000 + b"\r\n\r\n"]
)
async def test_what_is_no_http_is_answered_and_not_logged(
    reviewer: Reviewer, nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(reviewer) as site:
        reader, writer = await greeted(site)
        writer.write(nonsense)
        assert b" 400 " in await reader.readline()
        writer.close()
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
