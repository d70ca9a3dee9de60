"""The simulated cloud over HTTP: its API, which counts, authenticates, limits and fails every call,
and the server on which the API and the admin surface are, in the running loop."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiohttp import web

from ccm.sandbox.cloud.admin import AdminApi
from ccm.sandbox.cloud.codec import (
    CloudApiError,
    error_response,
    json_response,
    not_found,
    read_json,
)
from ccm.sandbox.cloud.faults import ANSWERED_KINDS, CloudFault, CloudFaultKind, distorted, refusal
from ccm.sandbox.cloud.operations import (
    OPERATIONS,
    CloudOperation,
    OperationRequest,
    OperationResponse,
)
from ccm.sandbox.cloud.service import CloudService, Tokens
from ccm.sandbox.cloud.simulation import Clock, CloudParameters

LOOPBACK = "127.0.0.1"
MAX_REQUEST_LINE_BYTES = 256 * 1024
"""Room for a query with a page full of names."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CloudApi:
    """One handler around every operation; `closing` ends the calls that hang."""

    def __init__(self, service: CloudService) -> None:
        self._service = service
        self.closing = asyncio.Event()

    def add_routes(self, app: web.Application) -> None:
        for operation in OPERATIONS:
            app.router.add_route(operation.method, operation.path, self._handler(operation))
        nothing = CloudOperation("Unknown", "read", "*", "/v1/{tail:.*}", _no_such_path)
        app.router.add_route("*", nothing.path, self._handler(nothing))

    def _handler(self, operation: CloudOperation) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            agent = request.headers.get("User-Agent", "")
            caller = request.headers.get("X-Caller") or agent or "unknown"
            counters = self._service.counters
            call = counters.arrive(operation.name, operation.budget, caller, agent)
            response = await self._respond(operation, request)
            if response is None:
                return web.Response(status=500)  # nobody is there to read it
            counters.answer(call, response.status)
            return response

        return handle

    async def _respond(
        self, operation: CloudOperation, request: web.Request
    ) -> web.StreamResponse | None:
        headers: dict[str, str] = {}
        try:
            authorization = request.headers.get("Authorization", "")
            self._service.tokens.check(authorization, operation.budget)
            headers = self._service.limits.take(operation.budget)
            await asyncio.sleep(self._service.parameters.latency)
            name, body = request.match_info.get("name", ""), await read_json(request)
            call = OperationRequest(self._service.parameters.page, request.query, name, body)
            fault = self._service.faults.match(operation.name, operation.budget)
            if fault is None:
                response = self._perform(operation, call)
                return json_response(response.body, response.status, headers)
            return await self._inject(fault, operation, call, request)
        except CloudApiError as error:
            error.headers.update({k: v for k, v in headers.items() if k not in error.headers})
            return error_response(error)

    def _perform(
        self, operation: CloudOperation, call: OperationRequest, fault: CloudFault | None = None
    ) -> OperationResponse:
        state = self._service.state
        state.simulation.run_due()
        return operation.perform(fault.snapshot if fault and fault.snapshot else state, call)

    async def _inject(
        self,
        fault: CloudFault,
        operation: CloudOperation,
        call: OperationRequest,
        request: web.Request,
    ) -> web.StreamResponse | None:
        """Fail as the fault says; None when there is to be no answer."""
        await asyncio.sleep(fault.delay)
        if fault.kind in ANSWERED_KINDS:
            response = distorted(fault, self._perform(operation, call, fault))
            return json_response(response.body, response.status)
        if fault.performed:
            with contextlib.suppress(CloudApiError):
                self._perform(operation, call)
        error = refusal(fault)
        if error:
            raise error
        match fault.kind:
            case CloudFaultKind.TIMEOUT:
                await self.closing.wait()
                return None
            case CloudFaultKind.GARBAGE:
                return web.Response(text=fault.body, content_type="application/json")
            case _:
                _reset(request)
                return None


def _no_such_path(_state: object, _call: OperationRequest) -> OperationResponse:
    raise not_found("this path or method")


def _reset(request: web.Request) -> None:
    """Close the connection with a TCP reset and not with an orderly end."""
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()


class CloudServer(CloudService):
    """A cloud on loopback; `async with CloudServer(page=100, boot=2) as cloud: cloud.url`.

    `parameters` are the fields of `CloudParameters`. The state may be read and changed directly.
    """

    def __init__(
        self,
        port: int = 0,
        tokens: Tokens | None = None,
        clock: Clock = time.monotonic,
        **parameters: Any,
    ) -> None:
        super().__init__(CloudParameters(**parameters), tokens or Tokens(), clock)
        self.url = ""
        self._port = port
        self._api = CloudApi(self)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; `url` is set when this returns. Raises OSError when the port is taken."""
        app = web.Application(client_max_size=16 * 1024**2)
        self._api.add_routes(app)
        AdminApi(self).add_routes(app)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=2.0, max_line_size=MAX_REQUEST_LINE_BYTES
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, self._port)
        await site.start()
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """End the calls that hang, then close every connection."""
        self._api.closing.set()
        if self._runner:
            await asyncio.shield(self._runner.cleanup())
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
