"""Many Nodes on one host, beside upstream's controllers tuned as in `initialise`.

Ours runs with default flags. Each side has an API server of its own; what the processes of ours
cost is told one by one, once their last Event is sent.
"""

import time
from collections import defaultdict
from dataclasses import replace

import click

from bench.figures import Row, table
from bench.parts.initialise import NODE_WRITES, PEER, STARTS
from bench.plan import Measured, Plan
from bench.processes import Cost, cpu_seconds, family, pss_mib
from bench.site import Controller, Peer, Site, site

NODES = 15_000  # unless a size is given


async def measure(plan: Plan) -> Measured:
    report = Report(most(plan))
    plan = replace(plan, sizes=(report.nodes,))
    async with site(plan) as place:
        await place.add_nodes(plan.most)
        await place.count_again()
        began = time.monotonic()
        with Controller(place) as controller:
            wall = await place.spectator.until_ready(plan.most) - began
            report.add("cold, s", wall)
            await controller.until_reported()
            await _add_costs(place, controller, report)
    async with site(plan) as place:
        await place.add_nodes(plan.most)
        began = time.monotonic()
        _, flags = STARTS[PEER]
        with Peer(place, *flags) as peer:
            theirs = await place.spectator.until_ready(plan.most) - began
            report.add("upstream, tuned: cold, s", theirs)
            report.add("upstream, tuned: PSS, MiB", Cost.of(peer.pid).pss)
    report.add("cold, over upstream's", wall / theirs)
    return Measured(report.rows, report.broken)


def most(plan: Plan, usual: int = NODES) -> int:
    """How many Nodes are many: as usual, unless the command line says it."""
    return usual if plan.sizes == Plan().sizes else plan.most


class Report:
    """A figure a row, told as it is found: all of them take minutes."""

    def __init__(self, nodes: int, prefix: str = "") -> None:
        self.nodes = nodes
        self._prefix = prefix
        self.rows: list[Row] = []
        self.broken: list[str] = []

    def add(self, what: str, figure: float | int | str) -> None:
        row: Row = {"nodes": self.nodes, "what": self._prefix + what, "figure": figure}
        self.rows.append(row)
        click.echo(table([row]).splitlines()[-1], err=True)


async def _add_costs(place: Site, leader: Controller, report: Report) -> None:
    number, writes = place.plan.most, place.writes()
    report.add("writes a node", sum(writes[what] for what in NODE_WRITES) / number)
    report.add("cloud reads", (await place.admin.counters())["reads"])
    cost = Cost.of(leader.pid)
    report.add("CPU of all processes, ms a node", cost.cpu * 1000 / number)
    report.add("PSS of all processes, MiB", cost.pss)
    names = {worker["pid"]: name for name, worker in leader.workers().items()}
    names[leader.pid] = "supervisor"
    spent: defaultdict[str, float] = defaultdict(float)
    pss: defaultdict[str, float] = defaultdict(float)
    for pid in family(leader.pid):
        name = names.get(pid, "template of the workers")
        spent[name] += cpu_seconds(pid) * 1000 / number
        pss[name] += pss_mib(pid)
    for name in pss:
        report.add(f"{name}: CPU, ms a node", spent[name])
        report.add(f"{name}: PSS, MiB", pss[name])
