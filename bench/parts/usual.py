"""The usual way: one node after the other, a cloud call each, and 20 requests a second.

Our own code in the mode of upstream's default flags (one worker, `--kube-api-qps=20`, burst 30, one
node in a cloud call), beside ours with default flags. It is not upstream's code.
"""

from bench.figures import Row, spread
from bench.parts.initialise import Run, cold, cpu_a_node, wall_ratios
from bench.plan import Measured, Plan
from bench.site import site

USUAL = ("--concurrent-node-syncs=1", "--kube-api-qps=20", "--kube-api-burst=30")


async def measure(plan: Plan) -> Measured:
    ours: list[Run] = []
    usual: list[Run] = []
    async with site(plan) as place:
        for _ in range(plan.repeats):
            ours.append(await cold(place, plan.usual))
            one_by_one = place.provider_config(1, plan.quota)
            usual.append(await cold(place, plan.usual, *USUAL, config=one_by_one))
    sides = {"default flags": ours, "usual way": usual}
    return Measured([_row(plan.usual, name, runs, ours) for name, runs in sides.items()], [])


def _row(number: int, name: str, runs: list[Run], ours: list[Run]) -> Row:
    return {
        "nodes": number,
        "side": name,
        "wall s": spread([run.wall for run in runs]),
        "× default flags": wall_ratios(runs, ours, 1),
        "ms a node": spread([run.wall * 1000 / number for run in runs], 1),
        "cloud reads": max(run.reads for run in runs),
        "CPU ms a node": cpu_a_node(runs, number),
    }
