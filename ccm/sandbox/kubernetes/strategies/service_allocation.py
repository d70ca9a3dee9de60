"""Which addresses and node ports a Service keeps, loses and is allocated, by its type."""

import ipaddress
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from ccm.sandbox.kubernetes.errors import FieldError, InvalidObject
from ccm.sandbox.kubernetes.objects import Object

HEADLESS = "None"
SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
# The first is the family of a Service that does not say which it wants.
NETWORKS = {
    "IPv4": ipaddress.ip_network("10.96.0.0/16"),
    "IPv6": ipaddress.ip_network("fd00:10:96::/112"),
}
NODE_PORTS = range(30000, 32768)
MAX_ALLOCATION_ATTEMPTS = 100_000
FAMILIES = tuple(NETWORKS)
FAMILY_FIELDS = ("ipFamilies", "ipFamilyPolicy")
ADDRESS_FIELDS = ("clusterIP", "clusterIPs", *FAMILY_FIELDS, "internalTrafficPolicy")

T = TypeVar("T", int, str)


def has_cluster_address(spec: Object) -> bool:
    """Tell whether clusterIP means something; "None" is a value too."""
    return bool(spec["type"] != "ExternalName")


def is_headless(spec: Object) -> bool:
    """Tell whether the Service asks for no address."""
    return spec.get("clusterIP") == HEADLESS


def may_have_node_ports(spec: Object) -> bool:
    """Tell whether nodePort means something."""
    return spec["type"] in ("LoadBalancer", "NodePort")


def gets_node_ports(spec: Object) -> bool:
    """Tell whether every port is given a node port."""
    if spec["type"] == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return bool(spec["type"] == "NodePort")


def has_health_check(spec: Object) -> bool:
    """Tell whether healthCheckNodePort means something."""
    return spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def is_reached_from_outside(spec: Object) -> bool:
    """Tell whether externalTrafficPolicy means something."""
    return may_have_node_ports(spec) or bool(
        spec["type"] == "ClusterIP" and spec.get("externalIPs")
    )


def node_ports_of(spec: Object) -> set[int]:
    """Return the node ports of the Service's ports."""
    return {port.get("nodePort", 0) for port in spec.get("ports") or ()} - {0}


class AllocationError(Exception):
    """What was asked for cannot be had; the text says why."""


def family_of(address: str) -> str:
    """Return the IP family of an address."""
    return "IPv6" if ":" in address else "IPv4"


@dataclass(slots=True)
class ServiceAllocator:
    """The cluster addresses and node ports that are taken."""

    addresses: set[str] = field(default_factory=set)
    node_ports: set[int] = field(default_factory=set)

    @staticmethod
    def of(services: Iterable[Object]) -> "ServiceAllocator":
        """Return the allocator from which these Services have taken."""
        allocator = ServiceAllocator()
        for service in services:
            spec = service["spec"]
            allocator.addresses.update(spec.get("clusterIPs") or ())
            for port in spec.get("ports") or ():
                allocator.node_ports.add(port.get("nodePort", 0))
            allocator.node_ports.add(spec.get("healthCheckNodePort", 0))
        return allocator

    def allocate_ip(self, address: str) -> None:
        failed = f"failed to allocate IP {address}"
        if ipaddress.ip_address(address) not in NETWORKS[family_of(address)]:
            why = "the provided network does not match the current range"
            raise AllocationError(f"{failed}: {why}")
        if address in self.addresses:
            raise AllocationError(f"{failed}: provided IP is already allocated")
        self.addresses.add(address)

    def allocate_next_ip(self, family: str) -> str:
        network = NETWORKS[family]
        last = network.num_addresses - 1
        return _take(self.addresses, lambda: str(network[random.randrange(1, last)]))

    def allocate_port(self, port: int) -> None:
        if port not in NODE_PORTS:
            valid = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
            why = "provided port is not in the valid range. The range of valid ports is"
            raise AllocationError(f"{why} {valid}")
        if port in self.node_ports:
            raise AllocationError("provided port is already allocated")
        self.node_ports.add(port)

    def allocate_next_port(self) -> int:
        return _take(self.node_ports, lambda: random.choice(NODE_PORTS))


def _take(taken: set[T], draw: Callable[[], T]) -> T:
    for _ in range(MAX_ALLOCATION_ATTEMPTS):
        if (drawn := draw()) not in taken:
            taken.add(drawn)
            return drawn
    raise AllocationError("range is full")


def keep_allocations(spec: Object, old: Object) -> None:
    """Fill in what was allocated before and the client left out; ports are known by name."""
    if has_cluster_address(spec) and has_cluster_address(old):
        spec.setdefault("clusterIP", old["clusterIP"])
        if spec["clusterIP"] != old["clusterIP"] and spec.get("clusterIPs") == old["clusterIPs"]:
            spec["clusterIPs"] = [spec["clusterIP"], *old["clusterIPs"][1:]]
        if spec["clusterIP"] == old["clusterIP"]:
            spec.setdefault("clusterIPs", old["clusterIPs"])
            _trim_families(spec, old)
    if may_have_node_ports(spec) and may_have_node_ports(old):
        _keep_node_ports(spec, old)
    if has_health_check(spec) and has_health_check(old):
        spec.setdefault("healthCheckNodePort", old.get("healthCheckNodePort", 0))


def _keep_node_ports(spec: Object, old: Object) -> None:
    by_name = {port.get("name", ""): port.get("nodePort", 0) for port in old["ports"]}
    used = node_ports_of(spec) & node_ports_of(old)
    for port in spec.get("ports") or ():
        had = by_name.get(port.get("name", ""), 0)
        if not port.get("nodePort") and had and had not in used:
            port["nodePort"] = had
            used.add(had)


def _trim_families(spec: Object, old: Object) -> None:
    """Keep the first family only when a Service goes from two to one."""
    if spec.get("ipFamilyPolicy") != "SingleStack" or old.get("ipFamilyPolicy") == "SingleStack":
        return
    for name in ("clusterIPs", "ipFamilies"):
        if spec.get(name) == old.get(name) and not is_headless(spec):
            spec[name] = old[name][:1]


def drop_meaningless_fields(spec: Object, old: Object) -> None:
    """Drop fields that lost their meaning, unless the client changed them at the same time."""

    def drop(names: tuple[str, ...]) -> None:
        for name in names:
            if spec.get(name) == old.get(name):
                spec.pop(name, None)

    if has_cluster_address(old) and not has_cluster_address(spec):
        drop(ADDRESS_FIELDS)
    lost_ports = may_have_node_ports(old) and not may_have_node_ports(spec)
    if lost_ports and node_ports_of(spec) <= node_ports_of(old):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    if has_health_check(old) and not has_health_check(spec):
        drop(("healthCheckNodePort",))
    if old["type"] == "LoadBalancer" != spec["type"]:
        drop(("allocateLoadBalancerNodePorts", "loadBalancerClass"))
    if is_reached_from_outside(old) and not is_reached_from_outside(spec):
        drop(("externalTrafficPolicy",))


def allocate(spec: Object, allocator: ServiceAllocator) -> None:
    """Give the Service the addresses and node ports that it needs."""
    if has_cluster_address(spec):
        _choose_families(spec)
        _allocate_addresses(spec, allocator)
    for index, port in enumerate(spec.get("ports") or ()):
        if port.get("nodePort") and may_have_node_ports(spec):
            try:
                allocator.allocate_port(port["nodePort"])
            except AllocationError as why:
                path = f"spec.ports[{index}].nodePort"
                error = FieldError.invalid(path, port["nodePort"], str(why))
                raise InvalidObject(error) from why
    for port in spec.get("ports") or ():
        if not port.get("nodePort") and gets_node_ports(spec):
            port["nodePort"] = allocator.allocate_next_port()
    if has_health_check(spec) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = allocator.allocate_next_port()


def _choose_families(spec: Object) -> None:
    given = [each for each in spec.get("clusterIPs") or [spec.get("clusterIP", "")] if each]
    named = [family_of(each) for each in given if each != HEADLESS]
    families = spec.setdefault("ipFamilies", named or [FAMILIES[0]])
    if "ipFamilyPolicy" not in spec:
        both = len(families) > 1 or (is_headless(spec) and not spec.get("selector"))
        spec["ipFamilyPolicy"] = "RequireDualStack" if both else "SingleStack"
    if spec["ipFamilyPolicy"] != "SingleStack" and len(families) == 1:
        families.extend(family for family in FAMILIES if family not in families)


def _allocate_addresses(spec: Object, allocator: ServiceAllocator) -> None:
    if is_headless(spec):
        spec.setdefault("clusterIPs", [HEADLESS])
        return
    addresses = spec.get("clusterIPs") or [each for each in [spec.get("clusterIP")] if each]
    for address in addresses:
        try:
            allocator.allocate_ip(address)
        except AllocationError as why:
            error = FieldError.invalid("spec.clusterIPs", addresses, str(why))
            raise InvalidObject(error) from why
        except ValueError as unreadable:
            hint = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            error = FieldError.invalid("spec.clusterIPs[0]", address, hint)
            raise InvalidObject(error) from unreadable
    missing = spec["ipFamilies"][len(addresses) :]
    spec["clusterIPs"] = [*addresses, *(allocator.allocate_next_ip(family) for family in missing)]
    spec["clusterIP"] = spec["clusterIPs"][0]
