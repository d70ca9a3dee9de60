"""All controllers on a real API server: what is asked for is there, and a restart is quiet."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ccm.kube.client import Kube
from ccm.sandbox import workload
from ccm.sandbox.cloud.client import CloudAdmin
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes
from tests.proc.running import Cloud, Json, Supervisor, Where, until

pytestmark = pytest.mark.real

NODES, SERVICES = 20, 5
ALL = ("--controllers=*", "--cluster-cidr=10.240.0.0/12", "--cloud-rate=write=200")


def service(number: int) -> Json:
    port = {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"web-{number}", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [port]},
    }


async def balancers(admin: CloudAdmin) -> list[Json]:
    found: list[Json] = (await admin.state())["load_balancers"]
    return found


async def until_so(what: str, look: Callable[[], Any], seconds: float = 60.0) -> None:
    """Until the awaited `look` is truthy."""
    try:
        async with asyncio.timeout(seconds):
            while not await look():  # noqa: ASYNC110 - servers are asked
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


async def test_everything_is_provided_and_neither_restart_nor_fail_over_writes_to_the_cloud(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    """The Services are there before any node is: every balancer still gets all its hosts."""
    services = "/api/v1/namespaces/default/services"
    for number in range(SERVICES):
        await api.post(services, service(number))
    async with CloudAdmin(cloud.url) as admin:
        await workload.create_volume(api, admin)
        with Supervisor(where, *ALL) as first:
            await add_machines_and_nodes(api, cloud.url, NODES)
            await witness.until_initialised(NODES, 60)

            async def has_all() -> bool:
                found, state = await balancers(admin), await admin.state()
                hosts = [len(balancer["hosts"]) for balancer in found]
                return hosts == [NODES] * SERVICES and len(state["routes"]) == NODES

            await until_so("balancers and routes are complete", has_all)

            async def is_told() -> bool:
                listed = (await api.get(services))["items"]
                ours = [item for item in listed if item["metadata"]["name"].startswith("web-")]
                volume = await api.get("/api/v1/persistentvolumes/data")
                labels = volume["metadata"].get("labels", {})
                return all(item["status"]["loadBalancer"].get("ingress") for item in ours) and (
                    labels.get("topology.kubernetes.io/zone") == "zone-b"
                )

            await until_so("addresses and zone are written", is_told)
            await admin.reset_counters()
            with Supervisor(where, *ALL, name="second") as second:
                await until("it stands by", lambda: set(states(second)) == {"standby"})
                assert first.end() == 0
                await until("it leads", lambda: set(states(second)) == {"running"})
                await until("it has looked at all", lambda: settled(second) >= 2 * NODES + SERVICES)
                assert second.end() == 0
        with Supervisor(where, *ALL, name="third") as third:
            await until("it leads", lambda: set(states(third)) == {"running"})
            await until("it has looked at all", lambda: settled(third) >= 2 * NODES + SERVICES)
            counters = await admin.counters()
            assert counters["writes"] == 0, counters["rows"]
            for number in range(SERVICES):
                await api.request("DELETE", f"{services}/web-{number}")

            async def is_gone() -> bool:
                return not await balancers(admin)

            await until_so("no balancer is left", is_gone)
            assert third.end() == 0
    await api.request("DELETE", "/api/v1/persistentvolumes/data")


def states(supervisor: Supervisor) -> list[str]:
    return [worker["state"] for worker in supervisor.workers().values()]


def settled(supervisor: Supervisor) -> int:
    """Reconciles that came to an end, of workers that have nothing left to do."""
    workers = supervisor.workers().values()
    if any(worker.get("unsettled", 1) or worker["queue"]["ready"] for worker in workers):
        return 0
    return sum(int(worker["settled"]) for worker in workers)
