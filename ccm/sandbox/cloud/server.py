"""The simulated cloud over HTTP, in the running loop: every call is counted, authenticated, limited
and failed as asked; the admin surface lies beside the API."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, Self

from aiohttp import web

from ccm.sandbox.cloud.codec import (
    CloudApiError,
    decode,
    decode_fields,
    error_response,
    invalid,
    json_object,
    json_response,
    not_found,
    read_json,
)
from ccm.sandbox.cloud.faults import (
    ANSWERED_KINDS,
    CloudFault,
    CloudFaultKind,
    CloudFaults,
    distorted,
    refusal,
)
from ccm.sandbox.cloud.operations import OPERATIONS, CloudOperation, OperationRequest
from ccm.sandbox.cloud.records import Machine, Volume
from ccm.sandbox.cloud.service import TOKEN, CallCounters
from ccm.sandbox.cloud.simulation import BUDGETS, CallRate, Clock, CloudParameters, RateLimiter
from ccm.sandbox.cloud.state import CloudState

LOOPBACK = "127.0.0.1"
MAX_REQUEST_LINE_BYTES = 256 * 1024
"""Room for a query with a page full of names."""
ACTIONS = ("start", "stop", "terminate")
CHANGEABLE_FIELDS = ("type", "zone", "region", "addresses", "labels")

HttpHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
AdminHandler = Callable[[Mapping[str, str], Any], Any]
"""From the variables of the path and the JSON body to the JSON of the answer."""


def _no_such_path(_state: object, _call: OperationRequest) -> None:
    raise not_found("this path or method")


UNKNOWN_OPERATION = CloudOperation("Unknown", "*", "/v1/{tail:.*}", _no_such_path)


class CloudServer:
    """A cloud on loopback; `async with CloudServer(page=100, latency=0.1) as cloud: cloud.url`.

    `parameters` are the fields of `CloudParameters`. The state may be read and changed directly.
    """

    def __init__(self, clock: Clock = time.monotonic, **parameters: Any) -> None:
        self.token = TOKEN
        self.state = CloudState(CloudParameters(**parameters), clock)
        self.limits = RateLimiter(clock)
        self.faults = CloudFaults(self.state)
        self.counters = CallCounters()
        self.url = ""
        self._closing = asyncio.Event()

    @property
    def parameters(self) -> CloudParameters:
        return self.state.simulation.parameters

    def set_parameters(self, **changes: Any) -> None:
        """Change some of the parameters while the cloud runs; takes effect from the next call."""
        self.state.simulation.parameters = replace(self.parameters, **changes)

    async def __aenter__(self) -> Self:
        """Listen on a free port; `url` is set from then on."""
        app = web.Application(client_max_size=16 * 1024**2)
        for operation in (*OPERATIONS, UNKNOWN_OPERATION):
            app.router.add_route(operation.method, operation.path, self._handler(operation))
        self._add_admin_routes(app)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=2.0, max_line_size=MAX_REQUEST_LINE_BYTES
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, 0)
        await site.start()
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the calls that hang, then close every connection."""
        self._closing.set()
        await asyncio.shield(self._runner.cleanup())

    def _handler(self, operation: CloudOperation) -> HttpHandler:
        async def handle(request: web.Request) -> web.StreamResponse:
            agent = request.headers.get("User-Agent", "")
            caller = request.headers.get("X-Caller") or agent or "unknown"
            call = self.counters.arrive(operation.name, operation.budget, caller, agent)
            response = await self._respond(operation, request)
            if response is None:
                return web.Response(status=500)  # the client has left
            self.counters.answer(call, response.status)
            return response

        return handle

    async def _respond(
        self, operation: CloudOperation, request: web.Request
    ) -> web.StreamResponse | None:
        """Perform the operation, or fail as a fault says; None when there is to be no answer."""
        try:
            if request.headers.get("Authorization") != f"Bearer {self.token}":
                raise CloudApiError(401, "Unauthenticated", "the bearer token is missing or wrong")
            self.limits.take(operation.budget)
            await asyncio.sleep(self.parameters.latency)
            name, body = request.match_info.get("name", ""), await read_json(request)
            call = OperationRequest(self.parameters.page, request.query, name, body)
            fault, state = self.faults.match(operation.name, operation.budget)
            await asyncio.sleep(fault.delay if fault else 0)
            self.state.simulation.run_due()
            if fault and fault.kind not in ANSWERED_KINDS:
                if fault.performed:
                    with contextlib.suppress(CloudApiError):
                        operation.perform(state, call)
                return await self._fail(fault, request)
            answer = operation.perform(state, call)
            if fault:
                answer = distorted(fault, call, answer)
            return json_response(answer, operation.success_status)
        except CloudApiError as error:
            return error_response(error)

    async def _fail(self, fault: CloudFault, request: web.Request) -> web.StreamResponse | None:
        match fault.kind:
            case CloudFaultKind.TIMEOUT:
                await self._closing.wait()
                return None
            case CloudFaultKind.GARBAGE:
                return web.Response(text=fault.body, content_type="application/json")
            case CloudFaultKind.RESET:
                _reset(request)
                return None
            case _:
                raise refusal(fault)

    def _add_admin_routes(self, app: web.Application) -> None:
        """What a person or a test can look at and change: no token, no limit, no fault."""
        state = self.state
        table: tuple[tuple[str, str, AdminHandler], ...] = (
            ("GET", "state", lambda _, body: state.dump()),
            ("PUT", "state", lambda _, body: state.replace(body)),
            ("GET", "machines", lambda _, body: list(state.machines.records.values())),
            ("POST", "machines", self._add_machines),
            ("PATCH", "machines/{ref}", self._change_machine),
            ("DELETE", "machines/{ref}", lambda at, body: state.machines.vanish(at["ref"])),
            ("POST", "machines/{ref}/{action}", self._act_on_machine),
            ("POST", "volumes", lambda _, body: state.add_volume(decode(Volume, body))),
            ("GET", "counters", lambda _, body: self.counters.to_json()),
            ("DELETE", "counters", lambda _, body: self.counters.reset()),
            ("GET", "requests", lambda _, body: list(self.counters.log)),
            ("GET", "faults", lambda _, body: self.faults.active()),
            ("POST", "faults", lambda _, body: self.faults.set(decode(CloudFault, body))),
            ("DELETE", "faults", lambda _, body: self.faults.clear()),
            ("DELETE", "faults/{id}", lambda at, body: self.faults.clear(at["id"])),
            ("PATCH", "limits", self._set_limits),
            ("PUT", "token", self._set_token),
        )
        for method, path, handler in table:
            app.router.add_route(method, f"/admin/{path}", self._admin_handler(handler))

    def _admin_handler(self, handler: AdminHandler) -> HttpHandler:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.state.simulation.run_due()
            try:
                body = await read_json(request)
                return json_response(handler(request.match_info, body))
            except CloudApiError as error:
                return error_response(error)

        return handle

    def _add_machines(self, at: Mapping[str, str], body: Any) -> Any:
        if not isinstance(body, list):
            raise invalid("the body must be a list of machines")
        machines = [decode(Machine, item) for item in body]
        return [self.state.machines.add(machine) for machine in machines]

    def _change_machine(self, at: Mapping[str, str], body: Any) -> Any:
        changes = decode_fields(Machine, body, *CHANGEABLE_FIELDS)
        return self.state.machines.change(at["ref"], **changes)

    def _act_on_machine(self, at: Mapping[str, str], body: Any) -> Any:
        if at["action"] not in ACTIONS:
            options = ", ".join(ACTIONS)
            raise invalid(f"{at['action']!r} cannot be done to a machine: {options}")
        return getattr(self.state.machines, at["action"])(at["ref"])

    def _set_token(self, at: Mapping[str, str], body: Any) -> None:
        self.token = str(json_object(body).get("token"))

    def _set_limits(self, at: Mapping[str, str], body: Any) -> Any:
        """Change parameters and rates, all or none; a rate of null lifts the limit."""
        parameters = dict(json_object(body))
        rates = {key: parameters.pop(key) for key in BUDGETS if key in parameters}
        limits = {key: decode(CallRate, rate) if rate else None for key, rate in rates.items()}
        self.set_parameters(**decode_fields(CloudParameters, parameters))
        for budget, limit in limits.items():
            self.limits.set(budget, limit)
        return {**self.limits.rates(), **asdict(self.parameters)}


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
