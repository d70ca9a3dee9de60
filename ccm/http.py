"""HTTP/1.1 to one server: kept connections, whole answers and streams, and nothing more.

A general client costs more than twice the CPU a request, and requests are most of what a worker
does (docs/performance.md). `httptools` parses, `asyncio` does TLS, `aiohappyeyeballs` connects.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import quote, urlencode, urlsplit

import httptools
from aiohappyeyeballs import AddrInfoType, start_connection

from ccm.model.server import Server

IDLE = 30.0  # seconds a connection is kept for the next request: servers close theirs later
RACE = 0.25  # seconds until the next address is tried as well (RFC 8305)
FULL = 1 << 20  # bytes of a stream that wait to be read before its connection is not read any more
LOST = (ConnectionResetError, BrokenPipeError)  # the other end closed it
_SAFE = "/:@!$&'()*+,;=~%"  # what a path may have, and what is quoted already

Headers = Iterable[tuple[str, str]]
SocketFor = Callable[[AddrInfoType], socket.socket]


@dataclass(frozen=True, slots=True)
class Answer:
    """Status line, headers by their names in lower case, and the body; a stream's comes later."""

    status: int
    reason: str
    headers: dict[bytes, bytes]
    body: bytes = b""

    def header(self, name: str) -> str:
        """The value of a header, empty when there is none."""
        return self.headers.get(name.lower().encode(), b"").decode("latin-1")


@dataclass(slots=True)
class _Arrived:
    """What is there of the answer to one request."""

    status: int = 0
    reason: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0  # of the chunks, in bytes
    has_begun: bool = False
    has_head: bool = False
    is_whole: bool = False
    stays: bool = False  # the server keeps the connection for another request

    def answer(self, body: bytes = b"") -> Answer:
        return Answer(self.status, self.reason.decode("latin-1"), self.headers, body)


class Connection(asyncio.Protocol):
    """One connection, with one request at a time on it. Raises `OSError` whenever it breaks."""

    def __init__(
        self, made: "Callable[[Connection], None]", lost: "Callable[[Connection], None]"
    ) -> None:
        self._made, self._lost = made, lost
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_awaited: Callable[[], object] = lambda: False
        self._error: OSError | None = None
        self._now = _Arrived(is_whole=True)  # nothing was asked yet
        # Kept, because before Python 3.12 to ask for it costs a system call.
        self._loop = asyncio.get_running_loop()
        self.idle_since = 0.0

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow: the last answer was read, and the server goes on."""
        return self._error is None and self._now.is_whole and self._now.stays

    @property
    def has_begun(self) -> bool:
        """Whether any of the answer to the last request is there."""
        return self._now.has_begun

    def send(self, request: bytes) -> None:
        """Send a request."""
        self._now = _Arrived()
        assert self._transport
        self._transport.write(request)

    async def head(self) -> Answer:
        """What the server says before the body."""
        await self._until(lambda: self._now.has_head)
        return self._now.answer()

    async def answer(self) -> Answer:
        """The whole answer."""
        await self._until(lambda: self._now.is_whole)
        return self._now.answer(b"".join(self._now.chunks))

    async def read(self) -> bytes:
        """What arrived of the body since the last call; nothing at its end."""
        now = self._now
        await self._until(lambda: now.is_whole or now.chunks)
        data, now.chunks, now.size = b"".join(now.chunks), [], 0
        if self._transport and not self._transport.is_reading():
            self._transport.resume_reading()
        return data

    def abort(self) -> None:
        """End it at once; a farewell of TLS would outlive the event loop."""
        self._end(ConnectionAbortedError("given up"))
        if self._transport:
            self._transport.abort()

    async def _until(self, is_so: Callable[[], object]) -> None:
        while not is_so():
            if self._error:
                raise self._error
            self._is_awaited = is_so
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done() and (self._error or self._is_awaited()):
            self._waiter.set_result(None)

    def _end(self, error: OSError) -> None:
        self._error = self._error or error
        self._wake()

    # What asyncio says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._made(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._end(ConnectionError(f"the answer is not HTTP: {error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        has_length = {b"content-length", b"transfer-encoding"} & self._now.headers.keys()
        if self._now.has_head and not has_length and exc is None:
            self._now.is_whole = True  # the end of the connection is the end of the body
        self._end(exc if isinstance(exc, OSError) else ConnectionResetError("connection closed"))
        self._lost(self)

    # What httptools found.

    def on_message_begin(self) -> None:
        if self._now.is_whole:
            self._end(ConnectionError("an answer to nothing"))
            self.abort()
        self._now.has_begun = True

    def on_status(self, status: bytes) -> None:
        self._now.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self._now.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._now.status = self._parser.get_status_code()
        if self._now.status < 200:  # this only says that more will come
            self._now = _Arrived(has_begun=True)
            return
        self._now.has_head = True
        self._wake()

    def on_body(self, body: bytes) -> None:
        now = self._now
        now.chunks.append(body)
        now.size += len(body)
        if now.size > FULL and self._waiter is None and self._transport:
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        self._now.is_whole = self._now.has_head
        self._now.stays = self._parser.should_keep_alive()
        self._wake()


class HttpClient:
    """Requests to one server, over kept connections through sockets that `socket_for` makes."""

    def __init__(self, server: Server, socket_for: SocketFor | None = None) -> None:
        url = urlsplit(server.url)
        self._host, self._authority, self._base = url.hostname or "", url.netloc, url.path
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._tls = tls(server)
        self._tls_name = (server.tls_name or self._host) if self._tls else None
        self._socket_for = socket_for
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._closed = asyncio.Event()

    async def request(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes = b"",
        may_repeat: bool = False,
    ) -> Answer:
        """The whole answer; `may_repeat` when a kept connection turns out to be closed."""
        request = self._written(method, target, headers, body)
        while True:
            connection = self._kept()
            is_kept = connection is not None
            connection = connection or await self._connect()
            try:
                connection.send(request)
                answer = await connection.answer()
            except BaseException as error:
                connection.abort()
                was_closed = is_kept and not connection.has_begun
                if may_repeat and was_closed and isinstance(error, LOST):
                    continue
                raise
            self._keep(connection)
            return answer

    @asynccontextmanager
    async def stream(
        self, target: str, headers: Headers
    ) -> AsyncIterator[tuple[Answer, Connection]]:
        """The head of an answer, and the connection from which to read its body."""
        connection = await self._connect()
        try:
            connection.send(self._written("GET", target, headers, b""))
            yield await connection.head(), connection
        finally:
            connection.abort()

    async def close(self) -> None:
        """End all connections; returns when they are gone."""
        for connection in list(self._open):
            connection.abort()
        while self._open:
            self._closed.clear()
            await self._closed.wait()

    def _written(self, method: str, target: str, headers: Headers, body: bytes) -> bytes:
        lines = [
            f"{method} {self._base}{target} HTTP/1.1",
            f"Host: {self._authority}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        if body or method != "GET":
            lines.append(f"Content-Length: {len(body)}")
        if not all(line.isprintable() for line in lines):
            raise ValueError("a line of the request is not printable")  # and may hide another line
        return "\r\n".join((*lines, "", "")).encode("latin-1") + body

    def _kept(self) -> Connection | None:
        """The connection that was used last, unless servers are about to close it."""
        now = time.monotonic()
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < IDLE:
                return connection
            connection.abort()
        return None

    def _keep(self, connection: Connection) -> None:
        if connection.is_reusable:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.abort()

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        connected = await start_connection(
            found, happy_eyeballs_delay=RACE, socket_factory=self._socket_for
        )
        _, connection = await loop.create_connection(
            lambda: Connection(self._open.add, self._forget),
            sock=connected,
            ssl=self._tls,
            server_hostname=self._tls_name,
        )
        return connection

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._closed.set()


def tls(server: Server) -> ssl.SSLContext | None:
    """For connections to the server; None where it is plain HTTP."""
    if not server.url.startswith("https"):
        return None
    context = ssl.create_default_context(cafile=server.ca_file or None)
    if server.cert_file:
        context.load_cert_chain(server.cert_file, server.key_file or None)
    if not server.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if not server.is_strict:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def target_of(path: str, params: Mapping[str, str] | None = None) -> str:
    """Path and parameters as they go into a request line; what is quoted already stays."""
    quoted = quote(path, safe=_SAFE)
    return f"{quoted}?{urlencode(params)}" if params else quoted
