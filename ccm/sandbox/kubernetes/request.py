"""One HTTP request: the RequestInfo of its path, its options and body, and its audit event."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

import orjson
from aiohttp import web

from ccm.sandbox.kubernetes import errors
from ccm.sandbox.kubernetes.kinds import NAMESPACE, STORED_KINDS, ResourceKind
from ccm.sandbox.kubernetes.objects import Object

VERBS_BY_METHOD = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
KINDS_BY_PATH = {(kind.group, kind.version, kind.plural): kind for kind in STORED_KINDS}
NAMESPACE_SUBRESOURCES = ("status", "finalize")
TRUE = ("1", "true")
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A resource, one of its objects when `name` is there, or an object's subresource."""

    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        return self.kind.key(self.namespace, self.name)

    def verb(self, method: str, query: Mapping[str, str]) -> str:
        """Return Kubernetes' verb for a request, or nothing when the method has no meaning."""
        if self.subresource and method not in ("GET", "PUT", "PATCH"):
            return ""
        if method == "GET":
            if query.get("watch") in TRUE:
                return "watch"
            return "get" if self.name else "list"
        if (method == "POST") is bool(self.name):
            return ""
        return VERBS_BY_METHOD.get(method, "")


def request_info(path: str) -> RequestInfo | None:
    """Return what a path names, or None when it is not a resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == NAMESPACE.plural and len(rest) > 2 and rest[2] not in NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    kind = KINDS_BY_PATH.get((group, version, rest[0]))
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        return None
    info = RequestInfo(kind, namespace, *rest[1:])
    has_subresource = not info.subresource or (kind.has_status and info.subresource == "status")
    is_complete = bool(namespace) or not (info.name and kind.namespaced)
    return info if has_subresource and is_complete else None


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One request as it came: Kubernetes' verb, the resource if it is about one, the client."""

    verb: str
    resource: str
    user_agent: str


class ApiRequest:
    """A request that is being answered; `body` is empty until it is read."""

    def __init__(self, http: web.BaseRequest) -> None:
        self.http = http
        self.body = b""
        path, _, query = http.raw_path.partition("?")
        self.path = unquote(path)
        self.query = dict(parse_qsl(query, keep_blank_values=True))
        self.info = request_info(self.path)
        self.verb = http.method.lower()
        if self.info is not None:
            self.verb = self.info.verb(http.method, self.query)

    @property
    def target(self) -> RequestInfo:
        """The resource that the request is about; handlers are called for no other requests."""
        assert self.info is not None
        return self.info

    @property
    def wants_table(self) -> bool:
        """Whether the client, as kubectl does, prefers a Table to plain JSON."""
        return "as=Table;v=v1;g=meta.k8s.io" in self.http.headers.get("Accept", "")

    @property
    def content_type(self) -> str:
        return self.http.headers.get("Content-Type", "").partition(";")[0].strip()

    def number(self, name: str) -> int:
        text = self.query.get(name) or "0"
        if not text.isdecimal():
            raise errors.bad_request(f'{name}: Invalid value: "{text}": invalid syntax')
        return int(text)

    def document(self) -> Object:
        if self.content_type not in ("", JSON):
            raise errors.unsupported_media_type(self.content_type, (JSON,))
        return parse_object(self.body)

    def delete_options(self) -> Object:
        return parse_object(self.body) if self.body else {}

    def audit_event(self) -> AuditEvent:
        resource = self.info.kind.plural if self.info else ""
        return AuditEvent(self.verb, resource, self.http.headers.get("User-Agent", ""))


def parse_object(body: bytes) -> Object:
    """Return the JSON object that a body holds."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"the object provided is unrecognized: {error}") from error
    if not isinstance(document, dict):
        raise errors.bad_request("the object provided is unrecognized: not a JSON object")
    return document
