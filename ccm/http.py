"""A small HTTP/1.1 client for one server: keep-alive connections, buffered and streamed bodies.

A general client costs more than twice the CPU a request, and requests are most of what a worker
does (docs/performance.md). `httptools` parses, `asyncio` does TLS, `aiohappyeyeballs` connects.
"""

import asyncio
import math
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import cast
from urllib.parse import quote, urlencode, urlsplit

import httptools
from aiohappyeyeballs import AddrInfoType, start_connection

IDLE_TIMEOUT = 30.0  # seconds an idle connection is kept; servers close theirs later
HAPPY_EYEBALLS_DELAY = 0.25  # seconds until the next address is tried as well (RFC 8305)
READ_BUFFER_LIMIT = 1 << 20  # bytes of an unread body at which the connection stops reading
HEAD_LIMIT = 64 << 10  # bytes that may arrive before headers are complete or after the body
BODY_LIMIT = 64 << 20  # bytes of a buffered body: 500 Nodes of 130 KiB each
CLOSED_BY_PEER = (ConnectionResetError, BrokenPipeError)
_UNQUOTED = "/:@!$&'()*+,;=~%"  # what a path may have, and the sign of what is quoted already

RequestHeaders = Iterable[tuple[str, str]]
SocketFactory = Callable[[AddrInfoType], socket.socket]


@dataclass(frozen=True, slots=True)
class Server:
    """An address, and the files with which both ends authenticate.

    `url` may be `unix:///<path>` of a socket. `tls_name` is the name in its certificate, when that
    is not the host of `url`; with `is_pinned` the name does not count, as `ca_file` is the server's
    very certificate. Without `is_strict`, certificates may bend RFC 5280, as those of old clusters
    do.
    """

    url: str
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    tls_name: str = ""
    is_verified: bool = True
    is_strict: bool = True
    is_pinned: bool = False

    def without_certificate(self) -> "Server":
        """For a client with a bearer token: a client certificate would win over it."""
        return replace(self, cert_file="", key_file="")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Status line, headers by lower-case name, and the body: empty where it is streamed."""

    status: int
    reason: str
    headers: dict[bytes, bytes]
    body: bytes = b""

    def header(self, name: str) -> str:
        """The value of a header; empty without it."""
        return self.headers.get(name.lower().encode(), b"").decode("latin-1")

    @property
    def retry_after(self) -> float | None:
        """The seconds of its `Retry-After`; None when it has none or another form."""
        try:
            seconds = float(self.header("Retry-After"))
        except ValueError:
            return None
        return seconds if 0 <= seconds < math.inf else None


@dataclass(slots=True)
class _PartialResponse:
    """What has arrived of the response to one request."""

    status: int = 0
    reason: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0  # of the chunks, in bytes
    head_size: int = 0  # what arrived since the last of them
    has_begun: bool = False
    has_headers: bool = False
    is_complete: bool = False
    keep_alive: bool = False

    def response(self, body: bytes = b"") -> HttpResponse:
        return HttpResponse(self.status, self.reason.decode("latin-1"), self.headers, body)


class HttpConnection(asyncio.Protocol):
    """One connection, with one request at a time on it; raises `OSError` whenever it breaks."""

    def __init__(
        self,
        on_open: "Callable[[HttpConnection], None]",
        on_closed: "Callable[[HttpConnection], None]",
    ) -> None:
        self._on_open, self._on_closed = on_open, on_closed
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._awaited: Callable[[], object] = lambda: False
        self._error: OSError | None = None
        self._response = _PartialResponse(is_complete=True)  # no request was sent yet
        # Kept, because before Python 3.12 to ask for it costs a system call.
        self._loop = asyncio.get_running_loop()
        self.idle_since = 0.0

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow: response complete, and the server keeps it alive."""
        return self._error is None and self._response.is_complete and self._response.keep_alive

    @property
    def has_begun(self) -> bool:
        """Whether any of the response to the last request has arrived."""
        return self._response.has_begun

    def send(self, request: bytes) -> None:
        """Send a serialized request."""
        self._response = _PartialResponse()
        assert self._transport
        self._transport.write(request)

    async def head(self) -> HttpResponse:
        """Status and headers, as soon as they are there."""
        await self._until(lambda: self._response.has_headers)
        return self._response.response()

    async def response(self) -> HttpResponse:
        """The complete response."""
        await self._until(lambda: self._response.is_complete)
        return self._response.response(b"".join(self._response.chunks))

    async def read(self) -> bytes:
        """What arrived of the body since the last call; empty at its end."""
        partial = self._response
        await self._until(lambda: partial.is_complete or partial.chunks)
        data, partial.chunks, partial.size = b"".join(partial.chunks), [], 0
        if self._transport and not self._transport.is_reading():
            self._transport.resume_reading()
        return data

    def abort(self) -> None:
        """Close at once, without the close_notify of TLS, which would outlive the event loop."""
        self._fail(ConnectionAbortedError("connection aborted by this client"))
        if self._transport:
            self._transport.abort()

    async def _until(self, condition: Callable[[], object]) -> None:
        while not condition():
            if self._error:
                raise self._error
            self._awaited = condition
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done() and (self._error or self._awaited()):
            self._waiter.set_result(None)

    def _fail(self, error: OSError) -> None:
        self._error = self._error or error
        self._wake()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self._response.head_size += len(data)
        try:
            self._parser.feed_data(data)
            if self._response.head_size > HEAD_LIMIT:
                raise httptools.HttpParserError(f"a head of more than {HEAD_LIMIT} bytes")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"invalid HTTP response: {error.__context__ or error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        has_length = {b"content-length", b"transfer-encoding"} & self._response.headers.keys()
        if self._response.has_headers and not has_length and exc is None:
            self._response.is_complete = True  # the end of the connection is the end of the body
        self._fail(exc if isinstance(exc, OSError) else ConnectionResetError("connection closed"))
        self._on_closed(self)

    # Callbacks of httptools.

    def on_message_begin(self) -> None:
        if self._response.is_complete:  # its bytes must not reach the response that is there
            raise ConnectionError("unsolicited response")
        self._response.has_begun = True

    def on_status(self, status: bytes) -> None:
        self._response.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self._response.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._response.status = self._parser.get_status_code()
        if self._response.status < 200:  # informational: the final response follows
            self._response = _PartialResponse(has_begun=True)
            return
        self._response.has_headers, self._response.head_size = True, 0
        self._wake()

    def on_body(self, body: bytes) -> None:
        partial = self._response
        partial.chunks.append(body)
        partial.size, partial.head_size = partial.size + len(body), 0
        if partial.size > BODY_LIMIT:
            raise ConnectionError(f"a body of more than {BODY_LIMIT} bytes")
        if partial.size > READ_BUFFER_LIMIT and self._waiter is None and self._transport:
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        self._response.is_complete = self._response.has_headers
        self._response.keep_alive = self._parser.should_keep_alive()
        self._wake()


class HttpClient:
    """Sends requests to one server over keep-alive connections; an idle one is used again."""

    def __init__(
        self,
        server: Server,
        socket_factory: SocketFactory | None = None,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        url = urlsplit(server.url)
        self._host, self._authority, self._base_path = url.hostname or "", url.netloc, url.path
        self._socket_path = ""
        if url.scheme == "unix":
            self._socket_path, self._authority, self._base_path = url.path, "localhost", ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._tls = client_tls(server)
        self._tls_name = (server.tls_name or self._host) if self._tls else None
        self._socket_factory = socket_factory
        self._idle: list[HttpConnection] = []
        self._idle_timeout = idle_timeout
        self._open: set[HttpConnection] = set()
        self._closed, self._is_closing = asyncio.Event(), False

    async def request(
        self,
        method: str,
        target: str,
        headers: RequestHeaders,
        body: bytes = b"",
        may_retry: bool = False,
        before_send: Callable[[], None] = lambda: None,
    ) -> HttpResponse:
        """The complete response; `may_retry` when the server had closed the idle connection.

        `before_send` is called on an open connection, right before the bytes leave; what it raises
        keeps them here.
        """
        request = self._serialize(method, target, headers, body)
        while True:
            connection = self._take_idle()
            is_reused = connection is not None
            connection = connection or await self._connect()
            try:
                before_send()
                connection.send(request)
                response = await connection.response()
            except BaseException as error:
                connection.abort()
                was_closed = is_reused and not connection.has_begun
                if may_retry and was_closed and isinstance(error, CLOSED_BY_PEER):
                    continue
                raise
            self._release(connection)
            return response

    @asynccontextmanager
    async def stream(
        self, target: str, headers: RequestHeaders
    ) -> AsyncIterator[tuple[HttpResponse, HttpConnection]]:
        """GET: status and headers, and the connection from which to `read` the body."""
        connection = await self._connect()
        try:
            connection.send(self._serialize("GET", target, headers, b""))
            yield await connection.head(), connection
        finally:
            connection.abort()

    async def close(self) -> None:
        """Abort all connections, and open no more; returns when they are closed."""
        self._is_closing = True
        while self._open:
            for connection in list(self._open):
                connection.abort()
            self._closed.clear()
            await self._closed.wait()

    def _serialize(self, method: str, target: str, headers: RequestHeaders, body: bytes) -> bytes:
        lines = [
            f"{method} {self._base_path}{target} HTTP/1.1",
            f"Host: {self._authority}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        if body or method != "GET":
            lines.append(f"Content-Length: {len(body)}")
        if not all(line.isprintable() for line in lines):  # a line break would inject a header
            raise ValueError("a line of the request is not printable")
        return "\r\n".join((*lines, "", "")).encode("latin-1") + body

    def _take_idle(self) -> HttpConnection | None:
        """The connection that was used last, unless servers are about to close it."""
        now = time.monotonic()
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < self._idle_timeout:
                return connection
            connection.abort()
        return None

    def _release(self, connection: HttpConnection) -> None:
        if connection.is_reusable:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.abort()

    async def _connect(self) -> HttpConnection:
        if self._is_closing:
            raise ConnectionAbortedError("the client is closed")
        loop = asyncio.get_running_loop()
        if self._socket_path:
            _, connection = await loop.create_unix_connection(
                lambda: HttpConnection(self._open.add, self._forget), self._socket_path
            )
            return connection
        addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        connected = await start_connection(
            addresses,
            happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY,
            socket_factory=self._socket_factory,
        )
        _, connection = await loop.create_connection(
            lambda: HttpConnection(self._open.add, self._forget),
            sock=connected,
            ssl=self._tls,
            server_hostname=self._tls_name,
        )
        return connection

    def _forget(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._closed.set()


def client_tls(server: Server) -> ssl.SSLContext | None:
    """The TLS context for connections to the server; None for plain HTTP."""
    if not server.url.startswith("https"):
        return None
    context = ssl.create_default_context(cafile=server.ca_file or None)
    if server.cert_file:
        context.load_cert_chain(server.cert_file, server.key_file or None)
    context.check_hostname = server.is_verified and not server.is_pinned
    if not server.is_verified:
        context.verify_mode = ssl.CERT_NONE
    if server.is_pinned:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not server.is_strict:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def request_target(path: str, params: Mapping[str, str] | None = None) -> str:
    """Path and query as they go into a request line; what is quoted already stays."""
    quoted = quote(path, safe=_UNQUOTED)
    return f"{quoted}?{urlencode(params)}" if params else quoted
