"""100,000 Nodes on one host, with one, four and eight node workers.

The API server is a stand-in that has all Nodes from the start; writes go over HTTP and are counted
by its audit log. It shares the machine with what is measured.
"""

import asyncio
import sys
import time
from dataclasses import replace

from bench.parts.large import live
from bench.parts.many import Report, most
from bench.plan import Measured, Plan
from bench.processes import Cost
from bench.site import Controller, Site, stand_in, until

NODES = 100_000  # unless a size is given
SHARDS = (1, 4, 8)  # node workers, unless others are given
HEARTBEATS = (300.0,)  # seconds between two reports of a kubelet that has no news
START = 600.0  # seconds at the most


async def measure(plan: Plan) -> Measured:
    plan = replace(plan, sizes=(most(plan, NODES),))
    shards = SHARDS if plan.shards == Plan().shards else plan.shards
    reports = []
    for workers in shards:
        report = Report(plan.most, f"{workers} node workers: ")
        reports.append(report)
        async with stand_in(plan) as place:
            await _measure(place, report, f"--node-workers={workers}")
    rows = [row for report in reports for row in report.rows]
    return Measured(rows, [line for report in reports for line in report.broken])


async def _measure(place: Site, report: Report, flag: str) -> None:
    began = time.monotonic()
    with Controller(place, flag) as leader:
        await until("it has all nodes", lambda: _has_all(leader, place.plan.most), START)
        report.add("from the start until all workers have all nodes, s", time.monotonic() - began)
        await leader.until_reported()
        report.add("PSS of all processes, MiB", Cost.of(leader.pid).pss)
        report.add("writes of the start", sum(place.writes().values()))
        for command in ("status", "plan"):
            report.add(f"{command}, s", await _timed(leader, command))
        await live(place, leader, report, HEARTBEATS, flag)


def _has_all(leader: Controller, nodes: int) -> bool:
    workers = leader.workers()
    objects = [one.get("objects", 0) for name, one in workers.items() if name.startswith("node-")]
    return leader.is_in("running") and sum(objects) >= nodes


async def _timed(leader: Controller, command: str) -> float:
    """Seconds that a person waits for a command."""
    where = leader.where if command == "plan" else (f"--runtime-dir={leader.runtime}",)
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ccm.cli.main", command, *where),
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0, command
    return time.monotonic() - began
