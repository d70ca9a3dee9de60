"""The endpoints: their responses, and that none is served without permission."""

import asyncio
import logging
import time
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ccm.model.conform import conform
from ccm.model.status import STATUS_SCHEMA, PageStatus, Status
from ccm.settings import Settings
from ccm.settings.configz import configz, flagz
from ccm.supervisor.https import status_page
from ccm.supervisor.https.endpoints import (
    Endpoints,
    HealthChecker,
    HealthEndpoints,
    HealthReport,
)
from ccm.supervisor.https.shared import LONGEST_REST, SHARE, SharedDocuments
from ccm.supervisor.metrics_collector import HealthCollector
from tests.integration.https.review_api import ReviewApi
from tests.integration.https.served import LocalServer, Response, Turns, serving_routes
from tests.support.deadlines import within
from tests.support.pki import trusting_anybody


@dataclass
class Supervisor:
    """What the endpoints show."""

    verbosities: list[int] = field(default_factory=list)
    trouble: str | None = None
    workers: list[str] = field(default_factory=lambda: ["node-0"])
    settings: Settings = field(
        default_factory=lambda: Settings(master="https://user:secret@10.0.0.1:6443")
    )

    def endpoints(self) -> Endpoints:
        checks = {
            "healthz": lambda: [
                HealthChecker("ping", lambda: None),
                HealthChecker("watches", self.check),
            ],
            "readyz": lambda: [HealthChecker(name, self.check) for name in self.workers],
        }
        health, metrics, slis = HealthEndpoints(checks), CollectorRegistry(), CollectorRegistry()
        Gauge("ccm_up_seconds", "Since the start.", registry=metrics).set(3)
        slis.register(HealthCollector(health))
        return Endpoints(
            health=health,
            metrics=metrics,
            slis=slis,
            status=lambda: conform(
                Status, {"schema": STATUS_SCHEMA, "version": "1.2.3", "up_seconds": 3723.4}
            ),
            configz=configz(self.settings),
            flagz=flagz(self.settings),
            set_verbosity=self.verbosities.append,
        )

    def check(self) -> str | None:
        return self.trouble


@dataclass
class AsAdmin:
    """The endpoints of a supervisor."""

    supervisor: Supervisor
    server: LocalServer

    async def get(self, path: str, **how: Any) -> Response:
        """As an administrator."""
        return await self.server.get(path, token="root", **how)


@asynccontextmanager
async def showing(reviews: ReviewApi, is_profiling: bool = True) -> AsyncIterator[AsAdmin]:
    reviews.add_token("root", "admin", "system:masters")
    supervisor = Supervisor()
    routes = supervisor.endpoints().routes(is_profiling)
    async with serving_routes(routes, master=reviews.url) as server:
        yield AsAdmin(supervisor, server)


@pytest.fixture
async def admin(reviews: ReviewApi) -> AsyncIterator[AsAdmin]:
    async with showing(reviews) as admin:
        yield admin


async def test_health_is_open_and_single_checks_are_not(admin: AsAdmin) -> None:
    assert (await admin.server.get("/readyz")).text == "ok"
    admin.supervisor.workers[:] = ["node-1"]
    assert (await admin.server.get("/readyz?verbose")).text == "[+]node-1 ok\nreadyz check passed\n"
    admin.supervisor.trouble = "nothing for 200 s"
    whole = await admin.server.get("/healthz")
    excluded = await admin.server.get("/healthz?exclude=watches")
    part = await admin.server.get("/healthz/watches")
    allowed = await admin.get("/healthz/watches")
    healthy = await admin.get("/healthz/ping")
    unknown = await admin.get("/healthz/nonsense")
    together = admin.supervisor.endpoints().health.report("healthz")
    assert (whole.status, whole.text) == (500, together.text)
    assert (excluded.status, excluded.text) == (200, "ok")
    assert part.status == 403
    assert (allowed.status, allowed.text) == (500, "internal server error: nothing for 200 s\n")
    assert (healthy.status, healthy.text) == (200, "ok")
    assert unknown.status == 404


async def test_metrics_come_in_the_form_that_is_asked_for(admin: AsAdmin) -> None:
    openmetrics = [("Accept", "application/openmetrics-text; version=1.0.0")]
    plain = await admin.get("/metrics")
    packed = await admin.get("/metrics", headers=[("Accept-Encoding", "gzip")])
    modern = await admin.get("/metrics", headers=openmetrics)
    assert plain.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "ccm_up_seconds 3.0\n" in plain.text
    assert (packed.headers["Content-Encoding"], packed.text) == ("gzip", plain.text)
    assert modern.headers["Content-Type"].startswith("application/openmetrics-text")
    assert modern.text.endswith("# EOF\n")


async def test_slis_count_checks_and_can_be_reset(admin: AsAdmin) -> None:
    admin.supervisor.trouble = "late"
    failed = 'kubernetes_healthchecks_total{name="watches",status="error",type="healthz"} '
    await admin.server.get("/healthz")
    await admin.server.get("/healthz?exclude=watches")
    counted = await admin.get("/metrics/slis")
    assert (await admin.server.request("DELETE", "/metrics/slis")).status == 403
    reset = await admin.server.request("DELETE", "/metrics/slis", token="root")
    after = await admin.get("/metrics/slis")
    assert 'kubernetes_healthcheck{name="ping",type="healthz"} 1.0\n' in counted.text
    assert 'kubernetes_healthcheck{name="node-0",type="readyz"} 0.0\n' in counted.text
    assert f"{failed}2.0\n" in counted.text, "by the probe, and by the scrape itself"
    assert reset.text == "metrics reset\n"
    assert f"{failed}1.0\n" in after.text


async def test_configz_is_upstreams_object(admin: AsAdmin) -> None:
    response = await admin.get("/configz")
    config = response.json()["cloudcontrollermanager.config.k8s.io"]
    assert config["kind"] == "CloudControllerManagerConfiguration"
    assert config["Generic"]["Port"] == 10258


async def test_flagz_shows_every_flag_and_no_secret(admin: AsAdmin) -> None:
    response = await admin.get("/flagz")
    assert response.text.startswith(
        "\ncloud-controller-manager flags\nWarning: This endpoint is not"
    )
    assert "\nsecure-port=10258\n" in response.text
    assert "master=https://REDACTED@10.0.0.1:6443\n" in response.text
    assert "secret" not in response.text


async def test_statusz_is_text_for_people_and_json_for_others(admin: AsAdmin) -> None:
    as_json = [("Accept", "application/json")]
    text = await admin.get("/statusz")
    status = await admin.get("/statusz", headers=as_json)
    assert text.text.startswith("\ncloud-controller-manager statusz\nWarning: ")
    assert "\nUp: 1 hr 02 min 03 sec\nBinary version: 1.2.3\nPaths: /configz " in text.text
    document = {"schema": STATUS_SCHEMA, "version": "1.2.3", "up_seconds": 3723.4}
    assert status.json() == conform(Status, document)


async def test_stacks_tell_where_every_task_is(admin: AsAdmin) -> None:
    response = await admin.get("/debug/stacks")
    assert "thread MainThread\n" in response.text
    assert "in sleep\n" in response.text, "not the outermost frame alone"


async def test_pprof_is_not_implemented(admin: AsAdmin) -> None:
    responses = [await admin.get(path) for path in ("/debug/pprof", "/debug/pprof/heap?x=1")]
    assert {response.status for response in responses} == {501}
    assert "/debug/stacks" in responses[0].text


@pytest.mark.parametrize(("body", "status"), [("4", 200), ("x", 400), ("-1", 400), ("9999", 400)])
async def test_put_sets_the_verbosity(admin: AsAdmin, body: str, status: int) -> None:
    response = await admin.server.request("PUT", "/debug/flags/v", token="root", body=body)
    assert (await admin.server.request("PUT", "/debug/flags/v", body="9")).status == 403
    assert response.status == status
    assert admin.supervisor.verbosities == ([4] if status == 200 else [])


async def test_without_profiling_there_is_nothing_to_debug(reviews: ReviewApi) -> None:
    async with showing(reviews, is_profiling=False) as admin:
        for path in ("/debug/stacks", "/debug/pprof/", "/debug/flags/v"):
            assert (await admin.get(path)).status == 404


async def test_every_path_but_the_open_ones_needs_permission(admin: AsAdmin) -> None:
    paths = (await admin.get("/statusz")).text.rpartition("Paths: ")[2].split()
    codes = {path: (await admin.server.get(path)).status for path in (*paths, "/", "/nowhere")}
    assert {path for path, code in codes.items() if code != 403} == {"/healthz", "/readyz"}
    assert len(codes) > 9


async def test_responses_are_not_cached_and_not_sniffed(admin: AsAdmin) -> None:
    for path in ("/healthz", "/metrics", "/configz", "/nowhere"):
        headers = (await admin.server.get(path)).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-cache, private"
        assert headers["Server"] == "ccm-supervisor"


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor()


EXCLUDED = "[+]watches excluded: ok"
UNMATCHED = 'warn: some health checks cannot be excluded: no matches for "x", "y"'


@pytest.mark.parametrize(
    ("why", "excluded", "reported"),
    [
        ("", [], ["[+]ping ok", "[+]watches ok", "healthz check passed"]),
        ("late", [], ["[+]ping ok", "[-]watches failed: reason withheld", "healthz check failed"]),
        ("late", ["watches"] * 2, ["[+]ping ok", EXCLUDED, "healthz check passed"]),
        ("late", ["ping", "watches"], ["[+]ping excluded: ok", EXCLUDED, "healthz check passed"]),
        ("", ["x", "y"], ["[+]ping ok", "[+]watches ok", UNMATCHED, "healthz check passed"]),
    ],
)
def test_all_checks_together_withhold_reasons_and_an_excluded_one_is_well(
    supervisor: Supervisor, why: str, excluded: list[str], reported: list[str]
) -> None:
    supervisor.trouble = why or None
    is_healthy = reported[-1].endswith("passed")
    expected = HealthReport(is_healthy, "".join(f"{line}\n" for line in reported))
    assert supervisor.endpoints().health.report("healthz", excluded) == expected


def test_a_change_is_logged_once_with_its_reason(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    health = supervisor.endpoints().health
    for why in (None, "it is late", "it is later", None):
        supervisor.trouble = why
        for _ in range(3):
            health.report("healthz")
    reported = [
        (record.levelname, record.message, vars(record).get("why")) for record in caplog.records
    ]
    assert reported == [
        ("WARNING", "health check failed", "it is late"),
        ("INFO", "health check recovered", None),
    ]


class Looks(Turns, Collector):
    """Notes in which turn of the loop each scrape came, and each look at status or stacks."""

    def collect(self) -> Iterator[Metric]:
        self.note()
        yield GaugeMetricFamily("ccm_turns", "Since the start.", 1)

    def clear(self) -> None:
        self.noted.clear()

    def frames(self) -> dict[int, FrameType]:
        self.note()
        return {}

    def status(self) -> PageStatus:
        self.note()
        return conform(PageStatus, {})


class LongLooks(Looks):
    """Each look takes a while; notes when each began and ended."""

    def __init__(self) -> None:
        super().__init__()
        self.spans = list[tuple[float, float]]()

    def clear(self) -> None:
        self.spans.clear()

    def note(self) -> None:
        began = time.monotonic()
        while time.monotonic() < began + 0.005:
            pass
        self.spans.append((began, time.monotonic()))


FORMS = [
    f"{kind};version=1.0.0;escaping={escaping}{packed}"
    for kind in ("text/plain", "application/openmetrics-text")
    for escaping in ("allow-utf-8", "underscores", "dots", "values")
    for packed in ("", "\r\nAccept-Encoding: gzip")
]
"""All that a client may choose of the metrics, with a header of its own."""


@pytest.mark.parametrize("path", ["/metrics", "/statusz", "/?refresh=%d", "/debug/stacks"])
async def test_many_scrapes_at_once_hold_up_nothing_else(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Each takes its time, and a renewal of the Lease would wait for all of them."""
    monkeypatch.setattr("ccm.supervisor.https.shared.SHARE", 0.001)
    looks = Looks()
    monkeypatch.setattr("sys._current_frames", looks.frames)
    await ask_at_once(reviews, looks, [path] * 30)
    assert len({*looks.noted}) == len(looks.noted) < 5


async def test_all_documents_together_take_the_share_of_one(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had its own tenth of the time: with five, half of it went to one client."""
    looks = LongLooks()
    monkeypatch.setattr("sys._current_frames", looks.frames)
    await ask_at_once(reviews, looks, ["/metrics", "/statusz", "/", "/debug/stacks"], times=5)
    taken = sum(ended - began for began, ended in looks.spans[:-1])
    assert taken < 1.5 * SHARE * (looks.spans[-1][0] - looks.spans[0][0])


async def test_who_reads_one_document_without_end_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scrape took a second beside a client that read an open page again and again."""
    monkeypatch.setattr("ccm.supervisor.https.shared.SHARE", 1e-12)
    monkeypatch.setattr("ccm.supervisor.https.shared.LONGEST_REST", 3600.0)
    documents = SharedDocuments()
    await documents.get("page", lambda: 1)
    tasks = [asyncio.create_task(documents.get(name, lambda: 2)) for name in ("page", "/metrics")]
    for _ in range(10):
        await asyncio.sleep(0)
    assert [task.done() for task in tasks] == [False, True]
    tasks[0].cancel()


@pytest.mark.virtual_time
async def test_what_no_one_reads_any_more_holds_up_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who read each document once had the second of two scrapers wait for all of them for good."""
    monkeypatch.setattr("ccm.supervisor.https.shared.SHARE", 1e-12)  # each rests for the longest
    documents = SharedDocuments()
    for name in ("page", "stacks", "status"):
        await documents.get(name, lambda: 1)
    await asyncio.sleep(3600.0)
    began = [time.monotonic()]
    for _ in range(2):
        await documents.get("/metrics", lambda: 2)
        began.append(time.monotonic())
    assert began[2] - began[1] == pytest.approx(LONGEST_REST, rel=0.1)


async def ask_at_once(
    reviews: ReviewApi, looks: Looks, paths: Collection[str], times: int = 1
) -> None:
    """Ask for each path, all of which are open, on a connection of its own, so many times."""
    endpoints = replace(Supervisor().endpoints(), status=looks.status)
    endpoints.metrics.register(looks)
    open_to_all = ("/metrics", "/statusz", "/", "/debug/stacks")
    routes = [
        *endpoints.routes(is_profiling=True),
        *status_page.routes(looks.status, endpoints.documents),
    ]
    flags = {"master": reviews.url, "authorization_always_allow_paths": open_to_all}
    async with serving_routes(routes, **flags) as server:
        tls = trusting_anybody()
        open_all = (asyncio.open_connection("127.0.0.1", server.port, ssl=tls) for _ in paths)
        clients = await asyncio.gather(*open_all)
        looks.clear()
        async with looks.counted(), within():
            for number, (path, (_, writer)) in enumerate(zip(paths, clients, strict=True)):
                each = path.replace("%d", str(2 + number))
                form = "Accept: " + FORMS[number % len(FORMS)]
                asked = f"GET {each} HTTP/1.1\r\nHost: x\r\n{form}\r\n\r\n"
                writer.write(asked.encode() * times)
            for reader, writer in clients:
                for _ in range(times):
                    await reader.readuntil(b"HTTP/1.1 200 ")
                writer.close()


async def test_who_shares_a_scrape_gets_the_version_that_it_asked_for(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prometheus takes no answer whose type of content is none."""
    monkeypatch.setattr("ccm.supervisor.https.shared.SHARE", 0.01)
    routes = Supervisor().endpoints().routes(is_profiling=True)
    flags = {"master": reviews.url, "authorization_always_allow_paths": ("/metrics",)}
    async with serving_routes(routes, **flags) as server, within():
        clients = {
            version: asyncio.create_task(
                server.get(
                    "/metrics",
                    headers=[("Accept", f"application/openmetrics-text;version={version}")],
                )
            )
            for version in ('1.0.0."x', '1.0.0."y', "1.0.0")
        }
        for version, answer in clients.items():
            assert f"version={version};" in (await answer).headers["Content-Type"]


async def test_who_shares_a_scrape_shares_its_compression(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes longer than all else."""
    packed = list[str]()
    for name in ("compress", "compressobj"):  # which of them depends on who packs
        monkeypatch.setattr(zlib, name, counting(getattr(zlib, name), packed))
    routes = Supervisor().endpoints().routes(is_profiling=True)
    flags = {"master": reviews.url, "authorization_always_allow_paths": ("/metrics",)}
    async with serving_routes(routes, **flags) as server:
        monkeypatch.setattr("ccm.supervisor.https.shared.SHARE", 0.001)
        tls = trusting_anybody()
        connecting = (asyncio.open_connection("127.0.0.1", server.port, ssl=tls) for _ in range(30))
        connections = await asyncio.gather(*connecting)
        for _, writer in connections:
            head = "Host: x\r\nAccept-Encoding: gzip\r\nConnection: close"
            writer.write(f"GET /metrics HTTP/1.1\r\n{head}\r\n\r\n".encode())
        async with within():
            answers = await asyncio.gather(*(reader.read() for reader, _ in connections))
        for _, writer in connections:
            writer.close()
    assert all(b"Content-Encoding: gzip" in answer for answer in answers)
    assert 0 < len(packed) < 5


def counting(function: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    """The function, which notes each of its calls."""

    def counted(*args: Any, **more: Any) -> Any:
        calls.append(function.__name__)
        return function(*args, **more)

    return counted
