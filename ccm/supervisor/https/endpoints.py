"""Health checks, metrics, configuration and debugging as HTTP routes; who may read them is not
decided here."""

import asyncio
import gzip
import logging
import re
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from types import FrameType
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from ccm.model.objects import Json
from ccm.model.status import Status
from ccm.supervisor.https.shared import SharedDocuments

log = logging.getLogger(__name__)

PING = "ping"
ACCESS = "access"
NOT_MACHINE_PARSEABLE = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility"
    " guarantees and is for debugging purposes only.\n"
)
ESCAPING = re.compile(r";\s*escaping=[^;,]*")
"""What a client wants names to be written like: ours are the same in the usual way, and a client
that names all ways has the metrics made for each.
"""
PACKING = 1  # gzip's level: quick, as it takes a turn of the loop
NO_PPROF = "pprof is Go's; /debug/stacks shows where each thread and task is\n"


@dataclass(frozen=True, slots=True)
class HealthChecker:
    """A named check; `check` returns None when healthy, else what is wrong."""

    name: str
    check: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Result and body of a response, to the letter as the API server has it."""

    is_healthy: bool
    text: str


@dataclass(slots=True)
class HealthStatistics:
    """Of one check of one endpoint: what is wrong, and how often it succeeded and failed."""

    successes: int = 0
    errors: int = 0
    why: str | None = None


class HealthEndpoints:
    """`healthz`, `livez` and `readyz`, each with its checks, which are asked for at each request.

    A change of a check's result is logged once, with the reason.
    """

    def __init__(self, checkers: Mapping[str, Callable[[], Iterable[HealthChecker]]]) -> None:
        self._checkers = checkers
        self._statistics: defaultdict[tuple[str, str], HealthStatistics]
        self._statistics = defaultdict(HealthStatistics)  # by endpoint and check

    @property
    def endpoints(self) -> Iterable[str]:
        return self._checkers

    def routes(self) -> Iterator[web.RouteDef]:
        """All checks of each endpoint, and each check."""
        for endpoint in self._checkers:
            yield web.get(f"/{endpoint}", self._all_checks)
            yield web.get(f"/{endpoint}/{{check}}", self._one_check)

    def report(self, endpoint: str, excluded: Iterable[str] = ()) -> HealthReport:
        """Run every check that is not excluded; the text withholds the reasons of failures."""
        unmatched, lines, has_failed = dict.fromkeys(excluded), [], False
        for checker in self._checkers[endpoint]():
            if checker.name in unmatched:
                del unmatched[checker.name]
                lines.append(f"[+]{checker.name} excluded: ok")
            elif self._check(endpoint, checker) is None:
                lines.append(f"[+]{checker.name} ok")
            else:
                has_failed = True
                lines.append(f"[-]{checker.name} failed: reason withheld")
        if unmatched:
            names = ", ".join(f'"{name}"' for name in unmatched)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        lines.append(f"{endpoint} check {'failed' if has_failed else 'passed'}")
        return HealthReport(not has_failed, "\n".join(lines) + "\n")

    def report_one(self, endpoint: str, name: str) -> HealthReport | None:
        """Run one check, with its reason; None when there is no such check."""
        for checker in self._checkers[endpoint]():
            if checker.name == name:
                why = self._check(endpoint, checker)
                return HealthReport(why is None, f"internal server error: {why}\n" if why else "ok")
        return None

    def statistics(self) -> Iterator[tuple[str, str, HealthStatistics]]:
        """Endpoint, check and its statistics, of all that have run since the last `reset`."""
        for (endpoint, name), check in sorted(self._statistics.items(), key=itemgetter(0)):
            if check.successes + check.errors:
                yield endpoint, name, check

    def reset(self) -> None:
        """Count again."""
        for check in self._statistics.values():
            check.successes = check.errors = 0

    async def _all_checks(self, request: web.Request) -> web.Response:
        report = self.report(request.path[1:], request.query.getall("exclude", ()))
        if report.is_healthy and "verbose" not in request.query:
            return web.Response(text="ok")
        return _health_response(report)

    async def _one_check(self, request: web.Request) -> web.Response:
        endpoint = request.path.split("/")[1]
        report = self.report_one(endpoint, request.match_info["check"])
        if report is None:
            raise web.HTTPNotFound
        return _health_response(report)

    def _check(self, endpoint: str, checker: HealthChecker) -> str | None:
        last, why = self._statistics[endpoint, checker.name], checker.check()
        extra = {"check": f"{endpoint}/{checker.name}"}
        if why:
            last.errors += 1
        else:
            last.successes += 1
        if why and not last.why:
            level = logging.INFO if endpoint == "readyz" else logging.WARNING
            log.log(level, "health check failed", extra={**extra, "why": why})
        elif last.why and not why:
            log.info("health check recovered", extra=extra)
        last.why = why
        return why


@dataclass(frozen=True, slots=True)
class Endpoints:
    """All endpoints but the status page, and what they show."""

    health: HealthEndpoints
    metrics: CollectorRegistry
    slis: CollectorRegistry
    status: Callable[[], Status]
    configz: Json
    flagz: str
    set_verbosity: Callable[[int], None]
    documents: SharedDocuments = field(default_factory=SharedDocuments)

    def routes(self, is_profiling: bool) -> Iterator[web.RouteDef]:
        """Those under `/debug` only with `is_profiling`."""
        yield from self.health.routes()
        yield web.get("/metrics", Exposition(self.metrics, self.documents).answer)
        yield web.get("/metrics/slis", Exposition(self.slis, self.documents).answer)
        yield web.delete("/metrics/slis", self._reset_slis)
        yield web.get("/configz", self._configz)
        yield web.get("/statusz", self._statusz)
        yield web.get("/flagz", self._flagz)
        if is_profiling:
            yield web.get("/debug/stacks", self._stacks)
            yield web.get("/debug/pprof{rest:.*}", _pprof)
            yield web.put("/debug/flags/v", self._verbosity)

    async def _reset_slis(self, request: web.Request) -> web.Response:
        self.health.reset()
        return web.Response(text="metrics reset\n")

    async def _configz(self, request: web.Request) -> web.Response:
        return _json(self.configz)

    async def _statusz(self, request: web.Request) -> web.Response:
        """As JSON the status, as text what upstream's components say."""
        status = await self.documents.get("status", self.status)
        if "application/json" in request.headers.get("Accept", ""):
            return _json(status)
        up = int(status["up_seconds"])
        started = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(time.time() - up))
        lines = (
            f"Started: {started}",
            f"Up: {up // 3600} hr {up // 60 % 60:02} min {up % 60:02} sec",
            f"Binary version: {status['version']}",
            f"Paths: {' '.join(_paths(request.app))}",
        )
        return _zpage("statusz", "\n".join(lines) + "\n")

    async def _flagz(self, request: web.Request) -> web.Response:
        return _zpage("flags", self.flagz)

    async def _stacks(self, request: web.Request) -> web.Response:
        return web.Response(text=await self.documents.get("stacks", _format_stacks))

    async def _verbosity(self, request: web.Request) -> web.Response:
        level = await request.text()
        if not level.isdecimal() or len(level) > 3:
            return web.Response(text="the body must be a number\n", status=400)
        self.set_verbosity(int(level))
        return web.Response(text=f"successfully set klog.logging.verbosity to {level}\n")


def _health_response(report: HealthReport) -> web.Response:
    return web.Response(text=report.text, status=200 if report.is_healthy else 500)


def _format_stacks() -> str:
    """Where each thread, and each task of the running loop is: no values, which may be secrets."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    ]
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        lines = (traceback.format_stack(frame, limit=1) for frame in _frames(task.get_coro()))
        parts.append(f"task {task.get_name()}\n{''.join(line for (line,) in lines)}")
    return "\n".join(parts)


async def _pprof(_: web.Request) -> web.Response:
    return web.Response(text=NO_PPROF, status=501)


class Exposition:
    """The metrics of a registry as text, for which they are collected."""

    def __init__(self, registry: CollectorRegistry, documents: SharedDocuments) -> None:
        self._registry, self._documents = registry, documents

    async def answer(self, request: web.Request) -> web.Response:
        """In the form that the request accepts; its version is echoed to this client alone."""
        accepted = ESCAPING.sub("", request.headers.get("Accept", ""))
        encode, content_type = choose_encoder(accepted)

        def make() -> tuple[bytes, bytes]:
            """Plain and packed."""
            text = encode(self._registry)
            return text, gzip.compress(text, PACKING)

        name = f"{request.path} {content_type.partition(';')[0]}"
        text, packed = await self._documents.get(name, make)
        headers = {"Content-Type": content_type}
        if not gzip_accepted(request.headers.get("Accept-Encoding", "")):
            return web.Response(body=text, headers=headers)
        return web.Response(body=packed, headers={**headers, "Content-Encoding": "gzip"})


def _paths(app: web.Application) -> Iterable[str]:
    canonical = (resource.canonical for resource in app.router.resources())
    return sorted({path for path in canonical if "{" not in path})


def _zpage(title: str, body: str) -> web.Response:
    text = f"\ncloud-controller-manager {title}\n{NOT_MACHINE_PARSEABLE}\n{body}"
    return web.Response(text=text)


def _json(body: Mapping[str, Any]) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def _frames(awaiting: Any) -> Iterator[FrameType]:
    """From the task's own coroutine to the innermost one that it awaits."""
    while awaiting is not None:
        for kind in ("cr", "gi", "ag"):
            if frame := getattr(awaiting, f"{kind}_frame", None):
                yield frame
        inner = (getattr(awaiting, name, None) for name in ("cr_await", "gi_yieldfrom", "ag_await"))
        awaiting = next(filter(None, inner), None)
