"""The handler chain of the one port: control paths, authentication, faults, resources, audit."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

import orjson
from aiohttp import web

from ccm.sandbox.kubernetes import errors
from ccm.sandbox.kubernetes.discovery import REVIEWS_BY_PATH, documents
from ccm.sandbox.kubernetes.errors import StatusError
from ccm.sandbox.kubernetes.faults import FaultInjector, KubeFault
from ccm.sandbox.kubernetes.handlers import HandlerResponse, ResourceHandlers
from ccm.sandbox.kubernetes.kinds import STORED_KINDS
from ccm.sandbox.kubernetes.request import (
    NO_ANSWER,
    ApiRequest,
    AuditLog,
    parse_object,
)
from ccm.sandbox.kubernetes.storage import Storage
from ccm.sandbox.kubernetes.watch import abort, never, serve_watch

CONTROL_PREFIX = "/sandbox"
PROTOBUF = "application/vnd.kubernetes.protobuf"
NOT_FOUND_TEXT = "404 page not found\n"
HEALTH_CHECKS = frozenset({"healthz", "livez", "readyz"})


class ControlledServer(Protocol):
    """What the control paths can do to a running server."""

    faults: FaultInjector
    requests: AuditLog

    def compact(self) -> None: ...
    def drop_soon(self) -> None: ...
    def restart_soon(self, down: float) -> None: ...


def control(server: ControlledServer, method: str, path: str, body: bytes) -> Any:
    """Perform one request of a person or a test and return the JSON to answer with.

    GET, POST, DELETE /sandbox/faults     list, add, clear; DELETE /sandbox/faults/N removes one
    GET, DELETE       /sandbox/requests   the audit log, clear it
    POST              /sandbox/compact    forget history: every older watch is too old
    POST              /sandbox/drop       drop every connection
    POST              /sandbox/restart    the same, and refuse new ones for {"seconds": N}
    """
    what, _, number = path.removeprefix(CONTROL_PREFIX).strip("/").partition("/")
    match method, what:
        case "GET", "faults":
            return list(server.faults.describe())
        case "POST", "faults":
            return {"id": server.faults.add(_parse_fault(body))}
        case "DELETE", "faults" if number:
            if not (number.isdecimal() and server.faults.remove(int(number))):
                raise StatusError(404, f"no fault has the id {number}")
        case "DELETE", "faults":
            server.faults.clear()
        case "GET", "requests":
            return [asdict(event) for event in server.requests]
        case "DELETE", "requests":
            server.requests.clear()
        case "POST", "compact":
            server.compact()
        case "POST", "drop":
            server.drop_soon()
        case "POST", "restart":
            server.restart_soon(float(parse_object(body or b"{}").get("seconds", 0)))
        case _:
            raise StatusError(404, f"no such thing below {CONTROL_PREFIX}: {method} {path}")
    return {}


def _parse_fault(body: bytes) -> KubeFault:
    try:
        return KubeFault.parse(parse_object(body))
    except ValueError as error:
        raise errors.bad_request(str(error)) from error


class ApiHandler:
    """Everything that is served on one port."""

    def __init__(
        self,
        server: ControlledServer,
        storage: Storage,
        resources: ResourceHandlers,
        tokens: frozenset[str],
    ) -> None:
        self._server = server
        self._storage = storage
        self._resources = resources
        self._tokens = tokens
        self._documents: Mapping[str, Any] = documents(STORED_KINDS)

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request and audit it, also when its connection goes before the answer."""
        request = ApiRequest(http)
        if request.path.startswith(CONTROL_PREFIX):
            return await _answer_or_refuse(self._control(request))
        audited: list[int] = []

        def audit(status: int) -> None:
            if not audited:
                audited.append(status)
                self._server.requests.add(request.audit_event(status))

        try:
            response = await _answer_or_refuse(self._serve(request, audit))
        except asyncio.CancelledError:
            audit(NO_ANSWER)
            raise
        audit(response.status)
        return response

    async def _control(self, request: ApiRequest) -> web.StreamResponse:
        body = await request.http.read()
        answer = control(self._server, request.http.method, request.path, body)
        return _json(200, orjson.dumps(answer))

    async def _serve(self, request: ApiRequest, audit: Callable[[int], None]) -> web.StreamResponse:
        request.body = await request.http.read()
        self._authenticate(request.http)
        fault = self._server.faults.match(request.fault_target)
        if fault is not None:
            await _inject_before(fault, request)
        if request.info is not None and not request.verb:
            raise errors.method_not_allowed()
        if request.info is not None and request.verb == "watch":
            return await serve_watch(self._storage, self._server.faults, request, fault, audit)
        status, body = self._respond(request, fault)
        if fault is not None and fault.action == "reset":
            await _inject_after(fault, request.http, status, body)
        return _json(status, body)

    def _authenticate(self, http: web.BaseRequest) -> None:
        if not self._tokens:
            return
        scheme, _, token = http.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self._tokens:
            raise StatusError(401, "Unauthorized")

    def _respond(self, request: ApiRequest, fault: KubeFault | None) -> HandlerResponse:
        if request.info is not None:
            return self._resources.handle(request, fault)
        if request.path.split("/")[1] in HEALTH_CHECKS:
            return 200, b"ok"
        if review := REVIEWS_BY_PATH.get(request.path):
            if request.http.method != "POST":
                raise errors.method_not_allowed()
            # kubectl asks in protobuf; the answer does not depend on the question.
            asked = {} if request.content_type == PROTOBUF else request.document()
            return 201, orjson.dumps(review.answer_to(asked))
        document = self._documents.get(request.path.rstrip("/"))
        if document is None:
            raise self._not_found(request.path)
        return 200, orjson.dumps(document)

    def _not_found(self, path: str) -> Exception:
        """Return the 404 below a group and version we know, or elsewhere."""
        known = (root for root in self._documents if root.count("/") == 2 + ("/apis" in root))
        if any(path.startswith(f"{root}/") for root in known):
            return errors.no_such_resource()
        return web.HTTPNotFound(text=NOT_FOUND_TEXT)


async def _answer_or_refuse(answer: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    """Turn an error into a response with a Status."""
    try:
        return await answer
    except StatusError as error:
        return _refusal(error)
    except web.HTTPRequestEntityTooLarge:
        return _refusal(StatusError(413, "limit is 3145728"))
    except web.HTTPNotFound as error:
        return web.Response(status=404, text=error.text)


async def _inject_before(fault: KubeFault, request: ApiRequest) -> None:
    """Let a fault happen before the request is performed."""
    match fault.action:
        case "respond":
            raise StatusError(fault.status, fault.message, retry_after=fault.retry_after)
        case "delay":
            await asyncio.sleep(fault.seconds)
        case "reset" if fault.when == "before":
            await abort(request.http)
        case "silence" if request.verb != "watch":
            await never()
        case "gone" if request.verb != "watch":
            raise errors.expired(fault.message)


async def _inject_after(fault: KubeFault, http: web.BaseRequest, status: int, body: bytes) -> None:
    """Drop the connection though the request was performed."""
    if fault.when == "middle":
        response = web.StreamResponse(status=status, headers={"Content-Type": "application/json"})
        response.content_length = len(body)
        await response.prepare(http)
        await response.write(body[: len(body) // 2])
    await abort(http)


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")


def _refusal(error: StatusError) -> web.Response:
    response = _json(error.code, orjson.dumps(error.status()))
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response
