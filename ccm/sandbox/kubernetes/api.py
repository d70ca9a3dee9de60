"""Answers requests: finds the handler, lets faults strike, and writes the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

import orjson
from aiohttp import web

from ccm.sandbox.kubernetes import failures
from ccm.sandbox.kubernetes.admin import ROOT, Steered, administer
from ccm.sandbox.kubernetes.call import read_document
from ccm.sandbox.kubernetes.discovery import documents
from ccm.sandbox.kubernetes.failures import Failure
from ccm.sandbox.kubernetes.faults import Fault
from ccm.sandbox.kubernetes.kinds import stored_kinds
from ccm.sandbox.kubernetes.place import Places
from ccm.sandbox.kubernetes.requests import NO_ANSWER
from ccm.sandbox.kubernetes.resources import Reply, Resources
from ccm.sandbox.kubernetes.reviews import Review, review_at
from ccm.sandbox.kubernetes.streaming import Streams, abort, never
from ccm.sandbox.kubernetes.visit import Visit

PROTOBUF = "application/vnd.kubernetes.protobuf"
NOTHING_HERE = "404 page not found\n"
HEALTH = frozenset({"/healthz", "/livez", "/readyz"})


class Api:
    """Everything that is served on one port."""

    def __init__(
        self, sandbox: Steered, resources: Resources, streams: Streams, tokens: frozenset[str]
    ) -> None:
        self._sandbox = sandbox
        self._resources = resources
        self._streams = streams
        self._tokens = tokens
        self._places = Places(stored_kinds())
        self._documents: Mapping[str, Any] = documents(stored_kinds())

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request and log it, also when its connection goes before the answer."""
        visit = Visit(request, self._places, self._sandbox.requests)
        if visit.path.startswith(ROOT):
            return await self._answer_or_refuse(self._steer(visit))
        try:
            response = await self._answer_or_refuse(self._serve(visit))
        except asyncio.CancelledError:
            visit.log(NO_ANSWER)
            raise
        visit.log(response.status)
        return response

    @staticmethod
    async def _answer_or_refuse(answer: Awaitable[web.StreamResponse]) -> web.StreamResponse:
        """Turn a refusal into a response with a Status."""
        try:
            return await answer
        except Failure as failure:
            return _refusal(failure)
        except web.HTTPRequestEntityTooLarge:
            return _refusal(Failure(413, "limit is 3145728"))
        except web.HTTPNotFound as nothing:
            return web.Response(status=404, text=nothing.text)

    async def _steer(self, visit: Visit) -> web.StreamResponse:
        body = await visit.request.read()
        done = administer(self._sandbox, visit.request.method, visit.path, body)
        return _json(200, orjson.dumps(done))

    def _authenticate(self, request: web.BaseRequest) -> None:
        if not self._tokens:
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self._tokens:
            raise Failure(401, "Unauthorized")

    async def _serve(self, visit: Visit) -> web.StreamResponse:
        body = await visit.request.read()
        self._authenticate(visit.request)
        fault = self._sandbox.faults.take(visit.occasion)
        if fault is not None:
            await self._strike_before(fault, visit)
        if visit.verb == "watch" and visit.place is not None:
            call = visit.call(visit.place, body)
            return await self._streams.serve(visit, call, fault)
        status, answer = self._reply(visit, body, fault)
        if fault is not None and fault.action == "reset":
            await _strike_after(fault, visit.request, status, answer)
        return _json(status, answer)

    def _reply(self, visit: Visit, body: bytes, fault: Fault | None) -> Reply:
        if visit.place is not None:
            return self._resources.reply(visit.call(visit.place, body), fault)
        if f"/{visit.path.split('/')[1]}" in HEALTH:
            return 200, b"ok"
        if (review := review_at(visit.path)) is not None:
            return _review(review, visit, body)
        document = self._documents.get(visit.path.rstrip("/"))
        if document is None:
            raise self._nothing_at(visit.path)
        return 200, orjson.dumps(document)

    def _nothing_at(self, path: str) -> Exception:
        """Return the 404 below a group and version we know, or elsewhere."""
        known = (root for root in self._documents if root.count("/") == 2 + ("/apis" in root))
        if any(path.startswith(f"{root}/") for root in known):
            return failures.no_such_resource()
        return web.HTTPNotFound(text=NOTHING_HERE)

    @staticmethod
    async def _strike_before(fault: Fault, visit: Visit) -> None:
        """Let a fault strike before the request is performed."""
        match fault.action:
            case "respond":
                raise Failure(fault.status, fault.message, retry_after=fault.retry_after)
            case "delay":
                await asyncio.sleep(fault.seconds)
            case "reset" if fault.when == "before":
                await abort(visit.request)
            case "silence" if visit.verb != "watch":
                await never()
            case "gone" if visit.verb != "watch":
                raise failures.expired(fault.message)


async def _strike_after(fault: Fault, request: web.BaseRequest, status: int, body: bytes) -> None:
    """Drop the connection though the request was performed."""
    if fault.when == "middle":
        response = web.StreamResponse(status=status, headers={"Content-Type": "application/json"})
        response.content_length = len(body)
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
    await abort(request)


def _review(review: Review, visit: Visit, body: bytes) -> Reply:
    if visit.request.method != "POST":
        raise Failure(405, "the server does not allow this method on the requested resource")
    # kubectl asks in protobuf; the answer does not depend on the question.
    content_type = visit.request.content_type
    asked = {} if content_type == PROTOBUF else read_document(content_type, body)
    return 201, orjson.dumps(review.reply(asked))


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")


def _refusal(failure: Failure) -> web.Response:
    response = _json(failure.code, orjson.dumps(failure.status()))
    if failure.retry_after is not None:
        response.headers["Retry-After"] = str(failure.retry_after)
    return response
