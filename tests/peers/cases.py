"""The Services of a comparison, as data: what each asks for, and what it asks for later."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ccm.model.objects import Json
from tests.support.running import IS_LONG

FIRST_NODE_PORT, NODE_PORTS = 30000, 20
"""Each case has so many node ports of its own, by its place in the table."""
LAST = 9000
"""The port that each Service gets last of all."""

Asked = Mapping[str, str]
DELETED: Asked = {"deleted": ""}
BOTH, THEM, US, NOBODY = "upstream ours", "upstream", "ours", ""
LOCAL = {"externalTrafficPolicy": "Local"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asks for.

    A port is `[name=]number[/protocol]`. Annotations are without the cloud's prefix unless they
    have one; in their values and those of `spec` `{name}` stands for an object of the cloud.
    """

    annotations: Asked = field(default_factory=dict)
    ports: str = "80"
    spec: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """A Service, which asks for nothing more when `later` is None: it is deleted then.

    `refused` names whom it gets nothing from, at first and later: `upstream`, `ours`. `spoilt_by`
    are those whose half-made remains the other one does not touch when it takes over.
    """

    first: Wish
    later: Wish | None
    refused: tuple[str, str] = ("", "")
    spoilt_by: str = ""


def case(
    first: Asked,
    later: Asked | None = None,
    ports: str = "80",
    then: str = "",
    spec: Json | None = None,
    other: Json | None = None,
    refused: str | tuple[str, str] = "",
    spoilt_by: str = "",
) -> Case:
    """`later`, `then` and `other` are the annotations, ports and spec that it has after a while."""
    wish = Wish(first, ports, spec or {})
    changed = Wish(
        first if later is None else later,
        then or ports,
        (spec or {}) if other is None else other,
    )
    twice = (refused, refused) if isinstance(refused, str) else refused
    return Case(wish, None if later is DELETED else changed, twice, spoilt_by)


@dataclass(frozen=True)
class Cases:
    """All of a cloud, by name, and the prefix of its annotations."""

    everything: Mapping[str, Case]
    prefix: str

    @cached_property
    def chosen(self) -> dict[str, Case]:
        """Those that are compared this time: every third one, where nobody waits for all."""
        listed = enumerate(self.everything.items())
        return {name: one for number, (name, one) in listed if IS_LONG or number % 3 == 0}

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.everything)}

    def refused(self, by: str, time: int) -> frozenset[str]:
        """The Services that get nothing from a controller, at first (0) or later (1)."""
        return frozenset(
            name for name, case in self.chosen.items() if by in case.refused[time].split()
        )

    def refused_after(self, first: str, second: str) -> frozenset[str]:
        """Those that get nothing from the second one, which has taken over."""
        spoilt = {name for name, case in self.chosen.items() if first in case.spoilt_by.split()}
        return self.refused(second, 1) | spoilt

    def last_port(self, name: str) -> str:
        """In the protocol of the others: upstream may refuse to mix them."""
        return f"last={LAST}" + "/UDP" * self.everything[name].first.ports.endswith("/UDP")

    def node_port(self, name: str, port: str) -> int:
        """That of a port of a case, which keeps it while others come and go."""
        one = self.everything[name]
        later = one.later.ports if one.later else ""
        listed = f"{one.first.ports},{later},{self.last_port(name)}".split(",")
        return self._first_node_port(name) + list(dict.fromkeys(listed)).index(port)

    def _first_node_port(self, name: str) -> int:
        return FIRST_NODE_PORT + NODE_PORTS * self.numbers[name]

    def of_node_port(self, port: int) -> str:
        """`<case>:<number>` for a node port of a case, else the number as it is."""
        place, number = divmod(port - FIRST_NODE_PORT, NODE_PORTS)
        is_ours = 0 <= place < len(self.everything)
        return f"{list(self.everything)[place]}:{number}" if is_ours else str(port)

    def manifest(self, name: str, wish: Wish, names: Mapping[str, str]) -> Json:
        """The Service as it is posted; `names` are the IDs of the cloud's objects."""
        asked = {
            key: value.format(**names) if isinstance(value, str) else value
            for key, value in wish.spec.items()
        }
        spec = {"type": "LoadBalancer", "selector": {"app": name}, **asked}
        is_plain = spec["type"] == "ClusterIP" or "allocateLoadBalancerNodePorts" in spec
        spec["ports"] = [
            _port(text, 0 if is_plain else self.node_port(name, text))
            for text in wish.ports.split(",")
        ]
        if spec.get("externalTrafficPolicy") == "Local":
            spec["healthCheckNodePort"] = self._first_node_port(name) + NODE_PORTS - 1
        annotations = {
            key if "/" in key else self.prefix + key: value.format(**names)
            for key, value in wish.annotations.items()
        }
        return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}

    def change(self, name: str, before: Wish, after: Wish, names: Mapping[str, str]) -> Json:
        """The merge patch that makes the one of the other."""
        old, new = self.manifest(name, before, names), self.manifest(name, after, names)
        gone = dict.fromkeys(old["metadata"]["annotations"])
        new["metadata"]["annotations"] = gone | new["metadata"]["annotations"]
        new["spec"] = dict.fromkeys(before.spec) | new["spec"]
        return new


def _port(text: str, node_port: int) -> Json:
    named, _, rest = text.rpartition("=")
    number, _, protocol = rest.partition("/")
    name = named or f"port-{number}" + "-udp" * (protocol == "UDP")
    made = {"name": name, "port": int(number), "protocol": protocol or "TCP"}
    return made | ({"nodePort": node_port} if node_port else {})
