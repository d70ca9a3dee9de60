"""The cloud's own API over HTTP: counts, authenticates, limits and delays every call, and fails it
when a fault says so."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

from aiohttp import web

from ccm.sandbox.cloud.faults import ANSWERED, Fault, Kind, distorted, refusal
from ccm.sandbox.cloud.operations import OPERATIONS, Answer, Operation, Question
from ccm.sandbox.cloud.problems import Problem, missing
from ccm.sandbox.cloud.replies import answered, body_of, refused
from ccm.sandbox.cloud.service import Service

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gateway:
    """One handler around every operation; `closing` ends the calls that hang."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.closing = asyncio.Event()

    def add_routes(self, app: web.Application) -> None:
        for operation in OPERATIONS:
            app.router.add_route(operation.method, operation.path, self._handler(operation))
        nothing = Operation("Unknown", "read", "*", "/v1/{tail:.*}", _no_such_path)
        app.router.add_route("*", nothing.path, self._handler(nothing))

    def _handler(self, operation: Operation) -> Handler:
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
        self, operation: Operation, request: web.Request
    ) -> web.StreamResponse | None:
        headers: dict[str, str] = {}
        try:
            authorization = request.headers.get("Authorization", "")
            self._service.tokens.check(authorization, operation.budget)
            headers = self._service.limits.take(operation.budget)
            await asyncio.sleep(self._service.conditions.latency)
            question = Question(
                request.query, request.match_info.get("name", ""), await body_of(request)
            )
            fault = self._service.faults.take(operation.name, operation.budget)
            if fault is None:
                return _written(self._perform(operation, question), headers)
            return await self._suffer(fault, operation, question, request)
        except Problem as problem:
            problem.headers.update({k: v for k, v in headers.items() if k not in problem.headers})
            return refused(problem)

    def _perform(
        self, operation: Operation, question: Question, fault: Fault | None = None
    ) -> Answer:
        state = self._service.state
        state.ledger.settle()
        return operation.perform(fault.view if fault and fault.view else state, question)

    async def _suffer(
        self, fault: Fault, operation: Operation, question: Question, request: web.Request
    ) -> web.StreamResponse | None:
        """Fail as the fault says; None when there is to be no answer."""
        await asyncio.sleep(fault.delay)
        if fault.kind in ANSWERED:
            return _written(distorted(fault, self._perform(operation, question, fault)), {})
        if fault.performed:
            with contextlib.suppress(Problem):
                self._perform(operation, question)
        problem = refusal(fault)
        if problem:
            raise problem
        match fault.kind:
            case Kind.TIMEOUT:
                await self.closing.wait()
                return None
            case Kind.GARBAGE:
                return web.Response(text=fault.body, content_type="application/json")
            case _:
                _reset(request)
                return None


def _written(answer: Answer, headers: dict[str, str]) -> web.Response:
    return answered(answer.body, answer.status, headers)


def _no_such_path(_state: object, _question: Question) -> Answer:
    raise missing("this path or method")


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
