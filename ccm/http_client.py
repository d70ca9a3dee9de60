"""A client for one server: keep-alive connections, of which an idle one is used again.

A general client costs more than twice the CPU a request, and requests are most of what a worker
does (docs/performance.md).
"""

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import lru_cache
from urllib.parse import urlsplit

from ccm import redaction
from ccm.http import BODY_LIMIT, HttpConnection, HttpResponse
from ccm.redaction import register_secrets
from ccm.tls import Connector, Server, SocketFactory

log = logging.getLogger(__name__)

IDLE_TIMEOUT = 30.0  # seconds an idle connection is kept; servers close theirs later
CONNECTING_AT_ONCE = 8  # connections; more would share the same processors' time
CLOSED_BY_PEER = (ConnectionResetError, BrokenPipeError)
_IS_CREDENTIAL = re.compile("(?i)auth|token|session|cookie|secret|api-?key")  # name of a header
_LEADS_ELSEWHERE = re.compile(r"[^?]*?/(?:\.|%2e){1,2}(?:[/?]|$)|.*[ #]", re.IGNORECASE)

RequestHeaders = Iterable[tuple[str, str]]


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
        body_limit: int = BODY_LIMIT,
    ) -> HttpResponse:
        """The complete response; `may_retry` when the server had closed the idle connection.

        `before_send` is called on an open connection, right before the bytes leave; what it raises
        keeps them here. `BodyTooLarge` for more than `body_limit` bytes.
        """
        request = self._serialize(method, target, headers, body)
        while True:
            connection, is_reused = await self._idle_or_new()
            try:
                before_send()
                connection.send(request, body_limit)
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
        if not (server.cert_file and self.read_certificates(server)):
            return
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.abort()

    def read_certificates(self, server: Server) -> bool:
        """Use what is in the server's files now for new connections; False where it is unusable."""
        try:
            self._connector = Connector(server, self._socket_factory)
        except OSError as error:
            log.warning("certificates not read again", extra={"error": str(error)})
            return False
        return True

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
