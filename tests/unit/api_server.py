"""A small HTTP server in place of an API server, whose every answer a test decides."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

from ccm.kube.client import Kube, RateLimit, RestConfig
from ccm.model.objects import Json
from ccm.tls import Server

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiServer:
    """Answers each request with the next of `answers`, and with the last one for ever after.

    A list of one object asks for the newest version, which is `newest`.
    """

    def __init__(self) -> None:
        self.answers: list[Handler] = []
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.busy = self.most_busy = 0
        self.url = self.ca_file = ""
        self.newest = 1000

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("limit") == "1" and "continue" not in request.query:
            meta = {"resourceVersion": str(self.newest), "continue": "more"}
            return web.json_response({"items": [], "metadata": meta})
        self.bodies.append(await request.read())
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            return await answer(request)
        finally:
            self.busy -= 1

    @property
    def config(self) -> RestConfig:
        return RestConfig(Server(self.url, self.ca_file))

    def kube(self, in_flight: int = 32, rate: RateLimit | None = None) -> Kube:
        return Kube(self.config, "test-agent", in_flight, rate)


@asynccontextmanager
async def serving(
    *answers: Handler, tls: ssl.SSLContext | None = None, ca_file: str = ""
) -> AsyncIterator[tuple[ApiServer, Kube]]:
    """A server with these answers, and a client of it."""
    server, app = ApiServer(), web.Application()
    server.answers = list(answers)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "localhost", 0, ssl_context=tls).start()
    scheme = "https" if tls else "http"
    server.url, server.ca_file = f"{scheme}://localhost:{runner.addresses[0][1]}", ca_file
    kube = server.kube()
    try:
        yield server, kube
    finally:
        await kube.close()
        await runner.cleanup()


# Answers.


def json_answer(body: Json, status: int = 200, **headers: str) -> Handler:
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=orjson.dumps(body), status=status, headers=named)

    return answer


def failure(status: int, reason: str, message: str = "no", **headers: str) -> Handler:
    body = {"kind": "Status", "code": status, "reason": reason, "message": message}
    return json_answer(body, status, **headers)


def text_answer(text: bytes, status: int = 200) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=text, status=status)

    return answer


async def silence(request: web.Request) -> web.StreamResponse:
    """No answer at all."""
    await asyncio.Event().wait()
    raise AssertionError("nobody ends this wait")


async def reset(request: web.Request) -> web.StreamResponse:
    """The connection breaks before an answer."""
    assert request.transport
    request.transport.abort()
    return web.Response()


def stream(*chunks: bytes, then: str = "end") -> Handler:
    """Parts of a response, then its `end`, a `reset`, or `silence`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if then == "reset":
            return await reset(request)
        return await silence(request) if then == "silence" else response

    return answer
