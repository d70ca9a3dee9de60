"""What is wrong with a Service."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from ccm.sandbox.kubernetes.failures import Cause
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.rules.metadata import SUBDOMAIN, SUBDOMAIN_HINT
from ccm.sandbox.kubernetes.rules.rule import (
    duplicate,
    refused,
    required,
    unsupported,
    wrong,
)
from ccm.sandbox.kubernetes.rules.service_types import (
    TYPES,
    has_cluster_address,
    is_headless,
    is_reached_from_outside,
)

PROTOCOLS = ("SCTP", "TCP", "UDP")
MODES = ("Proxy", "VIP")
POLICIES = ("Cluster", "Local")
PORT_RANGE = "must be between 1 and 65535, inclusive"
ONLY_BALANCERS = "may only be used when `type` is 'LoadBalancer'"


def validate_service(service: Object, old: Object | None) -> Iterator[Cause]:
    """Yield every wrong field, and every change that is not allowed."""
    spec = service["spec"]
    if spec["type"] not in TYPES:
        yield unsupported("spec.type", spec["type"], TYPES)
    if spec["type"] == "ExternalName":
        yield from _external_name_faults(spec)
    yield from _port_faults(spec)
    yield from _balancer_faults(spec)
    yield from _ingress_faults(service)
    if old is not None:
        yield from _change_faults(spec, old["spec"])


def _external_name_faults(spec: Object) -> Iterator[Cause]:
    name = spec.get("externalName", "")
    if not name:
        yield required("spec.externalName")
    elif not SUBDOMAIN.fullmatch(name):
        yield wrong("spec.externalName", name, SUBDOMAIN_HINT)
    if spec.get("clusterIP"):
        yield refused("spec.clusterIPs", "may not be set when `type` is 'ExternalName'")


def _port_faults(spec: Object) -> Iterator[Cause]:
    ports = spec.get("ports") or []
    if not ports and has_cluster_address(spec) and not is_headless(spec):
        yield required("spec.ports")
    seen: set[tuple[int, str]] = set()
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        name, number, protocol = port.get("name", ""), port.get("port", 0), port["protocol"]
        if not name and len(ports) > 1:
            yield required(f"{at}.name")
        elif name and name in names:
            yield duplicate(f"{at}.name", f'"{name}"')
        if not _is_port(number):
            yield wrong(f"{at}.port", number, PORT_RANGE)
        if protocol not in PROTOCOLS:
            yield unsupported(f"{at}.protocol", protocol, PROTOCOLS)
        target = port.get("targetPort", number)
        if isinstance(target, int) and not _is_port(target):
            yield wrong(f"{at}.targetPort", target, PORT_RANGE)
        if port.get("nodePort") and spec["type"] == "ClusterIP":
            yield refused(f"{at}.nodePort", "may not be used when `type` is 'ClusterIP'")
        if (number, protocol) in seen:
            yield duplicate(at, {"protocol": protocol, "port": number})
        seen.add((number, protocol))
        names.add(name)


def _balancer_faults(spec: Object) -> Iterator[Cause]:
    if spec["type"] != "LoadBalancer":
        for name in ("loadBalancerClass", "allocateLoadBalancerNodePorts"):
            if name in spec:
                yield refused(f"spec.{name}", ONLY_BALANCERS)
        if spec.get("loadBalancerSourceRanges"):
            yield refused("spec.LoadBalancerSourceRanges", ONLY_BALANCERS)
    for index, block in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        if spec["type"] == "LoadBalancer" and not _is_block(block):
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield wrong(f"spec.LoadBalancerSourceRanges[{index}]", block, why)
    policy = spec.get("externalTrafficPolicy", "")
    if policy and not is_reached_from_outside(spec):
        why = "may only be set for externally-accessible services"
        yield wrong("spec.externalTrafficPolicy", policy, why)
    elif policy and policy not in POLICIES:
        yield unsupported("spec.externalTrafficPolicy", policy, POLICIES)


def _ingress_faults(service: Object) -> Iterator[Cause]:
    ingress = service["status"]["loadBalancer"].get("ingress") or []
    if ingress and service["spec"]["type"] != "LoadBalancer":
        why = "may only be used when `spec.type` is 'LoadBalancer'"
        yield refused("status.loadBalancer.ingress", why)
        return
    for index, entry in enumerate(ingress):
        yield from _entry_faults(entry, f"status.loadBalancer.ingress[{index}]")


def _entry_faults(entry: Object, at: str) -> Iterator[Cause]:
    address, mode, host = entry.get("ip", ""), entry.get("ipMode"), entry.get("hostname", "")
    if address and not _is_address(address):
        why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        yield wrong(f"{at}.ip", address, why)
    if address and mode is None:
        yield required(f"{at}.ipMode", "must be specified when `ip` is set")
    elif mode is not None and not address:
        yield refused(f"{at}.ipMode", "may not be specified when `ip` is not set")
    elif mode is not None and mode not in MODES:
        yield unsupported(f"{at}.ipMode", mode, MODES)
    if host and _is_address(host):
        yield wrong(f"{at}.hostname", host, "must be a DNS name, not an IP address")
    elif host and not SUBDOMAIN.fullmatch(host):
        yield wrong(f"{at}.hostname", host, SUBDOMAIN_HINT)


def _change_faults(spec: Object, old: Object) -> Iterator[Cause]:
    had_address = has_cluster_address(spec) and has_cluster_address(old)
    if had_address and spec["clusterIP"] != old["clusterIP"]:
        yield wrong("spec.clusterIPs[0]", spec["clusterIP"], "may not change once set")
    was_balancer = spec["type"] == old["type"] == "LoadBalancer"
    if was_balancer and spec.get("loadBalancerClass") != old.get("loadBalancerClass"):
        value = spec.get("loadBalancerClass")
        yield wrong("spec.loadBalancerClass", value, "may not change once set")


def _is_port(number: Any) -> bool:
    return isinstance(number, int) and 0 < number < 65536


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_block(text: str) -> bool:
    try:
        ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return False
    return "/" in text
