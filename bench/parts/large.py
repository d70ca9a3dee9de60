"""What happens to a large cluster, one after the other, and how soon all is as it has to be.

Nodes arrive, kubelets report, workers are killed, the leader stops in order; the new one, which is
told to take 30 s for it, refreshes all nodes once.
"""

import asyncio
import signal
import time
from collections.abc import Iterable
from dataclasses import replace

from bench.parts.failover import without_leader
from bench.parts.heartbeats import PERIODS, watched, wrong_counts
from bench.parts.kill import WORKERS, killed
from bench.parts.latency import new_nodes
from bench.parts.many import Report, most
from bench.plan import Measured, Plan
from bench.processes import cpu_seconds, family
from bench.site import Controller, Site, crowd, site, until, until_so

REFRESH = ("--node-status-update-frequency=30s",)


async def measure(plan: Plan) -> Measured:
    report = Report(most(plan))
    plan = replace(plan, sizes=(report.nodes,))
    async with site(plan) as place, crowd(place, plan.most) as leader:
        await live(place, leader, report, PERIODS)
    return Measured(report.rows, report.broken)


async def live(
    place: Site, leader: Controller, report: Report, periods: Iterable[float], *flags: str
) -> None:
    """What happens to a cluster of that size, one after the other.

    `periods` are those of heartbeats, in seconds; `flags` are those of the leader.
    """
    latency = await new_nodes(place)
    report.add("new node, to the first patch, p50 ms", latency["p50 ms"])
    report.add("new node, to the first patch, p99 ms", latency["p99 ms"])
    for period in periods:
        beats = await watched(place, leader, period)
        report.broken += wrong_counts(beats)
        each = f"a heartbeat a node each {period:g} s"
        report.add(f"{each}: supervisor, % of a core", beats["supervisor % of a core"])
        report.add(f"{each}: workers, % of a core", beats["workers % of a core"])
    for name in WORKERS:
        seconds = await killed(place, leader, name)
        report.add(f"{name} killed, until back with all it had, s", seconds)
    await _fail_over(place, leader, report, *flags)


async def _fail_over(place: Site, leader: Controller, report: Report, *flags: str) -> None:
    with Controller(place, *REFRESH, *flags) as standby:
        await until("the standby is warm", lambda: standby.is_in("standby"))
        await place.count_again()
        began = time.monotonic()
        leader.process.send_signal(signal.SIGTERM)
        await until("the standby leads", lambda: standby.is_in("running"))
        report.add("fail-over, from SIGTERM to running, s", time.monotonic() - began)
        report.add("fail-over, without a leader, s", await without_leader(place))
        await _refresh(place, standby, report)


async def _refresh(place: Site, leader: Controller, report: Report) -> None:
    """One whole pass over all nodes, after the one that is under way."""
    await _next_pass(leader)
    await place.count_again()
    before = sum(map(cpu_seconds, family(leader.pid)))
    began = time.monotonic()
    await _next_pass(leader)
    report.add("a refresh of all nodes, s", time.monotonic() - began)
    spent = sum(map(cpu_seconds, family(leader.pid))) - before
    calls, writes = await place.admin.counters(), sum(place.writes().values())
    report.add("a refresh of all nodes: cloud reads", calls["reads"])
    report.add("a refresh of all nodes: CPU of all processes, s", spent)
    report.add("a refresh of all nodes: writes", writes)
    if writes:
        report.broken.append(f"a refresh of what is right made {writes} writes")


async def _next_pass(leader: Controller) -> None:
    """Until the pass under way has ended; who looks costs something, so that is seldom."""

    async def passes() -> int:
        workers = await asyncio.to_thread(leader.workers)
        return int(workers["node-0"].get("refresh_passes", 0))

    async def is_done() -> bool:
        return await passes() > before

    before = await passes()
    await until_so("all nodes were asked about", is_done, pause=1.0)
