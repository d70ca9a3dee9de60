"""The HTTPS server: the port, its connections, and what stands behind it put together."""

import asyncio
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ccm.background import call_until_done, start_task
from ccm.counters import Counters
from ccm.decide.budget import Allowances
from ccm.errors import ConfigurationFault, NoCredentials, Unreachable
from ccm.kube import config
from ccm.kube.client import Kube, RestConfig
from ccm.log import IGNORED_INTERVAL, report_loop_errors
from ccm.settings import Settings
from ccm.supervisor.https.access import AccessMiddleware, Authorizer
from ccm.supervisor.https.authentication import Authenticator
from ccm.supervisor.https.client_ca import ClientCAProvider
from ccm.supervisor.https.connection import BoundedClient, BoundedTls, PacedCalls
from ccm.supervisor.https.reviews import Reviewer
from ccm.supervisor.https.timings import HttpsTimings
from ccm.supervisor.https.tls import ServingTls
from ccm.supervisor.listening import network_of
from ccm.tls import Server

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 200  # with TLS, at the same time; watches and workers need descriptors, too
MAX_SILENT = 100  # beside those; the kernel holds others back
MAX_HANDSHAKES = 300
"""Beside those: no more than the clients that speak in five turns of the loop, as one of them may
need as long for its part."""
ACCEPTED_AT_ONCE = 64  # connections, in one turn of the loop, which may be a long one
HANDSHAKES, HANDSHAKE_PAUSE = 50, 0.05
"""So many of one address at once, then one in so many seconds: each takes milliseconds of the loop
that renews the Lease."""
CONNECTS, CONNECT_PAUSE = 500, 0.005
"""The same of connections, whatever comes on them: more are closed before they cost a task."""
MOST_ADDRESSES = 10_000  # whose connections, and whose handshakes, are counted
TLS_HANDSHAKE = b"\x16"  # the first byte of a client
ACCEPT_RETRY_DELAY = 1.0  # seconds until another try when there is no descriptor left
KEEPALIVE_TIMEOUT = 75.0  # seconds that a connection without a request stays
SHUTDOWN_TIMEOUT = 1.0  # seconds that requests in flight get at the end
MAX_REVIEWS_IN_FLIGHT = 8  # of each kind
MAX_PARTS = 16
"""Of a path; no route has more. aiohttp looks for one by each beginning: of 4,000 for 10 ms."""


PURPOSES = ("authentication", "authorization")
LoadAccess = Callable[[Settings, str], Awaitable[RestConfig]]
"""How to reach the API server for one of these; raises `ConfigurationFault`."""


async def load_review_access(settings: Settings, purpose: str) -> RestConfig:
    """By the kubeconfig for the purpose, else the supervisor's own access."""
    own: str = getattr(settings, f"{purpose}_kubeconfig")
    flags = (own, "") if own else (settings.kubeconfig, settings.master)
    try:
        return await config.load(*flags)
    except ConfigurationFault as fault:
        raise type(fault)(f"--{purpose}-kubeconfig", fault.problem, fault.remedy) from fault


async def load_access_if_any(settings: Settings, purpose: str) -> RestConfig:
    """The same where a credential plugin may fail: then each review does, and nothing else."""
    try:
        return await load_review_access(settings, purpose)
    except NoCredentials as fault:
        why = str(fault)

        async def bearer() -> str:
            raise Unreachable(why)

        return RestConfig(Server(""), bearer)


class HttpsServer:
    """Serves routes to those who may use them."""

    def __init__(
        self,
        settings: Settings,
        timings: HttpsTimings = HttpsTimings(),
        load_access: LoadAccess = load_review_access,
    ) -> None:
        self._settings, self._timings, self._load_access = settings, timings, load_access
        self._routes: list[web.RouteDef] = []
        self._cleanup = AsyncExitStack()
        self._tasks: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._tls: ServingTls | None = None
        self._permitted: WeakSet[asyncio.BaseTransport] = WeakSet()
        self.counters = Counters()

    def add_routes(self, routes: Iterable[web.RouteDef]) -> None:
        """Call it before `start`."""
        self._routes += routes

    async def start(self, listening: socket.socket) -> None:
        """Serve on this socket and close it in the end; raises `ConfigurationFault` for a file."""
        self._cleanup.callback(listening.close)
        report_loop_errors(asyncio.get_running_loop())
        try:
            await self._start(listening)
        except BaseException:
            await self.close()
            raise

    async def run(self) -> None:
        """Serve for ever, and keep up with files and cluster."""
        async with asyncio.TaskGroup() as group:
            for task in self._tasks:
                group.create_task(task())
            await asyncio.Event().wait()

    async def close(self) -> None:
        """End all connections and release the port."""
        await self._cleanup.aclose()

    def certificate_expiry(self) -> float | None:
        """Unix time; None when nothing is served."""
        return self._tls.expiry() if self._tls else None

    async def _start(self, listening: socket.socket) -> None:
        kube = await self._review_client("authentication")
        client_cas = ClientCAProvider(self._settings, kube, self._timings.config_map_interval)
        await client_cas.load()
        tls = self._tls = ServingTls(
            self._settings, lambda: client_cas.current.pem(), self._timings
        )
        await tls.load()
        runner = web.AppRunner(
            self._app(await self._access(client_cas, kube)),
            access_log=None,
            logger=_aiohttp_log(),
            keepalive_timeout=KEEPALIVE_TIMEOUT,
            shutdown_timeout=SHUTDOWN_TIMEOUT,
            auto_decompress=False,  # bodies are skipped, and a small one may be huge inside
        )
        await runner.setup()
        server = runner.server
        assert server
        server.request_handler = _in_turns(server.request_handler)
        listener = TlsListener(
            listening,
            tls.context,
            lambda: BoundedClient(server()),
            self._timings.handshake_timeout,
            self._permitted,
        )
        self._cleanup.callback(listener.abort)
        self._cleanup.push_async_callback(runner.cleanup)
        self._cleanup.callback(listener.close)
        poll_files = partial(_poll_files, client_cas, tls, self._timings.file_poll_interval)
        self._tasks = [listener.run, client_cas.poll_cluster, poll_files]
        where = f"{self._settings.bind_address} port {self._settings.secure_port}"
        log.info("serving HTTPS", extra={"at": where})

    async def _access(self, client_cas: ClientCAProvider, kube: Kube) -> AccessMiddleware:
        reviewer = Reviewer(kube, self._timings)
        authenticator = Authenticator(self._settings, client_cas, reviewer, self.counters)
        self._cleanup.push_async_callback(authenticator.close)
        kube = await self._review_client("authorization")
        reviewer = Reviewer(kube, self._timings)
        authorizer = Authorizer(self._settings, reviewer, self.counters)
        self._cleanup.push_async_callback(authorizer.close)
        return AccessMiddleware(authenticator, authorizer, self.counters, self._permitted)

    def _app(self, access: AccessMiddleware) -> web.Application:
        app = web.Application(middlewares=[access.handle])
        app.add_routes(self._routes)
        app.on_response_prepare.append(_add_headers)
        return app

    async def _review_client(self, purpose: str) -> Kube:
        access = await self._load_access(self._settings, purpose)
        kube = Kube(access, f"ccm-supervisor/{purpose}", MAX_REVIEWS_IN_FLIGHT)
        self._cleanup.push_async_callback(kube.close)
        return kube


def _in_turns(
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """One request in a turn of the loop: of many that wait, a Lease would wait for them all.

    A middleware would not see what aiohttp answers by itself, such as an `Expect`.
    """
    turn = asyncio.Lock()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        async with turn:
            await asyncio.sleep(0)
        client = request.transport.get_protocol() if request.transport else None
        if isinstance(client, BoundedClient):
            client.on_request(request)
        if request.path.count("/") > MAX_PARTS:
            return web.Response(status=404)
        return await handle(request)

    return handler


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "ccm-supervisor"  # and not what it is made of
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Cache-Control", "no-cache, private")


async def _poll_files(client_cas: ClientCAProvider, tls: ServingTls, interval: float) -> None:
    while True:
        await asyncio.sleep(interval)
        await client_cas.refresh()
        await tls.refresh()


def _aiohttp_log() -> logging.Logger:
    """For aiohttp's errors: of each kind once in a while, as any client may cause one.

    Invalid requests are not among them; they get 400.
    """
    silent_until: dict[str, float] = {}  # by kind

    def is_ours(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        kind, now = type(error).__name__, time.monotonic()
        if isinstance(error, HttpProcessingError) or now < silent_until.get(kind, 0.0):
            return False
        silent_until[kind] = now + IGNORED_INTERVAL
        return True

    errors = logging.Logger(f"{__name__}.aiohttp")
    errors.parent = log
    errors.addFilter(is_ours)
    return errors


LOCAL = ""
"""In place of the address of a client on this host, such as the kubelet with its probes."""


def to_close(held: Mapping[T, str], limit: int, known: Container[object] = ()) -> T | None:
    """The connection that makes room for one more; None while there is room.

    `held` has the clients' addresses, the oldest connection first. It is the oldest one of the
    address that holds most of them, first among those that are not `known`. This host's own come
    last, as long as they are no more than half of all: it may have more users than its kubelet.
    """
    if len(held) < limit:
        return None
    local = {item: address for item, address in held.items() if address == LOCAL}
    remote = {item: address for item, address in held.items() if address != LOCAL}
    among = local if 2 * len(local) > limit else remote or held
    among = {item: address for item, address in among.items() if item not in known} or among
    counts = Counter(among.values())
    most = max(counts, key=lambda address: counts[address])
    return next(item for item, address in among.items() if address == most)


class TlsListener:
    """Accepts connections; silent ones, and handshakes, have room of their own."""

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        protocol: Callable[[], BoundedClient],
        handshake_timeout: float,
        known: Container[asyncio.BaseTransport] = (),
    ) -> None:
        self._socket, self._context, self._protocol = listening, context, protocol
        self._handshake_timeout, self._known = handshake_timeout, known
        self._accepted: dict[asyncio.Task[None], socket.socket] = {}  # in this turn of the loop
        self._silent: dict[asyncio.Task[None], str] = {}  # the client's address; oldest first
        self._handshakes: dict[asyncio.Task[None], str] = {}  # of clients that spoke
        self._open: dict[BoundedTls, str] = {}  # until the socket is closed, which a client delays
        self._allowances = Allowances[str](HANDSHAKES, HANDSHAKE_PAUSE, MOST_ADDRESSES)
        self._connects = Allowances[str](CONNECTS, CONNECT_PAUSE, MOST_ADDRESSES)
        self._paced_handshakes = PacedCalls()

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
        for task in [*self._accepted, *self._silent, *self._handshakes]:
            task.cancel()

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
            self._begin(connection, _client_address(connection))

    def _begin(self, connection: socket.socket, address: str) -> None:
        if address != LOCAL and self._connects.take(address, time.monotonic()):
            connection.close()
            return
        connection.setblocking(False)
        task = start_task(self._serve(connection, address), self._forget_accepted)
        self._accepted[task] = connection

    def abort(self) -> None:
        """Abort the connections that are left: a client may not answer the close_notify of TLS."""
        for tls in self._open:
            tls.abort()

    def _forget_accepted(self, task: "asyncio.Task[None]") -> None:
        if connection := self._accepted.pop(task, None):  # it was cancelled before
            connection.close()

    def _forget(self, tls: BoundedTls) -> None:
        self._open.pop(tls, None)

    async def _serve(self, connection: socket.socket, address: str) -> None:
        if task := asyncio.current_task():
            del self._accepted[task]
        try:
            async with asyncio.timeout(self._handshake_timeout):
                silent = _room(self._silent, MAX_SILENT, address)
                if not await _begins_tls(connection, silent):
                    return
                if address != LOCAL and self._allowances.take(address, time.monotonic()):
                    connection.close()
                    return
                with _room(self._handshakes, MAX_HANDSHAKES, address):
                    tls = BoundedTls(
                        self._protocol(), self._context, self._paced_handshakes, self._forget
                    )
                    await tls.handshake(connection)
        except OSError as error:  # the client's fault
            log.debug("TLS handshake failed", extra={"error": str(error)})
            return
        if tls.is_lost:
            return
        known = {item for item in self._open if item.client.transport in self._known}
        if oldest := to_close(self._open, MAX_CONNECTIONS, known):
            del self._open[oldest]
            oldest.abort()
        self._open[tls] = address


@contextmanager
def _room(held: "dict[asyncio.Task[None], str]", limit: int, address: str) -> Iterator[None]:
    """The current task is among those that are held, and may be cancelled for another's room."""
    task = asyncio.current_task()
    assert task
    if oldest := to_close(held, limit):
        del held[oldest]
        oldest.cancel()
    held[task] = address
    try:
        yield
    finally:
        held.pop(task, None)


async def _begins_tls(connection: socket.socket, silent: AbstractContextManager[None]) -> bool:
    """Whether the client does: TLS is set up for no connection that is silent, or closed."""
    is_tls = False
    try:
        is_tls = await _first_byte(connection, silent) == TLS_HANDSHAKE
    finally:
        if not is_tls:
            connection.close()
    return is_tls


async def _first_byte(connection: socket.socket, silent: AbstractContextManager[None]) -> bytes:
    """What the client sends first, which stays to be read; it is `silent` until then."""
    with suppress(BlockingIOError):
        return connection.recv(1, socket.MSG_PEEK)
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    with silent:
        loop.add_reader(connection, call_until_done, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)


def _client_address(connection: socket.socket) -> str:
    """Its network, or `LOCAL` for this host."""
    try:
        client, server = connection.getpeername()[0], connection.getsockname()[0]
    except OSError:  # it is gone by now
        return "unknown"
    if client == server:
        return LOCAL
    return network_of(client)
