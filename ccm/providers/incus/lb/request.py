"""What a Service asks of its load balancer, before it is known what there is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from ccm.errors import Refused
from ccm.model.annotations import whole_number
from ccm.model.service import Service
from ccm.providers.incus.config import FORWARD, LONGEST_CHECK, BalancerSection
from ccm.providers.incus.ids import OURS, Cluster

PREFIX = "service.beta.kubernetes.io/incus-load-balancer-"
ADDRESSES, HEALTH_CHECK = f"{PREFIX}addresses", f"{PREFIX}health-check"
COUNTS = tuple(BalancerSection().check_counts)
KNOWN = frozenset({ADDRESSES, HEALTH_CHECK, *(f"{HEALTH_CHECK}-{name}" for name in COUNTS)})

SERVICE_UID, SERVICE, PORTS = (f"{OURS}{name}" for name in ("service-uid", "service", "ports"))
"""Keys of a balancer's configuration that say which Service's it is, and what it serves."""
IPV4, IPV6 = "IPv4", "IPv6"


@dataclass(frozen=True, slots=True, order=True)
class Listener:
    """One port of a load balancer; `protocol` is `tcp` or `udp`."""

    protocol: str
    port: int
    node_port: int


@dataclass(frozen=True, slots=True)
class BalancerRequest:
    """A Service as load balancers see it, checked; there is one balancer for each IP family."""

    uid: str
    marks: Mapping[str, str]
    listeners: tuple[Listener, ...]
    families: tuple[str, ...]
    needs_all_families: bool
    addresses: Mapping[str, str]  # that are asked for, by family
    published: Mapping[str, str]  # that the Service's status has, by family
    checks: Mapping[str, str]
    warnings: list[str]

    @property
    def config(self) -> dict[str, str]:
        """What is ours in a balancer's configuration."""
        return {**self.checks, **self.marks, PORTS: written(self.listeners)}


def read_request(service: Service, section: BalancerSection, cluster: Cluster) -> BalancerRequest:
    """The request of a Service; raises `Refused` for what Incus cannot do."""
    families = tuple(family for family in service.ip_families if family in (IPV4, IPV6)) or (IPV4,)
    _check_local(service, section)
    unknown = sorted(a for a in service.annotations if a.startswith(PREFIX) and a not in KNOWN)
    published = (str(item.get("ip") or "") for item in service.ingress)
    return BalancerRequest(
        uid=service.uid,
        marks=marks_of(service, cluster),
        listeners=tuple(sorted(_listeners(service))),
        families=families,
        needs_all_families=len(families) < 2 or service.requires_ipv6,
        addresses=_addresses(service, families),
        published={family_of(item): item for item in published if family_of(item)},
        checks={} if section.mode == FORWARD else _checks(service, section),
        warnings=[f"annotation {name} is ignored: it is not known" for name in unknown],
    )


def marks_of(service: Service, cluster: Cluster) -> dict[str, str]:
    """What says that a balancer is this Service's."""
    return {**cluster.marks, SERVICE_UID: service.uid, SERVICE: service.key}


def written(listeners: tuple[Listener, ...]) -> str:
    """The listeners as one text, which keeps them while nothing is behind them."""
    return ",".join(
        f"{listener.protocol}/{listener.port}/{listener.node_port}" for listener in listeners
    )


def read_listeners(value: str) -> tuple[Listener, ...]:
    """The listeners in such a text; ValueError where it is invalid."""
    parts = (item.split("/") for item in value.split(","))
    return tuple(sorted(Listener(protocol, int(port), int(to)) for protocol, port, to in parts))


def family_of(address: str) -> str:
    """The IP family of an address; empty where it is invalid."""
    try:
        return IPV4 if ip_address(address).version == 4 else IPV6
    except ValueError:
        return ""


def _check_local(service: Service, section: BalancerSection) -> None:
    """Raise `Refused` where nodes without an endpoint would get traffic."""
    if not service.is_local_only:
        return
    if section.mode == FORWARD:
        raise Refused("a forward has one node behind it: externalTrafficPolicy has to be Cluster")
    if any(port.get("protocol") == "UDP" for port in service.ports):
        raise Refused(
            "Incus cannot check UDP: nodes without an endpoint would lose what they get; set "
            "externalTrafficPolicy to Cluster, or give UDP ports a Service of their own"
        )
    if service.annotations.get(HEALTH_CHECK) == "false":
        raise Refused(f"externalTrafficPolicy Local needs health checks: remove {HEALTH_CHECK}")


def _listeners(service: Service) -> Iterator[Listener]:
    for port in service.node_ports():
        if port.protocol not in ("TCP", "UDP"):
            raise Refused(f"port {port.number} is {port.protocol}: Incus balances TCP and UDP only")
        yield Listener(port.protocol.lower(), port.number, port.node_port)
    if not service.ports:
        raise Refused("the Service has no ports")


def _addresses(service: Service, families: tuple[str, ...]) -> dict[str, str]:
    """The addresses asked for, in the one way to write each."""
    where, value = f"annotation {ADDRESSES}", service.annotations.get(ADDRESSES, "")
    if not value:
        where, value = "spec.loadBalancerIP", service.requested_ip
    found: dict[str, str] = {}
    for item in filter(None, map(str.strip, value.split(","))):
        family = family_of(item)
        if not family or family in found or "%" in item:
            raise Refused(f"{where} {value!r} is not one address of each IP family")
        if family not in families:
            raise Refused(f"{where}: {item} is not of {' or '.join(families)}, as the Service is")
        found[family] = str(ip_address(item))
    return found


def _checks(service: Service, section: BalancerSection) -> dict[str, str]:
    """The configuration of health checks; without them a node that is down loses its share."""
    asked = service.annotations.get(HEALTH_CHECK, str(section.health_check).lower())
    if asked not in ("true", "false"):
        raise Refused(f"annotation {HEALTH_CHECK} is {asked!r}: give true or false")
    if asked == "false" and not service.is_local_only:
        return {}
    found = {"healthcheck": "true"}
    for name, default in section.check_counts.items():
        key = name.replace("-", "_")
        value = service.annotations.get(f"{HEALTH_CHECK}-{name}", str(default))
        if not 0 < (whole_number(value) or 0) <= LONGEST_CHECK:
            raise Refused(
                f"annotation {HEALTH_CHECK}-{name} is {value!r}: give 1 to {LONGEST_CHECK}"
            )
        found[f"healthcheck.{key}"] = value
    return found
