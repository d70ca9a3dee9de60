"""What happens in a sandbox, a line each: what was done to it, and what each worker did.

It is what differs between two looks from outside.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ccm.model.objects import Node
from ccm.model.status import Status
from ccm.sandbox.cloud.records import Power
from ccm.sandbox.cluster import Sandbox
from ccm.sandbox.kubelets import in_order
from ccm.sandbox.observer import missing_fields
from ccm.sandbox.workload import WorkloadStatus

LOOK_INTERVAL = 0.25  # seconds
REACTION_TIMEOUT = 600.0  # seconds from a cause in which something may follow from it
MAX_NAMES = 3  # in one line

MACHINE_LINES = {
    Power.STOPPED: "the machine stopped, so the kubelet falls silent",
    Power.RUNNING: "the machine started again",
    Power.TERMINATED: "the machine is terminated: it is gone for good",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """The sandbox at one moment."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    workload: WorkloadStatus = WorkloadStatus()
    workers: Mapping[str, int] = field(default_factory=dict)  # process IDs of those that run
    rates: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # now and full
    problems: Mapping[str, str] = field(default_factory=dict)  # by the page that has more


@dataclass(frozen=True, slots=True)
class Change:
    """What happened, to whom; `who` did it, and no one in here did when that is empty."""

    who: str
    what: str
    about: tuple[str, ...] = ()


def scene(nodes: Mapping[str, Node], workload: WorkloadStatus, status: Status) -> Scene:
    """What was seen, as one."""
    workers = {worker["name"]: worker["pid"] for worker in status["workers"] if worker["pid"]}
    running = {name: pid for name, pid in workers.items() if pid}
    rates = {
        name: (limit["per_second"], limit["full_per_second"])
        for name, limit in status["budget"].items()
    }
    problems = {
        problem["page"]: f"{problem['severity']}: {problem['sentence']}"
        for problem in status["problems"]
    }
    return Scene(nodes, workload, running, rates, problems)


def changes(before: Scene, after: Scene) -> Iterator[Change]:
    """What happened between two scenes, causes first."""
    yield from _machines(before.workload, after.workload)
    yield from _faults(before.workload.faults, after.workload.faults)
    yield from _nodes(before.nodes, after.nodes)
    yield from _resources(before.workload, after.workload)
    yield from _workers(before.workers, after.workers)
    yield from _supervisor(before, after)


def _machines(before: WorkloadStatus, after: WorkloadStatus) -> Iterator[Change]:
    for power, line in MACHINE_LINES.items():
        now = [name for name, current in after.power.items() if current is power]
        turned = [name for name in now if before.power.get(name, power) is not power]
        yield from _grouped("", f"{{}}: {line}", turned)
    new = after.power.keys() - before.power.keys()
    yield from _grouped("", "{} joined the cloud", new, "machine")


def _faults(before: frozenset[str], after: frozenset[str]) -> Iterator[Change]:
    for fault in sorted(after - before):
        yield Change("", f"the cloud has a fault: {fault}", ("cloud",))
    for fault in sorted(before - after):
        yield Change("", f"this fault of the cloud ended: {fault}", ("cloud",))


def _nodes(before: Mapping[str, Node], after: Mapping[str, Node]) -> Iterator[Change]:
    yield from _grouped("", "{} registered", after.keys() - before.keys(), "Node")
    yield from _grouped("node worker", "deleted {}", before.keys() - after.keys(), "Node")
    stayed = [(name, before[name], node) for name, node in after.items() if name in before]
    ready = [name for name, old, new in stayed if missing_fields(old) and not missing_fields(new)]
    ready += [name for name in after.keys() - before.keys() if not missing_fields(after[name])]
    yield from _grouped("node worker", "initialized {}", ready, "Node")
    off = [name for name, old, new in stayed if new.is_shut_down and not old.is_shut_down]
    on = [name for name, old, new in stayed if old.is_shut_down and not new.is_shut_down]
    yield from _grouped("node worker", "put the shutdown taint on {}", off)
    keep = "keep {}: a machine that is off may come back"
    yield from _grouped("service and route worker", keep, off)
    yield from _grouped("node worker", "took the shutdown taint from {}", on)


def _resources(before: WorkloadStatus, after: WorkloadStatus) -> Iterator[Change]:
    for name, address in after.services.items():
        if name not in before.services:
            yield Change("", f"Service {name} asks for a load balancer", (name,))
        if address and address != before.services.get(name):
            yield Change("service worker", f"gave Service {name} the address {address}", (name,))
    gone = before.services.keys() - after.services.keys()
    yield from _grouped("service worker", "removed the load balancer of {}", gone, "Service")
    joined = after.service_backends - before.service_backends
    left = before.service_backends - after.service_backends
    yield from _grouped("service worker", "put {} behind the load balancer", joined, "Node")
    yield from _grouped("service worker", "took {} from the load balancer", left)
    made, removed = after.routed - before.routed, before.routed - after.routed
    yield from _grouped("route worker", "made the routes to {}", made, "Node")
    yield from _grouped("route worker", "removed the routes to {}", removed, "Node")


def _workers(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Change]:
    """A process that was replaced in order has a successor before it ends: no difference here."""
    for name in sorted(before.keys() - after.keys()):
        yield Change("", f"process {before[name]} of {name} ended", (name,))
    for name, pid in after.items():
        if name not in before:
            yield Change("supervisor", f"runs {name} in process {pid}", (name,))
        elif before[name] != pid:
            yield Change(
                "supervisor", f"runs {name} in process {pid} instead of {before[name]}", (name,)
            )


def _supervisor(before: Scene, after: Scene) -> Iterator[Change]:
    for name, (now, full) in after.rates.items():
        was = before.rates.get(name, (full, full))[0]
        if now < full == was:
            yield Change("supervisor", f"slows {name} calls below {full:g}/s", ("cloud",))
        elif was < full == now:
            yield Change("supervisor", f"raises {name} calls to {full:g}/s again", ("cloud",))
    for page in after.problems.keys() - before.problems.keys():
        yield Change("supervisor", f"reports {after.problems[page]}", ("cloud",))
    if before.problems and not after.problems:
        yield Change("supervisor", "reports no problem", ("cloud",))


def _grouped(who: str, what: str, names: Iterable[str], noun: str = "") -> Iterator[Change]:
    """One line for all of them; with a noun, many are only counted."""
    about = tuple(in_order(names))
    if not about:
        return
    listed = ", ".join(about[:MAX_NAMES])
    if len(about) > MAX_NAMES:
        listed = f"{len(about)} {noun or 'machine'}s ({listed}, …)"
    elif noun:
        listed = f"{noun} {listed}" if len(about) == 1 else f"{noun}s {listed}"
    yield Change(who, what.format(listed), about)


@dataclass
class Story:
    """Looks at the sandbox from its first settled moment on; `status` is what it saw last."""

    sandbox: Sandbox
    events: list[str] = field(default_factory=list)
    status: Status | None = None
    _causes: dict[str, float] = field(default_factory=dict)  # when, by whom it happened to

    async def run(self) -> None:
        """For ever."""
        before: Scene | None = None
        while True:
            # The cloud last, so that no effect is seen before its cause.
            nodes = {name: seen.node for name, seen in self.sandbox.observer.nodes.items()}
            self.status = await self.sandbox.status()
            await self.sandbox.look()
            if self.status and self.sandbox.settled.is_set():
                now = scene(nodes, self.sandbox.workload, self.status)
                for change in changes(before or now, now):
                    self._tell(change, time.monotonic())
                before = now
            await asyncio.sleep(LOOK_INTERVAL)

    def say(self, line: str) -> None:
        """What the sandbox itself has to say."""
        self.events.append(f"sandbox: {line}")

    def _tell(self, change: Change, now: float) -> None:
        if not change.who:
            self._causes |= dict.fromkeys(change.about, now)
            self.events.append(change.what)
            return
        began = [self._causes[name] for name in change.about if name in self._causes]
        took = now - max(began) if began else REACTION_TIMEOUT
        after = f" after {took:.1f} s" if took < REACTION_TIMEOUT else ""
        after = " at once" if took < LOOK_INTERVAL else after
        self.events.append(f"{change.who}{after}: {change.what}")
