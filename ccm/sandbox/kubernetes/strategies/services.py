"""The strategy of Services: their defaults, when they are allocated to, and what is wrong."""

import ipaddress
from collections.abc import Iterator
from typing import Any

from ccm.sandbox.kubernetes.errors import FieldError
from ccm.sandbox.kubernetes.kinds import SERVICE
from ccm.sandbox.kubernetes.objects import Object, section
from ccm.sandbox.kubernetes.storage import Storage
from ccm.sandbox.kubernetes.strategies import service_allocation as allocation
from ccm.sandbox.kubernetes.strategies.strategy import (
    SUBDOMAIN,
    SUBDOMAIN_HINT,
    RESTStrategy,
    is_cidr,
)

CLIENT_IP_AFFINITY_SECONDS = 10800
PROTOCOLS = ("SCTP", "TCP", "UDP")
IP_MODES = ("Proxy", "VIP")
TRAFFIC_POLICIES = ("Cluster", "Local")
PORT_RANGE = "must be between 1 and 65535, inclusive"
LOAD_BALANCERS_ONLY = "may only be used when `type` is 'LoadBalancer'"


class ServiceStrategy(RESTStrategy):
    """Follows pkg/registry/core/service of the real server."""

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
        if allocation.is_reached_from_outside(spec):
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
            allocation.keep_allocations(spec, old["spec"])
            allocation.drop_meaningless_fields(spec, old["spec"])
            if spec["type"] != "LoadBalancer":
                service["status"]["loadBalancer"] = {}
        uid = service["metadata"].get("uid")
        others = (stored.obj for stored in storage.current(SERVICE).values())
        allocated = (each for each in others if each["metadata"]["uid"] != uid)
        allocation.allocate(spec, allocation.ServiceAllocator.of(allocated))

    def validate(self, service: Object, old: Object | None) -> Iterator[FieldError]:
        spec = service["spec"]
        if spec["type"] not in allocation.SERVICE_TYPES:
            yield FieldError.not_supported("spec.type", spec["type"], allocation.SERVICE_TYPES)
        if spec["type"] == "ExternalName":
            yield from _external_name_errors(spec)
        yield from _port_errors(spec)
        yield from _load_balancer_errors(spec)
        yield from _ingress_errors(service)
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


def _external_name_errors(spec: Object) -> Iterator[FieldError]:
    name = spec.get("externalName", "")
    if not name:
        yield FieldError.required("spec.externalName")
    elif not SUBDOMAIN.fullmatch(name):
        yield FieldError.invalid("spec.externalName", name, SUBDOMAIN_HINT)
    if spec.get("clusterIP"):
        why = "may not be set when `type` is 'ExternalName'"
        yield FieldError.forbidden("spec.clusterIPs", why)


def _port_errors(spec: Object) -> Iterator[FieldError]:
    ports = spec.get("ports") or []
    if not ports and allocation.has_cluster_address(spec) and not allocation.is_headless(spec):
        yield FieldError.required("spec.ports")
    seen: set[tuple[int, str]] = set()
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        name, number, protocol = port.get("name", ""), port.get("port", 0), port["protocol"]
        if not name and len(ports) > 1:
            yield FieldError.required(f"{at}.name")
        elif name and name in names:
            yield FieldError.duplicate(f"{at}.name", f'"{name}"')
        if not _is_port(number):
            yield FieldError.invalid(f"{at}.port", number, PORT_RANGE)
        if protocol not in PROTOCOLS:
            yield FieldError.not_supported(f"{at}.protocol", protocol, PROTOCOLS)
        target = port.get("targetPort", number)
        if isinstance(target, int) and not _is_port(target):
            yield FieldError.invalid(f"{at}.targetPort", target, PORT_RANGE)
        if port.get("nodePort") and spec["type"] == "ClusterIP":
            why = "may not be used when `type` is 'ClusterIP'"
            yield FieldError.forbidden(f"{at}.nodePort", why)
        if (number, protocol) in seen:
            yield FieldError.duplicate(at, {"protocol": protocol, "port": number})
        seen.add((number, protocol))
        names.add(name)


def _load_balancer_errors(spec: Object) -> Iterator[FieldError]:
    if spec["type"] != "LoadBalancer":
        for name in ("loadBalancerClass", "allocateLoadBalancerNodePorts"):
            if name in spec:
                yield FieldError.forbidden(f"spec.{name}", LOAD_BALANCERS_ONLY)
        if spec.get("loadBalancerSourceRanges"):
            yield FieldError.forbidden("spec.LoadBalancerSourceRanges", LOAD_BALANCERS_ONLY)
    for index, block in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        if spec["type"] == "LoadBalancer" and not is_cidr(block.strip()):
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield FieldError.invalid(f"spec.LoadBalancerSourceRanges[{index}]", block, why)
    policy = spec.get("externalTrafficPolicy", "")
    if policy and not allocation.is_reached_from_outside(spec):
        why = "may only be set for externally-accessible services"
        yield FieldError.invalid("spec.externalTrafficPolicy", policy, why)
    elif policy and policy not in TRAFFIC_POLICIES:
        yield FieldError.not_supported("spec.externalTrafficPolicy", policy, TRAFFIC_POLICIES)


def _ingress_errors(service: Object) -> Iterator[FieldError]:
    ingress = service["status"]["loadBalancer"].get("ingress") or []
    if ingress and service["spec"]["type"] != "LoadBalancer":
        why = "may only be used when `spec.type` is 'LoadBalancer'"
        yield FieldError.forbidden("status.loadBalancer.ingress", why)
        return
    for index, entry in enumerate(ingress):
        yield from _entry_errors(entry, f"status.loadBalancer.ingress[{index}]")


def _entry_errors(entry: Object, at: str) -> Iterator[FieldError]:
    address, mode, host = entry.get("ip", ""), entry.get("ipMode"), entry.get("hostname", "")
    if address and not _is_address(address):
        why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        yield FieldError.invalid(f"{at}.ip", address, why)
    if address and mode is None:
        yield FieldError.required(f"{at}.ipMode", "must be specified when `ip` is set")
    elif mode is not None and not address:
        yield FieldError.forbidden(f"{at}.ipMode", "may not be specified when `ip` is not set")
    elif mode is not None and mode not in IP_MODES:
        yield FieldError.not_supported(f"{at}.ipMode", mode, IP_MODES)
    if host and _is_address(host):
        yield FieldError.invalid(f"{at}.hostname", host, "must be a DNS name, not an IP address")
    elif host and not SUBDOMAIN.fullmatch(host):
        yield FieldError.invalid(f"{at}.hostname", host, SUBDOMAIN_HINT)


def _change_errors(spec: Object, old: Object) -> Iterator[FieldError]:
    had_address = allocation.has_cluster_address(spec) and allocation.has_cluster_address(old)
    if had_address and spec["clusterIP"] != old["clusterIP"]:
        yield FieldError.invalid("spec.clusterIPs[0]", spec["clusterIP"], "may not change once set")
    was_balancer = spec["type"] == old["type"] == "LoadBalancer"
    if was_balancer and spec.get("loadBalancerClass") != old.get("loadBalancerClass"):
        value = spec.get("loadBalancerClass")
        yield FieldError.invalid("spec.loadBalancerClass", value, "may not change once set")


def _is_port(number: Any) -> bool:
    return isinstance(number, int) and 0 < number < 65536


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
