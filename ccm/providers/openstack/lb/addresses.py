"""The addresses of a load balancer: where its virtual IPs are, and the floating IP before them."""

from collections.abc import Callable, Collection, Sequence

from ccm.cloud.json_api import verify_about
from ccm.errors import CloudError, Conflict, NoRoom, Refused
from ccm.model.objects import Json, Node, mapping, text
from ccm.model.service import Service
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.lb import floating_ips as floating
from ccm.providers.openstack.lb.names import Names, Role, sharers, tags_of
from ccm.providers.openstack.lb.networks import Networks, matching_subnets
from ccm.providers.openstack.lb.octavia import addresses_of
from ccm.providers.openstack.lb.plan import ROOT
from ccm.providers.openstack.lb.request import IPV4, IPV6, LoadBalancerRequest
from ccm.providers.openstack.neutron import list_own, list_ports

DEFAULT_PROVIDER = "amphora"  # upstream's
FIELDS = ("id", "floating_ip_address", "port_id", "description")
PORT_FIELDS = ("id", "name")

Reader = Callable[[Service, tuple[str, ...]], LoadBalancerRequest]


class Addresses:
    """Places load balancers, and gives them floating IPs."""

    def __init__(self, api: OpenStackApi, networks: Networks) -> None:
        self._api, self._networks = api, networks

    async def place(
        self, request: LoadBalancerRequest, nodes: Sequence[Node], read: Reader
    ) -> tuple[Json, LoadBalancerRequest]:
        """What says where a new load balancer is to be, and the request as it can be had there."""
        floating.check_may_request(request)
        place = request.place
        where: Json = {"provider": request.provider or DEFAULT_PROVIDER}
        where |= {"flavor_id": request.flavor_id} if request.flavor_id else {}
        where |= {"availability_zone": request.zone} if request.zone else {}
        if request.requested_ip and (request.is_internal or request.family == IPV6):
            where["vip_address"] = request.requested_ip
        if place.port_id:
            return where | {"vip_port_id": place.port_id}, request
        subnets = await self._networks.vip_subnets(place, request.families, nodes)
        where |= {"vip_subnet_id": subnets[0].id}
        where |= {"vip_network_id": place.network_id} if place.network_id else {}
        if more := subnets[1:]:
            where["additional_vips"] = [{"subnet_id": item.id} for item in more]
        if len(subnets) < len(request.families):
            lacking = request.families[1]
            why = f"network {subnets[0].network_id} has no subnet of {lacking}"
            if request.must_be_dual:
                raise Refused(why)
            kept = request.annotations.warnings
            request = read(request.annotations.service, (subnets[0].family,))
            request.annotations.warnings[:] = [
                *kept,
                f"spec.ipFamilies {lacking} is ignored: {why}",
            ]
        return where, request

    async def of(self, request: LoadBalancerRequest, record: Json) -> list[str]:
        """The addresses that clients use, in the order of the Service's families."""
        vips = _by_family(record)
        if IPV4 in vips:
            current = await self._floating_ips()
            attached = floating.attached_to(text(record.get("vip_port_id")), current)
            vips[IPV4] = floating.address_of(attached) if attached else vips[IPV4]
        return [vips[family] for family in request.families if family in vips]

    async def has_any(self, record: Json, addresses: Collection[str]) -> bool:
        """Whether one of these leads to a load balancer, by a floating IP or without."""
        if {*addresses_of(record)} & {*addresses}:
            return True
        attached = floating.attached_to(
            text(record.get("vip_port_id")), await self._floating_ips() if addresses else ()
        )
        return floating.address_of(attached or {}) in addresses

    async def ports(self, service: Service, names: Names) -> list[Json]:
        """The ports that a Service's published addresses and floating IPs lead to."""
        published = {text(item.get("ip")) for item in service.ingress} - {""}
        port_ids = {
            text(floating_ip.get("port_id"))
            for floating_ip in await self._floating_ips()
            if names.is_marked(floating_ip) or floating.address_of(floating_ip) in published
        }
        at = [f"ip_address={address}" for address in published]
        by_id = await list_ports(self._api, "id", port_ids - {""}, PORT_FIELDS)
        return by_id + await list_ports(self._api, "fixed_ips", at, PORT_FIELDS)

    async def ensure(self, request: LoadBalancerRequest, record: Json, role: Role) -> list[str]:
        """The same, once the floating IP is there or gone as it has to be."""
        vips = _by_family(record)
        if IPV4 in vips and IPV4 in request.families:
            vips[IPV4] = await self._outer_address(request, record, role) or vips[IPV4]
        return [vips[family] for family in request.families if family in vips]

    async def mark(self, names: Names, record: Json) -> None:
        """Mark a floating IP that upstream made, before what leads to it goes."""
        if names.owner_tag not in tags_of(record):
            current = await self._floating_ips()
            for call in floating.plan_mark(names, text(record.get("vip_port_id")), current):
                await self._verify_port(record)
                await self._api.make(call)

    async def release(self, names: Names, keeps: bool, ports: Collection[str]) -> None:
        """Release what was made for a Service whose load balancer is gone."""
        if not keeps:
            current = await self._floating_ips()
            for call in floating.plan_release(names, ports, current):
                await self._verify_leads(call, ports, current)
                await self._api.make(call)

    async def _outer_address(self, request: LoadBalancerRequest, record: Json, role: Role) -> str:
        """The address of the floating IP; empty when the virtual IP is the one to publish."""
        port_id, current = text(record.get("vip_port_id")), await self._floating_ips()
        if role is Role.SHARER:
            return _shared_address(request, record, current)
        step = next(floating.plan(request, port_id, current), None)
        if step:
            await self._verify_port(record)
        if isinstance(step, floating.NeedsFloatingIp):
            return await self._create(request, port_id, step.address)
        if isinstance(step, ApiCall):
            await self._verify_leads(step, [port_id], current)
            answer = await self._api.make(step)
            attached = mapping(answer.get("floatingip"))
            if not request.is_internal:
                verify_about(step.operation, attached, "id", step.path.rpartition("/")[2])
        else:
            attached = floating.attached_to(port_id, current) or {}
        return "" if request.is_internal else floating.address_of(attached)

    async def _verify_port(self, record: Json) -> None:
        """Raise `CloudError` where it has another port: one answer may have had another's, which
        would be opened, or lose its floating IP.
        """
        path = f"{ROOT}/loadbalancers/{record['id']}"
        answer = await self._api.get("GetLoadBalancer", "load-balancer", path)
        if mapping(answer.get("loadbalancer")).get("vip_port_id") != record.get("vip_port_id"):
            raise CloudError(f"GetLoadBalancer: two answers about the port of {record['id']}")

    async def _verify_leads(
        self, call: ApiCall, ports: Collection[str], listed: Sequence[Json]
    ) -> None:
        """Raise `CloudError` where a floating IP leads elsewhere, or is described otherwise: a list
        may lack its port, or mix it up with another.
        """
        answer = await self._api.get("GetFloatingIp", "network", call.path)
        found = mapping(answer.get("floatingip"))
        verify_about("GetFloatingIp", found, "id", call.path.rpartition("/")[2])
        if found.get("port_id") not in (None, "", *ports):
            raise CloudError(f"ListFloatingIps: the answer lacks the port of {found.get('id')}")
        of_it = [item for item in listed if item.get("id") == found.get("id")]
        if any(item.get("description") != found.get("description") for item in of_it):
            raise CloudError(f"ListFloatingIps: another description of {found.get('id')}")

    async def _create(self, request: LoadBalancerRequest, port_id: str, address: str) -> str:
        """Make a floating IP in the first of the subnets that has one to give."""
        network_id = request.place.floating_network_id or await self._detected_network(request)
        if not network_id:
            return ""
        failure: Refused | None = None
        for subnet_id in await self._floating_subnets(request, network_id, address):
            call = floating.creation(request.names, port_id, network_id, subnet_id, address)
            try:
                answer = await self._api.make(call)
            except (Conflict, NoRoom) as error:
                failure = error
                continue
            found = mapping(answer.get("floatingip"))
            verify_about(call.operation, found, "port_id", port_id)
            return floating.address_of(found)
        raise failure or Refused(
            f"network {network_id} has no subnet of the name or tags asked for a floating IP"
        )

    async def _detected_network(self, request: LoadBalancerRequest) -> str:
        found = await self._networks.external_networks()
        if len(found) > 1:
            raise Refused(f"floating-network-id is to be one of {', '.join(found)}: none is set")
        if not found:
            why = "there is no external network: the Service is internal"
            request.annotations.warnings.append(why)
        return next(iter(found), "")

    async def _floating_subnets(
        self, request: LoadBalancerRequest, network_id: str, address: str
    ) -> list[str]:
        """The IDs of subnets to try; an empty one leaves the choice to Neutron."""
        place = request.place
        if place.floating_subnet_id:
            subnet = await self._networks.subnet(place.floating_subnet_id)
            if subnet.network_id != network_id:
                raise Refused(f"floating subnet {subnet.id} is not in network {network_id}")
            return [subnet.id]
        if address or not (place.floating_subnet or place.floating_subnet_tags):
            return [""]
        current = await self._networks.subnets_of(network_id)
        chosen = matching_subnets(current, place.floating_subnet, place.floating_subnet_tags)
        return [item.id for item in chosen]

    async def _floating_ips(self) -> list[Json]:
        """All of the project: which is whose is in them."""
        return await list_own(self._api, "floatingips", fields=FIELDS)


def _by_family(record: Json) -> dict[str, str]:
    return {IPV6 if ":" in address else IPV4: address for address in addresses_of(record)}


def _shared_address(request: LoadBalancerRequest, record: Json, current: Sequence[Json]) -> str:
    """That of someone else's load balancer, which gets no floating IP from this Service.

    Else one who shares could open to the world what another keeps inside.
    """
    attached = floating.attached_to(text(record.get("vip_port_id")), current)
    if attached or request.is_internal:
        return floating.address_of(attached) if attached else ""
    why = (
        f"load balancer {record.get('name')} has no floating IP, and only its owner may give it one"
    )
    if sharers(record) - {request.names.balancer}:
        raise Refused(why)
    request.annotations.warnings.append(why)
    return ""
