"""Which floating IP leads to a load balancer; decided here, attached and released elsewhere."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccm.errors import Refused
from ccm.model.objects import Json, text
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.lb.names import Names
from ccm.providers.openstack.lb.request import LoadBalancerRequest

PATH = "/floatingips"


@dataclass(frozen=True, slots=True)
class NeedsFloatingIp:
    """None is there to attach: one is to be made, of this address if it is not empty."""

    address: str


def attached_to(port_id: str, floating_ips: Sequence[Json]) -> Json | None:
    """The floating IP of a port."""
    return next(
        (
            floating_ip
            for floating_ip in floating_ips
            if port_id and floating_ip.get("port_id") == port_id
        ),
        None,
    )


def plan(
    request: LoadBalancerRequest, port_id: str, floating_ips: Sequence[Json]
) -> Iterator[ApiCall | NeedsFloatingIp]:
    """Yield what gives a load balancer of the Service's own its floating IP, or takes it away.

    `floating_ips` are the project's.
    """
    attached = attached_to(port_id, floating_ips)
    if request.is_internal:
        if attached and not request.keeps_floating_ip and is_ours(attached, request.names):
            yield release(attached)
        elif attached:
            yield attach(attached, None)
        return
    if attached:
        if request.requested_ip not in ("", address_of(attached)):
            why = f"the load balancer has {address_of(attached)} for as long as it is external"
            sentence = f"spec.loadBalancerIP {request.requested_ip} is ignored: {why}"
            request.annotations.warnings.append(sentence)
        return
    free = [floating_ip for floating_ip in floating_ips if not floating_ip.get("port_id")]
    if request.requested_ip:
        check_may_request(request)
        found = [
            floating_ip
            for floating_ip in floating_ips
            if address_of(floating_ip) == request.requested_ip
        ]
        if found and found[0] not in free:
            raise Refused(f"floating IP {request.requested_ip} is used by another port")
        if found and request.names.is_anothers(found[0]):
            raise Refused(
                f"floating IP {request.requested_ip} was made for another Service: clear its "
                "description in OpenStack to give it away"
            )
    else:
        found = [item for item in free if request.names.is_marked(item)]
    yield attach(found[0], port_id) if found else NeedsFloatingIp(request.requested_ip)


def check_may_request(request: LoadBalancerRequest) -> None:
    """Raise `Refused` for an address by a tenant's choice, where that is not allowed."""
    if request.requested_ip and not request.may_request_ip:
        raise Refused("spec.loadBalancerIP: [LoadBalancer] allow-requested-ip is false")


def plan_release(
    names: Names, ports: Collection[str], floating_ips: Sequence[Json]
) -> Iterator[ApiCall]:
    """Yield what releases the floating IPs made for a Service whose load balancer is gone.

    Only those that lead nowhere or to one of its `ports`: one that a person has put to another use
    is that person's.
    """
    for floating_ip in floating_ips:
        if names.is_marked(floating_ip) and (
            not floating_ip.get("port_id") or floating_ip["port_id"] in ports
        ):
            yield release(floating_ip)


def plan_mark(names: Names, port_id: str, floating_ips: Sequence[Json]) -> Iterator[ApiCall]:
    """Yield what marks the floating IP of a load balancer that goes, so that it is found after it.

    Upstream may have made it, or a Service of this cluster that has left the load balancer since.
    """
    attached = attached_to(port_id, floating_ips)
    if attached and not names.is_marked(attached) and names.is_of_cluster(attached):
        body = {"floatingip": {"description": names.floating_ip}}
        yield ApiCall("UpdateFloatingIp", "network", "PUT", f"{PATH}/{attached['id']}", body)


def is_ours(floating_ip: Json, names: Names) -> bool:
    """Whether one that leads to the Service's load balancer was made for it, by us or upstream."""
    is_upstreams = floating_ip.get("description") == names.upstream_floating_ip
    return is_upstreams or names.is_marked(floating_ip)


def creation(names: Names, port_id: str, network_id: str, subnet_id: str, address: str) -> ApiCall:
    """The call that makes one."""
    wanted: Json = {
        "floating_network_id": network_id,
        "port_id": port_id,
        "description": names.floating_ip,
    }
    if address:
        wanted["floating_ip_address"] = address
    if subnet_id:
        wanted["subnet_id"] = subnet_id
    return ApiCall("CreateFloatingIp", "network", "POST", PATH, {"floatingip": wanted})


def attach(floating_ip: Json, port_id: str | None) -> ApiCall:
    body = {"floatingip": {"port_id": port_id}}
    return ApiCall("UpdateFloatingIp", "network", "PUT", f"{PATH}/{floating_ip['id']}", body)


def release(floating_ip: Json) -> ApiCall:
    return ApiCall("DeleteFloatingIp", "network", "DELETE", f"{PATH}/{floating_ip['id']}")


def address_of(floating_ip: Mapping[str, Any]) -> str:
    return text(floating_ip.get("floating_ip_address"))
