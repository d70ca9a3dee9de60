"""What of a Service concerns its balancer, and whether a status already says what it should."""

from collections.abc import Sequence
from typing import Any

from ccm.model.cloud import Ingress
from ccm.model.objects import Json
from ccm.model.service import Service

SPEC = (
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
"""The fields of `spec` that this duty and its providers see."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_UNORDERED = frozenset({"loadBalancerSourceRanges", "ports", "externalIPs"})


def concerns(service: Service) -> Json:
    """All that may change what the balancer has to be; equal means that nothing has to be done.

    The order of ports, ranges and external IPs says nothing, and missing is the same as empty.
    """
    annotations = {k: v for k, v in service.annotations.items() if k != LAST_APPLIED}
    spec = {name: _settled(name, service.spec.get(name) or None) for name in SPEC}
    return {"uid": service.uid, "annotations": annotations, "spec": spec}


def _settled(name: str, value: Any) -> Any:
    return sorted(value, key=repr) if name in _UNORDERED and isinstance(value, list) else value


def ingress_json(ingress: Sequence[Ingress]) -> list[Json]:
    """`status.loadBalancer.ingress` for these ways in; `ipMode` goes with an IP only."""
    return [
        {
            **({"ip": way.ip} if way.ip else {}),
            **({"hostname": way.hostname} if way.hostname else {}),
            **({"ipMode": str(way.ip_mode)} if way.ip and way.ip_mode else {}),
        }
        for way in ingress
    ]


def same_ingress(wanted: Sequence[Json], stored: Sequence[Json]) -> bool:
    """Whether the status says what it should.

    Where no `ipMode` is wanted, the API server fills in `VIP`: that is no difference.
    """
    if len(wanted) != len(stored):
        return False
    return all(
        want == have or {"ipMode": "VIP", **want} == have
        for want, have in zip(wanted, stored, strict=True)
    )
