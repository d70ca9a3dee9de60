"""The listener: accepts connections, and closes one for another where they are too many."""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from ccm.background import call_until_done, start_task
from ccm.decide.budget import Allowances
from ccm.supervisor.https.connection import BoundedTls
from ccm.supervisor.listening import LOOPBACK, network_of

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 200  # with TLS, at the same time; watches and workers need descriptors, too
MAX_HANDSHAKES = 600
"""Beside those: as many as begin at once (below), and in the 0.4 s that a client may need for its
part: a thousand at once, of which a third began, had a probe closed in its handshake."""
ACCEPTED_AT_ONCE = 64  # connections, in one turn of the loop, which may be a long one
HANDSHAKES, HANDSHAKE_PAUSE = 20, 0.2
"""So many connections of one address at once, then one in so many seconds, whatever comes on them:
each may take milliseconds of the loop that renews the Lease."""
ALL_HANDSHAKES, ALL_PAUSE = 500, 0.004  # the same of this host, and of all others together
MOST_ADDRESSES = 10_000  # whose connections are counted
TLS_HANDSHAKE = b"\x16"  # the first byte of a client
ACCEPT_RETRY_DELAY = 1.0  # seconds until another try when there is no descriptor left

LOCAL = ""
"""In place of the address of a client on this host, such as the kubelet with its probes."""


def to_close(
    held: Mapping[T, str], limit: int, is_known: Callable[[T], bool] = lambda _: False
) -> T | None:
    """The connection that makes room for one more; None while there is room.

    `held` has the clients' addresses, the oldest connection first. It is the oldest one of the
    address that holds most of them, first among those that are not known. This host's own come
    last, as long as they are no more than half of all: it may have more users than its kubelet.
    """
    if len(held) < limit:
        return None
    local = {item: address for item, address in held.items() if address == LOCAL}
    remote = {item: address for item, address in held.items() if address != LOCAL}
    among = local if 2 * len(local) > limit else remote or held
    among = {item: address for item, address in among.items() if not is_known(item)} or among
    counts = Counter(among.values())
    most = max(counts, key=lambda address: counts[address])
    return next(item for item, address in among.items() if address == most)


class TlsListener:
    """Accepts connections; those in their handshake, silent ones too, have room of their own."""

    def __init__(
        self,
        listening: socket.socket,
        make_tls: Callable[[str, Callable[[BoundedTls], object]], BoundedTls],
    ) -> None:
        """`make_tls` is given the client's address, and what to call when it is lost."""
        self._socket, self._make_tls = listening, make_tls
        # The client's address of each, the oldest first, until its socket is closed.
        self._handshakes: dict[BoundedTls, str] = {}
        self._open: dict[BoundedTls, str] = {}
        self._allowances = Allowances[str](HANDSHAKES, HANDSHAKE_PAUSE, MOST_ADDRESSES)
        # By whether they are local, and have spoken: a probe has, whatever stays silent beside it.
        self._of_all = Allowances[tuple[bool, bool]](ALL_HANDSHAKES, ALL_PAUSE, 4)

    async def run(self) -> None:
        """Accept for ever."""
        loop = asyncio.get_running_loop()
        while True:
            failed: asyncio.Future[OSError] = loop.create_future()
            loop.add_reader(self._socket, call_until_done, self._accept, failed)
            try:
                error = await failed
            finally:
                loop.remove_reader(self._socket)
            log.warning("connection not accepted", extra={"error": str(error)})
            await asyncio.sleep(ACCEPT_RETRY_DELAY)

    def close(self) -> None:
        """Accept no more, once `run` ended; open connections are left to the HTTP server."""
        self._socket.close()
        for tls in [*self._handshakes]:
            tls.abort()

    def abort(self) -> None:
        """Abort the connections that are left: a client may not answer the close_notify of TLS."""
        for tls in self._open:
            tls.abort()

    def _accept(self, failed: "asyncio.Future[OSError]") -> None:
        """Accept those that wait; other tasks run between when they are many."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if not failed.done():
                    failed.set_result(error)
                return
            connection.setblocking(False)
            self._begin(connection, _client_address(connection))

    def _begin(self, connection: socket.socket, address: str) -> None:
        """What is refused, is closed already, or begins no TLS, does not cost a task."""
        first = _first_byte(connection)
        is_refused = self._is_refused(address, bool(first))
        if is_refused or first not in (TLS_HANDSHAKE, None):
            connection.close()
            return
        tls = self._make_tls(address, self._forget)
        tls.has_spoken = bool(first)
        _hold(tls, address, self._handshakes, MAX_HANDSHAKES)
        tls.handshake = start_task(
            self._serve(tls, connection), partial(self._end, tls, connection)
        )

    def _is_refused(self, address: str, has_spoken: bool) -> bool:
        is_local, now = address == LOCAL, time.monotonic()
        is_one_too_many = not is_local and self._allowances.take(address, now)
        return bool(is_one_too_many or self._of_all.take((is_local, has_spoken), now))

    async def _serve(self, tls: BoundedTls, connection: socket.socket) -> None:
        try:
            await tls.shake_hands(connection)
        except OSError as error:  # the client's fault
            log.debug("TLS handshake failed", extra={"error": str(error)})
            error.with_traceback(None)  # it has what has the connection, which has the error
            return
        if tls in self._handshakes:  # not lost meanwhile
            _hold(tls, self._handshakes.pop(tls), self._open, MAX_CONNECTIONS)

    def _end(self, tls: BoundedTls, connection: socket.socket, _: "asyncio.Task[None]") -> None:
        tls.handshake = None
        if tls not in self._open:
            tls.abort()
            connection.close()  # which nothing else does where the task was cancelled before

    def _forget(self, tls: BoundedTls) -> None:
        self._handshakes.pop(tls, None)
        self._open.pop(tls, None)


def _hold(tls: BoundedTls, address: str, held: dict[BoundedTls, str], limit: int) -> None:
    """Among those that are held; another one is closed where they are too many."""
    if oldest := to_close(held, limit, lambda it: it.is_known):
        del held[oldest]
        oldest.abort()
    held[tls] = address


def _first_byte(connection: socket.socket) -> bytes | None:
    """What the client sent first, which stays to be read; None of a silent one."""
    try:
        return connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    except OSError:  # it is gone by now
        return b""


def _client_address(connection: socket.socket) -> str:
    """Its network, or `LOCAL` for this host."""
    try:
        client, server = connection.getpeername()[0], connection.getsockname()[0]
    except OSError:  # it is gone by now
        return "unknown"
    network = network_of(client)
    return LOCAL if client == server or network.startswith(LOOPBACK) else network
