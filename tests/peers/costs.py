"""What one list of acts costs in the cloud: upstream's controllers and ours, one beside the other.

Both run with default flags, without routes, in a cluster and a cloud of their own each time.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from ccm.model.objects import UNINITIALIZED_TAINT, Json
from ccm.sandbox.kubelets import ready_condition
from tests.peers.aws.world import aws_world
from tests.peers.azure.world import BY_ADDRESS, BY_INTERFACE, azure_world
from tests.peers.gce.world import gce_world
from tests.peers.upstream import DEFAULTS
from tests.peers.world import NODES, OURS, SERVICES, UPSTREAM, CountedWorld
from tests.support.deadlines import Deadline, slowness
from tests.support.running import Running

SIDES = (UPSTREAM, OURS)
WITHOUT_ROUTES = "--configure-cloud-routes=false"
FLAGS: Mapping[str, Sequence[str]] = {
    UPSTREAM: (*DEFAULTS, WITHOUT_ROUTES),
    OURS: ("--controllers=*", WITHOUT_ROUTES),
}
COUNT = 5
"""Of Services."""
MADE, DELETED = f"{COUNT} Services made", f"{COUNT} Services deleted"
COLD, ARRIVING = "Nodes initialized, from the start", "as many Nodes that arrive later"
RESTART, GONE = f"restart with {COUNT} Services", "a machine ends, until its Node is gone"
ADMITTED = "Services whose health checks the shared rule admits"
ACTS = (COLD, ARRIVING, MADE, ADMITTED, RESTART, DELETED, GONE)
QUIET = 6.0
"""Seconds without a call after which an act is over; retries begin after 5."""
MOST = 180.0  # seconds at rest that an act may take
WAITED = 90.0
"""Seconds after which a Node without its machine is said to stay."""
LOOK = 0.1

Row = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Cost:
    """Calls, the writes among them, and seconds until the act was seen to be done."""

    calls: int | str
    writes: int | str
    seconds: float | str


@dataclass(frozen=True, slots=True)
class Cloud:
    """Where it is measured, in these configurations."""

    name: str
    world: Callable[[Path, Path], AbstractContextManager[CountedWorld]]
    configs: Sequence[str] = ("",)
    sizes: Sequence[int] = (10, 30, 50)
    """In Nodes."""


CLOUDS = (
    Cloud("gce", gce_world),
    Cloud("azure", azure_world, (BY_INTERFACE, BY_ADDRESS)),
    Cloud("aws", aws_world, sizes=(10,)),
)
Costs = dict[str, Cost | str]
"""By act; a text is what was seen in place of what it took."""


def measure(cloud: Cloud, kube_binaries: Path, directory: Path, count: int) -> Iterator[Row]:
    """A row for each act with so many Nodes, in each configuration."""
    for config in cloud.configs:
        sides = dict[str, Costs]()
        for who in SIDES:
            place = directory / f"{cloud.name}-{config}-{count}-{who}".replace(" ", "-")
            place.mkdir(parents=True)
            with cloud.world(kube_binaries, place) as world:
                world.flags = FLAGS
                sides[who] = dict(_Acts(world, who, config).run(count))
        name = f"{cloud.name}, {config}" if config else cloud.name
        for what in filter({*sides[UPSTREAM], *sides[OURS]}.__contains__, ACTS):
            row: Row = {"cloud": name, "nodes": count, "what": what}
            for who in SIDES:
                row |= _cells(who, sides[who].get(what))
            yield row


def _cells(who: str, cost: Cost | str | None) -> Row:
    found = cost if isinstance(cost, Cost) else Cost("", "", cost or "")
    return dict(zip(_columns(who), (found.calls, found.writes, found.seconds), strict=True))


def _columns(who: str) -> tuple[str, ...]:
    return tuple(f"{who}: {what}" for what in ("calls", "writes", "s"))


@dataclass
class _Acts:
    """A controller's life in a world."""

    world: CountedWorld
    who: str
    config: str
    began: float = 0.0
    running: Running = field(init=False)

    def run(self, count: int) -> Iterator[tuple[str, Cost | str]]:
        world = self.world
        self._join(range(count))
        self._begin()
        with world.at_work(self.who, self.config) as self.running:
            does_initialize = self.who in world.initialize
            cost = self._cost("all Nodes are initialized", self._are_initialized)
            if does_initialize:
                yield COLD, cost
                world.leave_all()
                self._settle()
                self._begin()
                self._join(range(count, 2 * count))
                yield ARRIVING, self._cost("all Nodes are initialized", self._are_initialized)
            self._begin()
            for number in range(COUNT):
                self._serve(f"web-{number}")
            yield MADE, self._cost("all have addresses", self._are_served)
            if (admitted := world.admitted()) is not None:
                yield ADMITTED, f"{admitted} of {COUNT}"
        self._begin()
        with world.at_work(self.who, self.config) as self.running:
            yield RESTART, self._cost("it looks", world.calls, is_timed=False)
            self._begin()
            for number in range(COUNT):
                world.request("DELETE", f"{SERVICES}/web-{number}")
            yield DELETED, self._cost("all are gone", lambda: not self._services())
            self._begin()
            yield GONE, self._lose_a_machine()

    def _begin(self) -> None:
        self.world.forget_calls()
        self.began = time.monotonic()

    def _cost(self, what: str, is_done: Callable[[], object], is_timed: bool = True) -> Cost:
        """Wait until it is seen and no calls follow; what was called since `_begin`."""
        deadline = Deadline(MOST)
        while not is_done():
            assert self.running.process.poll() is None, self.running.tail()
            assert not deadline.has_passed(), what
            time.sleep(LOOK)
        seconds = time.monotonic() - self.began
        self._settle()
        return self._counted(seconds if is_timed else "")

    def _counted(self, seconds: float | str) -> Cost:
        return Cost(self.world.calls(), len(self.world.writes()), seconds)

    def _settle(self) -> None:
        before, since, deadline = -1, time.monotonic(), Deadline(MOST)
        while time.monotonic() < since + QUIET + slowness():
            assert not deadline.has_passed(), "there are always more calls"
            if (calls := self.world.calls()) != before:
                before, since = calls, time.monotonic()
            time.sleep(LOOK)

    def _lose_a_machine(self) -> Cost:
        """A machine ends, and its kubelet reports nothing more."""
        node = self._nodes()[-1]
        name = node["metadata"]["name"]
        self.world.end_machine(node)
        body = {"status": {"conditions": [ready_condition(False)]}}
        self.world.request("PATCH", f"{NODES}/{name}/status", body)
        while name in (one["metadata"]["name"] for one in self._nodes()):
            if time.monotonic() > self.began + WAITED:
                return self._counted(f"> {WAITED:g}")
            time.sleep(LOOK)
        return self._counted(time.monotonic() - self.began)

    def _join(self, numbers: range) -> None:
        """All at once: their machines are there before."""
        nodes = [self.world.add_machine(f"node-{number}", self.who) for number in numbers]
        self._begin()
        for node in nodes:
            self.world.request("POST", NODES, node)

    def _serve(self, name: str) -> None:
        ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
        spec = {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports}
        self.world.request("POST", SERVICES, {"metadata": {"name": name}, "spec": spec})

    def _nodes(self) -> list[Json]:
        return list(self.world.request("GET", NODES)["items"])

    def _services(self) -> list[Json]:
        listed = self.world.request("GET", SERVICES)["items"]
        return [one for one in listed if one["spec"]["type"] == "LoadBalancer"]

    def _are_initialized(self) -> bool:
        taints = [taint["key"] for one in self._nodes() for taint in one["spec"].get("taints", ())]
        return UNINITIALIZED_TAINT not in taints

    def _are_served(self) -> bool:
        return all(one["status"]["loadBalancer"].get("ingress") for one in self._services())
