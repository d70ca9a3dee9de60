"""Which addresses and ports a Service keeps, loses and is given; follows the real registry."""

from __future__ import annotations

from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.rules.addresses import NETWORKS, NotGiven, Pool, family_of
from ccm.sandbox.kubernetes.rules.rule import Wrong, wrong
from ccm.sandbox.kubernetes.rules.service_types import (
    HEADLESS,
    gets_node_ports,
    has_cluster_address,
    has_health_check,
    is_headless,
    is_reached_from_outside,
    may_have_node_ports,
    node_ports_of,
)

FAMILIES = tuple(NETWORKS)
ADDRESS_FIELDS = (
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
    "internalTrafficPolicy",
)


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


def drop_what_the_type_lacks(spec: Object, old: Object) -> None:
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


def allocate(spec: Object, pool: Pool) -> None:
    """Give the Service what it needs from the pool."""
    if has_cluster_address(spec):
        _choose_families(spec)
        _allocate_addresses(spec, pool)
    for index, port in enumerate(spec.get("ports") or ()):
        if port.get("nodePort") and may_have_node_ports(spec):
            try:
                pool.claim_node_port(port["nodePort"])
            except NotGiven as why:
                cause = wrong(f"spec.ports[{index}].nodePort", port["nodePort"], str(why))
                raise Wrong([cause]) from why
    for port in spec.get("ports") or ():
        if not port.get("nodePort") and gets_node_ports(spec):
            port["nodePort"] = pool.take_node_port()
    if has_health_check(spec) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = pool.take_node_port()


def _choose_families(spec: Object) -> None:
    given = [each for each in spec.get("clusterIPs") or [spec.get("clusterIP", "")] if each]
    named = [family_of(each) for each in given if each != HEADLESS]
    families = spec.setdefault("ipFamilies", named or [FAMILIES[0]])
    if "ipFamilyPolicy" not in spec:
        both = len(families) > 1 or (is_headless(spec) and not spec.get("selector"))
        spec["ipFamilyPolicy"] = "RequireDualStack" if both else "SingleStack"
    if spec["ipFamilyPolicy"] != "SingleStack" and len(families) == 1:
        families.extend(family for family in FAMILIES if family not in families)


def _allocate_addresses(spec: Object, pool: Pool) -> None:
    if is_headless(spec):
        spec.setdefault("clusterIPs", [HEADLESS])
        return
    addresses = spec.get("clusterIPs") or [each for each in [spec.get("clusterIP")] if each]
    for address in addresses:
        try:
            pool.claim_address(address)
        except NotGiven as why:
            shown = "[" + ",".join(f'"{each}"' for each in addresses) + "]"
            raise Wrong([wrong("spec.clusterIPs", _Raw(shown), str(why))]) from why
        except ValueError as fault:
            why_not = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            raise Wrong([wrong("spec.clusterIPs[0]", address, why_not)]) from fault
    missing = spec["ipFamilies"][len(addresses) :]
    spec["clusterIPs"] = [*addresses, *(pool.take_address(family) for family in missing)]
    spec["clusterIP"] = spec["clusterIPs"][0]


class _Raw:
    """A value that is shown without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text
