"""One client's connection: asyncio's TLS with bounds, and what stands between that and aiohttp.

`connect_accepted_socket(ssl=…)` reads 256 KiB of a client in one turn of the loop: up to 10,000 new
keys. It does not limit what is no data, and does not report when the socket is closed. The class
behind it is not documented, but what is used of it here is the same from Python 3.11 to 3.14: the
constructor, `max_size`, the limit of what waits to be decrypted, and a step of a handshake.
"""

import asyncio
import socket
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable

from aiohttp import web

from ccm.background import call_later
from ccm.decide.budget import RoundRobin

MAX_READ = 4 << 10  # bytes of a client in one turn of the loop
MAX_OVERHEAD = 24 << 10
"""Bytes of a handshake, and then of what is no data; a record of 16 KiB is none until it ends."""
MAX_UNHANDLED = 64 << 10  # bytes of requests that a client may send before they are handled
MAX_UNSENT = 64 << 10  # bytes of answers that wait for a client before its next request does
MAX_WAIT = 30.0  # seconds that these wait for a client that reads none
TURN = 0.005  # seconds of the processor for who is not permitted, in one turn of the loop
SHARE = 0.125  # of the time, where these come without end
SAVED = 0.4  # seconds of rest that a quiet time makes up for: a few handshakes wait for none


class BoundedClient(asyncio.Protocol):
    """Between TLS and aiohttp: ends a client that sends too much before its requests are handled.

    aiohttp keeps 32 requests of a connection, each with a head of a megabyte, complete or not.
    Bodies are never handled, so all of one connection count: nothing here takes more than a number.
    """

    def __init__(self, http: asyncio.Protocol) -> None:
        self._http = http
        self.transport: asyncio.Transport | None = None
        self.overhead = 0  # bytes that came, without data and as much again for its records
        self.is_permitted = False  # it had a request that not everyone is permitted
        self._unhandled = 0
        self._end: asyncio.TimerHandle | None = None

    def on_request(self, request: web.BaseRequest) -> None:
        """This one is handled now."""
        head = len(f"{request.method} {request.raw_path} HTTP/1.1\r\n\r\n")
        head += sum(len(name) + len(value) + 4 for name, value in request.raw_headers)
        self._unhandled = max(self._unhandled - head, 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(MAX_UNSENT)
        self.transport, self.overhead = transport, 0
        self._http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.overhead = max(self.overhead - 2 * len(data), 0)
        self._unhandled += len(data)
        if self._unhandled > MAX_UNHANDLED and self.transport:
            self.transport.abort()
        else:
            self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._http.connection_lost(error)
        self._reads_again()

    def pause_writing(self) -> None:
        assert self.transport
        self._end = call_later(MAX_WAIT, self.transport.abort)
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._reads_again()
        self._http.resume_writing()

    def _reads_again(self) -> None:
        if self._end:
            self._end.cancel()


def client_of(request: web.BaseRequest) -> BoundedClient | None:
    """Whose request it is; None once its connection is lost."""
    client = request.transport.get_protocol() if request.transport else None
    return client if isinstance(client, BoundedClient) else None


class PacedCalls:
    """Work that takes milliseconds: `TURN` of what waits is done in a turn of the loop, and most of
    the time is for all else.

    Owners take turns. Of each, what is added with `is_first` goes before all else, as the clients
    of handshakes give up where there is more than can be done.
    """

    def __init__(self) -> None:
        self._waiting = RoundRobin[Callable[[], object]]()
        self._is_due, self._rests_until = False, 0.0

    def add(self, owner: str, work: Callable[[], object], is_first: bool = True) -> None:
        """Do it in its turn, once however often it was added until then."""
        self._waiting.add(owner, work, is_first)
        self._call()

    def remove(self, owner: str, work: Callable[[], object]) -> None:
        """It is not to be done any more, if it waits."""
        self._waiting.discard(owner, work)

    def _call(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            call_later(max(0.0, self._rests_until - time.monotonic()), self._do_some)

    def _do_some(self) -> None:
        began = time.thread_time()
        try:
            while self._waiting:
                self._waiting.pop()()
                if time.thread_time() - began >= TURN:
                    break
        finally:
            rested = max(self._rests_until, time.monotonic() - SAVED)
            self._rests_until = rested + (time.thread_time() - began) / SHARE
            self._is_due = False
            self._call()


class BoundedTls(SSLProtocol):
    """TLS of one client: ends one that sends what is no data, and reads little of it at a time.

    Handshakes, and what comes of who had no permitted request, take `TURN` at most in a turn of the
    loop, and one piece more; then they rest.
    """

    max_size = MAX_READ

    def __init__(
        self,
        client: BoundedClient,
        context: ssl.SSLContext,
        timeout: float,
        paced: PacedCalls,
        address: str,
        on_lost: Callable[["BoundedTls"], object],
    ) -> None:
        """`timeout`: seconds for the handshake; `address`: the client's."""
        self._paced, self._address, self._arrived = paced, address, 0
        self._reader = f"{address} reads"  # has turns apart from those of its handshakes
        loop = asyncio.get_running_loop()
        self._is_ready = loop.create_future()
        super().__init__(
            loop,
            client,
            context,
            self._is_ready,
            server_side=True,
            ssl_handshake_timeout=timeout,  # type: ignore[arg-type]  # it may be a float
        )
        self._app_transport.set_read_buffer_limits(MAX_READ)  # while the client's requests wait
        self.client, self._on_lost = client, on_lost
        self.has_spoken = False
        self.handshake: asyncio.Task[None] | None = None  # of who accepted the connection
        self._raw: asyncio.Transport | None = None

    @property
    def is_known(self) -> bool:
        """Whether it had a permitted request; until TLS is set up, whether it has spoken."""
        return self.client.is_permitted if self._is_ready.done() else self.has_spoken

    async def shake_hands(self, connection: socket.socket) -> None:
        """Raises OSError; what was lost meanwhile for another reason is done, too."""
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self, connection)
        await self._is_ready

    def abort(self) -> None:
        """Close the socket, whatever TLS or the client wait for."""
        if self.handshake:
            self.handshake.cancel()
        if self._raw:
            self._raw.abort()
        else:
            self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._raw = transport
        super().connection_made(transport)

    def buffer_updated(self, nbytes: int) -> None:
        self.has_spoken = True
        self.client.overhead += nbytes
        if self.client.overhead > MAX_OVERHEAD:
            self.abort()
        elif self._is_ready.done() and not self.client.is_permitted:
            assert self._raw
            self._raw.pause_reading()  # what came stays in the buffer until its turn
            self._arrived = nbytes
            self._paced.add(self._reader, self._go_on_reading, is_first=False)
        else:
            super().buffer_updated(nbytes)

    def _go_on_reading(self) -> None:
        assert self._raw
        self._raw.resume_reading()
        super().buffer_updated(self._arrived)

    def _do_handshake(self) -> None:
        assert self._raw
        self._raw.pause_reading()  # what comes meanwhile stays with the kernel
        self._paced.add(self._address, self._go_on_shaking_hands)

    def _go_on_shaking_hands(self) -> None:
        assert self._raw
        self._raw.resume_reading()
        if not self._is_ready.done():
            super()._do_handshake()  # type: ignore[misc]  # it is not documented

    def connection_lost(self, error: BaseException | None) -> None:
        super().connection_lost(error)
        self._paced.remove(self._address, self._go_on_shaking_hands)
        self._paced.remove(self._reader, self._go_on_reading)
        self._on_lost(self)
