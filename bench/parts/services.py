"""Many Services: a node joins and leaves, and every balancer follows."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.figures import Row
from bench.nodes import each, kubelets_node
from bench.plan import Measured, Plan
from bench.processes import Cost
from bench.site import Controller, Site, crowd, site, until_so
from ccm.sandbox.workload import SERVICE

NODES = 1000
PATH = "/api/v1/namespaces/default/services"
ROOM = 10_000  # balancers and routes that the cloud has room for


async def measure(plan: Plan) -> Measured:
    rows: list[Row] = []
    number = min(NODES, plan.most)
    async with (
        site(plan, "--parameter", f"max_load_balancers={ROOM}") as place,
        crowd(place, number) as controller,
    ):
        watch, joiner = Watch(place, controller, number), f"vm-{number + 1}"
        rows.append(await watch.row("Services made", lambda: add_services(place, plan.services)))
        rows.append(await watch.row("a node joins", lambda: _join(place, joiner)))
        rows.append(await watch.row("it leaves", lambda: _leave(place, joiner)))
    broken = [
        f"{row['what']}: {row['cloud writes']} cloud writes for {plan.services} balancers"
        for row in rows
        if row["cloud writes"] != plan.services
    ]
    return Measured(rows, broken)


class Watch:
    """Rows of this part: what an act costs until all balancers have followed."""

    def __init__(self, place: Site, controller: Controller, nodes: int) -> None:
        self._place, self._controller, self._nodes = place, controller, nodes

    async def row(self, what: str, act: Callable[[], Awaitable[object]]) -> Row:
        place, services = self._place, self._place.plan.services
        await place.count_anew()
        before, began = Cost.of(self._controller.pid).cpu, time.monotonic()
        await act()

        async def is_done() -> bool:
            return await place.cloud_writes() >= services

        await until_so(f"{what}: every balancer was written", is_done)
        seconds = time.monotonic() - began
        calls = await place.admin.counters()
        return {
            "services": services,
            "nodes": self._nodes,
            "what": what,
            "s": seconds,
            "cloud writes": int(calls["writes"]),
            "cloud reads": int(calls["reads"]),
            "CPU s": Cost.of(self._controller.pid).cpu - before,
            "Kubernetes writes": sum(place.writes().values()),
        }


async def add_services(place: Site, number: int) -> None:
    """Services of type LoadBalancer, each with its balancer when this returns."""
    services = [
        {**SERVICE, "metadata": {"name": f"web-{index}", "namespace": "default"}}
        for index in range(1, number + 1)
    ]
    await each(services, lambda service: place.kube.post(PATH, service))

    async def have_addresses() -> bool:
        found: list[Any] = (await place.kube.get(PATH))["items"]
        return sum("ingress" in one["status"]["loadBalancer"] for one in found) >= number

    await until_so("every Service has an address", have_addresses, pause=0.25)


async def _join(place: Site, name: str) -> None:
    await place.add_machines(1, int(name.removeprefix("vm-")))
    await place.kube.post("/api/v1/nodes", kubelets_node(name))


async def _leave(place: Site, name: str) -> None:
    await place.kube.request("DELETE", f"/api/v1/nodes/{name}")
    await place.admin.vanish(name)
