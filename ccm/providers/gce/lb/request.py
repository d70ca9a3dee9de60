"""What a Service asks for: its fields and upstream's annotations, read and checked."""

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from ccm.errors import ImplementedElsewhere, Refused
from ccm.model.cloud import Network, read_address
from ccm.model.objects import text
from ccm.model.service import PROXY_NAME, HealthCheck, Service
from ccm.providers.gce.config import Place
from ccm.providers.gce.ids import NAME, path_of_url

TYPE, OLD_TYPE = "networking.gke.io/load-balancer-type", "cloud.google.com/load-balancer-type"
GLOBAL_ACCESS = "networking.gke.io/internal-load-balancer-allow-global-access"
SUBNET = "networking.gke.io/internal-load-balancer-subnet"
SHARE = "alpha.cloud.google.com/load-balancer-backend-share"
OLD_SHARE = "cloud.google.com/load-balancer-backend-share"
TIER = "cloud.google.com/network-tier"
BACKEND_SERVICES = "cloud.google.com/l4-rbs"
KNOWN = frozenset({TYPE, OLD_TYPE, GLOBAL_ACCESS, SUBNET, SHARE, OLD_SHARE, TIER, BACKEND_SERVICES})
PRIVILEGED = frozenset({SUBNET})
"""Annotations that lead into a network beside the cluster's own."""
TIERS = {"Premium": "PREMIUM", "Standard": "STANDARD"}
OTHERS = frozenset(
    f"gke.networking.io/{name}" for name in ("l4-ilb-v2", "l4-netlb-v2", "l4-netlb-v3", "l4-ilb-v3")
)
"""Finalizers of Google's Ingress controller, which then looks after the Service."""
INTERNAL_V1 = "gke.networking.io/l4-ilb-v1"
INTERNAL_CLASS = "networking.gke.io/l4-regional-internal-legacy"
KUBE_PROXY = HealthCheck(10256)
MAX_PORTS = 5  # of an internal rule; with more it has all


@dataclass(frozen=True, slots=True)
class BalancerRequest:
    """What is asked for; `tier` is empty where the Service says nothing of it."""

    service: Service
    is_internal: bool
    protocol: str
    ports: tuple[int, ...]
    ranges: frozenset[Network]
    affinity: str
    check: HealthCheck | None
    """Of the policy Local; None where all Nodes serve."""
    tier: str = ""
    requested_ip: str = ""
    subnetwork: str = ""
    has_global_access: bool = False
    shares_backend: bool = False
    warnings: list[str] = field(default_factory=list, compare=False)

    @property
    def is_local(self) -> bool:
        return self.check is not None


def is_internal(service: Service) -> bool:
    """Whether it asks for a load balancer inside of the network."""
    given = text(service.annotations.get(TYPE, service.annotations.get(OLD_TYPE)))
    return given in ("Internal", "internal") or service.load_balancer_class == INTERNAL_CLASS


def check_served(service: Service, has_subsets: bool, is_there: bool) -> None:
    """Raise `ImplementedElsewhere` for a Service of Google's Ingress controller.

    `has_subsets` is the alpha feature `ILBSubsets`: new internal ones are its business then.
    """
    is_new = not is_there and INTERNAL_V1 not in service.finalizers
    if (
        service.annotations.get(BACKEND_SERVICES) == "enabled"
        or OTHERS & {*service.finalizers}
        or (has_subsets and is_internal(service) and is_new)
    ):
        raise ImplementedElsewhere(f"Service {service.key} is Google's Ingress controller's")


def read_request(service: Service, place: Place) -> BalancerRequest:
    """Raises `Refused` for what cannot be had."""
    ports = sorted({int(str(port.get("port"))) for port in service.ports})
    if found := service.left_out_by:
        remedy, proxy = "remove it", service.labels.get(PROXY_NAME)
        if proxy and len(found) == 1:
            remedy += f", or give --service-proxy-names={proxy} if all nodes run that proxy"
        raise Refused(
            f"{found[0]}: nodes' proxies leave the Service out, and nodes have its load"
            f" balancer's address, so its ports would lead to the machines: {remedy}"
        )
    if service.ip_families[0] == "IPv6":
        raise Refused("load balancers of this provider have IPv4: make it the first IP family")
    ranges = frozenset(item for item in service.source_ranges() if item.version == 4)
    if not ranges:
        raise Refused("no source range is of IPv4, which load balancers of this provider have")
    tier, internal = text(service.annotations.get(TIER)), is_internal(service)
    if tier and tier not in TIERS:
        raise Refused(f"annotation {TIER}: {tier!r} is not valid; use {' or '.join(TIERS)}")
    kind = "internal" if internal else "external"
    warnings = [
        f"annotation {name} has no effect on {kind} load balancers"
        for name in ((TIER,) if internal else (GLOBAL_ACCESS, SUBNET))
        if name in service.annotations
    ]
    shares = "true" in (service.annotations.get(SHARE), service.annotations.get(OLD_SHARE))
    return BalancerRequest(
        service=service,
        is_internal=internal,
        protocol=text(service.ports[0].get("protocol")) or "TCP",
        ports=tuple(ports),
        ranges=ranges,
        affinity="CLIENT_IP" if service.spec.get("sessionAffinity") == "ClientIP" else "NONE",
        check=service.health_check,
        tier="" if internal else TIERS.get(tier, ""),
        requested_ip=_requested_ip(service),
        subnetwork=_subnetwork(service, place) if internal else "",
        has_global_access=internal and service.annotations.get(GLOBAL_ACCESS) == "true",
        shares_backend=internal and shares and not service.is_local_only,
        warnings=warnings,
    )


def _requested_ip(service: Service) -> str:
    """One address: a firewall takes a range as well, and is opened before Google sees the rule."""
    ip = service.requested_ip
    if ip and not isinstance(read_address(ip), IPv4Address):
        raise Refused(f"spec.loadBalancerIP {ip!r} is not an IPv4 address")
    return ip


def _subnetwork(service: Service, place: Place) -> str:
    name = text(service.annotations.get(SUBNET))
    if not name:
        return place.subnetwork
    if not re.fullmatch(NAME, name):
        raise Refused(f"annotation {SUBNET}: {name!r} is not the name of a subnetwork")
    return path_of_url(f"regions/{place.region}/subnetworks/{name}", place.network_project)
