"""A small HTTP/1.1 client for one server: keep-alive connections, buffered and streamed bodies.

A general client costs more than twice the CPU a request, and requests are most of what a worker
does (docs/performance.md). `httptools` parses, `ccm/tls.py` connects.
"""

import asyncio
import logging
import math
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast
from urllib.parse import quote, urlencode, urlsplit

import httptools

from ccm import redaction
from ccm.redaction import register_secrets
from ccm.tls import Connector, Server, SocketFactory, TlsProtocol

log = logging.getLogger(__name__)

IDLE_TIMEOUT = 30.0  # seconds an idle connection is kept; servers close theirs later
CONNECTING_AT_ONCE = 8  # connections; more would share the same processors' time
READ_BUFFER_LIMIT = 1 << 20  # bytes of an unread body at which the connection stops reading
HEAD_LIMIT = 64 << 10  # bytes of heads, trailers and frames of chunks
BODY_LIMIT = 64 << 20  # bytes of a buffered body: 500 Nodes of 130 KiB each
CLOSED_BY_PEER = (ConnectionResetError, BrokenPipeError)
_IS_CREDENTIAL = re.compile("(?i)auth|token|session|cookie|secret|api-?key")  # name of a header
_LEADS_ELSEWHERE = re.compile(r"[^?]*?/(?:\.|%2e){1,2}(?:[/?]|$)|.*[ #]", re.IGNORECASE)
_UNQUOTED = "/:@!$&'()*+,;=~%"  # what a path may have, and the sign of what is quoted already


class BodyTooLarge(ConnectionError):
    """The body of a response has more than `BODY_LIMIT` bytes."""


RequestHeaders = Iterable[tuple[str, str]]


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
    overhead: int = 0  # bytes of heads, of trailers, and of chunks that hold less than their frame
    has_begun: bool = False
    has_headers: bool = False
    is_complete: bool = False
    keep_alive: bool = False

    def response(self, body: bytes = b"") -> HttpResponse:
        return HttpResponse(self.status, self.reason.decode("latin-1"), self.headers, body)


class HttpConnection(TlsProtocol):
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
        self._response = _PartialResponse(is_complete=True, keep_alive=True)  # asked for nothing
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

    @property
    def expects_more(self) -> bool:
        """Whether the response to the last request is incomplete."""
        return not self._response.is_complete

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
        self._response.overhead += len(data)
        try:
            self._parser.feed_data(data)
            if self._response.overhead > HEAD_LIMIT:
                raise httptools.HttpParserError(f"heads and frames of more than {HEAD_LIMIT} bytes")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            why = error.__context__
            invalid = ConnectionError(f"invalid HTTP response: {why or error}")
            self._fail(why if isinstance(why, BodyTooLarge) else invalid)
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
            self._response = _PartialResponse(has_begun=True, overhead=self._response.overhead)
            return
        self._response.has_headers, self._response.overhead = True, 0
        self._wake()

    def on_body(self, body: bytes) -> None:
        partial = self._response
        partial.chunks.append(body)
        partial.size += len(body)
        # Each byte counts twice: the frame of a chunk may be as large as what it holds.
        partial.overhead = max(0, partial.overhead - 2 * len(body))
        if partial.size > BODY_LIMIT:
            raise BodyTooLarge(f"a body of more than {BODY_LIMIT} bytes")
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
        self._authority, self._base_path = url.netloc, url.path
        if url.scheme == "unix":
            self._authority, self._base_path = "localhost", ""
        self._socket_factory = socket_factory
        self._connector = Connector(server, socket_factory)
        self._proxy_headers: list[str] = []
        if proxy := self._connector.by_proxy:
            self._base_path = f"{url.scheme}://{url.netloc}{url.path}"
            self._proxy_headers = [*map(": ".join, proxy.headers)]
        self._connecting = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: list[HttpConnection] = []
        self._idle_timeout = idle_timeout
        self._open: set[HttpConnection] = set()
        self._closed, self._is_closing = asyncio.Event(), False
        self._is_retired = False

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
            connection, is_reused = await self._idle_or_new()
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

    async def connect(self) -> None:
        """Open a connection for a request that is about to come."""
        self._release(await self._one_of_few())

    def authenticate_again(self, server: Server) -> None:
        """Show the client certificate that is in the server's files now, if there is one.

        `server` is the same one. Without usable files, all stays as it is.
        """
        if not server.cert_file:
            return
        try:
            self._connector = Connector(server, self._socket_factory)
        except OSError as error:
            log.warning("client certificate not read again", extra={"error": str(error)})
            return
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.abort()

    @property
    def is_open(self) -> bool:
        """Whether there is any connection."""
        return bool(self._open or self._connecting)

    def retire(self) -> None:
        """Keep no connection for another request: those go by a newer client from now on."""
        self._is_retired = True
        idle, self._idle = self._idle, []
        for connection in idle:
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
        if _LEADS_ELSEWHERE.match(target):  # as an ID in it may, which someone else has written
            raise ValueError("the path of the request leads to another place than it names")
        first = f"{method} {self._base_path}{target} HTTP/1.1"
        lines = [first, f"Host: {self._authority}", *self._proxy_headers]
        if body or method != "GET":
            lines.append(f"Content-Length: {len(body)}")
        rendered = _rendered(tuple(headers), redaction.SECRETS.forgotten)
        return _joined(lines) + rendered + b"\r\n" + body

    async def _idle_or_new(self) -> tuple[HttpConnection, bool]:
        """A connection, and whether it was used before.

        Few are opened at once: the first have work while others shake hands, and those who wait
        may get one that has become idle.
        """
        while (idle := self._take_idle()) is None:
            if self._connecting < CONNECTING_AT_ONCE:
                return await self._one_of_few(), False
            await self._wait_for_turn()
        return idle, True

    async def _one_of_few(self) -> HttpConnection:
        self._connecting += 1
        try:
            return await self._connect()
        finally:
            self._connecting -= 1
            self._wake_one()

    async def _wait_for_turn(self) -> None:
        """Until a connection is free, or fewer are being opened."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._wake_one()
            raise

    def _wake_one(self) -> None:
        while self._waiting:
            if not (turn := self._waiting.popleft()).done():
                turn.set_result(None)
                return

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
        if connection.is_reusable and not self._is_retired:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
            self._wake_one()
        else:
            connection.abort()

    async def _connect(self) -> HttpConnection:
        if self._is_closing:
            raise ConnectionAbortedError("the client is closed")
        connection = HttpConnection(self._open.add, self._forget)
        await self._connector.connect(connection)
        return connection

    def _forget(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._closed.set()


@lru_cache(maxsize=64)
def _rendered(headers: tuple[tuple[str, str], ...], forgotten: int) -> bytes:
    """Headers as they are sent; most requests have those of the one before.

    A credential among them, with its scheme or without, is registered before it leaves; again once
    another one was `forgotten`, as it may be the next.
    """
    for name, value in headers:
        if _IS_CREDENTIAL.search(name):
            register_secrets(value, value.rpartition(" ")[2], value.rpartition("=")[2].strip('"'))
    return _joined([f"{name}: {value}" for name, value in headers])


def _joined(lines: list[str]) -> bytes:
    if not "".join(lines).isprintable():  # a line break would inject a header
        raise ValueError("a line of the request is not printable")
    return "\r\n".join([*lines, ""]).encode("latin-1")


def path_of(*parts: str | int) -> str:
    """The path of these parts, whatever is in them."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def request_target(path: str, params: Mapping[str, str | Sequence[str]] | None = None) -> str:
    """Path and query as they go into a request line; what is quoted already stays."""
    quoted = quote(path, safe=_UNQUOTED)
    return f"{quoted}?{urlencode(params, doseq=True)}" if params else quoted
