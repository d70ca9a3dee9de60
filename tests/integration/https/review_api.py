"""An API server that reviews tokens and access, and nothing else; it holds state and may fail."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
from aiohttp import web

from ccm.model.objects import Json
from tests.unit.api_server import serving

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

Permission = tuple[str, str, str]  # user or group, verb, path


@dataclass
class ReviewApi:
    """`tokens` by text: the user of a TokenReview. `failures`: what the next reviews end with."""

    url: str = ""
    tokens: dict[str, Json] = field(default_factory=dict)
    permissions: set[Permission] = field(default_factory=set)
    config: Json | None = None  # of the ConfigMap
    meta: Json = field(default_factory=dict)  # of another ConfigMap that is answered with
    is_missing: bool = False  # the ConfigMap, by the word of a proxy
    failures: list[int] = field(default_factory=list)
    hangs: asyncio.Event | None = None  # while it is not set, no review is answered
    counts: Counter[str] = field(default_factory=Counter)  # requests by kind
    specs: list[Json] = field(default_factory=list)
    mixed_up: dict[str, Json] = field(default_factory=dict)  # by kind: of whom answers are instead

    def add_token(self, token: str, name: str, *groups: str) -> None:
        user = {"username": name, "uid": f"uid-{name}", "groups": [*groups]}
        self.tokens[token] = {**user, "extra": {"scopes": ["a", "b"]}}

    def allow(self, who: str, path: str, verb: str = "get") -> None:
        self.permissions.add((who, verb, path))

    def publish_cas(self, clients: bytes, proxies: bytes = b"", *names: str) -> None:
        """Publish CAs as an API server does."""
        self.config = {
            "client-ca-file": clients.decode(),
            "requestheader-client-ca-file": proxies.decode(),
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            "requestheader-allowed-names": json.dumps(names),
        }

    async def answer(self, request: web.Request) -> web.Response:
        return await (self._config_map() if request.path == CONFIG_MAP else self._review(request))

    async def _review(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self.counts[body["kind"]] += 1
        self.specs.append(body["spec"])
        if self.hangs:
            await self.hangs.wait()
        if self.failures:
            status = self.failures.pop(0)
            return web.json_response({"kind": "Status", "reason": "Broken"}, status=status)
        result = self._token if body["kind"] == "TokenReview" else self._access
        spec = body["spec"] | self.mixed_up.get(body["kind"], {})
        return web.json_response({**body, "spec": spec, "status": result(spec)}, status=201)

    async def _config_map(self) -> web.Response:
        self.counts["ConfigMap"] += 1
        if self.is_missing:
            return web.Response(text="404 page not found", status=404)
        if self.config is None:
            return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)
        meta = {"name": CONFIG_MAP.rpartition("/")[2], "namespace": "kube-system", **self.meta}
        return web.json_response({"metadata": meta, "data": self.config})

    def _token(self, spec: Json) -> Json:
        user = self.tokens.get(spec["token"])
        return {"authenticated": True, "user": user} if user else {"authenticated": False}

    def _access(self, spec: Json) -> Json:
        attributes = spec["nonResourceAttributes"]
        verb, path = attributes["verb"], attributes["path"]
        subjects = (spec["user"], *spec["groups"])
        may = any((subject, verb, path) in self.permissions for subject in subjects)
        return {"allowed": True} if may else {"allowed": False, "reason": "no rule"}


@asynccontextmanager
async def serving_reviews() -> AsyncIterator[ReviewApi]:
    reviews = ReviewApi()
    async with serving(reviews.answer) as (server, _):
        reviews.url = server.url
        try:
            yield reviews
        finally:
            if reviews.hangs:
                reviews.hangs.set()
