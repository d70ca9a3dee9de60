"""A server of ours in this loop, and what clients of it get."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from aiohttp import web
from cryptography import x509
from yarl import URL

from ccm.settings import Settings
from ccm.supervisor.https.server import HttpsServer
from ccm.supervisor.https.timings import HttpsTimings
from ccm.supervisor.listening import listen
from tests.integration.https.review_api import ReviewApi
from tests.support.deadlines import timeout, within
from tests.support.kube.ports import ReservedPort
from tests.support.pki import trusting_anybody

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Response:
    """What came back."""

    status: int
    text: str
    headers: Mapping[str, str]

    def json(self) -> Any:
        return json.loads(self.text)


class Turns:
    """Notes in which turns of the loop something happens, while they are counted."""

    def __init__(self) -> None:
        self.noted, self._now = list[int](), 0

    def note(self) -> None:
        self.noted.append(self._now)

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        counting = asyncio.create_task(self._count())
        try:
            yield
        finally:
            counting.cancel()

    async def _count(self) -> None:
        while True:
            self._now += 1
            await asyncio.sleep(0)


@dataclass(frozen=True)
class ServerAddress:
    """Where a server is; each request is on a connection of its own."""

    port: int

    async def get(self, path: str, **how: Any) -> Response:
        return await self.request("GET", path, **how)

    async def request(
        self,
        method: str,
        path: str,
        *,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        name: str = "localhost",
        source: str = "127.0.0.1",
        headers: Iterable[tuple[str, str]] = (),
        body: str | None = None,
    ) -> Response:
        """Raises aiohttp's errors when there is no connection."""
        sent = [*headers, *([("Authorization", f"Bearer {token}")] if token else [])]
        connector = aiohttp.TCPConnector(
            ssl=tls or trusting_anybody(), force_close=True, local_addr=(source, 0)
        )
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(
                method,
                URL(f"https://127.0.0.1:{self.port}{path}", encoded=True),
                headers=sent,
                data=body,
                server_hostname=name,
                timeout=aiohttp.ClientTimeout(total=timeout()),
            ) as response,
        ):
            return Response(response.status, await response.text(), response.headers)

    async def certificate(
        self, name: str | None = "localhost", tls: ssl.SSLContext | None = None
    ) -> x509.Certificate:
        """The certificate that a client sees who asks for this name, or for none."""
        _, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=tls or trusting_anybody(), server_hostname=name or ""
        )
        connection = writer.get_extra_info("ssl_object")
        writer.close()
        await writer.wait_closed()
        return x509.load_der_x509_certificate(connection.getpeercert(True))


@dataclass(frozen=True)
class LocalServer(ServerAddress):
    """A server in this loop."""

    https: HttpsServer


async def eventually(
    look: Callable[[], Awaitable[T]],
    is_right: Callable[[T], object] = bool,
    pause: float = 0.01,
) -> T:
    """What `look` finds once it is right; fails the test when it does not become so."""
    async with within():
        while not is_right(found := await look()):  # noqa: ASYNC110 - others may make it so
            await asyncio.sleep(pause)
    return found


async def who(request: web.Request) -> web.Response:
    return web.Response(text="page")


ROUTES = (web.get("/page", who), web.put("/page", who), web.get("/healthz", who))


QUICK = HttpsTimings(handshake_timeout=timeout(), review_timeout=timeout(), file_poll_interval=0.02)
"""Quick where tests would wait, and patient where they would race."""


def serving(
    reviews: ReviewApi, timings: HttpsTimings = QUICK, /, **flags: Any
) -> AbstractAsyncContextManager[LocalServer]:
    """A server of small pages with these settings; its questions go to `reviews`."""
    return serving_routes(ROUTES, timings, master=reviews.url, **flags)


@asynccontextmanager
async def serving_routes(
    routes: Iterable[web.RouteDef], timings: HttpsTimings = QUICK, /, **flags: Any
) -> AsyncIterator[LocalServer]:
    """A server of these routes with these settings, at a port of its own."""
    port = ReservedPort()
    settings = Settings(
        cloud_provider="simulated",
        bind_address="127.0.0.1",
        secure_port=port.number,
        permit_port_sharing=True,
        **flags,
    )
    server = HttpsServer(settings, timings)
    server.add_routes(routes)
    running: asyncio.Task[None] | None = None
    try:
        await server.start(listen(settings))
        running = asyncio.create_task(server.run())
        yield LocalServer(port.number, server)
    finally:
        if running:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await server.close()
        port.release()


def connected(server: ServerAddress, source: str = "127.0.0.1") -> socket.socket:
    """A connection that says nothing."""
    return socket.create_connection(("127.0.0.1", server.port), source_address=(source, 0))


def pipeline(
    server: ServerAddress, path: bytes = b"/page", until_stuck: float = 1.0, at_most: int = 64 << 20
) -> int:
    """How many bytes of requests a client gets rid of that reads no answer."""
    requests, sent = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path * 1000, 0
    with trusting_anybody().wrap_socket(connected(server)) as rude:
        rude.settimeout(until_stuck)
        while sent < at_most:
            try:
                sent += rude.send(requests)
            except (TimeoutError, OSError):
                break
    return sent


def send_until_stuck(server: ServerAddress) -> None:
    """Send requests and read no answer; raises `TimeoutError` when the server leaves it at that."""
    with trusting_anybody().wrap_socket(connected(server)) as rude:
        rude.settimeout(timeout())
        while True:
            rude.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
