"""The pages of the server, as routes; who may read a page is not its own care."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from ccm.model.objects import Json
from ccm.supervisor.https.debug import stacks
from ccm.supervisor.https.health import Health, Report

NOT_FOR_MACHINES = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility"
    " guarantees and is for debugging purposes only.\n"
)
NO_PPROF = "pprof is Go's; /debug/stacks shows where each thread and task is\n"


@dataclass(frozen=True, slots=True)
class Sources:
    """What the pages show."""

    health: Health
    metrics: CollectorRegistry
    slis: CollectorRegistry
    status: Callable[[], Json]
    configz: Callable[[], Json]
    flagz: Callable[[], str]
    set_verbosity: Callable[[int], None]


class Pages:
    """Every page of ours."""

    def __init__(self, sources: Sources) -> None:
        self._sources, self._health = sources, sources.health

    def routes(self, is_profiling: bool) -> Iterator[web.RouteDef]:
        for endpoint in self._health.endpoints:
            yield web.get(f"/{endpoint}", self._checks)
            yield web.get(f"/{endpoint}/{{check}}", self._check)
        yield web.get("/metrics", self._metrics)
        yield web.get("/metrics/slis", self._slis)
        yield web.delete("/metrics/slis", self._forget)
        yield web.get("/configz", self._configz)
        yield web.get("/statusz", self._statusz)
        yield web.get("/flagz", self._flagz)
        if is_profiling:
            yield web.get("/debug/stacks", self._stacks)
            yield web.get("/debug/pprof{rest:.*}", self._pprof)
            yield web.put("/debug/flags/v", self._verbosity)

    async def _checks(self, request: web.Request) -> web.Response:
        report = self._health.report(request.path[1:], request.query.getall("exclude", ()))
        return _reported(report, is_short=report.is_healthy and "verbose" not in request.query)

    async def _check(self, request: web.Request) -> web.Response:
        endpoint = request.path.split("/")[1]
        report = self._health.one(endpoint, request.match_info["check"])
        if report is None:
            raise web.HTTPNotFound
        return _reported(report)

    async def _metrics(self, request: web.Request) -> web.Response:
        return _exposition(request, self._sources.metrics)

    async def _slis(self, request: web.Request) -> web.Response:
        return _exposition(request, self._sources.slis)

    async def _forget(self, request: web.Request) -> web.Response:
        self._health.forget()
        return web.Response(text="metrics reset\n")

    async def _configz(self, request: web.Request) -> web.Response:
        return _json(self._sources.configz())

    async def _statusz(self, request: web.Request) -> web.Response:
        """What the control socket's `status` says as JSON; as text, what Kubernetes' parts say."""
        status = self._sources.status()
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
        return _page("statusz", "\n".join(lines) + "\n")

    async def _flagz(self, request: web.Request) -> web.Response:
        return _page("flags", self._sources.flagz())

    async def _stacks(self, request: web.Request) -> web.Response:
        return web.Response(text=stacks())

    async def _pprof(self, request: web.Request) -> web.Response:
        return web.Response(text=NO_PPROF, status=501)

    async def _verbosity(self, request: web.Request) -> web.Response:
        asked = await request.text()
        if not asked.isdecimal() or len(asked) > 3:
            return web.Response(text="the body must be a number\n", status=400)
        self._sources.set_verbosity(int(asked))
        return web.Response(text=f"successfully set klog.logging.verbosity to {asked}\n")


def _reported(report: Report, is_short: bool = False) -> web.Response:
    text = "ok" if is_short else report.text
    return web.Response(text=text, status=200 if report.is_healthy else 500)


def _exposition(request: web.Request, registry: CollectorRegistry) -> web.Response:
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    answer = web.Response(body=encode(registry), headers={"Content-Type": content_type})
    answer.enable_compression()
    return answer


def _paths(app: web.Application) -> Iterable[str]:
    canonical = (resource.canonical for resource in app.router.resources())
    return sorted({path for path in canonical if "{" not in path})


def _page(title: str, body: str) -> web.Response:
    return web.Response(text=f"\ncloud-controller-manager {title}\n{NOT_FOR_MACHINES}\n{body}")


def _json(body: Json) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")
