"""The pages: what they say, and that no page is served to those who may not see it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge

from ccm.settings import Settings
from ccm.settings.shown import configz, flagz
from ccm.supervisor.https.endpoints import Pages, Sources
from ccm.supervisor.https.health import Check, Health
from ccm.supervisor.metrics.collector import HealthCollector
from tests.https import served
from tests.https.reviewer import Reviewer
from tests.https.served import Site, serving


@dataclass
class Supervisor:
    """What the pages look at."""

    verbosities: list[int] = field(default_factory=list)
    trouble: str | None = None
    settings: Settings = field(
        default_factory=lambda: Settings(master="https://user:secret@10.0.0.1:6443")
    )

    def sources(self) -> Sources:
        checks = {
            "healthz": lambda: [Check("ping", lambda: None), Check("watches", self.look)],
            "readyz": lambda: [Check("node-0", self.look)],
        }
        health, metrics, slis = Health(checks), CollectorRegistry(), CollectorRegistry()
        Gauge("ccm_up_seconds", "Since the start.", registry=metrics).set(3)
        slis.register(HealthCollector(health))
        return Sources(
            health=health,
            metrics=metrics,
            slis=slis,
            status=lambda: {"version": "1.2.3", "up_seconds": 3723.4, "workers": []},
            configz=lambda: configz(self.settings),
            flagz=lambda: flagz(self.settings),
            set_verbosity=self.verbosities.append,
        )

    def look(self) -> str | None:
        return self.trouble


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor()


@asynccontextmanager
async def showing(
    supervisor: Supervisor, reviewer: Reviewer, is_profiling: bool = True, **flags: Any
) -> AsyncIterator[Site]:
    """The pages of a supervisor, of which `root` may see all."""
    reviewer.know("root", "admin", "system:masters")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served, "PAGES", tuple(Pages(supervisor.sources()).routes(is_profiling)))
        async with serving(reviewer, **flags) as site:
            yield site


async def test_health_needs_no_right_and_its_parts_do(
    supervisor: Supervisor, reviewer: Reviewer
) -> None:
    async with showing(supervisor, reviewer) as site:
        assert (await site.get("/readyz")).text == "ok"
        assert (await site.get("/readyz?verbose")).text == "[+]node-0 ok\nreadyz check passed\n"
        supervisor.trouble = "nothing for 200 s"
        whole = await site.get("/healthz")
        verbose = await site.get("/readyz?verbose=true")
        excluded = await site.get("/healthz?exclude=watches")
        part = await site.get("/healthz/watches")
        allowed = await site.get("/healthz/watches", token="root")
        unknown = await site.get("/healthz/nonsense", token="root")
    assert (whole.status, whole.text) == (
        500,
        "[+]ping ok\n[-]watches failed: reason withheld\nhealthz check failed\n",
    )
    assert verbose.text == "[-]node-0 failed: reason withheld\nreadyz check failed\n"
    assert (excluded.status, excluded.text) == (200, "ok")
    assert part.status == 403
    assert (allowed.status, allowed.text) == (500, "internal server error: nothing for 200 s\n")
    assert unknown.status == 404


async def test_metrics_come_in_the_form_that_is_asked_for(
    supervisor: Supervisor, reviewer: Reviewer
) -> None:
    openmetrics = [("Accept", "application/openmetrics-text; version=1.0.0")]
    async with showing(supervisor, reviewer) as site:
        plain = await site.get("/metrics", token="root")
        packed = await site.get("/metrics", token="root", headers=[("Accept-Encoding", "gzip")])
        modern = await site.get("/metrics", token="root", headers=openmetrics)
    assert plain.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "ccm_up_seconds 3.0\n" in plain.text
    assert (packed.headers["Content-Encoding"], packed.text) == ("gzip", plain.text)
    assert modern.headers["Content-Type"].startswith("application/openmetrics-text")
    assert modern.text.endswith("# EOF\n")


async def test_slis_count_looks_and_can_be_reset(
    supervisor: Supervisor, reviewer: Reviewer
) -> None:
    supervisor.trouble = "late"
    failed = 'kubernetes_healthchecks_total{name="watches",status="error",type="healthz"} '
    async with showing(supervisor, reviewer) as site:
        await site.get("/healthz")
        counted = await site.get("/metrics/slis", token="root")
        assert (await site.ask("DELETE", "/metrics/slis")).status == 403
        reset = await site.ask("DELETE", "/metrics/slis", token="root")
        after = await site.get("/metrics/slis", token="root")
    assert 'kubernetes_healthcheck{name="ping",type="healthz"} 1.0\n' in counted.text
    assert 'kubernetes_healthcheck{name="node-0",type="readyz"} 0.0\n' in counted.text
    assert f"{failed}2.0\n" in counted.text, "the probe's look and that of the page itself"
    assert reset.text == "metrics reset\n"
    assert f"{failed}1.0\n" in after.text


async def test_configz_is_upstreams_object(supervisor: Supervisor, reviewer: Reviewer) -> None:
    async with showing(supervisor, reviewer) as site:
        answer = await site.get("/configz", token="root")
    shown = answer.json()["cloudcontrollermanager.config.k8s.io"]
    assert shown["kind"] == "CloudControllerManagerConfiguration"
    assert shown["Generic"]["Port"] == 10258


async def test_flagz_shows_every_flag_and_no_secret(
    supervisor: Supervisor, reviewer: Reviewer
) -> None:
    async with showing(supervisor, reviewer) as site:
        answer = await site.get("/flagz", token="root")
    assert answer.text.startswith("\ncloud-controller-manager flags\nWarning: This endpoint is not")
    assert "\nsecure-port=10258\n" in answer.text
    assert "master=https://REDACTED@10.0.0.1:6443\n" in answer.text
    assert "secret" not in answer.text


async def test_statusz_is_text_for_people_and_json_for_others(
    supervisor: Supervisor, reviewer: Reviewer
) -> None:
    as_json = [("Accept", "application/json")]
    async with showing(supervisor, reviewer) as site:
        text = await site.get("/statusz", token="root")
        status = await site.get("/statusz", token="root", headers=as_json)
    assert text.text.startswith("\ncloud-controller-manager statusz\nWarning: ")
    assert "\nUp: 1 hr 02 min 03 sec\nBinary version: 1.2.3\nPaths: /configz " in text.text
    assert status.json() == {"version": "1.2.3", "up_seconds": 3723.4, "workers": []}


async def test_stacks_tell_where_every_task_is(supervisor: Supervisor, reviewer: Reviewer) -> None:
    async with showing(supervisor, reviewer) as site:
        answer = await site.get("/debug/stacks", token="root")
    assert "thread MainThread\n" in answer.text
    assert "in sock_accept\n" in answer.text, "not the outermost frame alone"


async def test_pprof_is_said_not_to_be_there(supervisor: Supervisor, reviewer: Reviewer) -> None:
    async with showing(supervisor, reviewer) as site:
        answers = [
            await site.get(path, token="root") for path in ("/debug/pprof", "/debug/pprof/heap?x=1")
        ]
    assert {answer.status for answer in answers} == {501}
    assert "/debug/stacks" in answers[0].text


@pytest.mark.parametrize(("body", "status"), [("4", 200), ("x", 400), ("-1", 400), ("9999", 400)])
async def test_the_verbosity_is_put(
    supervisor: Supervisor, reviewer: Reviewer, body: str, status: int
) -> None:
    async with showing(supervisor, reviewer) as site:
        answer = await site.ask("PUT", "/debug/flags/v", token="root", body=body)
        assert (await site.ask("PUT", "/debug/flags/v", body="9")).status == 403
    assert answer.status == status
    assert supervisor.verbosities == ([4] if status == 200 else [])


async def test_without_profiling_there_is_nothing_to_debug(
    supervisor: Supervisor, reviewer: Reviewer
) -> None:
    async with showing(supervisor, reviewer, is_profiling=False) as site:
        for path in ("/debug/stacks", "/debug/pprof/", "/debug/flags/v"):
            assert (await site.get(path, token="root")).status == 404


async def test_every_page_but_the_open_ones_asks_for_a_right(
    supervisor: Supervisor, reviewer: Reviewer
) -> None:
    async with showing(supervisor, reviewer) as site:
        paths = (await site.get("/statusz", token="root")).text.rpartition("Paths: ")[2].split()
        codes = {path: (await site.get(path)).status for path in (*paths, "/", "/nowhere")}
    assert {path for path, code in codes.items() if code != 403} == {"/healthz", "/readyz"}
    assert len(codes) > 9


async def test_answers_are_not_kept_and_not_guessed_at(
    supervisor: Supervisor, reviewer: Reviewer
) -> None:
    async with showing(supervisor, reviewer) as site:
        for path in ("/healthz", "/metrics", "/configz", "/nowhere"):
            headers = (await site.get(path)).headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-cache, private"
            assert headers["Server"] == "ccm-supervisor"
