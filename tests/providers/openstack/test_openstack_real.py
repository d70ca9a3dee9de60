"""The whole product on a real API server and the lab: what a cluster costs, and what it leaves."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from ccm.model.objects import Json
from ccm.providers.openstack.lb.annotations import INTERNAL, PREFIX
from tests.e2e.conftest import api, cluster
from tests.labs.openstack.lab import Lab
from tests.providers.openstack.whole import AGENT, Whole
from tests.support.environment import VOLUMES, persistent_volume
from tests.support.running import Supervisor, long, until

__all__ = ["api", "cluster"]

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(3600)]

COUNT = int(os.environ.get("OPENSTACK_NODES", "10"))
LIMIT = 1200.0  # seconds; the whole cloud runs on this machine
NAMES = [f"e2e-{number}" for number in range(COUNT)]
CSI = "cinder.csi.openstack.org"
TWO_PORTS = [{"name": "http", "port": 80}, {"name": "https", "port": 443}]
SERVICES: dict[str, Json] = {
    "plain": {},
    "ports": {"ports": TWO_PORTS},
    "udp": {"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]},
    "local": {"externalTrafficPolicy": "Local"},
    "affinity": {"sessionAffinity": "ClientIP"},
    "ranges": {"loadBalancerSourceRanges": ["192.0.2.0/24"]},
    "internal": {"annotations": {INTERNAL: "true"}},
    "proxy": {"annotations": {f"{PREFIX}proxy-protocol": "v2"}},
    "monitored": {"annotations": {f"{PREFIX}enable-health-monitor": "true"}},
    "limited": {"annotations": {f"{PREFIX}connection-limit": "100"}},
}


@pytest.fixture
def servers(lab: Lab) -> Iterator[dict[str, str]]:
    """The IDs of a server for each Node, by name."""
    lab.agent = AGENT
    made = lab.create_servers(NAMES)
    yield {one["name"]: one["id"] for one in made}
    for one in made:
        lab.delete("nova", f"/servers/{one['id']}")


class Costs:
    """The product's calls since they were last asked for."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.seen = lab, len(lab.calls())

    def take(self) -> list[Json]:
        calls = sorted(self.lab.calls(), key=lambda call: call["t"])[self.seen :]
        self.seen += len(calls)
        return calls


async def test_a_cluster_is_served_for_few_calls_and_leaves_nothing_behind(
    whole: Whole, servers: dict[str, str]
) -> None:
    before, costs = whole.resources(), Costs(whole.lab)
    volume = persistent_volume("data", whole.lab.world["volumes"]["zone-b"], driver=CSI)
    await whole.api.post(VOLUMES, volume)
    for number, name in enumerate(NAMES):
        await whole.register(name, number)
    with whole.supervisor() as supervisor:
        began = time.monotonic()
        await until("all nodes are initialized", whole.are_initialized, LIMIT)
        seconds = time.monotonic() - began
        await until("all have networks", whole.have_networks, LIMIT)
        await until("the volume has its zone", lambda: has_zone(whole))
        check_costs(costs.take(), seconds, time.monotonic() - began)
        await check_services(whole, costs)
        await check_a_wrong_annotation(whole)
        await check_a_deleted_server(whole, servers)
        assert supervisor.end() == 0
    await check_a_restart(whole, costs, before)


def check_costs(calls: Sequence[Json], seconds: float, routed_after: float) -> None:
    """Upstream makes 43 calls for ten Nodes, and 100 with routes."""
    kinds = Counter(call["service"] for call in calls)
    print(f"{COUNT} nodes: {seconds:.2f} s; with routes {routed_after:.2f} s; {dict(kinds)}")
    of_nodes = [call for call in calls if call["agent"].endswith("node-0")]
    assert len(of_nodes) <= 6
    of_routes = [call for call in calls if call["agent"].endswith("route")]
    assert len(of_routes) <= 16 + COUNT


async def has_zone(whole: Whole) -> bool:
    labels = (await whole.api.get(f"{VOLUMES}/data"))["metadata"].get("labels", {})
    return bool(labels.get("topology.kubernetes.io/zone") == "zone-b")


async def check_services(whole: Whole, costs: Costs) -> None:
    """OS104, OS105: all kinds at once, each with all Nodes, made once and without a Warning."""
    for name, spec in SERVICES.items():
        await whole.add_service(name, **spec)
    await until("all have addresses", whole.have_addresses, LIMIT)
    assert whole.members() == [set(NAMES)] * (len(SERVICES) + 1)
    uid = (await whole.api.get("/api/v1/namespaces/kube-system"))["metadata"]["uid"]
    balancers = whole.balancers()
    assert all(f"kubernetes-cluster-uid={uid}" in one["tags"] for one in balancers.values())
    writes = Counter(c["method"] for c in costs.take() if c["service"] == "octavia")
    assert writes["POST"] == len(SERVICES)
    assert not writes["PUT"], "nothing is ensured a second time"
    assert await whole.warnings() == []


async def check_a_wrong_annotation(whole: Whole) -> None:
    """OS110: one Warning on the Service, and no other, names it."""
    await whole.annotate("plain", f"{PREFIX}made-up", "1")
    (reported,) = await until("it is told", whole.warnings, LIMIT)
    assert reported.startswith("plain: ")
    assert "made-up" in reported


async def check_a_deleted_server(whole: Whole, servers: dict[str, str]) -> None:
    """OS7, OS87: the Node goes, and with it the route and its place behind load balancers."""
    name = NAMES[0]
    whole.lab.delete("nova", f"/servers/{servers[name]}")
    await whole.stop_kubelet(name)

    async def is_gone() -> bool:
        return name not in await whole.nodes()

    await until("its node is gone", is_gone, LIMIT)
    await until("its route is gone", lambda: "10.244.0.0/24" not in whole.routes(), LIMIT)
    wanted = [set(NAMES[1:])] * (len(SERVICES) + 1)
    await until("it is behind no load balancer", lambda: whole.members() == wanted, LIMIT)


async def check_a_restart(whole: Whole, costs: Costs, before: Counter[str]) -> None:
    """OS99: reads only; then all goes, and with it what was made for it."""
    costs.take()
    with whole.supervisor("again") as supervisor:
        supervisor.wait_running(LIMIT)
        await until("it has settled", lambda: has_settled(supervisor), LIMIT)
        calls = costs.take()
        print("restart:", dict(Counter(call["service"] for call in calls)))
        assert {call["method"] for call in calls if call["service"] != "keystone"} <= {"GET"}
        await whole.delete_services()
        await until("all Services are gone", whole.has_no_services, LIMIT)
        await whole.delete_nodes()
        await until("all routes are gone", lambda: not whole.routes(), LIMIT)
        await until("nothing is left", lambda: whole.resources() <= before, LIMIT)


def has_settled(supervisor: Supervisor) -> bool:
    return supervisor.is_idle(COUNT - 1 + len(SERVICES))
