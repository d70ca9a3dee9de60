"""A unix socket in front of the lab's Incus: it counts requests, and does as rules say.

A rule is a mapping. Keys that select: `method`; `path`, a regular expression for path and query;
`count`, at most so many requests. Keys that act: `delay`, seconds to wait first; `status` and
`body`, with `retry_after`, answered instead; `after`, Incus does the work and only its answer is
replaced; `drop`, the connection closes without an answer.
"""

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, TCPConnector, web

Rule = Mapping[str, Any]


@dataclass(frozen=True)
class GatewayCall:
    """One request as it came."""

    method: str
    path: str


class Gateway:
    """Runs in a thread; passes requests on to `url` with a client certificate."""

    def __init__(self, url: str, socket: Path, server: str, certificate: str, key: str) -> None:
        self.socket, self.calls = socket, list[GatewayCall]()
        self._url = url
        self._tls = ssl.create_default_context(cafile=server)
        self._tls.load_cert_chain(certificate, key)
        self._rules: list[dict[str, Any]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def set_rules(self, *rules: Rule) -> None:
        """These rules hold from now on, and no others."""
        self._rules = [{**rule, "hits": 0} for rule in rules]

    @contextmanager
    def running(self) -> Iterator["Gateway"]:
        """It answers at its socket inside."""
        self._thread.start()
        runner = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._stop(runner), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _start(self) -> web.AppRunner:
        self._session = ClientSession(connector=TCPConnector(ssl=self._tls))
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{rest:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.UnixSite(runner, self.socket).start()
        return runner

    async def _stop(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        await self._session.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path_qs
        self.calls.append(GatewayCall(request.method, path))
        rule = self._hit(request.method, path)
        await asyncio.sleep(rule.get("delay", 0))
        if rule.get("after") or not ("status" in rule or "drop" in rule):
            answer = await self._pass_on(request)
        if "drop" in rule and request.transport:
            request.transport.abort()
        return injected(rule) if "status" in rule or "drop" in rule else answer

    def _hit(self, method: str, path: str) -> dict[str, Any]:
        for rule in self._rules:
            fits = rule.get("method", method) == method and re.search(rule.get("path", ""), path)
            if fits and rule["hits"] < rule.get("count", rule["hits"] + 1):
                rule["hits"] += 1
                return rule
        return {}

    async def _pass_on(self, request: web.Request) -> web.Response:
        headers = {k: v for k, v in request.headers.items() if k in ("If-Match", "Content-Type")}
        content = await request.read()
        sent = self._session.request(
            request.method, self._url + request.raw_path, data=content, headers=headers
        )
        async with sent as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() == "etag"}
            return web.Response(
                status=answer.status,
                body=await answer.read(),
                headers=kept,
                content_type=answer.content_type,
            )


def injected(rule: Mapping[str, Any]) -> web.Response:
    """What is answered in place of Incus."""
    status = rule.get("status", 500)
    error = {"type": "error", "error_code": status, "error": "injected by the lab"}
    body = rule.get("body", error)
    headers = {"Retry-After": str(rule["retry_after"])} if "retry_after" in rule else {}
    content = body if isinstance(body, str) else json.dumps(body)
    return web.Response(
        status=status, text=content, headers=headers, content_type="application/json"
    )
