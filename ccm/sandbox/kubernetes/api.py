"""The handlers of the API: the verbs on stored resources, reviews, and documents."""

from typing import TypeAlias

import orjson
from aiohttp import web

from ccm.sandbox.kubernetes import errors
from ccm.sandbox.kubernetes.discovery import REVIEWS_BY_PATH, documents
from ccm.sandbox.kubernetes.errors import StatusError, details_of
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.patch import parse_patch
from ccm.sandbox.kubernetes.printers import encode_table, render
from ccm.sandbox.kubernetes.reads import Lists, get_object
from ccm.sandbox.kubernetes.registry import Registry
from ccm.sandbox.kubernetes.request import ApiRequest, RequestInfo
from ccm.sandbox.kubernetes.storage import Storage
from ccm.sandbox.kubernetes.watch import serve_watch

PROTOBUF = "application/vnd.kubernetes.protobuf"
READ_VERBS = ("get", "list")
HEALTH_CHECKS = frozenset({"healthz", "livez", "readyz"})

HandlerResponse: TypeAlias = tuple[int, bytes]
"""The HTTP status and the body of an answer."""


class ApiHandler:
    """Everything that is served to clients of the API."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lists = Lists(storage)
        self._documents = documents()

    async def handle(self, request: ApiRequest) -> web.StreamResponse:
        """Answer one request; an error becomes a response with a Status."""
        try:
            return await self._serve(request)
        except StatusError as error:
            return _refusal(error)
        except web.HTTPRequestEntityTooLarge:
            return _refusal(StatusError(413, "limit is 3145728"))

    async def _serve(self, request: ApiRequest) -> web.StreamResponse:
        request.body = await request.http.read()
        if request.info is not None:
            if not request.verb:
                raise errors.method_not_allowed()
            if request.verb == "watch":
                return await serve_watch(self._storage, request)
        return json_response(*self._respond(request))

    def _respond(self, request: ApiRequest) -> HandlerResponse:
        if request.info is not None:
            return self._read(request) if request.verb in READ_VERBS else self._write(request)
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
            raise StatusError(404, "the server could not find the requested resource")
        return 200, orjson.dumps(document)

    def _read(self, request: ApiRequest) -> HandlerResponse:
        if request.verb == "get":
            return 200, render(request, get_object(self._storage, request.target))
        found = self._lists.page(request)
        if request.wants_table:
            return 200, encode_table(request, found.items, found.metadata)
        return 200, found.encoded

    def _write(self, request: ApiRequest) -> HandlerResponse:
        if "dryRun" in request.query:
            raise errors.bad_request("the sandbox performs no dry runs")
        info, registry = request.target, Registry(self._storage)
        match request.verb:
            case "create":
                return 201, render(request, registry.create(info, request.document()))
            case "update":
                return 200, render(request, registry.update(info, request.document()))
            case "patch":
                patch = parse_patch(info.kind, request.content_type, request.body)
                return 200, render(request, registry.patch(info, patch))
        removed, is_gone = registry.delete(info, request.delete_options())
        return 200, orjson.dumps(_success(info, removed.obj)) if is_gone else removed.encoded


def json_response(status: int, body: bytes) -> web.Response:
    """Return a response with a JSON body."""
    return web.Response(status=status, body=body, content_type="application/json")


def _refusal(error: StatusError) -> web.Response:
    return json_response(error.code, orjson.dumps(error.status()))


def _success(info: RequestInfo, removed: Object) -> Object:
    details = {**details_of(info.kind, info.name), "uid": removed["metadata"]["uid"]}
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    return {**body, "status": "Success", "details": details}
