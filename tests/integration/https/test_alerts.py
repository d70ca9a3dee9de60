"""Alerts of a real Prometheus beside a real supervisor: each trouble fires its own, and then ends.

What needs minutes by its nature, and what must never be (two leaders), is with promtool in
`test_monitoring.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import yaml

from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from tests.integration.https.prometheus import FOR, RANGE, Prometheus, example
from tests.integration.https.test_process import Served
from tests.integration.https.test_rotation import replace_pair
from tests.support.cluster_nodes import kill
from tests.support.environment import Environment
from tests.support.kube.cluster import RealCluster
from tests.support.pki import Authority
from tests.support.running import command, long, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600), long]

NODES = 12
FLAGS = (
    "--node-monitor-period=1s",
    "--node-deletion-confirmation-period=0",
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
)


@dataclass(frozen=True)
class Observed:
    """A supervisor, what it works on, and who watches it."""

    env: Environment
    served: Served
    prometheus: Prometheus
    certificates: Path

    async def fault(self, kind: CloudFaultKind) -> None:
        await self.env.admin.set_fault(CloudFault(kind))

    async def cure(self) -> None:
        await self.env.admin.clear_faults()

    def certify(self, days: int) -> None:
        replace_pair(
            Authority("servers").server("localhost", ends_in=timedelta(days)), self.certificates
        )


Step = Callable[[Observed], Awaitable[None]]


async def calls_are_denied(it: Observed) -> None:
    await it.fault(CloudFaultKind.DENIED)
    await it.env.add_nodes(3, first=101)


async def the_cloud_is_out(it: Observed) -> None:
    await it.fault(CloudFaultKind.ERROR)
    await it.env.add_nodes(3, first=201)


async def the_cloud_throttles(it: Observed) -> None:
    await it.fault(CloudFaultKind.THROTTLE)
    await it.env.add_nodes(3, first=301)


async def the_cloud_is_well(it: Observed) -> None:
    await it.cure()
    await it.env.nodes.until_initialized(len(await it.env.node_names()))


async def a_worker_is_killed_again_and_again(it: Observed) -> None:
    pid = 0
    for _ in range(3):
        pid = await until("node-0 is back", partial(running, it, "node-0", pid))
        kill(pid)


def running(it: Observed, name: str, old: int) -> int | None:
    """The process of this worker, once it is another one than the old."""
    worker = it.served.supervisor.workers().get(name, {})
    return worker["pid"] if worker.get("state") == "running" and worker["pid"] != old else None


async def the_worker_works(it: Observed) -> None:
    await command(it.served.supervisor, "restart", worker="node-0")


async def deletions_are_frozen(it: Observed) -> None:
    await command(it.served.supervisor, "deletions", action="freeze", reason="audit", by="alice")


async def deletions_are_allowed(it: Observed) -> None:
    await command(it.served.supervisor, "deletions", action="allow", by="alice")


async def the_certificate_is_old(it: Observed) -> None:
    it.certify(days=3)


async def the_certificate_is_new(it: Observed) -> None:
    it.certify(days=90)


TROUBLES: tuple[tuple[Step, Step, tuple[str, ...]], ...] = (
    (calls_are_denied, the_cloud_is_well, ("CCMCloudDenied", "CCMReconcilesFail")),
    (the_cloud_is_out, the_cloud_is_well, ("CCMCloudFails", "CCMReconcilesFail")),
    (the_cloud_throttles, the_cloud_is_well, ("CCMCloudThrottled",)),
    (a_worker_is_killed_again_and_again, the_worker_works, ("CCMWorkerDies",)),
    (deletions_are_frozen, deletions_are_allowed, ("CCMDeletionsFrozen",)),
    (the_certificate_is_old, the_certificate_is_new, ("CCMCertificateEnds",)),
)


@pytest.fixture
async def observed(
    env: Environment, cluster: RealCluster, tmp_path: Path
) -> AsyncIterator[Observed]:
    pair = replace_pair(Authority("servers").server("localhost", ends_in=timedelta(90)), tmp_path)
    tls = (f"--tls-cert-file={pair[0]}", f"--tls-private-key-file={pair[1]}")
    with Served(env.where, cluster, *FLAGS, *tls) as served:
        await served.ready()
        await env.add_nodes(NODES)
        await env.nodes.until_initialized(NODES)
        with Prometheus(tmp_path, served.place.port, reader(cluster)) as prometheus:
            yield Observed(env, served, prometheus, tmp_path)


def reader(cluster: RealCluster) -> str:
    """The token of the account of the page's example, with the rights of that example."""
    file = cluster.service_account_kubeconfig("monitoring", "prometheus")
    cluster.kubectl("apply", "-f", "-", stdin=example("ClusterRoleBinding"))
    (user,) = yaml.safe_load(file.read_text())["users"]
    return str(user["user"]["token"])


async def test_alerts_fire_for_what_happens_and_end_with_it(observed: Observed) -> None:
    prometheus = observed.prometheus
    paths = {"/metrics": "up", "/metrics/slis": "up"}
    await until("it is scraped", lambda: _is(prometheus.scrapes, paths))
    await asyncio.sleep(RANGE + 2 * FOR)  # a calm time is one in which nothing is waited for
    assert await prometheus.ever_fired() == set()
    reported: set[str] = set()
    for trouble, remedy, alerts in TROUBLES:
        await trouble(observed)
        await prometheus.fires(*alerts)
        await remedy(observed)
        await prometheus.is_silent()
        reported |= {*alerts}
    assert await prometheus.ever_fired() == reported
    observed.served.supervisor.end()
    await prometheus.fires("CCMAbsent")


async def _is(ask: Callable[[], Awaitable[object]], wanted: object) -> bool:
    return await ask() == wanted
