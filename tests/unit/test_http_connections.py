"""The HTTP client: which connections are kept, streams, and TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ccm import http, http_client, tls
from ccm.http import HttpConnection
from ccm.http_client import HttpClient
from ccm.tls import Server
from tests.support.deadlines import within
from tests.support.pki import Authority
from tests.support.waiting import until
from tests.unit.raw_http import (
    CLOSE,
    HELLO,
    STREAM,
    TO_THE_END,
    RawHttp,
    RawServer,
    Transport,
    get,
)

# Connections.


async def test_side_by_side_each_request_has_a_connection_of_its_own(serving: RawHttp) -> None:
    async with serving([HELLO], [HELLO], [HELLO]) as (raw, client):
        await asyncio.gather(get(client), get(client))
        await get(client)
        assert raw.connections == 2


async def test_who_waits_to_connect_takes_a_connection_that_is_free_before(
    serving: RawHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "CONNECTING_AT_ONCE", 1)
    async with serving([HELLO], [HELLO]) as (raw, client):
        opened = asyncio.create_task(client.connect())
        await asyncio.sleep(0)
        await asyncio.gather(get(client), opened)
        await get(client)
        assert raw.connections == 1


async def test_connections_that_never_open_keep_no_one_from_one_that_is_free(
    serving: RawHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "CONNECTING_AT_ONCE", 1)
    async with serving([HELLO], [HELLO]) as (raw, client):
        await client.connect()
        monkeypatch.setattr(tls, "start_connection", never)
        first, hangs, waits = (asyncio.create_task(get(client)) for _ in range(3))
        await asyncio.gather(first, waits)
        assert raw.connections == 1
        hangs.cancel()


async def never(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "text",
    [HELLO.replace(b"X-Word: yes", b"Connection: close"), HELLO + HELLO, TO_THE_END],
    ids=["close", "unsolicited-response", "no-length"],
)
async def test_a_connection_that_is_not_kept_alive_is_not_reused(
    serving: RawHttp, text: bytes
) -> None:
    end = [CLOSE] if text is TO_THE_END else []
    async with serving([text, *end], [HELLO]) as (raw, client):
        assert (await get(client)).body == b"hello"
        assert (await get(client)).body == b"hello"
        assert raw.connections == 2


async def test_a_late_response_answers_no_request(serving: RawHttp) -> None:
    """Its request timed out; the next one must not get it."""
    async with serving([], [HELLO]) as (raw, client):
        asking = asyncio.create_task(get(client))
        await until(lambda: raw.requests)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asking
        await until(lambda: raw.open == 0)
        assert (await get(client)).body == b"hello"
        assert raw.connections == 2


async def test_a_connection_is_not_reused_after_the_idle_timeout(serving: RawHttp) -> None:
    async with serving([HELLO], [HELLO], idle_timeout=0.0) as (raw, client):
        await get(client)
        await get(client)
        assert raw.connections == 2


async def test_an_idle_connection_that_closes_is_forgotten(serving: RawHttp) -> None:
    async with serving([HELLO, CLOSE], [HELLO]) as (raw, client):
        await get(client)
        await until(lambda: not client._idle)
        await get(client, may_retry=False)
        assert raw.connections == 2


async def test_a_request_lost_on_a_reused_connection_may_be_retried(serving: RawHttp) -> None:
    async with serving([HELLO], [CLOSE], [HELLO], [CLOSE], [HELLO]) as (raw, client):
        await get(client)
        assert (await get(client)).body == b"hello"
        assert len(raw.requests) == 3
        with pytest.raises(ConnectionResetError):
            await client.request("PATCH", "/x", (), b"{}")  # it may have been carried out
        assert len(raw.requests) == 4


async def test_closing_ends_every_connection(serving: RawHttp) -> None:
    async with serving([HELLO], []) as (raw, client):
        await get(client)
        asking = asyncio.create_task(get(client))
        await until(lambda: len(raw.requests) == 2)
        await client.close()
        with pytest.raises(ConnectionAbortedError):
            await asking
        await until(lambda: raw.open == 0)


# Streams.


async def test_a_stream_is_read_as_it_comes(serving: RawHttp) -> None:
    async with serving([STREAM, b"2\r\nhe\r\n"]) as (raw, client):
        async with client.stream("/x", ()) as (head, content):
            assert head.status == 200
            assert await content.read() == b"he"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await content.read()
        await until(lambda: raw.open == 0)


async def test_a_stream_that_breaks_gives_what_came_and_then_the_error(serving: RawHttp) -> None:
    parts = [STREAM, b"2\r\nhe\r\n", CLOSE]
    async with serving(parts) as (raw, client), client.stream("/x", ()) as (_, content):
        await until(lambda: raw.open == 0)
        assert await content.read() == b"he"
        with pytest.raises(ConnectionResetError):
            await content.read()


async def test_a_stream_that_no_one_reads_is_not_taken_in(
    serving: RawHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "READ_BUFFER_LIMIT", 1 << 16)
    piece = b"%x\r\n%b\r\n" % (1 << 16, b"x" * (1 << 16))
    number = 400  # 25 MiB, more than the sockets hold
    parts: list[object] = [STREAM, *[piece] * number, b"0\r\n\r\n"]
    async with serving(parts) as (_, client), client.stream("/x", ()) as (_, content):
        await until(lambda: not content._transport.is_reading())  # type: ignore[union-attr]
        assert content._response.size < 1 << 20
        size = 0
        while data := await content.read():
            size += len(data)
        assert size == number << 16


async def pieces(content: HttpConnection) -> AsyncIterator[bytes]:
    while data := await content.read():
        yield data


# TLS.


async def test_the_server_certificate_is_verified(tmp_path: Path) -> None:
    authority, raw = Authority("ours"), RawServer([HELLO], [HELLO], [HELLO])
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_bytes(authority.pem)
    theirs.write_bytes(Authority("theirs").pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pinned, key = authority.server("kubernetes").write(tmp_path, "server")
    another, _ = authority.server("kubernetes").write(tmp_path, "another")
    tls.load_cert_chain(pinned, key)
    async with raw.listening(tls) as port:
        url = f"https://localhost:{port}"
        for server, is_trusted in [
            (Server(url, str(ours), tls_name="kubernetes"), True),
            (Server(url, str(ours)), False),  # another name
            (Server(url, str(theirs), tls_name="kubernetes"), False),
            (Server(url, str(theirs), is_verified=False), True),
            (Server(url, str(pinned), is_pinned=True), True),  # whatever its name
            (Server(url, str(another), is_pinned=True), False),
        ]:
            client = HttpClient(server)
            if is_trusted:
                assert (await get(client)).body == b"hello"
            else:
                with pytest.raises(ssl.SSLCertVerificationError):
                    await get(client)
            await client.close()


async def test_a_connection_cut_within_tls_is_an_error_and_no_end_of_a_body(tls: Transport) -> None:
    """Otherwise whoever can cut a connection could shorten a body that ends with it."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(TO_THE_END)
        await writer.drain()
        writer.transport.abort()
        done.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls.server_tls)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(Server(f"https://localhost:{port}", tls.authority_file))
    with pytest.raises(ConnectionResetError):
        await get(client, may_retry=False)
    await done.wait()
    await client.close()
    server.close()


async def test_a_connection_goes_on_with_the_session_of_another(tls: Transport) -> None:
    resumed: list[bool] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        resumed.append(writer.get_extra_info("ssl_object").session_reused)
        while await reader.read(1024):
            writer.write(HELLO)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls.server_tls)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(Server(f"https://localhost:{port}", tls.authority_file))
    await get(client)
    await asyncio.gather(get(client), get(client))
    await client.close()
    server.close()
    assert resumed == [False, True]


async def test_a_session_that_a_restarted_server_does_not_know_is_replaced(tmp_path: Path) -> None:
    authority, resumed, port = Authority("ours"), list[bool](), 0
    (tmp_path / "ca").write_bytes(authority.pem)
    files, writers = authority.server("localhost").write(tmp_path, "server"), set[Any]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        resumed.append(writer.get_extra_info("ssl_object").session_reused)
        writers.add(writer)
        while await reader.read(1024):
            writer.write(HELLO)

    client: HttpClient | None = None
    for _ in range(2):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=context)
        port = server.sockets[0].getsockname()[1]
        client = client or HttpClient(Server(f"https://localhost:{port}", str(tmp_path / "ca")))
        await get(client)
        await asyncio.gather(get(client), get(client))
        server.close()
        for writer in writers:
            writer.transport.abort()
        while client.is_open:  # noqa: ASYNC110 - sockets
            await asyncio.sleep(0)
    assert resumed == [False, True, False, True]


async def test_a_handshake_that_is_given_up_leaves_no_connection(tls: Transport) -> None:
    came, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        while await reader.read(1024):
            pass
        left.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(Server(f"https://localhost:{port}", tls.authority_file))
    asking = asyncio.create_task(get(client))
    await came.wait()
    asking.cancel()
    async with within():
        await left.wait()
    await client.close()
    server.close()


def test_certificates_are_given_by_name() -> None:
    """By place, a new one takes what was meant for another."""
    with pytest.raises(TypeError):
        Server("https://host", "ca.pem", "client.pem", "client.key")  # type: ignore[call-arg]
