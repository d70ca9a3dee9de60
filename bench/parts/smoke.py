"""Counts alone, at a size for CI: writes, cloud reads and frames, whatever the machine does."""

from dataclasses import replace

from bench.figures import Row
from bench.parts import heartbeats, initialise
from bench.plan import Measured, Plan
from bench.site import crowd, site

NODES = 100
PAGE = 20
SECONDS = 5.0  # of heartbeats
PERIOD = 1.0  # seconds between two of the same node


async def measure(plan: Plan) -> Measured:
    plan = replace(plan, sizes=(NODES,), page=PAGE, beats=SECONDS)
    async with site(plan) as place:
        run = await initialise.cold(place, NODES)
        broken = initialise.wrong_counts(plan, NODES, "cold", [run])
        if run.refused:
            broken.append(f"cold: {run.refused} writes were refused")
        if (events := run.writes.get("events", 0)) > NODES + 1:  # one tells who leads
            broken.append(f"cold: {events} Events for {NODES} nodes")
        async with crowd(place, NODES) as controller:
            beats = await heartbeats.watched(place, controller, PERIOD)
        broken += heartbeats.wrong_counts(beats)
    writes: list[Row] = [
        {"what": f"writes of {what}", "count": n} for what, n in sorted(run.writes.items())
    ]
    rest: list[Row] = [
        {"what": "writes refused", "count": run.refused},
        {"what": f"cloud reads for {NODES} nodes, {PAGE} a page", "count": run.reads},
        *({"what": f"{what} of heartbeats", "count": beats[what]} for what in ("frames", "writes")),
    ]
    return Measured(writes + rest, broken)
