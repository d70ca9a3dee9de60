"""Whether an NLB is of IPv4 or of both IP families: what a Service asks for, and what can be.

An NLB has one target group a listener, of one family. Clients of the other come with an address of
the load balancer's own, so that nothing behind it can distinguish them.
"""

from collections.abc import Sequence
from dataclasses import replace

from ccm.errors import Refused
from ccm.providers.aws.elb.annotations import PREFIX
from ccm.providers.aws.elb.nlb_desired import Nlb
from ccm.providers.aws.elb.request import (
    DUALSTACK,
    EVERYBODY_IPV6,
    IPV4,
    LoadBalancerRequest,
    is_open,
)
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import ADDRESS_TYPE_TAG

ANNOTATION = "ip-address-type"


def with_address_type(
    request: LoadBalancerRequest,
    subnets: Sequence[Subnet],
    observed: Nlb | None,
    has_own_group: bool,
) -> LoadBalancerRequest:
    """The request for a load balancer of this type, with the source ranges that it is to have.

    What is preferred is had at creation, if it can be; what is required or annotated changes a load
    balancer that is there. A tag says that it has IPv6 for the Service's sake, and not by hand, so
    that it goes when the Service does without. Raises `Refused` for what cannot be had.
    """
    asked = request.annotations.choice(ANNOTATION, (IPV4, DUALSTACK))
    address_type = _address_type(request, asked, subnets, observed, has_own_group)
    if address_type == IPV4:
        request.refuse_ipv6(f"annotate {PREFIX}{ANNOTATION}: {DUALSTACK}")
    elif not has_own_group:
        request.refuse_ranges(
            "nodes cannot distinguish the clients of one IP family; set NLBSecurityGroupMode, or"
            f" annotate {PREFIX}{ANNOTATION}: {IPV4}"
        )
    is_wanted = address_type == DUALSTACK and (asked or "IPv6" in request.ip_families)
    return replace(
        request,
        address_type=address_type,
        ranges=client_ranges(request.ranges, address_type),
        own_tags={ADDRESS_TYPE_TAG: DUALSTACK} if is_wanted else {},
    )


def client_ranges(ranges: Sequence[str], address_type: str) -> tuple[str, ...]:
    """The source ranges as they are; all addresses of IPv4 include those of IPv6."""
    has_all = address_type == DUALSTACK and is_open(ranges)
    return tuple(dict.fromkeys([*ranges, EVERYBODY_IPV6] if has_all else ranges))


def _address_type(
    request: LoadBalancerRequest,
    asked: str,
    subnets: Sequence[Subnet],
    observed: Nlb | None,
    has_own_group: bool,
) -> str:
    annotations, obstacle = request.annotations, _obstacle(request, subnets)
    can_enforce = has_own_group or is_open(request.ranges)
    is_of_ipv4 = observed is not None and observed.address_type == IPV4
    why_not = obstacle or ("" if can_enforce else "source ranges would not be enforced")
    if asked == DUALSTACK and is_of_ipv4 and why_not and not request.requires_ipv6:
        annotations.ignore(ANNOTATION, f"the load balancer stays of IPv4: {why_not}")
        return IPV4
    if request.requires_ipv6 or asked == DUALSTACK:
        if asked == IPV4:
            annotations.ignore(ANNOTATION, "spec.ipFamilies requires IPv6")
        if obstacle and not (observed and observed.address_type == DUALSTACK):
            raise Refused(f"the load balancer cannot be of IPv6: {obstacle}")
        return DUALSTACK
    if asked:
        return asked
    is_preferred = "IPv6" in request.ip_families and not obstacle
    if observed:
        if "IPv6" not in request.ip_families and ADDRESS_TYPE_TAG in observed.tags:
            return IPV4
        if is_preferred and is_of_ipv4:
            annotations.notes.append(
                "the load balancer is of IPv4, and stays so: annotate"
                f" {PREFIX}{ANNOTATION}: {DUALSTACK} to have it changed"
            )
        return observed.address_type
    return DUALSTACK if is_preferred and can_enforce else IPV4


def _obstacle(request: LoadBalancerRequest, subnets: Sequence[Subnet]) -> str:
    """What keeps the load balancer from IPv6 and what to do; empty when nothing does."""
    if without := [subnet.id for subnet in subnets if not subnet.ipv6_cidr]:
        return f"subnets without an IPv6 network: {', '.join(without)}; associate one with each"
    unreached = [] if request.is_internal else [s.id for s in subnets if not s.is_public_ipv6]
    if unreached:
        listed = ", ".join(unreached)
        return f"subnets without a route for ::/0 to an internet gateway: {listed}; add it"
    if any("UDP" in port.protocol for port in request.ports):
        return "UDP needs IPv4; use two Services"
    return ""
