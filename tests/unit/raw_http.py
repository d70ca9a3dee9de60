"""Servers that send, byte by byte, what a test of the HTTP client wants."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ccm.http import HttpResponse
from ccm.http_client import IDLE_TIMEOUT, HttpClient
from ccm.tls import Server
from tests.support.deadlines import within
from tests.support.pki import Authority
from tests.support.waiting import until

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Word: yes\r\n\r\nhello"
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


class Transport:
    """What is below HTTP: TLS, or nothing."""

    def __init__(self, authority_file: Path | None = None) -> None:
        self.scheme = "https" if authority_file else "http"
        self.authority_file = str(authority_file or "")
        self.server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if authority_file else None


class RawHttp:
    """Makes such servers, with clients for them, over plain TCP or TLS."""

    def __init__(self, below: Transport) -> None:
        self._below = below

    @asynccontextmanager
    async def __call__(
        self, *responses: list[object], path: str = "", idle_timeout: float = IDLE_TIMEOUT
    ) -> AsyncIterator[tuple[RawServer, HttpClient]]:
        raw, below = RawServer(*responses), self._below
        async with raw.listening(below.server_tls) as port:
            server = Server(f"{below.scheme}://localhost:{port}{path}", below.authority_file)
            client = HttpClient(server, idle_timeout=idle_timeout)
            try:
                async with within():
                    yield raw, client
            finally:
                await client.close()


def tls_transport(directory: Path) -> Transport:
    """TLS with an authority of its own, whose files are in this folder."""
    authority = Authority("ours")
    (directory / "ca").write_bytes(authority.pem)
    made = Transport(directory / "ca")
    assert made.server_tls
    made.server_tls.load_cert_chain(*authority.server("localhost").write(directory, "server"))
    return made


async def get(client: HttpClient, may_retry: bool = True) -> HttpResponse:
    return await client.request("GET", "/x", (), may_retry=may_retry)
