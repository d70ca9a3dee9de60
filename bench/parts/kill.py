"""A worker that is killed, and one that hands over: how long until a successor has everything."""

import asyncio
import os
import signal
import time
from collections.abc import Callable

from bench.figures import Row, spread
from bench.nodes import kubelets_node
from bench.plan import Measured, Plan
from bench.site import Controller, Site, crowd, site, until

STEADY = 11.0  # seconds after which an earlier death is forgotten
WORKERS = ("node-0", "service")
PACE = 0.05  # seconds between two nodes that come during a hand-over


async def measure(plan: Plan) -> Measured:
    rows: list[Row] = []
    async with site(plan) as place, crowd(place, plan.most) as controller:
        for name in WORKERS:
            times = [await killed(place, controller, name) for _ in range(plan.repeats)]
            rows.append(
                {
                    "nodes": plan.most,
                    "what": f"{name} killed, until back with all it had",
                    "s": spread(times),
                }
            )
        handed, slowest = await _handed_over(place, controller)
        rows.append(
            {"nodes": plan.most, "what": "node-0 hands over, from the command", "s": handed}
        )
        rows.append(
            {"nodes": plan.most, "what": "slowest of the nodes that came meanwhile", "s": slowest}
        )
    return Measured(rows, [])


async def killed(place: Site, controller: Controller, name: str) -> float:
    """From SIGKILL to a new process that runs and has as many objects as there are."""
    await asyncio.sleep(STEADY)
    old = controller.workers()[name]
    began = time.monotonic()
    os.kill(old["pid"], signal.SIGKILL)
    await until("the worker is back", _is_back(controller, name, old["pid"], old.get("objects", 0)))
    return time.monotonic() - began


def _is_back(controller: Controller, name: str, old: int, objects: int) -> Callable[[], bool]:
    def look() -> bool:
        now = controller.workers()[name]
        has_all = name != "node-0" or now.get("objects", 0) >= objects
        return now["pid"] not in (None, old) and now["state"] == "running" and has_all

    return look


async def _handed_over(place: Site, controller: Controller) -> tuple[float, float]:
    """Seconds of a hand-over, and the longest that a node waited of those that came during it."""
    first, old = place.plan.most + 1, controller.workers()["node-0"]["pid"]
    names = await place.add_machines(100, first)
    began = time.monotonic()

    async def come() -> None:
        for name in names:
            await place.kube.post("/api/v1/nodes", kubelets_node(name))
            await asyncio.sleep(PACE)

    coming = asyncio.create_task(come())
    await asyncio.to_thread(controller.ask, "restart", worker="node-0")
    await until("the work is handed over", _is_back(controller, "node-0", old, place.plan.most))
    seconds = time.monotonic() - began
    await coming
    await place.spectator.until_ready(place.plan.most + len(names))
    seen = place.spectator
    return seconds, max(seen.ready[name] - seen.came[name] for name in names)
