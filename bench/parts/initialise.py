"""Tainted nodes to ready ones, beside upstream's controllers and a bare load generator.

Cold: the nodes are there before the process starts. Arriving: the controller leads already, and the
nodes are created as fast as the API server takes them. The floor is a load generator that sends the
same two writes a node. Upstream's library asks a cloud in its own memory, ours a process by HTTP;
tuned it may send 2,000 requests a second and works on 30 nodes at once; with its default flags it
runs only once, at the smallest size.
"""

import asyncio
import math
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import orjson

from bench.figures import Row, percentile, spread
from bench.floor import WRITES
from bench.plan import Measured, Plan
from bench.processes import Cost, cpu_seconds
from bench.site import Controller, Peer, Site, site
from ccm.kube.watch import list_once
from ccm.model.cloud import Instance
from ccm.model.objects import Node
from ccm.providers.simulated.instances import read_machine
from tests.peers import upstream
from tests.support.kube.cluster import RealCluster
from workers.node.plan import patch_for
from workers.node.plan import plan as plan_writes
from workers.timings import Timings

NODE_WRITES = ("nodes", "nodes/status")
TUNED = ("--kube-api-qps=2000", "--kube-api-burst=4000", "--concurrent-node-syncs=30")
TIMEOUT = 900.0  # seconds
ANY_VERSION = 1

PEER = "upstream, tuned, "
OURS = ("cold", "arriving")

Kind = type[Controller] | type[Peer]
STARTS: Mapping[str, tuple[Kind, Sequence[str]]] = {
    "": (Controller, ()),
    PEER: (Peer, (*upstream.DEFAULTS, *TUNED)),
}


@dataclass(slots=True)
class Run:
    """One time of one side."""

    wall: float  # from the last node created, or the start of the process, to the last taint gone
    cpu: float  # of all its processes, until the last Event was sent
    total: float = 0.0  # from the first node created
    delays: Sequence[float] = ()  # of each node, from when it was first seen
    pss: float = 0.0
    servers: float = 0.0  # CPU of API server and etcd
    reads: int = 0
    writes: dict[str, int] = field(default_factory=dict)
    refused: int = 0  # writes that the API server did not take


async def measure(plan: Plan) -> Measured:
    runs = Runs(Path(plan.runs) if plan.runs else None)
    if plan.repeats:
        async with site(plan) as place:
            await _run_all(place, runs)
    rows: list[Row] = []
    broken: list[str] = []
    for number, sides in sorted(runs.found.items()):
        for name, found in sides.items():
            rows.append(_row(number, name, found, sides))
            broken += wrong_counts(plan, number, name, found) if name in OURS else []
    return Measured(rows, broken)


async def _run_all(place: Site, runs: "Runs") -> None:
    plan = place.plan
    for number in plan.sizes:
        for _ in range(plan.repeats):
            for name, run in _sides(place, number, plan.sides):
                runs.add(number, name, await run())
        if number == min(plan.sizes) and not plan.sides:
            usual = await cold(place, number, Peer, *upstream.DEFAULTS)
            runs.add(number, "upstream, default flags, cold", usual)


class Runs:
    """The runs of each side by the number of nodes; with a file also those of before."""

    def __init__(self, file: Path | None) -> None:
        self.found: dict[int, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
        self._file = file
        for line in file.read_bytes().splitlines() if file and file.exists() else ():
            number, name, run = orjson.loads(line)
            self.found[number][name].append(Run(**run))

    def add(self, number: int, name: str, run: Run) -> None:
        self.found[number][name].append(run)
        if self._file:
            with self._file.open("ab") as file:
                file.write(orjson.dumps([number, name, run]) + b"\n")


def _sides(
    place: Site, number: int, wanted: Sequence[str]
) -> Iterator[tuple[str, Callable[[], Awaitable[Run]]]]:
    """The sides that take turns, in their order; all of them unless some are wanted."""
    sides: dict[str, Callable[[], Awaitable[Run]]] = {"floor": partial(floor, place, number)}
    for name, (kind, flags) in STARTS.items():
        sides[f"{name}cold"] = partial(cold, place, number, kind, *flags)
        sides[f"{name}arriving"] = partial(arriving, place, number, kind, *flags)
    for name, run in sides.items():
        if not wanted or name in wanted:
            yield name, run


async def floor(place: Site, number: int) -> Run:
    """The load generator, from its first request."""
    assert isinstance(place.cluster, RealCluster)
    began = time.monotonic()
    await place.add_nodes(number)
    creation = time.monotonic() - began
    writes = place.directory / "writes"
    writes.write_bytes(b"\n".join(await prepared(place)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.floor", place.cluster.url),
        *(place.cluster.ca_file, place.cluster.token("ccm"), writes),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    await process.stdout.readline()
    before, begun = _servers(place), time.monotonic()
    process.stdin.write(b"go\n")
    cpu = float(await process.stdout.readline())
    await process.wait()
    wall = await place.spectator.until_ready(number) - begun
    servers = _servers(place) - before
    await place.clear()
    return Run(wall, cpu, creation + wall, servers=servers)


async def prepared(place: Site) -> list[bytes]:
    """Every write that the tainted nodes need, two a node: path, blank, strategic merge patch.

    Without the version, which the floor would have to take from each answer.
    """
    state = await place.admin.state()
    machines = {record["name"]: read_machine(record) for record in state["machines"]}
    writes: list[bytes] = []
    for node in map(Node, await list_once(place.kube, "/api/v1/nodes")):
        instance = machines[node.name]
        assert isinstance(instance, Instance)
        patches = [patch_for(node, action, ANY_VERSION) for action in plan_writes(node, instance)]
        assert len(patches) == WRITES
        for patch in patches:
            assert patch.merge
            del patch.merge["metadata"]["resourceVersion"]
            writes.append(f"{patch.path} ".encode() + orjson.dumps(patch.merge))
    return writes


async def cold(place: Site, number: int, kind: Kind = Controller, *flags: str) -> Run:
    """A controller, from the start of its process."""
    await place.add_nodes(number)
    await place.count_again()
    before, begun = _servers(place), time.monotonic()
    with kind(place, *flags) as controller:
        ended = await place.spectator.until_ready(number, TIMEOUT)
        servers = _servers(place) - before
        delays = [at - begun for at in place.spectator.ready.values()]
        run = Run(ended - begun, 0.0, delays=delays, servers=servers)
        await _finish(place, controller, run, 0.0)
    await place.clear()
    return run


async def arriving(place: Site, number: int, kind: Kind = Controller, *flags: str) -> Run:
    """A controller which leads already, from the last node created."""
    with kind(place, *flags) as controller:
        await controller.until_leading()
        await place.count_again()
        spent, before = Cost.of(controller.pid).cpu, _servers(place)
        first = time.monotonic()
        await place.add_nodes(number)
        last = time.monotonic()
        ended = await place.spectator.until_ready(number)
        servers = _servers(place) - before
        seen = place.spectator
        delays = [seen.ready[name] - came for name, came in seen.came.items()]
        run = Run(max(ended - last, 0.0), 0.0, ended - first, delays, servers=servers)
        await _finish(place, controller, run, spent)
    await place.clear()
    return run


async def _finish(place: Site, controller: Controller | Peer, run: Run, spent: float) -> None:
    """What the run cost, once its last Event is sent; Events follow behind the work."""
    await controller.until_reported()
    cost = Cost.of(controller.pid)
    run.cpu, run.pss = cost.cpu - spent, cost.pss
    run.reads = int((await place.admin.counters())["reads"])
    run.writes, run.refused = dict(place.writes()), place.refused()


def _servers(place: Site) -> float:
    return sum(map(cpu_seconds, place.cluster.pids.values()))


def wall_ratios(runs: list[Run], others: list[Run]) -> str:
    """Wall time over that of the other side in the same repetition."""
    return _ratios(runs, others, lambda run: run.wall)


def cpu_a_node(runs: list[Run], number: int) -> str:
    """CPU time of each run, in milliseconds a node."""
    return spread([run.cpu * 1000 / number for run in runs])


def _ratios(runs: list[Run], others: list[Run], what: Callable[[Run], float]) -> str:
    """Of the same repetition; empty without others."""
    pairs = [(what(run), what(other)) for run, other in zip(runs, others, strict=False)]
    found = [mine / theirs for mine, theirs in pairs if mine and theirs]
    return spread(found) if found else ""


def _row(number: int, name: str, runs: list[Run], sides: Mapping[str, list[Run]]) -> Row:
    floors, peers = sides.get("floor", []), sides.get(PEER + name, [])
    delays = [delay for run in runs for delay in run.delays]
    writes = runs[-1].writes
    return {
        "nodes": number,
        "side": name,
        "runs": len(runs),
        "wall s": spread([run.wall for run in runs]),
        "× upstream": _ratios(runs, peers, lambda run: run.wall),
        "with creation": _ratios(runs, peers, lambda run: run.total),
        "servers' CPU": _ratios(runs, peers, lambda run: run.servers),
        "× floor": _ratios(runs, floors, lambda run: run.wall),
        "p50 s": percentile(delays, 0.5) if delays else "",
        "p99 s": percentile(delays, 0.99) if delays else "",
        "writes a node": sum(writes.get(what, 0) for what in NODE_WRITES) / number
        if writes
        else float(WRITES),
        "events": writes.get("events", 0),
        "cloud reads": max(run.reads for run in runs),
        "CPU ms a node": cpu_a_node(runs, number),
        "servers' CPU s": median(run.servers for run in runs),
        "PSS MiB": max(run.pss for run in runs),
    }


def wrong_counts(plan: Plan, number: int, name: str, runs: list[Run]) -> list[str]:
    """Counts that are not what they have to be, whatever the machine does.

    Nodes that are long in coming do not share reads: a batch leaves every `interval` then. Of a
    burst the first Node is asked about alone, one batch may leave in a lull, too soon, and until
    they are full, batches double.
    """
    broken = []
    for run in runs:
        coming = max(run.total - run.wall, 0.0)  # seconds in which the nodes were created
        small = 2 + math.ceil(math.log2(plan.page)) if coming else 1
        most = math.ceil(number / plan.page) + small + math.ceil(coming / Timings().batch.interval)
        writes = {what: n for what, n in sorted(run.writes.items()) if what != "events"}
        if writes != dict.fromkeys(NODE_WRITES, number):
            broken.append(f"{name}: {number} nodes were initialised with {writes} writes")
        if run.reads > most:
            broken.append(f"{name}: {run.reads} cloud reads for {number} nodes, {most} allowed")
    return broken
