"""The HTTPS server put together: certificates, who may, the pages, and the port."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ccm.counters import Counters
from ccm.errors import ConfigurationFault
from ccm.kube import config
from ccm.kube.client import Kube
from ccm.settings import Settings
from ccm.supervisor.https.access import Doorkeeper, Page
from ccm.supervisor.https.authentication import Authenticator
from ccm.supervisor.https.authorization import Authorizer, Ttls
from ccm.supervisor.https.listener import Listener, listen
from ccm.supervisor.https.tls import Tls
from ccm.supervisor.https.trust import TrustSource

log = logging.getLogger(__name__)

LOOK = 2.0  # seconds between two looks at the files
IDLE = 75.0  # seconds that a connection without a request stays
IN_FLIGHT = 8  # questions to the API server at the same time, of each kind
FAREWELL = 1.0  # seconds that answers under way get at the end


def _log_of_faults() -> logging.Logger:
    """Where aiohttp complains; nonsense from outside, which it answers with 400, is no fault."""

    def is_fault(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)

    faults = logging.Logger(f"{__name__}.aiohttp")
    faults.parent = log
    faults.addFilter(is_fault)
    return faults


class HttpsServer:
    """Serves pages to those who may see them; with `--secure-port=0` it serves nothing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._routes: list[web.RouteDef] = []
        self._held = AsyncExitStack()
        self._work: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._tls: Tls | None = None
        self.counters = Counters()

    def add(self, routes: Iterable[web.RouteDef]) -> None:
        """More pages; call it before `start`."""
        self._routes += routes

    async def start(self) -> None:
        """Listen. Raises `ConfigurationFault` for a file, `CannotListen` for the address."""
        if self._settings.secure_port:
            try:
                await self._open()
            except BaseException:
                await self.close()
                raise

    async def run(self) -> None:
        """Serve for ever, and keep up with files and cluster."""
        async with asyncio.TaskGroup() as group:
            for work in self._work:
                group.create_task(work())
            await asyncio.Event().wait()

    async def close(self) -> None:
        await self._held.aclose()

    def certificate_ends_at(self) -> float | None:
        """Unix time; None when nothing is served."""
        return self._tls.ends_at() if self._tls else None

    async def _open(self) -> None:
        listening = listen(self._settings)
        self._held.callback(listening.close)
        asking = await self._client("authentication")
        trust = TrustSource(self._settings, asking)
        await trust.load()
        tls = self._tls = Tls(self._settings, lambda: trust.current.pem())
        await tls.load()
        keeper = self._doorkeeper(trust, asking, await self._client("authorization"))
        runner = web.AppRunner(
            self._app(keeper),
            access_log=None,
            logger=_log_of_faults(),
            keepalive_timeout=IDLE,
            shutdown_timeout=FAREWELL,
        )
        await runner.setup()
        assert runner.server
        listener = Listener(listening, tls.context, runner.server)
        self._held.callback(listener.abort)
        self._held.push_async_callback(runner.cleanup)
        self._held.callback(listener.close)
        self._work = [listener.run, trust.follow_cluster, partial(_keep_up, trust, tls)]
        where = f"{self._settings.bind_address} port {self._settings.secure_port}"
        log.info("serving HTTPS", extra={"at": where})

    def _doorkeeper(self, trust: TrustSource, asking: Kube, deciding: Kube) -> Doorkeeper:
        settings = self._settings
        ttl = settings.authentication_token_webhook_cache_ttl
        authenticator = Authenticator(lambda: trust.current, asking, ttl, self.counters)
        self._held.push_async_callback(authenticator.close)
        ttls = Ttls(
            settings.authorization_webhook_cache_authorized_ttl,
            settings.authorization_webhook_cache_unauthorized_ttl,
        )
        open_paths = settings.authorization_always_allow_paths
        authorizer = Authorizer(open_paths, ttls, deciding, self.counters)
        self._held.push_async_callback(authorizer.close)
        return Doorkeeper(authenticator, authorizer, self.counters)

    def _app(self, keeper: Doorkeeper) -> web.Application:
        @web.middleware
        async def guarded(request: web.Request, handler: Page) -> web.StreamResponse:
            return await keeper.admit(request, handler)

        app = web.Application(middlewares=[guarded])
        app.add_routes(self._routes)
        app.on_response_prepare.append(_add_headers)
        return app

    async def _client(self, purpose: str) -> Kube:
        """A client for reviews: by the flag's kubeconfig, else by the supervisor's own access."""
        settings, flag = self._settings, f"--{purpose}-kubeconfig"
        own: str = getattr(settings, f"{purpose}_kubeconfig")
        source = config.Source(own) if own else config.Source(settings.kubeconfig, settings.master)
        try:
            access = await config.load(source)
        except ConfigurationFault as fault:
            raise ConfigurationFault(flag, fault.problem, fault.remedy) from fault
        kube = Kube(access, f"ccm-supervisor/{purpose}", IN_FLIGHT)
        self._held.push_async_callback(kube.close)
        return kube


async def _add_headers(_: web.Request, answer: web.StreamResponse) -> None:
    answer.headers["Server"] = "ccm-supervisor"  # and not what it is made of
    answer.headers.setdefault("X-Content-Type-Options", "nosniff")
    answer.headers.setdefault("Cache-Control", "no-cache, private")


async def _keep_up(trust: TrustSource, tls: Tls) -> None:
    """Take up what changes in the files, and which CAs the cluster names, for ever."""
    while True:
        await asyncio.sleep(LOOK)
        await trust.refresh()
        await tls.refresh()
