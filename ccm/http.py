"""HTTP/1.1: a connection with its responses, buffered and streamed, and the targets of requests.

`httptools` parses, `ccm/tls.py` connects, `ccm/http_client.py` sends.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import quote, urlencode

import httptools

from ccm.tls import TlsProtocol

READ_BUFFER_LIMIT = 1 << 20  # bytes of an unread body at which the connection stops reading
HEAD_LIMIT = 64 << 10  # bytes of heads, trailers and frames of chunks
BODY_LIMIT = 64 << 20  # bytes of a buffered body: 500 Nodes of 130 KiB each
_UNQUOTED = "/:@!$&'()*+,;=~%"  # what a path may have, and the sign of what is quoted already


class BodyTooLarge(ConnectionError):
    """The body of a response has more bytes than its request takes."""


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
    body_limit: int = BODY_LIMIT  # of them
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

    def send(self, request: bytes, body_limit: int = BODY_LIMIT) -> None:
        """Send a serialized request, for a body of at most so many bytes."""
        self._response = _PartialResponse(body_limit=body_limit)
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
            before = self._response
            self._response = _PartialResponse(
                has_begun=True, overhead=before.overhead, body_limit=before.body_limit
            )
            return
        self._response.has_headers, self._response.overhead = True, 0
        self._wake()

    def on_body(self, body: bytes) -> None:
        partial = self._response
        partial.chunks.append(body)
        partial.size += len(body)
        # Each byte counts twice: the frame of a chunk may be as large as what it holds.
        partial.overhead = max(0, partial.overhead - 2 * len(body))
        if partial.size > (limit := min(partial.body_limit, BODY_LIMIT)):
            raise BodyTooLarge(f"a body of more than {limit} bytes")
        if partial.size > READ_BUFFER_LIMIT and self._waiter is None and self._transport:
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        self._response.is_complete = self._response.has_headers
        self._response.keep_alive = self._parser.should_keep_alive()
        self._wake()


def path_of(*parts: str | int) -> str:
    """The path of these parts, whatever is in them."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def request_target(path: str, params: Mapping[str, str | Sequence[str]] | None = None) -> str:
    """Path and query as they go into a request line; what is quoted already stays."""
    quoted = quote(path, safe=_UNQUOTED)
    return f"{quoted}?{urlencode(params, doseq=True)}" if params else quoted
