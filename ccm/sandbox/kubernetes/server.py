"""The API server as a whole: its life, its bootstrap objects, and its control paths."""

import asyncio
import os
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import orjson
from aiohttp import web

from ccm.sandbox.kubernetes.api import ApiHandler, answer_or_refuse, json_response
from ccm.sandbox.kubernetes.errors import StatusError, bad_request
from ccm.sandbox.kubernetes.faults import FaultInjector, KubeFault
from ccm.sandbox.kubernetes.kinds import NAMESPACE, SERVICE, STORED_KINDS
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.registry import Registry
from ccm.sandbox.kubernetes.request import ApiRequest, AuditEvent, RequestInfo, parse_object
from ccm.sandbox.kubernetes.storage import Storage

CONTROL_PREFIX = "/sandbox"
LOOPBACK = "127.0.0.1"
# How long dropping connections waits, so that the answer to the request for it gets out.
FLUSH_DELAY = 0.05
MAX_BODY_BYTES = 3 * 1024 * 1024
AUDIT_LOG_SIZE = 100_000  # requests
WATCH_CACHE_SIZE = 20_000  # events of each resource
# The first address of the cluster's network, as on any cluster.
APISERVER_ADDRESS = "10.96.0.1"
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class SandboxServer:
    """An API server on loopback, to be used as an asynchronous context.

    `faults` makes things go wrong, `requests` is the audit log. With `tokens`, a client must bring
    one of them as its bearer token. `history` bounds the watch cache of each resource, in events.
    """

    def __init__(
        self, *, port: int = 0, history: int = WATCH_CACHE_SIZE, tokens: Iterable[str] = ()
    ) -> None:
        self.faults = FaultInjector()
        self.requests: deque[AuditEvent] = deque(maxlen=AUDIT_LOG_SIZE)
        self._storage = Storage(STORED_KINDS, history)
        self._tokens = frozenset(tokens)
        self._port = port
        bootstrap(Registry(self._storage))
        self._storage.compact()
        self._api = ApiHandler(self._storage, self.faults, self.requests, self._tokens)
        self._runner: web.ServerRunner | None = None
        self._restart: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address to talk to; it stays the same across restarts."""
        if not self._port:
            raise RuntimeError("the sandbox has no address before it is started")
        return f"http://{LOOPBACK}:{self._port}"

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server, readable by its owner only, and return its path."""
        token = min(self._tokens, default="")
        named = {
            "clusters": ("cluster", {"server": self.url}),
            "users": ("user", {"token": token} if token else {}),
            "contexts": ("context", {"cluster": "sandbox", "user": "sandbox"}),
        }
        config: Object = {key: [{"name": "sandbox", one: it}] for key, (one, it) in named.items()}
        config.update({"apiVersion": "v1", "kind": "Config", "current-context": "sandbox"})
        # JSON is YAML as well.
        write_atomically(path, orjson.dumps(config, option=orjson.OPT_INDENT_2) + b"\n")
        return path

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; the first start chooses the port when none was given."""
        server = web.Server(
            self._handle, request_factory=_request, access_log=None, handler_cancellation=True
        )
        runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, LOOPBACK, self._port, reuse_address=True)
        await site.start()
        self._runner = runner
        self._port = runner.addresses[0][1]

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        request = ApiRequest(http)
        if request.path.startswith(CONTROL_PREFIX):
            return await answer_or_refuse(self._control(request))
        return await self._api.handle(request)

    async def _control(self, request: ApiRequest) -> web.StreamResponse:
        """Perform a request of a person or a test to the server itself.

        GET, POST, DELETE /sandbox/faults     list, add, clear; DELETE /sandbox/faults/N removes one
        GET, DELETE       /sandbox/requests   the audit log, clear it
        POST              /sandbox/compact    forget history: every older watch is too old
        POST              /sandbox/drop       drop every connection
        POST              /sandbox/restart    the same, and refuse new ones for {"seconds": N}
        """
        what, _, number = request.path.removeprefix(CONTROL_PREFIX).strip("/").partition("/")
        body = parse_object(await request.http.read() or b"{}")
        answer: Any = {}
        match request.http.method, what:
            case "GET", "faults":
                answer = list(self.faults.describe())
            case "POST", "faults":
                answer = {"id": self.faults.add(_parse_fault(body))}
            case "DELETE", "faults" if number:
                if not (number.isdecimal() and self.faults.remove(int(number))):
                    raise StatusError(404, f"no fault has the id {number}")
            case "DELETE", "faults":
                self.faults.clear()
            case "GET", "requests":
                answer = [asdict(event) for event in self.requests]
            case "DELETE", "requests":
                self.requests.clear()
            case "POST", "compact":
                self.compact()
            case "POST", "drop":
                asyncio.get_running_loop().call_later(FLUSH_DELAY, self.drop_connections)
            case "POST", "restart":
                restart = self._restart_soon(float(body.get("seconds", 0)))
                self._restart = asyncio.create_task(restart)
            case method, _:
                path = request.path
                raise StatusError(404, f"no such thing below {CONTROL_PREFIX}: {method} {path}")
        return json_response(200, orjson.dumps(answer))

    async def stop(self) -> None:
        """Drop every connection and stop listening; the objects stay."""
        if self._restart is not None and self._restart is not asyncio.current_task():
            self._restart.cancel()
        self.drop_connections()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def restart(self, down: float = 0.0) -> None:
        """Stop, stay away for `down` seconds, and come back with the same objects and address."""
        await self.stop()
        await asyncio.sleep(down)
        await self.start()

    async def _restart_soon(self, down: float) -> None:
        await asyncio.sleep(FLUSH_DELAY)
        await self.restart(down)

    def drop_connections(self) -> None:
        if self._runner is None or self._runner.server is None:
            return
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    def compact(self) -> None:
        """Drop all history: every watch or page from before now is too old."""
        self._storage.compact()


def bootstrap(registry: Registry) -> None:
    """Create the namespaces and the Service of the API server itself."""
    for name in NAMESPACES:
        registry.create(RequestInfo(NAMESPACE), {"metadata": {"name": name}})
    labels = {"component": "apiserver", "provider": "kubernetes"}
    port = {"name": "https", "port": 443, "targetPort": 6443}
    spec = {"clusterIP": APISERVER_ADDRESS, "ports": [port]}
    service = {"metadata": {"name": "kubernetes", "labels": labels}, "spec": spec}
    registry.create(RequestInfo(SERVICE, "default"), service)


def _parse_fault(body: Object) -> KubeFault:
    try:
        return KubeFault.parse(body)
    except ValueError as error:
        raise bad_request(str(error)) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file, for its owner only, that readers see complete or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    beside.replace(path)


def _request(*parts: Any) -> web.BaseRequest:
    message, payload, protocol, writer, task = parts
    loop, most = asyncio.get_running_loop(), MAX_BODY_BYTES
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=most)
