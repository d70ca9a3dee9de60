"""The HTTPS server: the port, its connections, and what stands behind it put together."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

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
from ccm.supervisor.https.connection import BoundedClient, BoundedTls, PacedCalls, client_of
from ccm.supervisor.https.listener import LOCAL, TlsListener
from ccm.supervisor.https.reviews import Reviewer
from ccm.supervisor.https.timings import HttpsTimings
from ccm.supervisor.https.tls import ServingTls
from ccm.tls import Server

log = logging.getLogger(__name__)

KEEPALIVE_TIMEOUT = 75.0  # seconds that a connection without a request stays
SHUTDOWN_TIMEOUT = 1.0  # seconds that requests in flight get at the end
MOST_KINDS = 100  # of errors, each of which is logged once in a while
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
        timeout, local, remote = self._timings.handshake_timeout, PacedCalls(), PacedCalls()
        listener = TlsListener(
            listening,
            lambda address, on_lost: BoundedTls(
                BoundedClient(server()),
                tls.context,
                timeout,
                local if address == LOCAL else remote,
                address,
                on_lost,
            ),
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
        return AccessMiddleware(authenticator, authorizer, self.counters)

    def _app(self, access: AccessMiddleware) -> web.Application:
        app = web.Application(middlewares=[access.handle])
        app.add_routes(self._routes)
        app.on_response_prepare.append(_add_headers)
        return app

    async def _review_client(self, purpose: str) -> Kube:
        access = await self._load_access(self._settings, purpose)
        kube = Kube(access, f"ccm-supervisor/{purpose}")
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
        if client := client_of(request):
            client.on_request(request)
        if request.path.count("/") > MAX_PARTS:
            return web.Response(status=404)
        try:
            return await handle(request)
        except web.HTTPException as error:  # kept by what has raised it, which it keeps itself
            return web.Response(status=error.status, body=error.body, headers=error.headers)

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
    kinds = Allowances[str](1, IGNORED_INTERVAL, MOST_KINDS)

    def is_ours(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            error.with_traceback(None)  # which has the connection, and the error itself
            return False
        return not kinds.take(type(error).__name__, time.monotonic())

    errors = logging.Logger(f"{__name__}.aiohttp", logging.DEBUG)
    errors.parent = log
    errors.addFilter(is_ours)
    return errors
