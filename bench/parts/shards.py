"""Node workers side by side: what initialising nodes costs with one, two and four of them."""

from statistics import median

from bench.figures import Row, percentile, spread
from bench.parts.initialise import Run, cold, cpu_a_node, wall_ratios
from bench.plan import Measured, Plan
from bench.site import Controller, site

MOST = 2000


async def measure(plan: Plan) -> Measured:
    number = min(MOST, plan.most)
    sides: dict[int, list[Run]] = {shards: [] for shards in plan.shards}
    async with site(plan) as place:
        for _ in range(plan.repeats):
            for shards, runs in sides.items():
                runs.append(await cold(place, number, Controller, f"--node-workers={shards}"))
    first = next(iter(sides.values()))
    return Measured([_row(number, shards, runs, first) for shards, runs in sides.items()], [])


def _row(number: int, shards: int, runs: list[Run], first: list[Run]) -> Row:
    return {
        "nodes": number,
        "node workers": shards,
        "wall s": spread([run.wall for run in runs]),
        "× first": wall_ratios(runs, first),
        "p99 s": median(percentile(run.delays, 0.99) for run in runs),
        "cloud reads": max(run.reads for run in runs),
        "CPU ms a node": cpu_a_node(runs, number),
        "PSS MiB": max(run.pss for run in runs),
    }
