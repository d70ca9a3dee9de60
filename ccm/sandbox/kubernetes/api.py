"""Answers requests: finds the handler, lets faults strike, and writes the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

import orjson
from aiohttp import web

from ccm.sandbox.kubernetes import failures
from ccm.sandbox.kubernetes.admin import ROOT, Steered, administer
from ccm.sandbox.kubernetes.call import Call, read_document
from ccm.sandbox.kubernetes.discovery import documents
from ccm.sandbox.kubernetes.failures import Failure
from ccm.sandbox.kubernetes.faults import Fault, Occasion
from ccm.sandbox.kubernetes.kinds import stored_kinds
from ccm.sandbox.kubernetes.place import Place, Places, verb_of
from ccm.sandbox.kubernetes.requests import Request
from ccm.sandbox.kubernetes.resources import Reply, Resources
from ccm.sandbox.kubernetes.reviews import Review, review_at
from ccm.sandbox.kubernetes.streaming import Streams, abort, never

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
        """Answer one request; a refusal becomes a Status."""
        visit = Visit(request, self._places)
        try:
            body = await request.read()
            if visit.path.startswith(ROOT):
                return _json(200, orjson.dumps(self._administer(visit, body)))
            self._authenticate(request)
            response = await self._answer(visit, body)
        except Failure as failure:
            response = _refusal(failure)
        except web.HTTPRequestEntityTooLarge:
            response = _refusal(Failure(413, "limit is 3145728"))
        except web.HTTPNotFound as nothing:
            response = web.Response(status=404, text=nothing.text)
        if visit.verb != "watch" or response.status != 200:
            self._sandbox.requests.add(visit.record(response.status))
        return response

    def _administer(self, visit: Visit, body: bytes) -> Any:
        return administer(self._sandbox, visit.request.method, visit.path, body)

    def _authenticate(self, request: web.BaseRequest) -> None:
        if not self._tokens:
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self._tokens:
            raise Failure(401, "Unauthorized")

    async def _answer(self, visit: Visit, body: bytes) -> web.StreamResponse:
        fault = self._sandbox.faults.take(visit.occasion)
        if fault is not None:
            await self._strike_before(fault, visit)
        if visit.verb == "watch" and visit.place is not None:
            call = visit.call(visit.place, body)
            log = lambda: self._sandbox.requests.add(visit.record(200))  # noqa: E731
            return await self._streams.serve(visit.request, call, fault, log)
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


class Visit:
    """What the log and the faults know of one request."""

    def __init__(self, request: web.BaseRequest, places: Places) -> None:
        self.request = request
        self._started = time.monotonic()
        path, _, self.query_string = request.raw_path.partition("?")
        self.path = unquote(path)
        self.query = dict(parse_qsl(self.query_string, keep_blank_values=True))
        self.place = places.find(self.path)
        self.verb = request.method.lower()
        if self.place is not None:
            self.verb = verb_of(request.method, self.place, self.query)
        self.user_agent = request.headers.get("User-Agent", "")

    @property
    def occasion(self) -> Occasion:
        if self.place is None:
            return Occasion(self.verb, self.path, "", self.user_agent)
        return Occasion(self.verb, self.place.kind.plural, self.place.name, self.user_agent)

    def call(self, place: Place, body: bytes) -> Call:
        if not self.verb:
            raise Failure(405, "the server does not allow this method on the requested resource")
        headers = self.request.headers
        content_type = headers.get("Content-Type", "").partition(";")[0].strip()
        accept = headers.get("Accept", "")
        return Call(self.verb, place, self.query, accept, content_type, body)

    def record(self, status: int) -> Request:
        place = self.place
        return Request(
            verb=self.verb,
            path=self.path,
            query=self.query_string,
            resource=place.kind.plural if place else "",
            subresource=place.subresource if place else "",
            namespace=place.namespace if place else "",
            name=place.name if place else "",
            user_agent=self.user_agent,
            content_type=self.request.headers.get("Content-Type", ""),
            status=status,
            seconds=time.monotonic() - self._started,
        )


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
