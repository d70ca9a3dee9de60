"""What the simulated cloud keeps, as frozen records that are also its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from ccm.sandbox.cloud.fields import Fields, cidr
from ccm.sandbox.cloud.problems import invalid


class Power(StrEnum):
    """The life of a machine."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class Address:
    """One address of a machine; the types are those of a Node's status."""

    type: str
    address: str

    @classmethod
    def from_json(cls, body: object) -> Self:
        fields = Fields(body, "an address")
        address = cls(fields.text("type"), fields.text("address"))
        fields.done()
        return address


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

    @classmethod
    def from_json(cls, body: object) -> Self:
        fields = Fields(body, "a machine")
        machine = cls(
            name=fields.text("name"),
            id=fields.text("id", ""),
            type=fields.text("type", "standard-2"),
            zone=fields.text("zone", "zone-a"),
            region=fields.text("region", "region-1"),
            power=power(fields.text("power", Power.RUNNING)),
            addresses=tuple(Address.from_json(item) for item in fields.objects("addresses")),
            labels=fields.labels("labels"),
        )
        fields.done()
        return machine


def power(value: str) -> Power:
    """The power state of that name."""
    try:
        return Power(value)
    except ValueError as unknown:
        raise invalid(f"{value!r} is not a power state: {', '.join(Power)}") from unknown


@dataclass(frozen=True, slots=True)
class Listener:
    """One port of a balancer and the node port behind it."""

    protocol: str
    port: int
    node_port: int

    @classmethod
    def from_json(cls, body: object) -> Self:
        fields = Fields(body, "a listener")
        protocol = fields.text("protocol", "TCP")
        listener = cls(protocol, fields.whole("port"), fields.whole("node_port"))
        fields.done()
        return listener


@dataclass(frozen=True, slots=True)
class LoadBalancer:
    """A balancer; `tags` carry the mark of who owns it, and its name is unique."""

    name: str
    id: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    scheme: str = "internet"
    source_ranges: tuple[str, ...] = ()
    listeners: tuple[Listener, ...] = ()
    hosts: tuple[str, ...] = ()
    health_check: Mapping[str, Any] = field(default_factory=dict)
    ip: str = ""
    hostname: str = ""
    state: str = "active"

    @classmethod
    def from_json(cls, body: object) -> Self:
        fields = Fields(body, "a load balancer")
        balancer = cls(
            name=fields.text("name"),
            id=fields.text("id", ""),
            tags=fields.labels("tags"),
            scheme=fields.text("scheme", "internet"),
            source_ranges=tuple(cidr(text) for text in fields.texts("source_ranges")),
            listeners=tuple(Listener.from_json(item) for item in fields.objects("listeners")),
            hosts=fields.texts("hosts"),
            health_check=fields.mapping("health_check"),
            ip=fields.text("ip", ""),
            hostname=fields.text("hostname", ""),
            state=fields.text("state", "active"),
        )
        fields.done()
        if balancer.scheme not in ("internet", "internal"):
            raise invalid(f"scheme {balancer.scheme!r} must be internet or internal")
        return balancer


@dataclass(frozen=True, slots=True)
class Route:
    """One network sent to one machine; `state` is worked out when it is read."""

    cidr: str
    machine_id: str
    name: str = ""
    id: str = ""
    state: str = "active"
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, body: object) -> Self:
        fields = Fields(body, "a route")
        route = cls(
            cidr=cidr(fields.text("cidr")),
            machine_id=fields.text("machine_id"),
            name=fields.text("name", ""),
            id=fields.text("id", ""),
            state=fields.text("state", "active"),
            tags=fields.labels("tags"),
        )
        fields.done()
        return route


@dataclass(frozen=True, slots=True)
class Volume:
    """A disk and the zones it can be attached in; more than one zone for a replicated one."""

    id: str
    zones: tuple[str, ...] = ("zone-a",)
    region: str = "region-1"
    size_bytes: int = 10 * 1024**3

    @classmethod
    def from_json(cls, body: object) -> Self:
        fields = Fields(body, "a volume")
        volume = cls(
            id=fields.text("id"),
            zones=fields.texts("zones", ("zone-a",)),
            region=fields.text("region", "region-1"),
            size_bytes=fields.whole("size_bytes", 10 * 1024**3),
        )
        fields.done()
        return volume
