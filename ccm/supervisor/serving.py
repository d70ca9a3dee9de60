"""Puts together the HTTPS server of a supervisor: health checks, metrics, status page."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from ccm.counters import Counters
from ccm.model.status import PageStatus, Status
from ccm.settings import Settings
from ccm.settings.configz import configz, flagz
from ccm.settings.leader_migration import LeaderMigration
from ccm.supervisor.budget import Budget
from ccm.supervisor.children import Children
from ccm.supervisor.health_checks import HealthChecks
from ccm.supervisor.https import status_page
from ccm.supervisor.https.endpoints import (
    ACCESS,
    PING,
    Endpoints,
    HealthChecker,
    HealthEndpoints,
)
from ccm.supervisor.https.server import HttpsServer, load_access_if_any
from ccm.supervisor.informer import SharedInformer
from ccm.supervisor.leadership import Leadership
from ccm.supervisor.listening import listen
from ccm.supervisor.metrics_collector import HealthCollector, SupervisorCollector
from ccm.supervisor.nodes import UninitializedNodes
from ccm.supervisor.progress import Progress
from ccm.supervisor.worker_counters import WorkerCounters


@dataclass(frozen=True, slots=True)
class HttpsDependencies:
    """The parts of a supervisor that its HTTPS server reads."""

    settings: Settings
    migration: LeaderMigration | None
    status: Callable[[], Status]
    leader: Leadership
    progress: Progress
    informer: SharedInformer
    uninitialized: UninitializedNodes
    children: Children
    budget: Budget
    worker_counters: WorkerCounters
    api_counters: Counters  # of requests to the API server
    set_verbosity: Callable[[int], None]
    is_stopping: Callable[[], bool]


def https_server(parts: HttpsDependencies) -> HttpsServer:
    """A server with all routes, not started yet."""
    settings, leader, uninitialized = parts.settings, parts.leader, parts.uninitialized
    server = HttpsServer(settings)
    checks = HealthChecks(
        settings, leader, parts.progress, parts.informer, parts.children, parts.is_stopping
    )
    health = HealthEndpoints(
        {"healthz": checks.alive, "livez": checks.alive, "readyz": checks.ready}
    )
    metrics, slis = CollectorRegistry(), CollectorRegistry()
    slis.register(HealthCollector(health))
    metrics.register(
        SupervisorCollector(
            settings=settings,
            status=parts.status,
            worker_counters=parts.worker_counters,
            own_counters=(parts.api_counters, uninitialized.counters, server.counters),
            grant_waits=parts.budget.waits,
            uninitialized=uninitialized,
            leaders=leader.electors,
            certificate_expiry=server.certificate_expiry,
        )
    )
    endpoints = Endpoints(
        health=health,
        metrics=metrics,
        slis=slis,
        status=parts.status,
        configz=configz(settings, parts.migration),
        flagz=flagz(settings),
        set_verbosity=parts.set_verbosity,
    )
    server.add_routes(endpoints.routes(settings.profiling))

    def page_status() -> PageStatus:
        failing = {it.name: why for it in checks.ready() if (why := it.check())}
        return {
            **parts.status(),
            "cluster": settings.cluster_name,
            "docs_url": settings.docs_url,
            "failing_checks": failing,
        }

    server.add_routes(status_page.routes(page_status, endpoints.documents))
    return server


@asynccontextmanager
async def serving_health(
    settings: Settings, why_not_ready: Callable[[], str]
) -> AsyncIterator[None]:
    """Serve health checks during the block: live, and not ready, with credentials or without."""
    live, ready = HealthChecker(PING, lambda: None), HealthChecker(ACCESS, why_not_ready)
    health = HealthEndpoints(
        {"healthz": lambda: [live], "livez": lambda: [live], "readyz": lambda: [live, ready]}
    )
    server = HttpsServer(settings, load_access=load_access_if_any)
    server.add_routes(health.routes())
    await server.start(listen(settings))
    running = asyncio.create_task(server.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.close()
