"""A NotReady storm: many nodes fall silent at once, and their machines are all right."""

import asyncio
import math
import time

from bench.figures import Row
from bench.nodes import each
from bench.plan import Measured, Plan
from bench.processes import Cost
from bench.site import Site, crowd, site
from ccm.kube.client import STRATEGIC_PATCH
from ccm.sandbox.kubelets import ready_condition

ROUND = 5.0  # seconds between two questions about nodes that are not Ready, by default
ROUNDS = 4


async def measure(plan: Plan) -> Measured:
    rows: list[Row] = []
    broken: list[str] = []
    sizes = sorted({min(size, 1000) for size in plan.sizes})
    async with site(plan) as place:
        for number in sizes:
            row = await _storm(place, number)
            rows.append(row)
            batches = math.ceil(number / plan.page)
            if int(row["cloud reads"]) > batches * (ROUNDS + 1) or row["writes"]:
                broken.append(f"{number} silent nodes: {row}")
            await place.clear()
    return Measured(rows, broken)


async def _storm(place: Site, number: int) -> Row:
    async with crowd(place, number) as controller:
        names = [{"name": f"vm-{index}"} for index in range(1, number + 1)]
        body = {"status": {"conditions": [ready_condition(False)]}}
        await each(
            names,
            lambda node: place.kube.patch(
                f"/api/v1/nodes/{node['name']}/status", STRATEGIC_PATCH, body
            ),
        )
        await place.count_again()
        before, began = Cost.of(controller.pid).cpu, time.monotonic()
        await asyncio.sleep(ROUNDS * ROUND)
        seconds = time.monotonic() - began
        status = controller.status()
        return {
            "silent nodes": number,
            "s": seconds,
            "rounds": ROUNDS,
            "cloud reads": sum((await place.cloud_calls()).values()),
            "reads a round": math.ceil(number / place.plan.page),
            "writes": sum(place.writes().values()),
            "deleted": status["workers"][0]["deleted"],
            "% of a core": (Cost.of(controller.pid).cpu - before) * 100 / seconds,
        }
