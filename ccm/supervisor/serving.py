"""Puts together what the HTTPS server shows of the supervisor."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry

from ccm.counters import Counters
from ccm.model.objects import Json
from ccm.settings import Settings
from ccm.settings.migration import Migration
from ccm.settings.shown import configz, flagz
from ccm.supervisor.budget import Budget
from ccm.supervisor.checks import Checks
from ccm.supervisor.children import Children
from ccm.supervisor.delivery import ProjectedStore
from ccm.supervisor.https.endpoints import Pages, Sources
from ccm.supervisor.https.health import Health
from ccm.supervisor.https.page import route as page
from ccm.supervisor.https.server import HttpsServer
from ccm.supervisor.informer import SharedInformer
from ccm.supervisor.leadership import Leadership
from ccm.supervisor.metrics.collector import HealthCollector, Parts, SupervisorCollector
from ccm.supervisor.metrics.totals import Totals
from ccm.supervisor.progress import Progress
from ccm.supervisor.uninitialized import UninitializedNodes


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of a supervisor that others may look at."""

    settings: Settings
    migration: Migration | None
    status: Callable[[], Json]
    leader: Leadership
    progress: Progress
    feed: SharedInformer
    nodes: ProjectedStore
    children: Children
    budget: Budget
    totals: Totals
    counters: Counters  # of requests to the API server
    set_verbosity: Callable[[int], None]
    is_stopping: Callable[[], bool]


def https_server(shown: Shown) -> HttpsServer:
    """A server with all pages, not started yet."""
    settings, leader = shown.settings, shown.leader
    server = HttpsServer(settings)
    newcomers = UninitializedNodes(shown.nodes, lambda: leader.until("node") > time.monotonic())
    checks = Checks(settings, leader, shown.progress, shown.feed, shown.children, shown.is_stopping)
    health = Health({"healthz": checks.alive, "livez": checks.alive, "readyz": checks.ready})
    metrics, slis = CollectorRegistry(), CollectorRegistry()
    slis.register(HealthCollector(health))
    parts = Parts(
        settings=settings,
        status=shown.status,
        totals=shown.totals,
        counter_sets=(shown.counters, newcomers.counters, server.counters),
        waits=shown.budget.waits,
        newcomers=newcomers,
        leaders=leader.leaders,
        certificate_ends_at=server.certificate_ends_at,
    )
    metrics.register(SupervisorCollector(parts))
    sources = Sources(
        health=health,
        metrics=metrics,
        slis=slis,
        status=shown.status,
        configz=lambda: configz(settings, shown.migration),
        flagz=lambda: flagz(settings),
        set_verbosity=shown.set_verbosity,
    )
    server.add(Pages(sources).routes(settings.profiling))
    server.add(page.routes(partial(_seen, shown, newcomers, checks)))
    return server


def _seen(shown: Shown, newcomers: UninitializedNodes, checks: Checks) -> Json:
    """What the page for people is made of: the status, who waits, and what is not as it should."""
    failing = {check.name: why for check in checks.ready() if (why := check.look())}
    waiting = newcomers.status(time.monotonic())
    return {**shown.status(), "newcomers": waiting, "failing_checks": failing}
