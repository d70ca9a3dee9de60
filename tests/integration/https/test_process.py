"""A whole supervisor with its workers: what its endpoints say while things happen to it."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Self

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.metrics import MONITOR_CALLS, MetricType, catalogue
from ccm.sandbox.kubelets import ready_condition
from tests.integration.https.served import ServerAddress, eventually
from tests.integration.https.test_real import REVIEWER
from tests.integration.https.test_rotation import replace_pair, under_load, until_served
from tests.support.cluster_nodes import add_machines_and_nodes, kill
from tests.support.deadlines import timeout
from tests.support.environment import Environment
from tests.support.fault_proxy import Fault, FaultProxy, failure
from tests.support.kube.cluster import RealCluster
from tests.support.kube.ports import ReservedPort
from tests.support.pki import Authority
from tests.support.replicas import Durations
from tests.support.running import Cloud, Supervisor, Where

pytestmark = pytest.mark.real

NODES = 40
ALL = ("--controllers=*", "--cluster-cidr=10.240.0.0/12", "--node-workers=2")

PATCHED = {"controller": "node", "code": "200", "method": "PATCH"}

Sample = tuple[str, tuple[tuple[str, str], ...]]


class Served:
    """A supervisor with a port, and a client that may see everything."""

    def __init__(self, where: Where, cluster: RealCluster, *flags: str, name: str = "one") -> None:
        cluster.grant("ccm", REVIEWER)
        self._port, self._token = ReservedPort(), cluster.token("admin")
        self.place = ServerAddress(self._port.number)
        address = ("--bind-address=127.0.0.1", f"--secure-port={self._port.number}")
        self.supervisor = Supervisor(where, *address, "--permit-port-sharing", *flags, name=name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.supervisor.end()
        self._port.release()

    async def readiness(self) -> str:
        try:
            return (await self.place.get("/readyz")).text
        except aiohttp.ClientError:
            return ""  # nobody listens yet

    async def is_ready(self) -> bool:
        return await self.readiness() == "ok"

    async def ready(self) -> None:
        await eventually(self.is_ready, pause=0.1)

    async def is_leading(self) -> bool:
        return self.supervisor.is_leading()

    async def is_refused(self) -> None:
        """Until it says that it is not ready for want of access; it is live all the time."""
        await eventually(self.readiness, lambda text: "[-]access failed" in text, pause=0.1)
        assert (await self.place.get("/livez")).text == "ok"

    async def samples(self) -> dict[Sample, float]:
        answer = await self.place.get("/metrics", token=self._token)
        assert answer.status == 200, answer.text
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    async def value(self, metric: str, /, **labels: str) -> float | None:
        return (await self.samples()).get((metric, tuple(sorted(labels.items()))))


def total(samples: dict[Sample, float], metric: str, /, **labels: str) -> float:
    """The sum of all that have these labels."""
    wanted = set(labels.items())
    return sum(n for (name, has), n in samples.items() if name == metric and wanted <= {*has})


def counters(samples: dict[Sample, float]) -> dict[Sample, float]:
    """What may only grow."""
    growing = {metric.name for metric in catalogue() if metric.type is MetricType.COUNTER}
    ends = ("_bucket", "_count")
    return {it: n for it, n in samples.items() if it[0] in growing or it[0].endswith(ends)}


async def test_what_happens_is_counted_and_a_death_takes_no_count_back(
    where: Where, cluster: RealCluster, cloud: Cloud, api: Kube, env: Environment
) -> None:
    with Served(where, cluster, *ALL) as served:
        await served.ready()
        await add_machines_and_nodes(api, cloud.url, NODES)
        await env.nodes.until_initialized(NODES)
        silent = {"status": {"conditions": [ready_condition(False)]}}
        await api.patch("/api/v1/nodes/vm-1/status", MERGE_PATCH, silent)
        before = await eventually(
            served.samples,  # workers tell once a second
            lambda found: total(found, "rest_client_requests_total", **PATCHED) >= 2 * NODES,
            pause=0.1,
        )
        kill(served.supervisor.workers()["node-0"]["pid"])
        await eventually(
            lambda: served.value("ccm_worker_exits_total", worker="node-0"),
            lambda exits: exits == 1,
            pause=0.1,
        )
        assert (await served.place.get("/livez")).text == "ok", "a worker's death is not ours"
        await served.ready()
        after = await eventually(
            served.samples,  # passes over nodes that are not ready have a period of their own
            lambda found: total(found, MONITOR_CALLS.name),
            pause=0.1,
        )
    went_back = {it: n for it, n in counters(before).items() if after.get(it, 0) < n}
    assert went_back == {}
    _is_complete(after)


def _is_complete(samples: dict[Sample, float]) -> None:
    """What initializing nodes has to leave in the metrics."""
    assert total(samples, "node_controller_initial_node_sync_delay_seconds_count") == NODES
    assert total(samples, "ccm_nodes_uninitialized") == 0
    assert total(samples, "workqueue_adds_total", name="Nodes") >= NODES
    assert total(samples, "workqueue_work_duration_seconds_count", name="Nodes") >= NODES
    assert total(samples, "ccm_reconciles_total", controller="node", result="success") >= NODES
    assert (
        total(samples, "ccm_cloud_request_duration_seconds_count", controller="node", result="ok")
        >= 1
    )
    name = "cloudprovider_simulated_api_request_duration_seconds_count"
    calls = "ccm_cloud_request_duration_seconds_count"
    assert total(samples, name) == total(samples, calls, result="ok") >= 1
    assert total(samples, "ccm_cloud_grant_wait_seconds_count", priority="node-init") >= 1
    assert total(samples, "ccm_worker_state", state="running") == 5
    assert total(samples, "ccm_informer_objects", kind="Node") == NODES
    assert total(samples, "running_managed_controllers") == 5
    assert total(samples, "leader_election_master_status") == 1
    labelled = {name for name, _ in samples}
    silent = {
        metric.name
        for metric in catalogue()
        if metric.labels and not {metric.name, f"{metric.name}_count"} & labelled
    }
    assert silent == {
        "cloudprovider_PROVIDER_api_request_duration_seconds",
        "cloudprovider_PROVIDER_api_request_errors",
        "cloudprovider_PROVIDER_api_throttled_requests_total",
        "kubernetes_healthcheck",
        "kubernetes_healthchecks_total",
    }


async def test_who_stands_by_is_ready_and_says_that_it_does_not_act(
    where: Where, cluster: RealCluster, api: Kube
) -> None:
    with Served(where, cluster) as leader:
        await leader.ready()
        with Served(where, cluster, name="other") as standby:
            await standby.ready()
            lease = {"name": "cloud-controller-manager"}
            found = [
                await it.value("leader_election_master_status", **lease) for it in (leader, standby)
            ]
            assert found == [1, 0]
            assert await standby.value("ccm_permission_seconds") == 0
            assert await standby.value("ccm_worker_state", worker="node-0", state="standby") == 1


async def test_certificates_change_under_load_and_no_request_fails(
    where: Where, cluster: RealCluster, api: Kube, tmp_path: Path
) -> None:
    ca = Authority("servers")
    cert_file, key_file = replace_pair(ca.server("localhost"), tmp_path)
    flags = (f"--tls-cert-file={cert_file}", f"--tls-private-key-file={key_file}")
    with Served(where, cluster, *flags) as served:
        await served.ready()
        async with under_load(served.place) as load:
            for _ in range(3):
                fresh = ca.server("localhost")
                replace_pair(fresh, tmp_path)
                await until_served(served.place, fresh)
                await load.goes_on()
    assert load.answered > 150


def test_a_port_in_use_ends_the_start_with_one_line_and_another_try_may_work(
    where: Where, cluster: RealCluster
) -> None:
    port = ReservedPort()
    with Supervisor(where, "--bind-address=127.0.0.1", f"--secure-port={port.number}") as taken:
        assert taken.process.wait(timeout()) == 1
    port.release()
    assert "supervisor started" not in taken.tail(100)
    complaints = [line for line in taken.tail().splitlines() if "--secure-port" in line]
    assert complaints == [
        f"ccm-supervisor: --secure-port: cannot listen on 127.0.0.1 port {port.number}:"
        " Address already in use; stop what uses it, or choose another --secure-port or"
        " --bind-address"
    ]


async def test_an_api_server_that_hangs_leaves_a_replica_alive_and_not_ready(
    where: Where, cluster: RealCluster, api: Kube
) -> None:
    patient = ("--leader-elect-lease-duration=90s", "--leader-elect-renew-deadline=80s")
    with Served(where, cluster, "--watch-idle-limit=1s", *patient) as served:
        await served.ready()
        os.kill(cluster.pids["kube-apiserver"], signal.SIGSTOP)
        try:
            await eventually(served.is_ready, lambda is_ready: not is_ready, pause=0.1)
            reported = await served.place.get("/readyz")
            assert "[-]freshness failed: reason withheld" in reported.text
            assert "[+]watches ok" in reported.text
            assert (await served.place.get("/livez")).text == "ok"
        finally:
            os.kill(cluster.pids["kube-apiserver"], signal.SIGCONT)
        await served.ready()


async def test_a_start_whose_credential_plugin_fails_is_alive_and_not_ready(
    where: Where, cluster: RealCluster
) -> None:
    api, printed = "client.authentication.k8s.io/v1", where.directory / "credential"
    plugin = {"apiVersion": api, "command": "cat", "args": [str(printed)]}
    original = json.loads(where.kubeconfig.read_text())
    user = original["users"][0]["user"]
    credential = {"apiVersion": api, "kind": "ExecCredential", "status": {**user}}
    original["users"][0]["user"] = {"exec": plugin}
    kubeconfig = where.directory / "plugin.kubeconfig"
    kubeconfig.write_text(json.dumps(original))
    with Served(replace(where, kubeconfig=kubeconfig), cluster) as served:
        await served.is_refused()
        printed.write_text(json.dumps(credential))
        await served.ready()


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_of_access_leaves_a_replica_alive_and_not_ready(
    where: Where, cluster: RealCluster, proxy: FaultProxy, status: int
) -> None:
    refused = Fault(failure(status, "Refused"), is_for_all=True)
    proxy.inject(refused)
    where = replace(where, kubeconfig=proxy.kubeconfig(where.kubeconfig))
    with Served(where, cluster, *Durations.short().flags()) as served:
        await served.is_refused()
        proxy.clear()
        await served.ready()
        await eventually(served.is_leading)
        proxy.inject(refused)
        await eventually(served.is_leading, lambda is_leading: not is_leading)
        await served.is_refused()
        proxy.clear()
        await served.ready()
        await eventually(served.is_leading)
