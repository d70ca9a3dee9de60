"""What follows from a Service's type: which of its fields have a meaning."""

from __future__ import annotations

from ccm.sandbox.kubernetes.objects import Object

HEADLESS = "None"
TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def has_cluster_address(spec: Object) -> bool:
    """Tell whether clusterIP means something; "None" is a value too."""
    return bool(spec["type"] != "ExternalName")


def is_headless(spec: Object) -> bool:
    return spec.get("clusterIP") == HEADLESS


def may_have_node_ports(spec: Object) -> bool:
    return spec["type"] in ("LoadBalancer", "NodePort")


def gets_node_ports(spec: Object) -> bool:
    """Tell whether every port is given a node port."""
    if spec["type"] == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return bool(spec["type"] == "NodePort")


def has_health_check(spec: Object) -> bool:
    return spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def is_reached_from_outside(spec: Object) -> bool:
    """Tell whether externalTrafficPolicy means something."""
    return may_have_node_ports(spec) or bool(
        spec["type"] == "ClusterIP" and spec.get("externalIPs")
    )


def node_ports_of(spec: Object) -> set[int]:
    return {port.get("nodePort", 0) for port in spec.get("ports") or ()} - {0}
