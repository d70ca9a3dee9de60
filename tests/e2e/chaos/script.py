"""What happens in a life, drawn from a seed: the same seed always gives the same steps."""

import random
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ccm.model.service import SOURCE_RANGES
from ccm.providers.simulated.load_balancers import SCHEME_ANNOTATION
from ccm.sandbox.cloud.faults import CloudFaultKind
from tests.e2e.chaos.processes import WORKERS

PORTS = (53, 80, 443, 8080, 9090)
RANGES = ("10.0.0.0/8", "192.0.2.0/24", "198.51.100.7/32", "2001:db8::/32")
ZONES = ("zone-a", "zone-b", "zone-c")
OPERATIONS = ("*", "*LoadBalancer", "*Route*", "ListMachines", "ListVolumes", "Create*", "Delete*")
FAULTS = (
    CloudFaultKind.ERROR,
    CloudFaultKind.DENIED,
    CloudFaultKind.THROTTLE,
    CloudFaultKind.TIMEOUT,
    CloudFaultKind.RESET,
    CloudFaultKind.GARBAGE,
    CloudFaultKind.SLOW,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens: who does what, to what; then nothing for `pause` seconds."""

    who: str
    what: str
    args: tuple[Any, ...] = ()
    pause: float = 0.0

    def __str__(self) -> str:
        return " ".join([self.who, self.what, *map(repr, self.args), f"({self.pause:.2f} s)"])


class NothingToChange(Exception):
    """There is no node or Service that a verb could be applied to."""


@dataclass(frozen=True, slots=True)
class Size:
    """What there is when a life begins."""

    nodes: int
    services: int
    volumes: int


class Script:
    """Draws one step after the other; it remembers what it asked for, not what came of it."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._number = 0
        self._nodes: dict[str, str] = {}  # name to running, stopped or away
        self._networks: list[int] = []  # those of nodes that left, to be given out again
        self._held: dict[str, int] = {}
        self._names: list[str] = []  # of nodes that left
        self._services: dict[str, str] = {}  # name to type
        self._dropped: list[str] = []  # names of Services that were
        self._invalid: list[str] = []
        self._has_fault = False
        self._verbs: tuple[tuple[int, Callable[[], Step]], ...] = (
            (6, self._join),
            (4, self._leave),
            (3, self._repair),
            (4, self._stop),
            (4, self._start),
            (4, self._end),
            (2, self._unregister),
            (3, self._register),
            (3, self._exclude),
            (5, self._ask),
            (4, self._drop),
            (5, self._retype),
            (6, self._ports),
            (4, self._policy),
            (5, self._ranges),
            (3, self._annotate),
            (3, self._invalidate),
            (4, self._fix),
            (4, self._volume),
            (8, self._fault),
            (9, self._calm),
            (2, self._slow),
            (5, self._kill),
            (2, self._restart),
            (2, self._replace),
        )

    def beginning(self, size: Size) -> list[Step]:
        """What there is at first, in any order."""
        verbs = [self._join] * size.nodes + [self._ask] * size.services
        verbs += [self._volume] * size.volumes
        self._chance.shuffle(verbs)
        return [verb() for verb in verbs]

    def draw(self) -> Step:
        weights = [weight for weight, _ in self._verbs]
        while True:
            [(_, verb)] = self._chance.choices(self._verbs, weights)
            with suppress(NothingToChange):
                step = verb()
                return replace(step, pause=self._chance.choice((0.0, 0.0, 0.1, 0.2, 0.5)))

    def rest(self) -> list[Step]:
        """What lets everything come to rest."""
        invalid, self._invalid, self._has_fault = self._invalid, [], False
        return [Step("cloud", "calm"), *(Step("users", "fix", (name,)) for name in invalid)]

    # --- nodes

    def _join(self) -> Step:
        is_old = bool(self._names) and self._chance.random() < 0.5
        name = self._take(self._names) if is_old else f"vm-{self._next()}"
        return self._registered("join", name)

    def _leave(self) -> Step:
        name = self._some_node("running", "stopped")
        self._names.append(name)
        return self._gone("leave", name, self._chance.random() < 0.5)

    def _repair(self) -> Step:
        """The node comes back at once on another machine, with its name and network."""
        name = self._some_node("running", "stopped")
        self._nodes[name] = "running"
        return Step("nodes", "repair", (name, self._held[name]))

    def _stop(self) -> Step:
        return self._turn("stop", "running", "stopped")

    def _start(self) -> Step:
        return self._turn("start", "stopped", "running")

    def _end(self) -> Step:
        name = self._some_node("running", "stopped")
        return self._gone("end", name, self._chance.choice(("terminate", "vanish")))

    def _unregister(self) -> Step:
        name = self._some_node("running")
        self._nodes[name] = "away"
        self._networks.append(self._held.pop(name))
        return Step("nodes", "unregister", (name,))

    def _register(self) -> Step:
        return self._registered("register", self._some_node("away"))

    def _exclude(self) -> Step:
        name = self._some_node("running", "stopped")
        return Step("nodes", "exclude", (name, self._chance.random() < 0.7))

    def _registered(self, what: str, name: str) -> Step:
        """The network is new, or one that another node had."""
        is_old = bool(self._networks) and self._chance.random() < 0.5
        network = self._take(self._networks) if is_old else self._next()
        self._nodes[name], self._held[name] = "running", network
        return Step("nodes", what, (name, network))

    def _turn(self, what: str, before: str, after: str) -> Step:
        name = self._some_node(before)
        self._nodes[name] = after
        return Step("nodes", what, (name,))

    def _gone(self, what: str, name: str, how: object) -> Step:
        del self._nodes[name]
        self._networks.append(self._held.pop(name))
        return Step("nodes", what, (name, how))

    def _some_node(self, *states: str) -> str:
        """A node in one of these states; two always stay, so that there is something to lose."""
        return self._some(self._nodes if len(self._nodes) > 2 else {}, states)

    # --- Services

    def _ask(self) -> Step:
        is_old = bool(self._dropped) and self._chance.random() < 0.5
        name = self._take(self._dropped) if is_old else f"web-{self._next()}"
        self._services[name] = "LoadBalancer"
        scheme = self._chance.choice(("", "internal"))
        annotations = {SCHEME_ANNOTATION: scheme} if scheme else {}
        spec = {"type": "LoadBalancer", "ports": self._some_ports(), **self._some_policy()}
        if self._chance.random() < 0.3:
            spec["loadBalancerSourceRanges"] = self._some_ranges()
        return Step("users", "ask", (name, spec, annotations))

    def _drop(self) -> Step:
        name = self._some_service("LoadBalancer", "NodePort", "ClusterIP")
        del self._services[name]
        self._dropped.append(name)
        self._invalid = [other for other in self._invalid if other != name]
        return Step("users", "drop", (name,))

    def _retype(self) -> Step:
        name = self._some_service("LoadBalancer", "NodePort", "ClusterIP")
        others = {"LoadBalancer", "NodePort", "ClusterIP"} - {self._services[name]}
        self._services[name] = kind = self._chance.choice(sorted(others))
        return Step("users", "retype", (name, kind))

    def _ports(self) -> Step:
        name = self._some_service("LoadBalancer")
        return Step("users", "change", (name, {"ports": self._some_ports()}))

    def _policy(self) -> Step:
        name = self._some_service("LoadBalancer")
        return Step("users", "change", (name, self._some_policy()))

    def _ranges(self) -> Step:
        name = self._some_service("LoadBalancer")
        ranges = self._some_ranges()
        if self._chance.random() < 0.5:
            return Step("users", "change", (name, {"loadBalancerSourceRanges": ranges}))
        return Step("users", "annotate", (name, {SOURCE_RANGES: ",".join(ranges) or None}))

    def _annotate(self) -> Step:
        name = self._some_service("LoadBalancer")
        return Step("users", "annotate", (name, {"team": f"t-{self._next()}"}))

    def _invalidate(self) -> Step:
        """Ask for what the cloud does not know."""
        name = self._some_service("LoadBalancer")
        self._invalid.append(name)
        return Step("users", "invalidate", (name,))

    def _fix(self) -> Step:
        return Step("users", "fix", (self._take(self._invalid),))

    def _some_service(self, *types: str) -> str:
        return self._some(self._services, types)

    def _some_ports(self) -> list[Any]:
        chosen = self._chance.sample(PORTS, self._chance.randint(1, 3))
        return [[port, self._chance.choice(("TCP", "TCP", "UDP"))] for port in sorted(chosen)]

    def _some_policy(self) -> dict[str, Any]:
        return {"externalTrafficPolicy": self._chance.choice(("Cluster", "Local"))}

    def _some_ranges(self) -> list[str]:
        return sorted(self._chance.sample(RANGES, self._chance.randint(0, 2)))

    # --- the rest

    def _volume(self) -> Step:
        zones = self._chance.sample(ZONES, self._chance.choice((1, 1, 2)))
        args = (f"vol-{self._next()}", sorted(zones), self._chance.random() < 0.5)
        return Step("users", "volume", args)

    def _fault(self) -> Step:
        """The cloud fails; sometimes it does what it was asked to and only its answer is lost."""
        kind, is_performed = self._chance.choice(FAULTS), self._chance.random() < 0.4
        operation = self._chance.choice(OPERATIONS)
        self._has_fault = True
        return Step("cloud", "fail", (str(kind), operation, is_performed))

    def _calm(self) -> Step:
        if not self._has_fault:
            raise NothingToChange
        self._has_fault = False
        return Step("cloud", "calm")

    def _slow(self) -> Step:
        self._has_fault = True
        return Step("cloud", "slow", (self._chance.choice((0.02, 0.2)),))

    def _kill(self) -> Step:
        return Step("processes", "kill", (self._chance.choice(WORKERS),))

    def _restart(self) -> Step:
        return Step("processes", "restart", (self._chance.choice(WORKERS),))

    def _replace(self) -> Step:
        """The supervisor goes, in order or by force; it is started again."""
        return Step("processes", "replace", (self._chance.choice(("SIGKILL", "SIGTERM")),))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _some(self, among: Mapping[str, str], values: Collection[str]) -> str:
        """A name with one of these values, often the latest one: what has just come is at work."""
        chosen = [name for name, value in among.items() if value in values]
        if not chosen:
            raise NothingToChange
        return chosen[-1] if self._chance.random() < 0.4 else self._chance.choice(chosen)

    def _take(self, items: list[Any]) -> Any:
        if not items:
            raise NothingToChange
        return items.pop(self._chance.randrange(len(items)))
