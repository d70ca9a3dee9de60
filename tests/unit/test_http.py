"""The HTTP client against servers that send, byte by byte, what a test wants."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ccm import http
from ccm.http import IDLE_TIMEOUT, HttpClient, HttpResponse, Server, request_target
from ccm.processes import resident_bytes
from tests.https.pki import Authority
from tests.worlds.waiting import DEADLINE, until

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Word: yes\r\n\r\nhello"
NO_BODY = b"HTTP/1.1 204 No Content\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
TO_THE_END = b"HTTP/1.0 200 OK\r\n\r\nhello"
BEFORE = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + HELLO
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

CLOSE = object()  # in place of bytes: the server closes the connection


class RawServer:
    """Answers the n-th request with the n-th of `responses`, part by part."""

    def __init__(self, *responses: list[object]) -> None:
        self.responses = list(responses)
        self.requests: list[bytes] = []
        self.connections = 0
        self.open = 0

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Its port."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=tls)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await until(lambda: self.open == 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0] or 0)
                self.requests.append(head + await reader.readexactly(length))
                for part in self.responses.pop(0) if self.responses else []:
                    if part is CLOSE:
                        return
                    assert isinstance(part, bytes)
                    writer.write(part)
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client left
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def serving(
    *responses: list[object], path: str = "", idle_timeout: float = IDLE_TIMEOUT
) -> AsyncIterator[tuple[RawServer, HttpClient]]:
    raw = RawServer(*responses)
    async with raw.listening() as port:
        client = HttpClient(Server(f"http://127.0.0.1:{port}{path}"), idle_timeout=idle_timeout)
        try:
            async with asyncio.timeout(DEADLINE):
                yield raw, client
        finally:
            await client.close()


async def get(client: HttpClient, may_retry: bool = True) -> HttpResponse:
    return await client.request("GET", "/x", (), may_retry=may_retry)


def singly(data: bytes) -> list[object]:
    """Every byte by itself."""
    return [data[index : index + 1] for index in range(len(data))]


async def test_a_server_on_a_unix_socket_is_reached(tmp_path: Path) -> None:
    raw, path = RawServer([HELLO]), tmp_path / "socket"
    server, client = (
        await asyncio.start_unix_server(raw.serve, path),
        HttpClient(Server(f"unix://{path}")),
    )
    assert (await get(client)).body == b"hello"
    assert raw.requests[0].startswith(b"GET /x HTTP/1.1\r\nHost: localhost\r\n")
    await client.close()
    server.close()
    await until(lambda: raw.open == 0)


# Responses.


@pytest.mark.parametrize("text", [HELLO, CHUNKED, BEFORE], ids=["length", "chunked", "hints"])
@pytest.mark.parametrize("cut", [lambda data: [data], singly], ids=["whole", "bytes"])
async def test_a_response_is_put_together(
    text: bytes, cut: Callable[[bytes], list[object]]
) -> None:
    async with serving(cut(text), cut(HELLO)) as (raw, client):
        response = await get(client)
        assert (response.status, response.reason, response.body) == (200, "OK", b"hello")
        assert (await get(client)).header("X-WORD") == "yes"
        assert raw.connections == 1


@pytest.mark.parametrize(
    "text",
    [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"\x16\x03\x01\x00\x05" * 4],
)
async def test_what_is_not_http_breaks_the_connection(text: bytes) -> None:
    async with serving([text], [HELLO]) as (raw, client):
        with pytest.raises(ConnectionError, match="invalid HTTP response"):
            await get(client)
        assert (await get(client)).body == b"hello"
        assert raw.connections == 2


@pytest.mark.parametrize("cut", [0, 1, 20, len(HELLO) - 1])
async def test_an_incomplete_response_is_an_error_and_not_retried(cut: int) -> None:
    async with serving([HELLO[:cut], CLOSE], [HELLO]) as (raw, client):
        with pytest.raises(ConnectionResetError):
            await get(client)
        assert len(raw.requests) == 1


OTHER = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX-Word: no\r\n\r\nothers"


@pytest.mark.parametrize("second", [OTHER, BEFORE, NO_BODY, OTHER[:3], b"x"])
@pytest.mark.parametrize("first", [HELLO, CHUNKED, BEFORE, NO_BODY])
async def test_two_responses_in_one_read_never_merge(first: bytes, second: bytes) -> None:
    async with serving([first + second], [HELLO]) as (raw, client):
        response = await get(client)
        assert (response.status, response.body) in ((200, b"hello"), (204, b""))
        assert response.header("X-Word") != "no"
        assert (await get(client)).body == b"hello"
        assert raw.connections == 2


ENDLESS_BODY = [STREAM, *[b"%x\r\n%b\r\n" % (1 << 20, b"x" * (1 << 20))] * 80]
ENDLESS_HEAD = [b"HTTP/1.1 200 OK\r\n", *[b"X-Word: %b\r\n" % (b"x" * 4096)] * 4000]
ENDLESS_HEADER = [b"HTTP/1.1 200 OK\r\nX-Word: ", *[b"x" * 65536] * 400]
ENDLESS_REASON = [b"HTTP/1.1 200 ", *[b"x" * 65536] * 400]
ENDLESS_TRAILER = [STREAM + b"0\r\n", *ENDLESS_HEAD[1:]]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (ENDLESS_BODY, "a body of more than 67108864 bytes"),
        (ENDLESS_HEAD, "a head of more than 65536 bytes"),
        (ENDLESS_HEADER, "a head of more than 65536 bytes"),
        (ENDLESS_REASON, "a head of more than 65536 bytes"),
        (ENDLESS_TRAILER, "a head of more than 65536 bytes"),
    ],
    ids=["body", "headers", "header", "reason", "trailer"],
)
async def test_an_answer_without_an_end_is_cut_off(parts: list[object], why: str) -> None:
    before = resident_bytes()
    async with serving(parts, [HELLO]) as (_, client):
        with pytest.raises(ConnectionError, match=why):
            await get(client)
        assert resident_bytes() - before < 150 << 20
        assert (await get(client)).body == b"hello"


# Requests.


async def test_a_request_is_serialized() -> None:
    async with serving([HELLO], path="/base") as (raw, client):
        headers = [("Accept", "application/json")]
        await client.request("PATCH", "/a?b=c", headers, b"{}")
        port = client._port
        assert raw.requests == [
            b"PATCH /base/a?b=c HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Accept: application/json\r\nContent-Length: 2\r\n\r\n{}" % port
        ]


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "\x00"])
async def test_no_header_can_be_injected(value: str) -> None:
    async with serving([HELLO]) as (raw, client):
        with pytest.raises(ValueError, match="not printable"):
            await client.request("GET", "/x", [("Authorization", value)])
        with pytest.raises(ValueError, match="not printable"):
            await client.request("GET", f"/{value}", ())
        assert raw.requests == []


@pytest.mark.parametrize(
    ("path", "params", "target"),
    [
        ("/api/v1/nodes/n-1", None, "/api/v1/nodes/n-1"),
        ("/api/a b/ü\n", None, "/api/a%20b/%C3%BC%0A"),
        ("/api/a%2Fb", None, "/api/a%2Fb"),
        ("/api?x#y", {"limit": "5", "continue": "a&b="}, "/api%3Fx%23y?limit=5&continue=a%26b%3D"),
    ],
)
def test_a_target_is_quoted_once(path: str, params: dict[str, str] | None, target: str) -> None:
    assert request_target(path, params) == target


# Connections.


async def test_side_by_side_each_request_has_a_connection_of_its_own() -> None:
    async with serving([HELLO], [HELLO], [HELLO]) as (raw, client):
        await asyncio.gather(get(client), get(client))
        await get(client)
        assert raw.connections == 2


@pytest.mark.parametrize(
    "text",
    [HELLO.replace(b"X-Word: yes", b"Connection: close"), HELLO + HELLO, TO_THE_END],
    ids=["close", "unsolicited-response", "no-length"],
)
async def test_a_connection_that_is_not_kept_alive_is_not_reused(text: bytes) -> None:
    end = [CLOSE] if text is TO_THE_END else []
    async with serving([text, *end], [HELLO]) as (raw, client):
        assert (await get(client)).body == b"hello"
        assert (await get(client)).body == b"hello"
        assert raw.connections == 2


async def test_a_late_response_is_nobodys() -> None:
    """Its request timed out; the next one must not get it."""
    async with serving([], [HELLO]) as (raw, client):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await get(client)
        await until(lambda: raw.open == 0)
        assert (await get(client)).body == b"hello"
        assert raw.connections == 2


async def test_a_connection_is_not_reused_after_the_idle_timeout() -> None:
    async with serving([HELLO], [HELLO], idle_timeout=0.0) as (raw, client):
        await get(client)
        await get(client)
        assert raw.connections == 2


async def test_an_idle_connection_that_closes_is_forgotten() -> None:
    async with serving([HELLO, CLOSE], [HELLO]) as (raw, client):
        await get(client)
        await until(lambda: not client._idle)
        await get(client, may_retry=False)
        assert raw.connections == 2


async def test_a_request_lost_on_a_reused_connection_may_be_retried() -> None:
    async with serving([HELLO], [CLOSE], [HELLO], [CLOSE], [HELLO]) as (raw, client):
        await get(client)
        assert (await get(client)).body == b"hello"
        assert len(raw.requests) == 3
        with pytest.raises(ConnectionResetError):
            await client.request("PATCH", "/x", (), b"{}")  # it may have been carried out
        assert len(raw.requests) == 4


async def test_closing_ends_every_connection() -> None:
    async with serving([HELLO], []) as (raw, client):
        await get(client)
        asking = asyncio.create_task(get(client))
        await until(lambda: len(raw.requests) == 2)
        await client.close()
        with pytest.raises(ConnectionAbortedError):
            await asking
        await until(lambda: raw.open == 0)


# Streams.


async def test_a_stream_is_read_as_it_comes() -> None:
    async with serving([STREAM, b"2\r\nhe\r\n"]) as (raw, client):
        async with client.stream("/x", ()) as (head, content):
            assert head.status == 200
            assert await content.read() == b"he"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await content.read()
        await until(lambda: raw.open == 0)


async def test_a_stream_that_breaks_gives_what_came_and_then_the_error() -> None:
    parts = [STREAM, b"2\r\nhe\r\n", CLOSE]
    async with serving(parts) as (raw, client), client.stream("/x", ()) as (_, content):
        await until(lambda: raw.open == 0)
        assert await content.read() == b"he"
        with pytest.raises(ConnectionResetError):
            await content.read()


async def test_a_stream_that_nobody_reads_is_not_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
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
