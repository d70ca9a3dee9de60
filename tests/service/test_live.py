"""A Service's whole life on an API server, embedded and real, and in the simulated cloud."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ccm.cloud.gate import WorkerGate
from ccm.cloud.interface import ProviderContext
from ccm.errors import KubernetesError
from ccm.kube import config
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.service import FINALIZER
from ccm.providers.simulated.provider import SimulatedCloud
from ccm.sandbox.cloud.records import LoadBalancer
from ccm.sandbox.cloud.server import CloudServer
from ccm.sandbox.kubernetes.server import SandboxServer
from ccm.settings import Settings
from tests.kube.cluster import RealCluster
from tests.worlds.cloud import GrantSource
from tests.worlds.context import FakePort, controller_context, informed
from workers.service import controller as module
from workers.service.controller import ServiceController

from .world import Queue

SERVICES = "/api/v1/namespaces/default/services"
LIVE = f"{SERVICES}/live"
RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]
"""All that the worker and its informer may do."""


@asynccontextmanager
async def started(
    kubeconfig: Path, cloud: CloudServer
) -> AsyncIterator[tuple[ServiceController, Queue]]:
    """A worker in this process with an informer of its own, until the end of the block."""
    kube = Kube(await config.load(str(kubeconfig)), "service-worker")
    gate = WorkerGate(GrantSource(), 10.0, lambda: None)
    provider = SimulatedCloud()
    text = f"[Global]\nurl={cloud.url}\ntoken={cloud.tokens.full}\n"
    await provider.initialize(ProviderContext(gate, text.encode(), "", "test", "service"))
    settings = Settings(cloud_provider="simulated", cluster_name="test", concurrent_service_syncs=4)
    port, queue = FakePort(), Queue()
    context = controller_context(module, provider, kube, port, settings, queue=queue)
    assert provider.load_balancers
    controller = ServiceController(context, provider.load_balancers)
    async with informed(kube, module, context, controller, port, gate):
        yield controller, queue
    await provider.close()
    await kube.close()


@pytest.fixture
async def cloud() -> AsyncIterator[CloudServer]:
    async with CloudServer() as server:
        yield server


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.real)])
async def kubeconfigs(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Path, Path]]:
    """Kubeconfigs of the worker and of a bystander who may do all."""
    if request.param == "sandbox":
        async with SandboxServer() as server:
            path = server.kubeconfig(tmp_path / "kubeconfig")
            yield path, path
        return
    cluster: RealCluster = request.getfixturevalue("kube")
    own = cluster.service_account_kubeconfig("kube-system", "service-worker", RULES)
    yield own, cluster.kubeconfig("admin")


@pytest.fixture
async def api(kubeconfigs: tuple[Path, Path]) -> AsyncIterator[Kube]:
    api = Kube(await config.load(str(kubeconfigs[1])), "bystander")
    yield api
    for path in (LIVE, *(f"/api/v1/nodes/live-{number}" for number in range(3))):
        try:
            await api.patch(path, MERGE_PATCH, {"metadata": {"finalizers": None}})
            await api.request("DELETE", path)
        except KubernetesError as error:
            assert error.status == 404  # noqa: PT017 - it is gone, as it should be
    await api.close()


async def until(what: str, look: Callable[[], Any]) -> Any:
    """What `look` returns once it is something."""
    try:
        async with asyncio.timeout(20):
            while True:
                result = look()
                if asyncio.iscoroutine(result):
                    result = await result
                if result:
                    return result
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"not in time: {what}")


async def add_node(api: Kube, number: int, provider_id: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"live-{number}"},
        "spec": {"providerID": provider_id},
    }
    await api.post("/api/v1/nodes", body)


async def test_a_service_lives_and_dies_with_its_balancer(
    kubeconfigs: tuple[Path, Path], api: Kube, cloud: CloudServer
) -> None:
    machines = cloud.state.add_machines(3, "live-")
    ids = [machine.id for machine in machines]
    for number in (0, 1):
        await add_node(api, number, f"simulated://{ids[number]}")
    await add_node(api, 2, "")

    def record() -> LoadBalancer | None:
        return next(iter(cloud.state.load_balancers.records.values()), None)

    def hosts() -> set[str]:
        there = record()
        return set(there.hosts) if there else set()

    async def ingress() -> Any:
        return (await api.get(LIVE))["status"]["loadBalancer"].get("ingress")

    async with started(kubeconfigs[0], cloud) as (controller, queue):
        spec = {
            "type": "LoadBalancer",
            "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}],
            "selector": {"app": "web"},
            "loadBalancerSourceRanges": ["10.0.0.0/8"],
            "externalTrafficPolicy": "Local",
        }
        metadata = {"name": "live", "namespace": "default"}
        await api.post(
            SERVICES,
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec},
        )
        ways = await until("the address is in the status", ingress)
        made = record()
        assert made
        assert ways == [{"ip": made.ip, "ipMode": "VIP"}]
        there = await api.get(LIVE)
        assert there["metadata"]["finalizers"] == [FINALIZER]
        uid = there["metadata"]["uid"]
        assert (made.name, dict(made.tags)) == (
            f"a{uid.replace('-', '')}"[:32],
            {"cluster": "test", "service": uid},
        )
        assert set(made.hosts) == set(ids[:2])
        assert made.source_ranges == ("10.0.0.0/8",)
        assert made.health_check == {
            "path": "/healthz",
            "port": there["spec"]["healthCheckNodePort"],
        }
        await api.patch(
            "/api/v1/nodes/live-2", MERGE_PATCH, {"spec": {"providerID": f"simulated://{ids[2]}"}}
        )
        await until("the late node is behind the balancer", lambda: hosts() == set(ids))
        await until("it is at rest", queue.is_idle)

    writes = cloud.counters.writes
    async with started(kubeconfigs[0], cloud) as (controller, queue):
        await until("it was compared", lambda: controller.status()["ensured"])
        await until("it is at rest", queue.is_idle)
        assert cloud.counters.writes == writes
        assert controller.status()["balancers"] == 1

        await api.request("DELETE", "/api/v1/nodes/live-0")
        await until("the node is out", lambda: hosts() == set(ids[1:]))
        ports = [{"name": "https", "port": 443, "nodePort": 30443}]
        await api.patch(LIVE, MERGE_PATCH, {"spec": {"ports": ports}})
        await until(
            "the ports changed",
            lambda: [(one.protocol, one.port) for one in _listeners(record())] == [("TCP", 443)],
        )
        change = {"type": "ClusterIP", "loadBalancerSourceRanges": None}
        await api.patch(LIVE, MERGE_PATCH, {"spec": {**change, "externalTrafficPolicy": None}})
        await until("the balancer is gone", lambda: record() is None)

        async def is_free() -> bool:
            return "finalizers" not in (await api.get(LIVE))["metadata"]

        await until("the finalizer is gone", is_free)
        assert not await ingress()

        await api.patch(LIVE, MERGE_PATCH, {"spec": {"type": "LoadBalancer"}})
        await until("the address is back", ingress)
        await api.request("DELETE", LIVE)
        await until("the balancer went with the Service", lambda: record() is None)

        async def is_gone() -> bool:
            try:
                await api.get(LIVE)
            except KubernetesError as error:
                return error.status == 404
            return False

        await until("the Service is gone", is_gone)

        async def reasons() -> set[str]:
            events = await api.get("/api/v1/namespaces/default/events")
            mine = [e for e in events["items"] if e["involvedObject"]["name"] == "live"]
            assert [e for e in mine if e["type"] == "Warning"] == []
            told = {event["reason"] for event in mine}
            return told if "DeletedLoadBalancer" in told else set()

        assert await until("people were told", reasons) >= {
            "EnsuringLoadBalancer",
            "EnsuredLoadBalancer",
            "UpdatedLoadBalancer",
            "DeletingLoadBalancer",
        }


def _listeners(record: LoadBalancer | None) -> tuple[Any, ...]:
    return record.listeners if record else ()
