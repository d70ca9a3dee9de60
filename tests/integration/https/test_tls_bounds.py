"""What the TLS of a client may cost: all of it runs in the loop that renews the Lease."""

import asyncio
import gc
import os
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from aiohttp import web

from ccm.supervisor.https import connection as connection_module
from ccm.supervisor.https import listener
from ccm.supervisor.https.connection import BoundedClient, BoundedTls
from tests.integration.https.hostile_tls import (
    ECDSA_SHA256,
    client_hello,
    is_answered,
    is_served_after_updates,
)
from tests.integration.https.review_api import ReviewApi
from tests.integration.https.served import (
    LocalServer,
    Turns,
    connected,
    pipeline,
    send_until_stuck,
    serving,
    serving_routes,
)
from tests.support.deadlines import within
from tests.support.pki import trusting_anybody
from tests.support.waiting import until

P256, P384, X25519 = 23, 24, 29
FINITE_FIELDS = {0x102: 4096, 0x103: 6144, 0x104: 8192}  # groups and the bits of their keys


@pytest.mark.parametrize("curves", [(), (P384,), (X25519,), (X25519, P256)])
async def test_no_client_chooses_a_key_exchange_that_takes_long(
    reviews: ReviewApi, curves: tuple[int, ...]
) -> None:
    """With 8,192 bits one takes 0.1 s of the server, and nothing of a client that made it up."""
    async with serving(reviews, tls_curve_preferences=curves) as server:
        for group, bits in FINITE_FIELDS.items():
            hello = client_hello([group], {group: b"\x01" + os.urandom(bits // 8 - 1)})
            assert not await asyncio.to_thread(is_answered, server.port, hello)
        common = client_hello([X25519, P256, P384], {X25519: os.urandom(32)})
        assert await asyncio.to_thread(is_answered, server.port, common)


@pytest.mark.parametrize(("signatures", "is_taken"), [(5_000, True), (30_000, False)])
async def test_a_hello_of_any_length_is_not_read(
    server: LocalServer, signatures: int, is_taken: bool
) -> None:
    """One of 64 KB may hold OpenSSL up for 30 ms."""
    made_up = (0x0999,) * signatures
    hello = client_hello([P256], {}, [*made_up, ECDSA_SHA256])
    assert await asyncio.to_thread(is_answered, server.port, hello) == is_taken


async def test_handshakes_without_end_leave_each_turn_of_the_loop_short(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes milliseconds, and clients of this host, or of many addresses, begin a hundred."""
    monkeypatch.setattr(connection_module, "TURN", 0.0)  # as if the first took all of it
    protocol: Any = SSLProtocol
    turns, go_on = Turns(), protocol._do_handshake

    def noted(tls: SSLProtocol) -> None:
        turns.note()
        go_on(tls)

    monkeypatch.setattr(protocol, "_do_handshake", noted)
    with ExitStack() as held:
        async with turns.counted():
            for _ in range(20):
                held.enter_context(connected(server)).sendall(client_hello([P256], {}))
            await until(lambda: len(turns.noted) >= 20)
    assert len({*turns.noted}) == len(turns.noted)


async def test_reads_without_end_leave_each_turn_of_the_loop_short(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 98 clients that sent 14 small records at a time, a turn took 50 ms of the processor."""
    monkeypatch.setattr(connection_module, "TURN", 0.0)  # as if the first took all of it
    protocol: Any = SSLProtocol
    turns, take_in = Turns(), protocol.buffer_updated

    def noted(tls: SSLProtocol, size: int) -> None:
        if isinstance(tls, BoundedTls):
            turns.note()
        take_in(tls, size)

    writers = [
        (await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting_anybody()))[1]
        for _ in range(10)
    ]
    monkeypatch.setattr(protocol, "buffer_updated", noted)
    async with turns.counted():
        for writer in writers:
            writer.write(b"GET / HTTP/1.1\r\n")
        await until(lambda: len(turns.noted) >= 10)
    for writer in writers:
        writer.close()
    assert len({*turns.noted}) == len(turns.noted)


async def test_handshakes_without_end_leave_most_of_the_time_to_others() -> None:
    """500 a second, of this host or of a hundred addresses, had Services wait ten times as long."""
    handshakes, taken = connection_module.PacedCalls(), 0.0

    def work() -> None:
        nonlocal taken
        start = time.thread_time()
        while time.thread_time() - start < 0.001:
            pass
        taken += time.thread_time() - start
        handshakes.add("", partial(work))
        handshakes.add("", work)

    handshakes.add("", work)
    began = time.monotonic()
    await until(lambda: taken > 0.15)
    assert taken / (time.monotonic() - began + connection_module.SAVED) < 0.15


async def test_the_newest_handshake_goes_on_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside more than can be done, a client that comes now would wait for all, and be closed."""
    monkeypatch.setattr(connection_module, "TURN", 0.0)
    handshakes, done = connection_module.PacedCalls(), list[int]()
    for number in range(3):
        handshakes.add("", partial(done.append, number))
    await until(lambda: len(done) == 3)
    assert done == [2, 1, 0]


async def test_addresses_take_turns_at_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of them, with five a second each and a key of 4,096 bits, kept all others out."""
    monkeypatch.setattr(connection_module, "TURN", 0.0)
    handshakes, done = connection_module.PacedCalls(), list[int]()
    handshakes.add("192.0.2.1", partial(done.append, 0))
    for number in range(1, 10):
        handshakes.add("192.0.2.2", partial(done.append, number))
    await until(lambda: len(done) == 10)
    assert done[:3] == [0, 9, 8]


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[ref[BoundedTls]]:
    """All that were made; five at once are in their handshake at most."""
    monkeypatch.setattr(listener, "MAX_HANDSHAKES", 5)
    made, begin = list[ref[BoundedTls]](), BoundedTls.connection_made

    def noted(tls: BoundedTls, transport: asyncio.BaseTransport) -> None:
        made.append(ref(tls))
        begin(tls, transport)

    monkeypatch.setattr(BoundedTls, "connection_made", noted)
    return made


async def begin_twenty(
    server: LocalServer, connections: Sequence[ref[BoundedTls]], held: ExitStack
) -> None:
    for number in range(20):
        held.enter_context(connected(server)).sendall(client_hello([P256], {}))
        await until(partial(lambda before: len(connections) > before, number))


async def test_handshakes_that_wait_are_not_kept_when_their_connections_are_closed(
    server: LocalServer, connections: list[ref[BoundedTls]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside more than can be done, a user of this host had 9 MB kept a second, until no memory was
    left.
    """
    monkeypatch.setattr(connection_module, "SHARE", 1e-9)  # as if none were done any more

    def are_few() -> bool:
        gc.collect()
        return sum(1 for each in connections if each()) <= 5

    with ExitStack() as held:
        await begin_twenty(server, connections, held)
        await until(are_few)


async def test_handshakes_that_fail_leave_nothing_to_the_garbage_collector(
    server: LocalServer, connections: list[ref[BoundedTls]]
) -> None:
    """Each has 60 KB of TLS: of 250 a second 100 MB waited to be collected."""
    gc.disable()
    try:
        with ExitStack() as held:
            await begin_twenty(server, connections, held)
        await until(lambda: not any(each() for each in connections))
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nExpect: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 9000,
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        b"\0 / HTTP/1.1\r\n\r\n",
    ],
    ids=["expectation", "header", "chunk", "method"],
)
async def test_requests_that_fail_leave_nothing_to_the_garbage_collector(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    """One address had 250 MB of such requests kept."""
    made, begin = list[ref[BoundedClient]](), BoundedClient.connection_made

    def noted(client: BoundedClient, transport: asyncio.BaseTransport) -> None:
        made.append(ref(client))
        begin(client, transport)

    monkeypatch.setattr(BoundedClient, "connection_made", noted)
    gc.disable()
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=trusting_anybody()
        )
        writer.write(request_)
        async with within():
            await reader.readuntil(b"HTTP/1.1 4" if b"Expect" in request_ else b"HTTP/1.0 4")
        writer.close()
        await until(lambda: made and not made[0]())
    finally:
        gc.enable()


async def test_keys_that_are_updated_without_end_end_the_connection(
    server: LocalServer, tmp_path: Path
) -> None:
    """They are no data, so no bound of HTTP sees them: 10 MB took 3 s of the loop."""
    for count, is_served in ((100, True), (5_000, False)):
        log = tmp_path / f"{count}.log"
        found = await asyncio.to_thread(is_served_after_updates, server.port, count, log)
        assert found == is_served
    assert (await server.get("/healthz")).status == 200


async def test_a_client_that_sends_much_at_once_is_read_little_by_little(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that comes is decrypted and parsed in one turn of the loop."""
    sizes, take_in = list[int](), BoundedTls.buffer_updated

    def count(tls: BoundedTls, size: int) -> None:
        sizes.append(size)
        take_in(tls, size)

    monkeypatch.setattr(BoundedTls, "buffer_updated", count)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting_anybody())
    asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 7000 + b"\r\n\r\n"
    writer.write(asked * 8)
    async with within():
        for _ in range(8):
            await reader.readuntil(b" 200 OK")
    writer.close()
    assert max(sizes) <= connection_module.MAX_READ < len(asked)


async def test_a_client_that_reads_no_answer_takes_little_memory(reviews: ReviewApi) -> None:
    """200 of them took 175 MB, of one address and without a login."""
    unsent = list[int]()

    async def page(request: web.Request) -> web.Response:
        assert isinstance(request.transport, asyncio.WriteTransport)
        unsent.append(request.transport.get_write_buffer_size())
        return web.Response(text="a" * 8000)

    async with serving_routes([web.get("/healthz", page)], master=reviews.url) as server:
        await asyncio.to_thread(pipeline, server, b"/healthz")
    assert 0 < max(unsent) <= connection_module.MAX_UNSENT + 16_000


async def test_a_client_that_reads_no_answer_is_disconnected(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It held a connection, and what that takes, for as long as it liked."""
    monkeypatch.setattr(connection_module, "MAX_WAIT", 0.1)
    async with serving(reviews) as server:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.to_thread(send_until_stuck, server)
