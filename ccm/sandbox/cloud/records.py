"""What the simulated cloud keeps, as frozen records that are also its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ccm.sandbox.cloud.codec import Cidr


class Power(StrEnum):
    """The life of a machine."""

    RUNNING = "running"
    STOPPED = "stopped"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class Address:
    """One address of a machine; the types are those of a Node's status."""

    type: str
    address: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine; an empty id and no addresses are filled in when it is added."""

    name: str
    id: str = ""
    type: str = "standard-2"
    zone: str = "zone-a"
    region: str = "region-1"
    power: Power = Power.RUNNING
    addresses: tuple[Address, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_live(self) -> bool:
        return self.power is not Power.TERMINATED


@dataclass(frozen=True, slots=True)
class Listener:
    """One port of a load balancer and the node port behind it."""

    port: int
    node_port: int
    protocol: str = "TCP"


class Scheme(StrEnum):
    """From where a load balancer can be reached."""

    INTERNET = "internet"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class LoadBalancer:
    """A load balancer; `tags` carry the mark of who owns it, and its name is unique."""

    name: str
    id: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    scheme: Scheme = Scheme.INTERNET
    source_ranges: tuple[Cidr, ...] = ()
    listeners: tuple[Listener, ...] = ()
    backends: tuple[str, ...] = ()
    health_check: Mapping[str, Any] = field(default_factory=dict)
    ip: str = ""
    hostname: str = ""
    state: str = "active"


@dataclass(frozen=True, slots=True)
class RouteRecord:
    """One network sent to one machine; `state` is worked out when it is read."""

    cidr: Cidr
    machine_id: str
    name: str = ""
    id: str = ""
    state: str = "active"
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Volume:
    """A disk and the zones it can be attached in; more than one zone for a replicated one."""

    id: str
    zones: tuple[str, ...] = ("zone-a",)
    region: str = "region-1"
    size_bytes: int = 10 * 1024**3


@dataclass(frozen=True, slots=True)
class StateDump:
    """Everything the cloud holds; a seed file has the same form."""

    machines: tuple[Machine, ...] = ()
    load_balancers: tuple[LoadBalancer, ...] = ()
    routes: tuple[RouteRecord, ...] = ()
    volumes: tuple[Volume, ...] = ()
