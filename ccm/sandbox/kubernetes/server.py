"""The sandbox's life: start, stop, restart, and what callers get to see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web

from ccm.sandbox.kubernetes.api import Api
from ccm.sandbox.kubernetes.faults import Faults
from ccm.sandbox.kubernetes.kinds import Kind, stored_kinds
from ccm.sandbox.kubernetes.kubeconfig import write_kubeconfig
from ccm.sandbox.kubernetes.objects import Object, metadata
from ccm.sandbox.kubernetes.requests import Requests
from ccm.sandbox.kubernetes.resources import Resources
from ccm.sandbox.kubernetes.seed import seed
from ccm.sandbox.kubernetes.store import Store
from ccm.sandbox.kubernetes.streaming import Streams
from ccm.sandbox.kubernetes.writes import Writes

LOOPBACK = "127.0.0.1"
# How long an order to drop connections waits, so that its own answer gets out.
ANSWER_SECONDS = 0.05
LARGEST_BODY_BYTES = 3 * 1024 * 1024
CHANGES_KEPT_PER_KIND = 20_000


class SandboxServer:
    """An API server on loopback, to be used as an asynchronous context.

    `faults` makes things go wrong, `requests` tells who asked for what. With `tokens`, a client
    must bring one of them as its bearer token.
    """

    def __init__(
        self, *, port: int = 0, history: int = CHANGES_KEPT_PER_KIND, tokens: Iterable[str] = ()
    ) -> None:
        self.faults = Faults()
        self.requests = Requests()
        self._store = Store(stored_kinds(), history)
        self._tokens = frozenset(tokens)
        self._port = port
        writes = Writes(self._store)
        seed(writes)
        self._store.compact()
        resources = Resources(self._store, writes)
        self._api = Api(self, resources, Streams(self._store, self.faults), self._tokens)
        self._runner: web.ServerRunner | None = None
        self._restart: asyncio.Task[None] | None = None

    def take_over(self, kind: Kind, objects: Iterable[Object]) -> None:
        """Hold `objects` as another API server has them, identities and states included."""
        for obj in objects:
            meta = metadata(obj)
            key = kind.key(meta.get("namespace", ""), meta["name"])
            self._store.write(kind, key, {**obj, "kind": kind.name, "apiVersion": kind.api_version})

    def objects(self, kind: Kind) -> dict[str, Object]:
        """What is held of this kind by `namespace/name` or name; to be read, not changed."""
        return {key: stored.obj for key, stored in self._store.current(kind).items()}

    @property
    def url(self) -> str:
        """The address to talk to; it stays the same across restarts."""
        if not self._port:
            raise RuntimeError("the sandbox has no address before it is started")
        return f"http://{LOOPBACK}:{self._port}"

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server and return its path."""
        return write_kubeconfig(path, self.url, next(iter(sorted(self._tokens)), ""))

    async def __aenter__(self) -> SandboxServer:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
            await asyncio.sleep(ANSWER_SECONDS)
            await self.restart(down)

        self._restart = asyncio.create_task(restart())

    def drop_soon(self) -> None:
        """Drop every connection after the present request is answered."""
        asyncio.get_running_loop().call_later(ANSWER_SECONDS, self.drop_connections)

    def drop_connections(self) -> None:
        """Reset every open connection."""
        if self._runner is None or self._runner.server is None:
            return
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    def compact(self) -> None:
        """Forget all history: every watch or page from before now is too old."""
        self._store.compact()


def _request(*parts: Any) -> web.BaseRequest:
    message, payload, protocol, writer, task = parts
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=LARGEST_BODY_BYTES
    )
