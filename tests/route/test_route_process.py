"""The route worker as a process under a supervisor, on a real API server and a simulated cloud."""

from collections import Counter

import pytest

from ccm.kube.client import Kube
from ccm.model.objects import Node
from ccm.sandbox.cloud.client import CloudAdmin
from tests.proc.cluster_nodes import add_machines_and_nodes, kill
from tests.proc.running import Cloud, Supervisor, Where, wait_for
from tests.worlds.nodes import network_condition

NODES = 200
FLAGS = ("--cluster-cidr=10.244.0.0/14", "--controllers=cloud-node,route")

pytestmark = pytest.mark.real


async def route_calls(cloud: Cloud) -> Counter[str]:
    """Calls that change routes, by operation."""
    async with CloudAdmin(cloud.url) as admin:
        rows = (await admin.counters())["rows"]
    counts: Counter[str] = Counter()
    for row in rows:
        if row["operation"] in ("CreateRoute", "DeleteRoute"):
            counts[row["operation"]] += row["count"]
    return counts


async def networks(cloud: Cloud) -> set[str]:
    async with CloudAdmin(cloud.url) as admin:
        return {route["cidr"] for route in (await admin.state())["routes"]}


async def available(api: Kube) -> int:
    """How many Nodes say that their network is there."""
    items = (await api.get("/api/v1/nodes"))["items"]
    return sum(network_condition(Node(item)).get("status") == "False" for item in items)


def wait_settled(supervisor: Supervisor, objects: int) -> None:
    """Until the route worker knows these Nodes, has listed the routes, and has nothing to do."""

    def look() -> bool:
        status = supervisor.workers().get("route", {})
        is_done = status.get("objects") == objects and status.get("pending") == 0
        return is_done and status.get("list_age_seconds") is not None

    wait_for("the route worker has nothing to do", look)


async def test_every_node_gets_its_route_and_a_restart_costs_none(
    where: Where, cloud: Cloud, api: Kube
) -> None:
    with open(cloud.config, "a") as config:
        config.write("write-rate = 500\n")
    names = await add_machines_and_nodes(api, cloud.url, NODES)
    with Supervisor(where, *FLAGS) as supervisor:
        wait_settled(supervisor, NODES)
        assert await available(api) == NODES
        assert len(await networks(cloud)) == NODES
        assert await route_calls(cloud) == {"CreateRoute": NODES}
        kill(supervisor.workers()["route"]["pid"])
        wait_for("a new route worker", lambda: supervisor.workers()["route"]["restarts"] == 1)
        wait_settled(supervisor, NODES)
        await api.request("DELETE", f"/api/v1/nodes/{names[0]}")
        wait_for("its route is gone", lambda: supervisor.workers()["route"].get("deleted") == 1)
        assert supervisor.end() == 0
    calls = await route_calls(cloud)
    assert calls == {"CreateRoute": NODES, "DeleteRoute": 1}
    with Supervisor(where, *FLAGS, name="next") as supervisor:
        wait_settled(supervisor, NODES - 1)
        assert supervisor.end() == 0
    assert await route_calls(cloud) == calls
