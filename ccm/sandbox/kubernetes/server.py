"""The API server as a whole: its life, its bootstrap objects, and what its owner can do to it."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import orjson
from aiohttp import web

from ccm.sandbox.kubernetes.api import ApiHandler
from ccm.sandbox.kubernetes.faults import FaultInjector
from ccm.sandbox.kubernetes.handlers import ResourceHandlers
from ccm.sandbox.kubernetes.kinds import NAMESPACE, SERVICE, STORED_KINDS
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.registry import Registry
from ccm.sandbox.kubernetes.request import AuditLog, RequestInfo
from ccm.sandbox.kubernetes.storage import Storage

LOOPBACK = "127.0.0.1"
# How long dropping connections waits, so that the answer to the request for it gets out.
FLUSH_DELAY = 0.05
MAX_BODY_BYTES = 3 * 1024 * 1024
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
        self.requests = AuditLog()
        self._storage = Storage(STORED_KINDS, history)
        self._tokens = frozenset(tokens)
        self._port = port
        registry = Registry(self._storage)
        bootstrap(registry)
        self._storage.compact()
        resources = ResourceHandlers(self._storage, registry)
        self._api = ApiHandler(self, self._storage, resources, self._tokens)
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
            self._api.handle, request_factory=_request, access_log=None, handler_cancellation=True
        )
        runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, LOOPBACK, self._port, reuse_address=True)
        await site.start()
        self._runner = runner
        self._port = runner.addresses[0][1]

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

    def restart_soon(self, down: float) -> None:
        """Restart in the background, after the present request is answered."""

        async def restart() -> None:
            await asyncio.sleep(FLUSH_DELAY)
            await self.restart(down)

        self._restart = asyncio.create_task(restart())

    def drop_soon(self) -> None:
        """Drop every connection after the present request is answered."""
        asyncio.get_running_loop().call_later(FLUSH_DELAY, self.drop_connections)

    def drop_connections(self) -> None:
        """Reset every open connection."""
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
