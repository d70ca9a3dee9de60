"""The API server as a whole: its life, its bootstrap objects, and its audit log."""

import asyncio
from collections import deque
from pathlib import Path
from typing import Any, Self

import orjson
from aiohttp import web

from ccm.directories import replace_file
from ccm.sandbox.kubernetes.api import ApiHandler, json_response
from ccm.sandbox.kubernetes.kinds import NAMESPACE, SERVICE, STORED_KINDS
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.registry import Registry
from ccm.sandbox.kubernetes.request import ApiRequest, AuditEvent, RequestInfo
from ccm.sandbox.kubernetes.storage import Storage

AUDIT_LOG_PATH = "/sandbox/requests"
LOOPBACK = "127.0.0.1"
MAX_BODY_BYTES = 3 * 1024 * 1024
AUDIT_LOG_SIZE = 100_000  # requests
WATCH_CACHE_SIZE = 20_000  # events of each resource
# The first address of the cluster's network, as on any cluster.
APISERVER_ADDRESS = "10.96.0.1"
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class SandboxServer:
    """An API server on loopback, to be used as an asynchronous context.

    `requests` is the audit log. `history` bounds the watch cache of each resource, in events.
    """

    def __init__(self, *, history: int = WATCH_CACHE_SIZE) -> None:
        self.requests: deque[AuditEvent] = deque(maxlen=AUDIT_LOG_SIZE)
        self.storage = Storage(STORED_KINDS, history)
        self._port = 0
        bootstrap(Registry(self.storage))
        self.storage.compact()
        self._api = ApiHandler(self.storage)

    @property
    def url(self) -> str:
        """The address to talk to, once the server is started."""
        return f"http://{LOOPBACK}:{self._port}"

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server, readable by its owner only, and return its path."""
        named = {
            "clusters": ("cluster", {"server": self.url}),
            "users": ("user", {}),
            "contexts": ("context", {"cluster": "sandbox", "user": "sandbox"}),
        }
        config: Object = {key: [{"name": "sandbox", item: it}] for key, (item, it) in named.items()}
        config.update({"apiVersion": "v1", "kind": "Config", "current-context": "sandbox"})
        # JSON is YAML as well.
        replace_file(path, orjson.dumps(config, option=orjson.OPT_INDENT_2) + b"\n")
        return path

    async def __aenter__(self) -> Self:
        server = web.Server(
            self._handle, request_factory=_request, access_log=None, handler_cancellation=True
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, 0).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Drop every connection, for watches would go on, and stop listening."""
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        request = ApiRequest(http)
        if request.path == AUDIT_LOG_PATH:
            return json_response(200, orjson.dumps(list(self.requests)))
        return await self.answer(request)

    async def answer(self, request: ApiRequest) -> web.StreamResponse:
        """Log a request of the API and answer it."""
        self.requests.append(request.audit_event())
        return await self._api.handle(request)

    def compact(self) -> None:
        """Drop all history: every watch from before now is too old."""
        self.storage.compact()


def bootstrap(registry: Registry) -> None:
    """Create the namespaces and the Service of the API server itself."""
    for name in NAMESPACES:
        registry.create(RequestInfo(NAMESPACE), {"metadata": {"name": name}})
    labels = {"component": "apiserver", "provider": "kubernetes"}
    port = {"name": "https", "port": 443, "targetPort": 6443}
    spec = {"clusterIP": APISERVER_ADDRESS, "ports": [port]}
    service = {"metadata": {"name": "kubernetes", "labels": labels}, "spec": spec}
    registry.create(RequestInfo(SERVICE, "default"), service)


def _request(*parts: Any) -> web.BaseRequest:
    message, payload, protocol, writer, task = parts
    loop, most = asyncio.get_running_loop(), MAX_BODY_BYTES
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=most)
