"""Many Services: a node joins and leaves, and every balancer follows; who restarts compares all.

Each balancer is one write. What is read first is one call for a page of them, where they begin
together; the rest of the time is Kubernetes' for new Services, and what the cloud takes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.figures import Row
from bench.nodes import each, kubelets_node
from bench.plan import Measured, Plan
from bench.processes import Cost, cpu_seconds
from bench.site import Controller, Site, crowd, site, until, until_so
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
        rows.append(await watch.row("a node joins", lambda: join(place, joiner)))
        rows.append(await watch.row("it leaves", lambda: _leave(place, joiner)))
        compared = [await watch.restarted(), await watch.started_again()]
    broken = [
        f"{row['what']}: {row['cloud writes']} cloud writes for {plan.services} balancers"
        for row in rows
        if row["cloud writes"] != plan.services
    ]
    broken += [
        f"{row['what']}: {row['cloud writes']} cloud writes"
        for row in compared
        if row["cloud writes"]
    ]
    return Measured([*rows, *compared], broken)


class Watch:
    """Rows of this part: what an act costs until all balancers have followed."""

    def __init__(self, place: Site, controller: Controller, nodes: int) -> None:
        self._place, self._controller, self._nodes = place, controller, nodes

    async def row(self, what: str, act: Callable[[], Awaitable[object]]) -> Row:
        place, services = self._place, self._place.plan.services
        await place.count_again()
        before, began = Cost.of(self._controller.pid).cpu, time.monotonic()
        await act()

        async def is_done() -> bool:
            return await place.cloud_writes() >= services

        await until_so(f"{what}: every balancer was written", is_done)
        seconds = time.monotonic() - began
        return await self._row(what, seconds, Cost.of(self._controller.pid).cpu - before)

    async def restarted(self) -> Row:
        """The row of a service worker that starts again, until it has compared every balancer."""
        place, controller = self._place, self._controller
        await place.count_again()
        old, began = controller.workers()["service"]["pid"], time.monotonic()
        await asyncio.to_thread(controller.ask, "restart", worker="service")

        await self._until_compared(controller, old)
        seconds = time.monotonic() - began
        spent = cpu_seconds(controller.workers()["service"]["pid"])
        return await self._row("a service worker starts again", seconds, spent)

    async def started_again(self) -> Row:
        """The row of a supervisor that starts after the one before has stopped in order."""
        place = self._place
        await asyncio.to_thread(self._controller.end)
        await place.count_again()
        began = time.monotonic()
        with Controller(place) as controller:
            await self._until_compared(controller, None)
            seconds, spent = time.monotonic() - began, Cost.of(controller.pid).cpu
            return await self._row("a supervisor starts again", seconds, spent)

    async def _until_compared(self, controller: Controller, old: int | None) -> None:
        def is_done() -> bool:
            worker = controller.workers().get("service", {})
            is_new = worker.get("pid") not in (None, old)
            return is_new and worker.get("ensured", 0) >= self._place.plan.services

        await until("every balancer was compared", is_done, 600.0, pause=0.1)

    async def _row(self, what: str, seconds: float, cpu: float) -> Row:
        calls = await self._place.admin.counters()
        return {
            "services": self._place.plan.services,
            "nodes": self._nodes,
            "what": what,
            "s": seconds,
            "cloud writes": int(calls["writes"]),
            "cloud reads": int(calls["reads"]),
            "CPU s": cpu,
            "Kubernetes writes": sum(self._place.writes().values()),
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


async def join(place: Site, name: str) -> None:
    await place.add_machines(1, int(name.removeprefix("vm-")))
    await place.kube.post("/api/v1/nodes", kubelets_node(name))


async def _leave(place: Site, name: str) -> None:
    await place.kube.request("DELETE", f"/api/v1/nodes/{name}")
    await place.admin.vanish(name)
