"""Heartbeats only: what status updates at kubelet rates cost while nothing else happens.

A kubelet reports its status every five minutes when nothing changed, and every ten seconds when
something always does; its Lease, which it renews in between, is not watched by us.
"""

import asyncio
import math
import time
from itertools import count, cycle

from bench.figures import Row
from bench.plan import Measured, Plan
from bench.processes import cpu_seconds
from bench.site import Controller, Site, crowd, site
from ccm.kube.client import STRATEGIC_PATCH
from ccm.sandbox.kubelets import ready_condition

PERIODS = (300.0, 10.0)  # seconds between two reports of one kubelet
REFRESH = 300.0  # seconds in which every node is asked about once, by default
AT_ONCE = 16


async def measure(plan: Plan) -> Measured:
    rows: list[Row] = []
    broken: list[str] = []
    async with site(plan) as place, crowd(place, plan.most) as controller:
        for period in PERIODS:
            row = await watched(place, controller, period)
            rows.append(row)
            broken += wrong_counts(row)
    return Measured(rows, broken)


def wrong_counts(row: Row) -> list[str]:
    """What heartbeats must not make, whatever the machine does."""
    broken = [f"heartbeats made {row[what]} {what}" for what in ("frames", "writes") if row[what]]
    if int(row["cloud calls"]) > int(row["of them refresh"]):
        broken.append(f"heartbeats made {row['cloud calls']} cloud calls")
    return broken


async def watched(place: Site, controller: Controller, period: float) -> Row:
    """One row: heartbeats of all nodes for a while, and what every process did meanwhile."""
    plan = place.plan
    await place.count_again()
    pids = {name: worker["pid"] for name, worker in controller.workers().items() if worker["pid"]}
    pids["supervisor"] = controller.pid
    before, frames = {name: cpu_seconds(pid) for name, pid in pids.items()}, _frames(controller)
    began = time.monotonic()
    sent = await beat(place, plan.most, plan.most / period, plan.beats)
    seconds = time.monotonic() - began
    spent = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    batches = math.ceil(plan.most / plan.page)
    return {
        "nodes": plan.most,
        "a report every s": period,
        "seconds": seconds,
        "reports": sent,
        "supervisor % of a core": spent["supervisor"] * 100 / seconds,
        "µs a report": spent["supervisor"] * 1e6 / sent,
        "workers % of a core": sum(spent.values()) * 100 / seconds
        - spent["supervisor"] * 100 / seconds,
        "frames": _frames(controller) - frames,
        "writes": sum(place.writes().values()),
        "cloud calls": sum((await place.cloud_calls()).values()),
        "of them refresh": math.ceil(seconds / (REFRESH / batches)),
    }


async def beat(place: Site, number: int, rate: float, seconds: float) -> int:
    """Status updates of nodes in turn, `rate` a second all together; how many there were."""
    names = cycle(range(1, number + 1))
    began, numbers = time.monotonic(), count()
    sent = 0

    async def work() -> None:
        nonlocal sent
        while (due := next(numbers) / rate) < seconds:
            await asyncio.sleep(began + due - time.monotonic())
            conditions = [ready_condition(True)]
            path = f"/api/v1/nodes/vm-{next(names)}/status"
            await place.kube.patch(path, STRATEGIC_PATCH, {"status": {"conditions": conditions}})
            sent += 1

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return sent


def _frames(controller: Controller) -> int:
    boxes = controller.status()["informer"]["delivery_queues"]
    return sum(box["frames"] for box in boxes.values())
