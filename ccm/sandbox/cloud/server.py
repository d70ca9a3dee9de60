"""The simulated cloud as a server in the running loop, for tests and for its own process."""

import asyncio
import time
from typing import Any, Self

from aiohttp import web

from ccm.sandbox.cloud.admin import Admin
from ccm.sandbox.cloud.counters import Counters
from ccm.sandbox.cloud.faults import FaultPlan
from ccm.sandbox.cloud.gateway import Gateway
from ccm.sandbox.cloud.ledger import Clock, Conditions
from ccm.sandbox.cloud.limits import Limits
from ccm.sandbox.cloud.service import Service, Tokens
from ccm.sandbox.cloud.state import CloudState

LOOPBACK = "127.0.0.1"
LONGEST_LINE_BYTES = 256 * 1024
"""Room for a query with a page full of names."""


class CloudServer:
    """An HTTP server on loopback; `async with CloudServer(page=100, boot=2) as cloud: cloud.url`.

    `conditions` are the fields of `Conditions`. The state may be read and changed directly.
    """

    def __init__(
        self,
        port: int = 0,
        tokens: Tokens | None = None,
        clock: Clock = time.monotonic,
        **conditions: Any,
    ) -> None:
        self.tokens = tokens or Tokens()
        self.service = Service(Conditions(**conditions), self.tokens, clock)
        self.url = ""
        self._port = port
        self._gateway = Gateway(self.service)
        self._runner: web.AppRunner | None = None

    @property
    def state(self) -> CloudState:
        return self.service.state

    @property
    def faults(self) -> FaultPlan:
        return self.service.faults

    @property
    def limits(self) -> Limits:
        return self.service.limits

    @property
    def counters(self) -> Counters:
        return self.service.counters

    async def start(self) -> None:
        """Listen; `url` is set when this returns. Raises OSError when the port is taken."""
        app = web.Application(client_max_size=16 * 1024**2)
        self._gateway.add_routes(app)
        Admin(self.service).add_routes(app)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=2.0, max_line_size=LONGEST_LINE_BYTES
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, self._port)
        await site.start()
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """End the calls that hang, then close every connection."""
        self._gateway.closing.set()
        if self._runner:
            await asyncio.shield(self._runner.cleanup())
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
