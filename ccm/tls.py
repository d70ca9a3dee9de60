"""Connections to a server: whom a client trusts, and TLS right on the socket.

asyncio has a transport of its own below TLS and a state machine above, which cost more than all the
rest of a request (docs/performance.md). OpenSSL reads and writes memory, too: of a socket it goes
through what is no data, such as new keys, in one call for as long as more of it comes.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from urllib.parse import urlsplit

from aiohappyeyeballs import AddrInfoType, start_connection

from ccm.proxy import Proxy, ProxyError, client_context, encrypt, open_tunnel, proxy_for, read_proxy

log = logging.getLogger(__name__)

HAPPY_EYEBALLS_DELAY = 0.25  # seconds until the next address is tried as well (RFC 8305)
RECORD_SIZE = 16 << 10  # bytes; nothing longer comes from OpenSSL at once, nor is given to it
RECORDS_AT_ONCE = 16  # that are read before others have their turn
MAX_OVERHEAD = 64 << 10  # bytes that came, without data and as much again for its records

SocketFactory = Callable[[AddrInfoType], socket.socket]


@dataclass(frozen=True, slots=True)
class Server:
    """An address, and the files with which both ends authenticate.

    `url` may be `unix:///<path>` of a socket. `tls_name` is the name in its certificate, when that
    is not the host of `url`; with `is_pinned` the name does not count, as `ca_file` is the server's
    very certificate. `ca_data` are certificates in PEM, which count beside those in `ca_file`.
    `proxy` is the URL of the one to go through; empty for that of the environment, if any.
    """

    url: str
    ca_file: str = ""
    _: KW_ONLY
    ca_data: str = ""
    cert_file: str = ""
    key_file: str = ""
    tls_name: str = ""
    is_verified: bool = True
    is_pinned: bool = False
    proxy: str = field(default="", repr=False)

    def without_certificate(self) -> "Server":
        """For a client with a bearer token: a client certificate would win over it."""
        return replace(self, cert_file="", key_file="")


def client_tls(server: Server) -> ssl.SSLContext | None:
    """The TLS context for connections to the server; None for plain HTTP.

    It takes every certificate that kubectl and kubelets take.
    """
    if not server.url.startswith("https"):
        return None
    for file in filter(os.path.exists, (server.ca_file, server.cert_file, server.key_file)):
        if not os.path.isfile(file):  # OpenSSL would wait until someone writes into a pipe
            raise OSError(errno.EINVAL, "it is not a regular file", file)
    context = client_context(server.ca_file, server.ca_data)
    if server.cert_file:
        # Without a pass phrase, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(server.cert_file, server.key_file or None, password="")
    context.check_hostname = server.is_verified and not server.is_pinned
    if not server.is_verified:
        context.verify_mode = ssl.CERT_NONE
    # As Go's library: each certificate that is given is trusted, an intermediate CA's, too, which
    # Python does since 3.13.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


class TlsProtocol(asyncio.Protocol, ABC):
    """What asyncio calls a protocol, which also says whether it waits for anything."""

    @property
    @abstractmethod
    def expects_more(self) -> bool:
        """Whether an end of the connection would come too early."""


@dataclass(frozen=True, slots=True)
class TlsSocket:
    """A connected socket, and what OpenSSL reads of it and writes to it."""

    socket: socket.socket
    records: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO

    def take_in(self, received: bytes) -> None:
        """Give OpenSSL what was received; nothing at the end of the connection."""
        if received:
            self.incoming.write(received)
        else:
            self.incoming.write_eof()


class Connector:
    """Opens connections to one server; `aiohappyeyeballs` tries its addresses.

    Those of TLS go by a tunnel, where there is a proxy; else it gets the requests (`by_proxy`).
    """

    def __init__(self, server: Server, socket_factory: SocketFactory | None = None) -> None:
        url = urlsplit(server.url)
        self._socket_path = url.path if url.scheme == "unix" else ""
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._tls = client_tls(server)
        self._tls_name = (server.tls_name or self._host) if self._tls else None
        self._proxy = None if self._socket_path else _proxy(server)
        self._socket_factory = socket_factory
        self._session: ssl.SSLSession | None = None
        self._last: TlsTransport | None = None
        self._turn = asyncio.Lock()

    async def connect(self, protocol: TlsProtocol) -> None:
        """Open one more for this protocol; raises `OSError`."""
        loop = asyncio.get_running_loop()
        if self._socket_path:
            await loop.create_unix_connection(lambda: protocol, self._socket_path)
            return
        connected = await self._connected_socket()
        if self._tls is None:
            await loop.create_connection(lambda: protocol, sock=connected)
            return
        session = self._resumable_session()
        tls = await self._handshake(connected, session)
        self._last = TlsTransport(tls, protocol)

    async def peer_certificate(self) -> bytes:
        """The certificate in DER that the server shows; nothing is sent to it. Raises `OSError`."""
        assert self._tls
        tls = await self._handshake(await self._connected_socket())
        with tls.socket:
            return tls.records.getpeercert(binary_form=True) or b""

    @property
    def by_proxy(self) -> Proxy | None:
        """The proxy that requests of plain HTTP are sent to, with the whole URL in each."""
        return self._proxy if self._tls is None else None

    async def _connected_socket(self) -> socket.socket:
        if self._proxy is None:
            return await self._open_socket(self._host, self._port)
        try:
            connected = await self._open_socket(self._proxy.host, self._proxy.port)
        except OSError as error:
            raise ProxyError(f"proxy {self._proxy.address}: {error}") from error
        if self._proxy.scheme == "https":
            connected = await encrypt(connected, self._proxy)
        if self._tls:
            await open_tunnel(connected, self._proxy, self._host, self._port)
        return connected

    async def _open_socket(self, host: str, port: int) -> socket.socket:
        loop = asyncio.get_running_loop()
        return await start_connection(
            await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM),
            happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY,
            socket_factory=self._socket_factory,
        )

    async def _handshake(
        self, sock: socket.socket, session: ssl.SSLSession | None = None
    ) -> TlsSocket:
        """TLS on a connected socket; a failure closes it.

        With the `session` of another connection, half of both ends' work is saved, where the server
        agrees.
        """
        assert self._tls
        try:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            records = self._tls.wrap_bio(
                incoming, outgoing, server_hostname=self._tls_name, session=session
            )
            tls = TlsSocket(sock, records, incoming, outgoing)
            if sock.family != socket.AF_UNIX:  # as to a proxy that is spoken to by TLS
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._shake_hands(tls)
        except BaseException:
            sock.close()
            raise
        return tls

    async def _shake_hands(self, tls: TlsSocket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._turn:  # of the loop: a server may have a step take 0.15 s
                await asyncio.sleep(0)
            try:
                tls.records.do_handshake()
                return
            except ssl.SSLWantReadError:
                pass
            finally:  # a failure is reported to the server as well
                await loop.sock_sendall(tls.socket, tls.outgoing.read())
            tls.take_in(await loop.sock_recv(tls.socket, RECORD_SIZE))

    def _resumable_session(self) -> ssl.SSLSession | None:
        """That of the last connection which the server has given a ticket: one that has started
        again does not know those of before.
        """
        if self._last and (found := self._last.session) and found.has_ticket:
            self._session = found
        return self._session


def _proxy(server: Server) -> Proxy | None:
    return read_proxy(server.proxy) if server.proxy else proxy_for(server.url)


class TlsTransport(asyncio.Transport):
    """What of asyncio's transports an HTTP client needs; it is closed by `abort` alone."""

    def __init__(self, tls: TlsSocket, protocol: TlsProtocol) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._tls, self._file = tls, tls.socket.fileno()
        self._protocol = protocol
        self._unsent, self._overhead = bytearray(), 0
        self._is_reading = self._is_closed = False
        protocol.connection_made(self)
        self.resume_reading()

    @property
    def session(self) -> ssl.SSLSession | None:
        """What another connection to this server may go on with; None once this one is closed."""
        return None if self._is_closed else self._tls.records.session

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._file)

    def resume_reading(self) -> None:
        if not (self._is_reading or self._is_closed):
            self._is_reading = True
            self._loop.add_reader(self._file, self._read)
            if self._tls.incoming.pending:
                self._loop.call_soon(self._read)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send at once what the socket takes, and the rest as soon as it takes more."""
        try:
            while data:  # a record at a time
                data = memoryview(data)[self._tls.records.write(data) :]
        except OSError as error:
            self._close(error)
        else:
            self._send()

    def abort(self) -> None:
        """Close without a message to the other end; the protocol is notified a little later."""
        self._close(None)

    def _read(self) -> None:
        try:
            self._pass_on()  # what is left of the last piece
            for _ in range(RECORDS_AT_ONCE):
                if not self._is_reading:
                    return
                received = self._tls.socket.recv(RECORD_SIZE)
                self._overhead += len(received)
                self._tls.take_in(received)
                self._pass_on()
                if self._overhead > MAX_OVERHEAD:
                    raise ConnectionAbortedError("records of TLS without data have no end")
                if not self._protocol.expects_more:
                    return  # without asking the kernel again
        except BlockingIOError:
            pass
        except ssl.SSLEOFError:
            self._close(ConnectionResetError("connection closed within TLS"))
        except OSError as error:
            self._close(error)
        except Exception:  # around one callback: its connection is of no use any more
            log.exception("connection broken off")
            self._close(ConnectionAbortedError("broken off by a bug of ours"))

    def _pass_on(self) -> None:
        """Decrypt what was received, all of it unless reading is paused."""
        incoming = self._tls.incoming
        while self._is_reading and (incoming.pending or incoming.eof):
            try:
                data = self._tls.records.read(RECORD_SIZE)
            except ssl.SSLWantReadError:  # a part of a record, or no data
                self._send()
                return
            if not data:
                self._close(None)
                return
            self._overhead = max(self._overhead - 2 * len(data), 0)
            self._protocol.data_received(data)

    def _send(self) -> None:
        """Send what is encrypted, unless more waits before it."""
        data = self._tls.outgoing.read()
        if self._unsent or not data:
            self._unsent += data
            return
        try:
            if (sent := self._tls.socket.send(data)) == len(data):
                return
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._close(error)
            return
        self._unsent += data[sent:]
        self._loop.add_writer(self._file, self._send_rest)

    def _send_rest(self) -> None:
        try:
            del self._unsent[: self._tls.socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._close(error)
        if not self._unsent:
            self._loop.remove_writer(self._file)

    def _close(self, error: OSError | None) -> None:
        if self._is_closed:
            return
        self.pause_reading()
        self._is_closed, self._unsent = True, bytearray()
        self._loop.remove_writer(self._file)
        self._tls.socket.close()
        self._loop.call_soon(self._protocol.connection_lost, error)
