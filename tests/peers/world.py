"""A cluster and a cloud that are the same each time: what controllers are compared in."""

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from ccm.model.objects import UNINITIALIZED_TAINT, Json
from tests.peers.cases import Cases, Wish
from tests.support.deadlines import Deadline, timeout
from tests.support.kube.cluster import RealCluster
from tests.support.running import Running

NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
EVENTS = "/api/v1/namespaces/default/events"
UPSTREAM, OURS = "upstream", "ours"
FLAGS = (
    "--cluster-cidr=10.244.0.0/16",
    "--allocate-node-cidrs=true",
    "--configure-cloud-routes=true",
    "--leader-elect-retry-period=500ms",
)
"""What upstream's controller and ours are started with, beside what makes them quick."""
OUR_FLAGS = (
    "--controllers=*",
    "--node-monitor-period=1s",
    "--node-deletion-confirmation-period=0",
)
BEGUN, FAILED = "EnsuringLoadBalancer", "SyncLoadBalancerFailed"
DONE = ("EnsuredLoadBalancer", "UpdatedLoadBalancer", "DeletedLoadBalancer")

Seen = Iterator[tuple[str, Any]]
LONGEST_QUIET = 4.5
"""Seconds without a call that show that nothing is left to be done; retries begin after 5."""


@dataclass
class World(ABC):
    """`names` are the IDs of the cloud's objects by role, `nodes` the Nodes' names by shape.

    `machines` are what the cloud says of the servers, by shape. A controller works with the
    configuration of a name; the empty one is the usual one.
    """

    cases: ClassVar[Cases]
    shapes: ClassVar[Sequence[str]]
    """Those of the Nodes; the first one is easy to initialize, `leaving` is one that leaves."""
    plain: ClassVar[Sequence[str]] = ()
    """Those of more Nodes that every controller initializes."""
    late: ClassVar[Sequence[str]]
    """Those that join later."""
    node_configs: ClassVar[Sequence[str]] = ()
    """Configurations in which Nodes alone are compared."""
    last_config: ClassVar[str] = ""
    """The configuration in which the second controller takes over."""
    settle_timeout: ClassVar[float] = 180.0
    least_quiet: ClassVar[float] = 1.25
    """Seconds on a machine at rest without a call after which a controller has done all."""
    least_calls: ClassVar[int] = 0
    """How many calls show that all Services were looked at; without it one for each."""
    budgets: ClassVar[Collection[str]]
    """The groups of calls for which ours has a rate."""

    directory: Path
    binaries: Path
    cluster: RealCluster
    names: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    machines: dict[str, Json] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What each is started with in place of what makes comparisons quick."""

    @property
    def looking(self) -> int:
        """How many calls the controller that takes over makes at least."""
        return self.least_calls or len(self.cases.chosen)

    def flags_of(self, who: str) -> Sequence[str]:
        """What `upstream` or `ours` is started with, beside its cloud."""
        if self.flags:
            return self.flags[who]
        rates = ",".join(f"{one}=500" for one in self.budgets)
        return FLAGS if who == UPSTREAM else (*FLAGS, *OUR_FLAGS, f"--cloud-rate={rates}")

    # --- what is the cloud's

    @abstractmethod
    def prepare(self) -> None:
        """Make what the Services refer to, and the machines of all shapes."""

    @abstractmethod
    def registration(self, shape: str, pod_cidr: str) -> Json:
        """The Node as its kubelet registers it."""

    @abstractmethod
    def start(self, who: str, config: str) -> Running:
        """`upstream` or `ours`, as a process."""

    @abstractmethod
    def balancer_calls(self) -> int:
        """How often the service of load balancers was called since `forget_calls`."""

    @abstractmethod
    def doings(self) -> object:
        """What differs when a controller did something in the cloud."""

    @abstractmethod
    def writes(self) -> list[str]:
        """The calls since `forget_calls` that may have changed something."""

    @abstractmethod
    def forget_calls(self) -> None: ...

    def busy(self) -> list[str]:
        """What the cloud itself is still at work on."""
        return []

    @abstractmethod
    def roles(self) -> Mapping[str, str]:
        """What to call IDs that differ from run to run."""

    @abstractmethod
    def seen(self) -> Seen:
        """The cloud's objects, by path, each field that a controller may write."""

    @abstractmethod
    def is_served(self, service: str, port: int, seen: Set[str]) -> bool:
        """Whether a port of a Service has a listener, by the paths of a picture."""

    # --- what users and kubelets do

    def make_services(self) -> None:
        for name, case in self.cases.chosen.items():
            body = self.cases.manifest(name, case.first, self.names)
            self.uids[name] = self.request("POST", SERVICES, body)["metadata"]["uid"]

    def join_all(self) -> None:
        for name in self.shapes:
            self.join(name)

    def join(self, name: str) -> None:
        """The kubelet of a machine registers its Node."""
        network = f"10.244.{list(self.machines).index(name)}.0/24"
        body = self.registration(name, network)
        self.nodes[name] = body["metadata"]["name"]
        self.request("POST", NODES, body)

    def leave_all(self) -> None:
        for one in self.request("GET", NODES)["items"]:
            self.request("DELETE", f"{NODES}/{one['metadata']['name']}")

    def change_nodes(self) -> None:
        """Nodes come and go; not beside `change`, which upstream then undoes for some Services."""
        for name in self.late:
            self.join(name)
        self.request("DELETE", f"{NODES}/{self.nodes['leaving']}")

    def change(self) -> None:
        """Every Service asks for what it asks for later."""
        for name, case in self.cases.chosen.items():
            if case.later is None:
                self.request("DELETE", f"{SERVICES}/{name}")
            elif case.later != case.first:
                self._ask(name, case.first, case.later)

    def update(self) -> None:
        """Every Service that is left asks for one port more."""
        for name, case in self.cases.chosen.items():
            if case.later:
                ports = f"{case.later.ports},{self.cases.last_port(name)}"
                self._ask(name, case.later, replace(case.later, ports=ports))

    def clear(self) -> None:
        """Every Service is deleted."""
        for name, case in self.cases.chosen.items():
            if case.later:
                self.request("DELETE", f"{SERVICES}/{name}")

    def _ask(self, name: str, before: Wish, after: Wish) -> None:
        body = self.cases.change(name, before, after, self.names)
        self.request("PATCH", f"{SERVICES}/{name}", body)

    def request(self, method: str, path: str, body: object = None) -> Json:
        return dict(self.cluster.request(method, path, body).expect().body)

    # --- who works for it

    @contextmanager
    def at_work(self, who: str, config: str = "") -> Iterator[Running]:
        """`upstream` or `ours` works during the block, and gives the Lease back at its end."""
        with self.start(who, config) as running:
            try:
                yield running
            except BaseException:
                print(running.tail(60))
                raise
        if who == UPSTREAM:  # which does not do so: docs/moving.md, step 4
            self.request("PATCH", LEASE, {"spec": {"holderIdentity": ""}})

    def settle(self, refused: Set[str] = frozenset(), calls: int = 0) -> None:
        """Return when all Services but those are well, and nothing has happened for a while.

        Before that so many `calls` to the services of load balancers have to be made.
        """
        deadline = Deadline(self.settle_timeout)
        quiet = min(timeout(self.least_quiet), LONGEST_QUIET)
        before: object = None
        since = time.monotonic()
        while True:
            nodes = self.request("GET", NODES)["items"]
            waits = self._new(nodes) or self._waiting(refused, calls)
            now = self.doings(), waits, [one["metadata"]["resourceVersion"] for one in nodes]
            if now != before:
                before, since = now, time.monotonic()
            elif not waits and time.monotonic() > since + quiet:
                return
            assert not deadline.has_passed(), f"not settled: {waits}"
            time.sleep(0.4)  # each look costs the API server three lists

    def _new(self, nodes: Sequence[Json]) -> list[str]:
        """The Nodes that are not initialized, of those that everybody can."""
        shapes = {self.shapes[0], *self.plain, *self.late}
        plain = {self.nodes[shape] for shape in shapes if shape in self.nodes}
        tainted = [
            one["metadata"]["name"]
            for one in nodes
            if UNINITIALIZED_TAINT in (taint["key"] for taint in one["spec"].get("taints", ()))
        ]
        return [name for name in tainted if name in plain]

    def _waiting(self, refused: Set[str], calls: int) -> list[str]:
        """What is not well yet."""
        found = [] if self.balancer_calls() >= calls else ["calls"]
        last = self._last_events()
        for one in self.request("GET", SERVICES)["items"]:
            name, ingress = one["metadata"]["name"], one["status"]["loadBalancer"].get("ingress")
            is_asking = one["spec"]["type"] == "LoadBalancer"
            is_going = "deletionTimestamp" in one["metadata"]
            is_failing = last.get(name) in (BEGUN, FAILED)
            is_well = not is_failing and not is_going and bool(ingress) == is_asking
            if name in self.cases.chosen.keys() - refused and not is_well:
                found.append(name)
        return found or self.busy()

    def _last_events(self) -> dict[str, str]:
        """By Service, the last reason that tells how an attempt began or ended."""
        events = self.request("GET", EVENTS)["items"]
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return {
            event["involvedObject"]["name"]: event["reason"]
            for event in events
            if event["reason"] in (BEGUN, FAILED, *DONE)
        }


class CountedWorld(World):
    """One in which it is counted what a controller costs."""

    initialize: ClassVar[Collection[str]] = (UPSTREAM, OURS)
    """Who initializes Nodes."""

    @abstractmethod
    def add_machine(self, name: str, who: str) -> Json:
        """Launch a plain machine; its Node as it is when `upstream` or `ours` first sees it."""

    @abstractmethod
    def end_machine(self, node: Json) -> None:
        """End the machine of a Node for good."""

    @abstractmethod
    def calls(self) -> int:
        """How often the cloud was called since `forget_calls`."""

    def admitted(self) -> int | None:
        """The Services whose health checks the shared firewall admits, where there is one."""
        return None
