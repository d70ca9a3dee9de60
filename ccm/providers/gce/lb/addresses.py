"""Which address a load balancer has: what is there, what is asked for, and what may stay."""

from collections.abc import Mapping

from ccm.errors import Refused
from ccm.model.objects import Json, text
from ccm.providers.gce.ids import last_part, path_of_url
from ccm.providers.gce.lb.names import SERVICE_KEY, Names, described
from ccm.providers.gce.lb.observed import ADDRESS, RULE, Observed
from ccm.providers.gce.lb.request import BalancerRequest

PREMIUM = "PREMIUM"


def tier_of(request: BalancerRequest, part: Json | None) -> str:
    """The tier that is asked for, else that of what is there."""
    return request.tier or text((part or {}).get("networkTier")) or PREMIUM


def may_stay(request: BalancerRequest, part: Json, tier: str) -> bool:
    """Whether the address of a rule or a reservation is of the right kind, tier and subnetwork."""
    kind = text(part.get("loadBalancingScheme") or part.get("addressType"))
    if (kind == "INTERNAL") != request.is_internal:
        return False
    if not request.is_internal:
        return text(part.get("networkTier")) in ("", tier)
    subnetwork = path_of_url(text(part.get("subnetwork")), "")
    return not request.subnetwork or subnetwork in ("", request.subnetwork)


def requested_ip(
    observed: Observed,
    names: Names,
    request: BalancerRequest,
    tier: str,
    in_use: Mapping[str, str],
) -> str:
    """The address that the Service names; raises `Refused` if it may not have it.

    `in_use` are those of load balancers by name, also while a rule is replaced.
    """
    ip, rule = request.requested_ip, observed.get(RULE, names.balancer) or {}
    if not ip or rule.get("IPAddress") == ip:
        return ip
    rules = [item for item in observed.all(RULE) if item.get("IPAddress") == ip]
    users = [name for name, current in in_use.items() if current == ip]
    if any(name != names.balancer for name in (*users, *(item.get("name") for item in rules))):
        raise Refused(f"loadBalancerIP {ip} is in use by another load balancer")
    reserved = [item for item in observed.all(ADDRESS) if item.get("address") == ip]
    if any(SERVICE_KEY in described(item) and not names.is_own(item) for item in reserved):
        raise Refused(f"loadBalancerIP {ip} belongs to another Service")
    if request.is_internal and not reserved:
        return ip  # of the subnetwork, which Google checks
    if not reserved:
        raise Refused(f"loadBalancerIP {ip} is not a reserved address of {observed.place.region}")
    (address, *_) = reserved
    if not may_stay(request, address, tier):
        asked = f"the subnetwork {request.subnetwork}" if request.is_internal else f"tier {tier}"
        raise Refused(f"loadBalancerIP {ip} is of another network tier or subnetwork than {asked}")
    if is_used(address, names.balancer):
        raise Refused(f"loadBalancerIP {ip} is in use by another load balancer")
    return ip


def is_used(address: Json, balancer: str) -> bool:
    """Whether something beside this load balancer's rule has the address."""
    return any(last_part(text(user)) != balancer for user in address.get("users", ()))


def is_reserved(observed: Observed, names: Names, ip: str) -> bool:
    """Whether the address stays while there is no rule, by another record than the Service's."""
    others = (item for item in observed.all(ADDRESS) if item.get("name") != names.balancer)
    return bool(ip) and any(item.get("address") == ip for item in others)
