"""A read-only, lenient view of the raw JSON of a Service."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from socket import AF_INET, AF_INET6, inet_pton
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

from ccm.errors import Refused
from ccm.model.cloud import Network
from ccm.model.objects import MOST_ENTRIES, Json, KubernetesObject, mapping, objects, text

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
UPSTREAM_FINALIZERS = ("gke.networking.io/l4-ilb-v1", "gke.networking.io/l4-netlb-v1")
"""Those of upstream's providers beside that; who takes over from them takes them away with it."""
MOST_RANGES = 5000
"""More than any cloud takes for one load balancer; to read them takes a moment that others wait."""
MOST_RULES = 100_000
"""Ports times source ranges: some clouds have a rule for each of both, and none has so many."""
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
EXAMPLE_RANGES = "10.0.0.0/24,192.168.2.0/24"

EVERYBODY = IPv4Network("0.0.0.0/0")
Socket = tuple[str, str]
"""A protocol and a number: nodes serve it at each address in the status of a Service."""

PROXY_NAME = "service.kubernetes.io/service-proxy-name"
UNPROXIED = (PROXY_NAME, "service.kubernetes.io/headless")
"""Labels of Services that kube-proxy leaves out."""
PROXY_OPTIONS = {
    "service.cilium.io/type": "LoadBalancer",
    "service.cilium.io/proxy-delegation": "none",
    "service.cilium.io/node": None,
    "service.cilium.io/node-selector": None,
    "projectcalico.org/natExcludeService": "false",
    "kube-router.io/service.skiplbips": None,
}
"""Annotations by which other proxies leave load balancers out, on some nodes or on all, and values
by which they do not."""

SPEC_FIELDS = (
    "type",
    "loadBalancerClass",
    "loadBalancerSourceRanges",
    "loadBalancerIP",
    "ports",
    "sessionAffinity",
    "sessionAffinityConfig",
    "externalIPs",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "ipFamilies",
    "ipFamilyPolicy",
    "allocateLoadBalancerNodePorts",
)
"""The fields of `spec` that this controller and its providers see."""

UNORDERED_FIELDS = frozenset({"loadBalancerSourceRanges", "ports", "externalIPs"})
LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


class Feature(StrEnum):
    """What a Service may require of a load balancer and not every cloud supports."""

    UDP = "UDP"
    MIXED_PROTOCOLS = "TCP and UDP on one load balancer"
    SOURCE_RANGES = "source ranges"
    SESSION_AFFINITY = "session affinity"
    FIXED_IP = "a requested IP"
    DUAL_STACK = "two IP families"


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The HTTP health check by which each node says whether it has an endpoint of the Service."""

    port: int
    path: str = "/healthz"


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of a Service, which every node serves at `node_port`."""

    name: str
    number: int
    protocol: str
    node_port: int
    app_protocol: str = ""


@dataclass(frozen=True, slots=True)
class Service(KubernetesObject):
    """What the service controller and providers read of a Service."""

    KIND = "Service"

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return f"/api/v1/namespaces/{quote(self.namespace)}/services/{quote(self.name)}"

    @property
    def finalizers(self) -> list[str]:
        listed = self.meta.get("finalizers")
        return [f for f in listed if isinstance(f, str)] if isinstance(listed, list) else []

    @property
    def has_finalizer(self) -> bool:
        """Whether the Service carries our finalizer."""
        return FINALIZER in self.finalizers

    @property
    def type(self) -> str:
        return text(self.spec.get("type"))

    @property
    def load_balancer_class(self) -> str | None:
        value = self.spec.get("loadBalancerClass")
        return value if isinstance(value, str) else None

    @property
    def ports(self) -> list[Json]:
        return objects(self.spec.get("ports"))

    def node_ports(self, may_lack_some: bool = False) -> list[ServicePort]:
        """The ports as a load balancer needs them; raises `Refused` for one without a node port.

        If it `may_lack_some`, those are left out, and `Refused` are the ports when it lacks all.
        """
        ports = self.ports
        served = [port for port in ports if port.get("nodePort")]
        for port in ports:
            if not (port.get("nodePort") or (may_lack_some and served)):
                raise Refused(
                    f"port {port.get('port')} has no node port: set"
                    " spec.allocateLoadBalancerNodePorts to true"
                )
        return [
            ServicePort(
                text(port.get("name")),
                int(str(port.get("port"))),
                text(port.get("protocol")) or "TCP",
                port["nodePort"],
                text(port.get("appProtocol")),
            )
            for port in served
        ]

    @property
    def sockets(self) -> frozenset[Socket]:
        return frozenset(
            (text(item.get("protocol")) or "TCP", str(item.get("port"))) for item in self.ports
        )

    @property
    def proxied(self) -> frozenset[Socket]:
        """Its sockets as far as nodes serve them: none where a proxy leaves it out."""
        return frozenset() if self.left_out_by else self.sockets

    @property
    def left_out_by(self) -> list[str]:
        """The labels and annotations for which a proxy of the nodes may leave it out."""
        labels = [name for name in UNPROXIED if name in self.labels]
        given = self.annotations
        return labels + [name for name, it in PROXY_OPTIONS.items() if given.get(name, it) != it]

    @property
    def is_whole(self) -> bool:
        """Whether it is what the API server has: of what is too large, something is left out."""
        parts = self.ports, self.labels, self.annotations
        return bool(self.ports) and all(len(part) < MOST_ENTRIES for part in parts)

    @property
    def default_balancer_name(self) -> str:
        """Upstream's name: `a` and the UID without dashes, 32 characters at the most."""
        return f"a{self.uid.replace('-', '')}"[:32]

    @property
    def ip_families(self) -> tuple[str, ...]:
        """`spec.ipFamilies`, the first of them first; IPv4 where there are none."""
        listed = self.spec.get("ipFamilies")
        return tuple(map(text, listed)) if isinstance(listed, list) and listed else ("IPv4",)

    @property
    def requires_ipv6(self) -> bool:
        """Whether a load balancer without IPv6 is not one for it."""
        is_preferred = (
            self.spec.get("ipFamilyPolicy") == "PreferDualStack" and "IPv4" in self.ip_families
        )
        return "IPv6" in self.ip_families and not is_preferred

    @property
    def requested_ip(self) -> str:
        """`spec.loadBalancerIP`; empty when the cloud may choose."""
        return text(self.spec.get("loadBalancerIP"))

    @property
    def load_balancer(self) -> Json | None:
        """`status.loadBalancer` as it is; None when it is missing."""
        value = self.status.get("loadBalancer")
        return value if isinstance(value, dict) else None

    @property
    def ingress(self) -> list[Json]:
        return objects(mapping(self.load_balancer).get("ingress"))

    @property
    def has_node_ports(self) -> bool:
        """Whether its type has them; the API server keeps what others say, and gives them none."""
        return self.type in ("LoadBalancer", "NodePort")

    @property
    def is_local_only(self) -> bool:
        """Whether only nodes with an endpoint of the Service take traffic from outside."""
        return self.has_node_ports and self.spec.get("externalTrafficPolicy") == "Local"

    @property
    def needs_health_check(self) -> bool:
        return self.type == "LoadBalancer" and self.is_local_only

    @property
    def health_check(self) -> HealthCheck | None:
        """How a load balancer finds the nodes with an endpoint; None when any node will do."""
        port = self.spec.get("healthCheckNodePort")
        is_given = isinstance(port, int) and port != 0
        return HealthCheck(int(str(port))) if self.needs_health_check and is_given else None

    def source_ranges(self) -> frozenset[Network]:
        """The networks that may reach the load balancer: of the spec, the annotation, or all.

        Raises `Refused` when one of them is not a network, or there are more than `MOST_RANGES`, or
        more than `MOST_RULES` with the ports.
        """
        ranges, ports = self._source_ranges(), len(self.ports)
        if len(ranges) * ports > MOST_RULES:
            why = f"{len(ranges)} source ranges for {ports} ports are more than {MOST_RULES} rules"
            raise Refused(f"{why}: give each part of the ports a Service of its own")
        return ranges

    def _source_ranges(self) -> frozenset[Network]:
        listed = self.spec.get("loadBalancerSourceRanges")
        if isinstance(listed, list) and listed:
            entries = tuple(text(entry) for entry in listed)
            return _networks(entries, "spec.loadBalancerSourceRanges")
        annotated = text(self.annotations.get(SOURCE_RANGES)).strip()
        if annotated:
            return _networks(tuple(annotated.split(",")), f"annotation {SOURCE_RANGES}")
        return frozenset({EVERYBODY})

    def features(self) -> frozenset[Feature]:
        """What it requires that not every cloud supports; raises as `source_ranges`."""
        return frozenset(self._features())

    def _features(self) -> Iterator[Feature]:
        protocols = {text(port.get("protocol")) or "TCP" for port in self.ports}
        if "UDP" in protocols:
            yield Feature.UDP
        if len(protocols) > 1:
            yield Feature.MIXED_PROTOCOLS
        if not admits_everybody(self.source_ranges()):
            yield Feature.SOURCE_RANGES
        if self.spec.get("sessionAffinity") == "ClientIP":
            yield Feature.SESSION_AFFINITY
        if self.requested_ip:
            yield Feature.FIXED_IP
        if len(self.ip_families) > 1 and self.requires_ipv6:
            yield Feature.DUAL_STACK


def asking_for_nothing(service: Service) -> Service:
    """The Service as far as what it has is found by: what it asks for may be refused."""
    spec = {"type": "LoadBalancer", "ports": [{"port": 1, "nodePort": 1}]}
    families = {"ipFamilies": [*service.ip_families]}
    metadata = {**service.meta, "annotations": {}}
    return Service({**service.raw, "metadata": metadata, "spec": spec | families})


def as_proxied_by(service: Service, proxies: Collection[str]) -> Service:
    """The Service without the label that leaves it to one of these proxies, which all nodes run."""
    if service.labels.get(PROXY_NAME) not in proxies:
        return service
    labels = {name: value for name, value in service.labels.items() if name != PROXY_NAME}
    return Service({**service.raw, "metadata": {**service.meta, "labels": labels}})


def relevant_spec(service: Service, own_annotations: Collection[str] = ()) -> Json:
    """All that may change what the balancer has to be; equal means that nothing has to be done.

    The order of ports, ranges and external IPs says nothing, and missing is the same as empty.
    """
    without = {LAST_APPLIED_ANNOTATION, *own_annotations}
    annotations = {k: v for k, v in service.annotations.items() if k not in without}
    spec = {name: _normalized(name, service.spec.get(name) or None) for name in SPEC_FIELDS}
    labels = [name for name in UNPROXIED if name in service.labels]
    return {"uid": service.uid, "annotations": annotations, "spec": spec, "labels": labels}


def same_ingress(wanted: Sequence[Json], stored: Sequence[Json]) -> bool:
    """Whether the status says what it should.

    Where no `ipMode` is wanted, the API server fills in `VIP`: that is no difference.
    """
    return len(wanted) == len(stored) and all(
        want == have or {"ipMode": "VIP", **want} == have
        for want, have in zip(wanted, stored, strict=True)
    )


def still_held(service: Service, ingress: Sequence[Json]) -> list[Json]:
    """Of the status what a load balancer with this `ingress` has; host names lead to no node."""
    held = {None, *(entry.get("ip") for entry in ingress)}
    return [entry for entry in service.ingress if ingress and entry.get("ip") in held]


def admits_everybody(ranges: frozenset[Network]) -> bool:
    """Whether the ranges restrict nothing (upstream's rule: `::/0` alone does not count)."""
    return EVERYBODY in ranges


class _Ranges(frozenset[Network]):
    """What is read once for all who ask while someone has it: a change does so several times."""


_read: WeakValueDictionary[tuple[str, ...], _Ranges] = WeakValueDictionary()


def _networks(entries: tuple[str, ...], where: str) -> frozenset[Network]:
    if ranges := _read.get(entries):
        return ranges
    if len(entries) > MOST_RANGES:
        raise Refused(f"{where}: more than {MOST_RANGES} networks are given")
    try:
        _read[entries] = ranges = _Ranges(map(_network, {entry.strip() for entry in entries}))
        return ranges
    except ValueError as error:
        shown = ",".join(entries)
        raise Refused(
            f"{where}: {shown!r} is not valid ({error}); "
            f"give a list of source IP ranges, for example {EXAMPLE_RANGES}"
        ) from error


def _network(entry: str) -> Network:
    """The network that an address and a prefix length name; leading zeros are read as decimal."""
    address, _, length = entry.partition("/")
    if not (length.isdecimal() and length.isascii()) or "%" in address:
        raise ValueError(f"{entry!r} is not an address with a prefix length")
    with suppress(OSError, ValueError):  # nearly all, in a third of the time
        if ":" in address:
            return IPv6Network((inet_pton(AF_INET6, address), int(length)), strict=False)
        return IPv4Network((inet_pton(AF_INET, address), int(length)), strict=False)
    octets = address.split(".")
    if len(octets) == 4 and all(octet.isdecimal() and octet.isascii() for octet in octets):
        address = ".".join(str(int(octet)) for octet in octets)
    return ip_network(f"{address}/{int(length)}", strict=False)


def _normalized(name: str, value: Any) -> Any:
    is_unordered = name in UNORDERED_FIELDS and isinstance(value, list)
    return sorted(value, key=repr) if is_unordered else value
