"""Accepts TLS connections for an HTTP server, and never more than the supervisor has room for."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address

from ccm.errors import CannotListen
from ccm.settings import Settings

log = logging.getLogger(__name__)

MOST = 200  # connections at the same time; watches and workers need their descriptors, too
HANDSHAKE = 10.0  # seconds for one
BACKLOG = 128
OUT_OF_ROOM = 1.0  # seconds until another try when there is no descriptor left


def listen(settings: Settings) -> socket.socket:
    """The listening socket; raises `CannotListen`, whose text names the flag."""
    where = (settings.bind_address, settings.secure_port)
    family = socket.AF_INET6 if ip_address(where[0]).version == 6 else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.permit_port_sharing:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(where)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise CannotListen(
            f"--secure-port: cannot listen on {where[0]} port {where[1]}: {error.strerror};"
            " stop what uses it, or choose another --secure-port or --bind-address"
        ) from error
    made.setblocking(False)
    return made


class Listener:
    """When there are too many connections, the oldest has to go: new ones bring the probes."""

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._socket, self._context, self._protocol = listening, context, protocol
        self._greeting: dict[asyncio.Task[None], None] = {}
        self._open: dict[asyncio.Transport, None] = {}

    async def run(self) -> None:
        """Accept for ever."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                log.warning("connection not accepted", extra={"error": str(error)})
                await asyncio.sleep(OUT_OF_ROOM)
                continue
            self._make_room()
            task = asyncio.create_task(self._greet(connection))
            self._greeting[task] = None
            task.add_done_callback(self._greeting.pop)
            await asyncio.sleep(0)  # it begins, and others get their turn while many come

    def close(self) -> None:
        """Accept no more; connections that are open are the HTTP server's."""
        self._socket.close()
        for task in self._greeting:
            task.cancel()

    def abort(self) -> None:
        """End the connections that are left: a client may not answer the TLS farewell."""
        for transport in self._open:
            transport.abort()

    def _make_room(self) -> None:
        self._open = {it: None for it in self._open if not it.is_closing()}
        if len(self._open) + len(self._greeting) < MOST:
            return
        if self._open:
            next(iter(self._open)).abort()
        else:
            next(iter(self._greeting)).cancel()

    async def _greet(self, connection: socket.socket) -> None:
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, connection, ssl=self._context, ssl_handshake_timeout=HANDSHAKE
            )
        except OSError as error:  # what a client does wrong is its own concern
            log.debug("no TLS with a client", extra={"error": str(error)})
            return
        self._open[transport] = None
