"""The strategy of Services: defaults, the address and node ports they are given, what is wrong."""

import ipaddress
import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from ccm.sandbox.kubernetes.errors import FieldError, InvalidObject
from ccm.sandbox.kubernetes.kinds import SERVICE
from ccm.sandbox.kubernetes.objects import Object, section
from ccm.sandbox.kubernetes.storage import Storage
from ccm.sandbox.kubernetes.strategies.strategy import RESTStrategy

HEADLESS = "None"
SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
ADDRESS_FIELDS = (
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
    "internalTrafficPolicy",
)
NETWORK = ipaddress.ip_network("10.96.0.0/16")
NODE_PORTS = range(30000, 32768)
MAX_ALLOCATION_ATTEMPTS = 100_000
CLIENT_IP_AFFINITY_SECONDS = 10800

T = TypeVar("T", int, str)


class ServiceStrategy(RESTStrategy):
    """Follows pkg/registry/core/service of the real server, with one address of IPv4."""

    def default(self, service: Object) -> None:
        spec = section(service, "spec")
        spec.setdefault("type", "ClusterIP")
        _default_affinity(spec)
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if not port.get("targetPort"):
                port["targetPort"] = port.get("port", 0)
            if not port.get("nodePort"):
                port.pop("nodePort", None)
        if is_reached_from_outside(spec):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
        _default_status(service)

    def admit(self, service: Object, old: Object | None, storage: Storage) -> None:
        spec = service["spec"]
        section(service["status"], "loadBalancer")
        if old is not None:
            if spec == old["spec"]:
                return
            keep_allocations(spec, old["spec"])
            drop_meaningless_fields(spec, old["spec"])
            if spec["type"] != "LoadBalancer":
                service["status"]["loadBalancer"] = {}
        uid = service["metadata"].get("uid")
        stored = (each.obj for each in storage.current(SERVICE).values())
        others = [each["spec"] for each in stored if each["metadata"]["uid"] != uid]
        if has_cluster_address(spec):
            _allocate_address(spec, {other.get("clusterIP", "") for other in others})
        _allocate_node_ports(spec, set().union(*map(node_ports_of, others)))

    def validate(self, service: Object, old: Object | None) -> Iterator[FieldError]:
        spec = service["spec"]
        if spec["type"] not in SERVICE_TYPES:
            yield FieldError.not_supported("spec.type", spec["type"], SERVICE_TYPES)
        if old is not None:
            yield from _change_errors(spec, old["spec"])


def _default_affinity(spec: Object) -> None:
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif "sessionAffinityConfig" not in spec:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": CLIENT_IP_AFFINITY_SECONDS}}


def _default_status(service: Object) -> None:
    status = section(service, "status")
    for entry in section(status, "loadBalancer").get("ingress") or ():
        if service["spec"]["type"] == "LoadBalancer" and entry.get("ip"):
            entry.setdefault("ipMode", "VIP")
    for condition in status.get("conditions") or ():
        condition.setdefault("lastTransitionTime", None)
        condition.setdefault("reason", "")
        condition.setdefault("message", "")


def has_cluster_address(spec: Object) -> bool:
    """Tell whether clusterIP means something; "None" is a value too."""
    return bool(spec["type"] != "ExternalName")


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
    """Return the node ports of the Service."""
    ports = {port.get("nodePort", 0) for port in spec.get("ports") or ()}
    return (ports | {spec.get("healthCheckNodePort", 0)}) - {0}


def keep_allocations(spec: Object, old: Object) -> None:
    """Fill in what was allocated before and the client left out; ports are known by name."""
    if has_cluster_address(spec) and has_cluster_address(old):
        spec.setdefault("clusterIP", old["clusterIP"])
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


def _allocate_address(spec: Object, taken: set[str]) -> None:
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    address = spec.get("clusterIP")
    if not address:
        last = NETWORK.num_addresses - 1
        spec["clusterIP"] = _draw(taken, lambda: str(NETWORK[random.randrange(1, last)]))
    elif address in taken - {HEADLESS}:
        why = f"failed to allocate IP {address}: provided IP is already allocated"
        raise InvalidObject(FieldError.invalid("spec.clusterIPs", [address], why))
    spec["clusterIPs"] = [spec["clusterIP"]]


def _allocate_node_ports(spec: Object, taken: set[int]) -> None:
    ports = spec.get("ports") or ()
    for index, port in enumerate(ports):
        wanted = port.get("nodePort")
        if wanted and may_have_node_ports(spec):
            if wanted in taken or wanted not in NODE_PORTS:
                why = "provided port is already allocated, or not in the range of valid ports"
                path = f"spec.ports[{index}].nodePort"
                raise InvalidObject(FieldError.invalid(path, wanted, why))
            taken.add(wanted)
    for port in ports:
        if not port.get("nodePort") and gets_node_ports(spec):
            port["nodePort"] = _draw(taken, lambda: random.choice(NODE_PORTS))
    if has_health_check(spec) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = _draw(taken, lambda: random.choice(NODE_PORTS))


def _draw(taken: set[T], draw: Callable[[], T]) -> T:
    for _ in range(MAX_ALLOCATION_ATTEMPTS):
        if (drawn := draw()) not in taken:
            taken.add(drawn)
            return drawn
    raise InvalidObject(FieldError.invalid("spec", "", "range is full"))


def _change_errors(spec: Object, old: Object) -> Iterator[FieldError]:
    had_address = has_cluster_address(spec) and has_cluster_address(old)
    if had_address and spec["clusterIP"] != old["clusterIP"]:
        yield FieldError.invalid("spec.clusterIPs[0]", spec["clusterIP"], "may not change once set")
    was_balancer = spec["type"] == old["type"] == "LoadBalancer"
    if was_balancer and spec.get("loadBalancerClass") != old.get("loadBalancerClass"):
        value = spec.get("loadBalancerClass")
        yield FieldError.invalid("spec.loadBalancerClass", value, "may not change once set")
