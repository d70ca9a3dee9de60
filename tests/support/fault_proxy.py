"""A reverse proxy before the API server that spoils watches on command; no pytest in here.

    with FaultProxy(cluster.url, cluster.ca_file) as proxy:
        run(kubeconfig=proxy.kubeconfig(cluster.kubeconfig("ccm")))
        proxy.inject(TOO_OLD)

All other requests pass as they are. It speaks plain HTTP on loopback and runs in a thread of its
own, so a test may block.
"""

import asyncio
import json
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web

from tests.support.deadlines import timeout

T = TypeVar("T")
Reply = Callable[[], web.Response]
"""What a watch request gets instead of a watch."""
PASSED_ON = ("Authorization", "Content-Type", "Accept", "User-Agent")
PASSED_BACK = ("Content-Type", "Retry-After")


@dataclass(eq=False)
class Stream:
    """One watch on its way through."""

    request: web.Request
    response: web.StreamResponse = field(default_factory=web.StreamResponse)
    is_dead: bool = False  # half-open: the connection is there and nothing comes through

    async def write(self, text: bytes) -> None:
        if not self.is_dead:
            await self.response.write(text)

    def reset(self) -> None:
        if self.request.transport:
            self.request.transport.abort()


async def forward(stream: Stream, line: bytes) -> None:
    await stream.write(line)


async def reset_in_the_middle(stream: Stream, line: bytes) -> None:
    """Half of an object, then no connection any more."""
    await stream.write(line[: len(line) // 2])
    await asyncio.sleep(0.01)  # or the reset overtakes it
    stream.reset()


async def late(stream: Stream, line: bytes) -> None:
    await asyncio.sleep(0.2)  # the fault, not a wait
    await stream.write(line)


def before_each(odd: Sequence[bytes]) -> Callable[[Stream, bytes], Awaitable[None]]:
    """A line that does not belong there, before each that does; one after the other of `odd`."""
    coming = cycle(odd)

    async def write(stream: Stream, line: bytes) -> None:
        await stream.write(next(coming) + b"\n" + line)

    return write


async def spoilt(stream: Stream, line: bytes) -> None:
    """The line of the right length, and nothing of it readable."""
    await stream.write(b"\xff" * (len(line) - 1) + b"\n")


def status_object(code: int, reason: str) -> dict[str, object]:
    return {"kind": "Status", "code": code, "reason": reason, "message": "a fault of the test's"}


def failure(code: int, reason: str, **headers: str) -> Reply:
    return partial(web.json_response, status_object(code, reason), status=code, headers=headers)


def error_event(code: int, reason: str) -> Reply:
    event = json.dumps({"type": "ERROR", "object": status_object(code, reason)})
    return partial(web.Response, text=f"{event}\n", content_type="application/json")


def refuse() -> web.Response:
    raise ConnectionRefusedError


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of watches: a reply instead of one, and of each line of one.

    With a reply, watches that are open are cut. `is_for_all`: every other request gets the reply
    as well. `only_for`: nothing gets it but requests of paths that end so.
    """

    reply: Reply | None = None
    each_line: Callable[[Stream, bytes], Awaitable[None]] = forward
    is_for_all: bool = False
    only_for: str = ""


Pass = Callable[[], Awaitable[web.Response]]
Around = Callable[[web.Request, Pass], Awaitable[web.Response]]


async def pass_on(_: web.Request, pass_on: Pass) -> web.Response:
    return await pass_on()


HEALTHY = Fault()
REFUSED = Fault(refuse)


class FaultProxy:
    """Counts in `met`, by path, how often watches ran into the fault of the moment.

    `asked` has when they asked and got its reply (monotonic). `around` is what becomes of a request
    that is no watch and meets no fault; it may be replaced.
    """

    def __init__(self, url: str, ca_file: Path) -> None:
        self._upstream, self._tls = url, ssl.create_default_context(cafile=str(ca_file))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy")
        self._streams: set[Stream] = set()
        self._fault = HEALTHY
        self.around: Around = pass_on
        self.met: Counter[str] = Counter()
        self.asked: defaultdict[str, list[float]] = defaultdict(list)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def kubeconfig(self, original: Path) -> Path:
        """The same identity, by way of this proxy."""
        config = json.loads(original.read_text())
        config["clusters"][0]["cluster"] = {"server": self.url}
        path = original.with_name(f"{original.stem}-by-proxy.kubeconfig")
        path.write_text(json.dumps(config))
        return path

    def inject(self, fault: Fault) -> None:
        self._do(self._set(fault))

    def clear(self) -> None:
        """New watches are healthy; those that are open and not dead go on."""
        self.inject(HEALTHY)

    def go_silent(self) -> None:
        """Nothing comes through the watches that are open now, ever, and nothing ends them."""
        self.met = Counter(stream.request.path for stream in self._streams)
        for stream in self._streams:
            stream.is_dead = True

    def send(self, path: str, lines: Sequence[bytes]) -> int:
        """Add lines to the open watches of `path`; how many watches there are."""
        return self._do(self._send(path, lines))

    # --- in the thread

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout())

    async def _open(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*self._runner.addresses[0])

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _set(self, fault: Fault) -> None:
        self._fault, self.met, self.asked = fault, Counter(), defaultdict(list)
        for stream in list(self._streams) if fault.reply and not fault.only_for else ():
            stream.reset()

    async def _send(self, path: str, lines: Sequence[bytes]) -> int:
        watches = [stream for stream in self._streams if stream.request.path == path]
        for line in lines:
            for stream in watches:
                await stream.write(line)
        return len(watches)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            fault = self._fault
            is_watch = "watch" in request.query
            is_met = fault.is_for_all and not is_watch
            if fault.only_for:
                is_met = request.path.endswith(fault.only_for)
            if is_met and fault.reply:
                return fault.reply()
            if is_watch:
                return await self._watch(request)
            return await self.around(request, partial(self._pass, request))
        except (aiohttp.ClientError, OSError):  # no API server: no connection
            Stream(request).reset()
            return web.Response()

    @asynccontextmanager
    async def _ask(self, request: web.Request) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        headers["Accept-Encoding"] = "identity"  # what the client asks for
        limits = aiohttp.ClientTimeout(total=None, sock_connect=timeout())
        async with self._session.request(
            request.method,
            self._upstream + request.raw_path,
            headers=headers,
            data=await request.read() or None,
            timeout=limits,
        ) as response:
            yield response

    async def _pass(self, request: web.Request) -> web.Response:
        async with self._ask(request) as answer:
            headers = {name: answer.headers[name] for name in PASSED_BACK if name in answer.headers}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        fault = self._fault
        if fault.reply and not fault.only_for:
            self.met[request.path] += 1
            self.asked[request.path].append(time.monotonic())
            return fault.reply()
        async with self._ask(request) as answer:
            if answer.status != 200:
                return web.Response(status=answer.status, body=await answer.read())
            stream = Stream(request)
            self._streams.add(stream)
            try:
                await stream.response.prepare(request)
                await self._pump(answer, stream)
            finally:
                self._streams.discard(stream)
            return stream.response

    async def _pump(self, answer: aiohttp.ClientResponse, stream: Stream) -> None:
        async for line in answer.content:
            fault = self._fault
            if fault is not HEALTHY:
                self.met[stream.request.path] += 1
            with suppress(ConnectionError):  # the client left; it is noticed elsewhere
                await fault.each_line(stream, line)
        if stream.is_dead:
            await asyncio.Event().wait()
