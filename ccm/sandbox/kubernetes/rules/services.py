"""Rules of Services: defaults, allocation and validation."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ccm.sandbox.kubernetes.failures import Cause
from ccm.sandbox.kubernetes.kinds import SERVICE
from ccm.sandbox.kubernetes.objects import Object, section
from ccm.sandbox.kubernetes.rules.addresses import Pool
from ccm.sandbox.kubernetes.rules.rule import (
    Rules,
    duplicate,
    immutable,
    refused,
    required,
    unsupported,
    wrong,
)
from ccm.sandbox.kubernetes.store import Store

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
HEADLESS = "None"


def _default(service: Object) -> None:
    spec = section(service, "spec")
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, "") and "port" in port:
            port["targetPort"] = port["port"]
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if _is_reached_from_outside(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    section(service, "status").setdefault("loadBalancer", {})
    _default_ingress(service)


def _default_ingress(service: Object) -> None:
    for entry in service["status"]["loadBalancer"].get("ingress") or ():
        if entry.get("ip"):
            entry.setdefault("ipMode", "VIP")


def _admit(service: Object, old: Object | None, store: Store) -> None:
    """Hand out addresses and ports, keep those that still apply, take back the others."""
    spec = service["spec"]
    old_spec = old["spec"] if old else None
    others = (
        stored.obj
        for stored in store.current(SERVICE).values()
        if stored.obj["metadata"].get("uid") != service["metadata"].get("uid")
    )
    if old_spec:
        _keep_allocations(spec, old_spec)
    _drop_what_the_type_lacks(spec)
    _allocate(spec, Pool.of(others))
    if spec["type"] != "LoadBalancer":
        service["status"]["loadBalancer"] = {}


def _keep_allocations(spec: Object, old_spec: Object) -> None:
    if _has_address(spec) and _has_address(old_spec):
        spec.setdefault("clusterIP", old_spec["clusterIP"])
        if spec["clusterIP"] == old_spec["clusterIP"]:
            spec.setdefault("clusterIPs", old_spec["clusterIPs"])
    if not (_has_node_ports(spec) and _has_node_ports(old_spec)):
        return
    by_name = {port.get("name", ""): port.get("nodePort", 0) for port in old_spec["ports"]}
    used = {port.get("nodePort", 0) for port in spec.get("ports") or ()} - {0}
    for port in spec.get("ports") or ():
        had = by_name.get(port.get("name", ""), 0)
        if not port.get("nodePort") and had and had not in used:
            port["nodePort"] = had
            used.add(had)
    if _has_health_check(spec) and _has_health_check(old_spec):
        spec.setdefault("healthCheckNodePort", old_spec.get("healthCheckNodePort", 0))


def _drop_what_the_type_lacks(spec: Object) -> None:
    if spec["type"] == "ExternalName":
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            spec.pop(name, None)
        spec.pop("internalTrafficPolicy", None)
    if not _has_node_ports(spec):
        for port in spec.get("ports") or ():
            if spec["type"] in ("ClusterIP", "ExternalName"):
                port.pop("nodePort", None)
    if not _is_reached_from_outside(spec):
        spec.pop("externalTrafficPolicy", None)
    if not _has_health_check(spec):
        spec.pop("healthCheckNodePort", None)
    if spec["type"] != "LoadBalancer":
        spec.pop("allocateLoadBalancerNodePorts", None)
        spec.pop("loadBalancerClass", None)


def _allocate(spec: Object, pool: Pool) -> None:
    if spec["type"] != "ExternalName":
        if not spec.get("clusterIP"):
            spec["clusterIP"] = pool.take_address()
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        family = "IPv6" if ":" in spec["clusterIP"] else "IPv4"
        spec.setdefault("ipFamilies", [family])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    if _has_node_ports(spec):
        pool.node_ports.update(port.get("nodePort", 0) for port in spec.get("ports") or ())
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                port["nodePort"] = pool.take_node_port()
    if _has_health_check(spec) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = pool.take_node_port()


def _validate(service: Object, old: Object | None) -> Iterator[Cause]:
    spec = service["spec"]
    if spec["type"] not in TYPES:
        yield unsupported("spec.type", spec["type"], TYPES)
    if spec["type"] == "ExternalName" and not spec.get("externalName"):
        yield wrong("spec.externalName", "", "a lowercase RFC 1123 subdomain is needed")
    yield from _port_faults(spec)
    yield from _ingress_faults(service["status"]["loadBalancer"].get("ingress") or [])
    if old is not None:
        yield from _change_faults(spec, old["spec"])


def _port_faults(spec: Object) -> Iterator[Cause]:
    ports = spec.get("ports") or []
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != HEADLESS:
        yield required("spec.ports")
    seen = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        number, protocol = port.get("port", 0), port["protocol"]
        if not port.get("name") and len(ports) > 1:
            yield required(f"{at}.name")
        if not isinstance(number, int) or not 0 < number < 65536:
            yield wrong(f"{at}.port", number, "must be between 1 and 65535, inclusive")
        if protocol not in PROTOCOLS:
            yield unsupported(f"{at}.protocol", protocol, PROTOCOLS)
        if (number, protocol) in seen:
            yield duplicate(at, {"protocol": protocol, "port": number})
        seen.add((number, protocol))


def _ingress_faults(ingress: list[Object]) -> Iterator[Cause]:
    for index, entry in enumerate(ingress):
        at = f"status.loadBalancer.ingress[{index}]"
        address = entry.get("ip", "")
        if address and not _is_address(address):
            why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            yield wrong(f"{at}.ip", address, why)
        if "ipMode" in entry and not address:
            yield refused(f"{at}.ipMode", "may not be specified when `ip` is not set")
        if entry.get("hostname") and _is_address(entry["hostname"]):
            yield wrong(
                f"{at}.hostname", entry["hostname"], "must be a DNS name, not an IP address"
            )


def _change_faults(spec: Object, old_spec: Object) -> Iterator[Cause]:
    if _has_address(spec) and _has_address(old_spec) and spec["clusterIP"] != old_spec["clusterIP"]:
        yield immutable("spec.clusterIPs[0]", spec["clusterIP"])
    if spec["type"] == old_spec["type"] == "LoadBalancer":
        name = "loadBalancerClass"
        if spec.get(name) != old_spec.get(name):
            yield wrong(f"spec.{name}", spec.get(name), "may not change once set")


def _has_address(spec: Object) -> bool:
    return bool(spec["type"] != "ExternalName")


def _has_node_ports(spec: Object) -> bool:
    if spec["type"] == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return bool(spec["type"] == "NodePort")


def _has_health_check(spec: Object) -> bool:
    return spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _is_reached_from_outside(spec: Object) -> bool:
    return spec["type"] in ("LoadBalancer", "NodePort")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


SERVICE_RULES = Rules(default=_default, admit=_admit, validate=_validate)
