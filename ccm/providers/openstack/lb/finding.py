"""Which load balancers are a Service's, or are to be; nothing in here changes one."""

from collections.abc import Sequence

from ccm.errors import CloudError
from ccm.model.objects import Json, text
from ccm.model.service import Service
from ccm.providers.openstack.ids import Cluster
from ccm.providers.openstack.lb import octavia as at_octavia
from ccm.providers.openstack.lb.addresses import Addresses
from ccm.providers.openstack.lb.annotations import BALANCER_ID, PREFIX
from ccm.providers.openstack.lb.names import Names, Role
from ccm.providers.openstack.lb.octavia import Octavia
from ccm.providers.openstack.lb.place import is_id
from ccm.providers.openstack.lb.plan import ObservedBalancer
from ccm.providers.openstack.lb.request import LoadBalancerRequest

Found = tuple[ObservedBalancer | None, Sequence[ObservedBalancer]]
"""A Service's load balancer, and others that the Service has to leave first."""


class Finder:
    """Looks for what an annotation names, what is known, and what names and marks say."""

    def __init__(
        self, octavia: Octavia, addresses: Addresses, cluster: Cluster, restricts_annotations: bool
    ) -> None:
        self._octavia, self._addresses, self._cluster = octavia, addresses, cluster
        self._restricts_annotations = restricts_annotations

    async def find(self, request: LoadBalancerRequest, known_id: str) -> Found:
        """The load balancer that the Service's listeners are on, or are to be on.

        `known_id` is that of the Service's own, as last seen. Raises `NotOwned` for one of its name
        that nothing proves to be its.
        """
        names = request.names
        if request.balancer_id:
            if record := await self._octavia.look(request.balancer_id):
                await self._check_annotated(request, record)
                return ObservedBalancer(record, names.role_of(record)), ()
            why = f"there is no load balancer {request.balancer_id}"
            request.annotations.ignore(BALANCER_ID, why)
        if known_id and known_id != request.balancer_id:
            record = await self._octavia.look(known_id)
            if record and names.owns(record):
                return ObservedBalancer(record, Role.OWNER), ()
        named = await self._octavia.by_name(names.balancer)
        if owned := [record for record in named if names.owns(record)]:
            return await self._in_use(request, owned)
        marked = await self._octavia.by_marks(names)
        if any(item.get("id") == request.balancer_id for item in marked):
            raise CloudError(f"GetLoadBalancer: {request.balancer_id} is listed, and not found")
        if owned := [record for record in marked if names.owns(record)]:
            return await self._in_use(request, owned)
        at_octavia.check_not_others(names, named)
        # One without an address never was the in-tree controller's, which is long gone.
        legacy = await self._octavia.by_name(names.legacy_balancer) if names.is_published else []
        if legacy:
            await self._octavia.verify(legacy[0])
            return ObservedBalancer(legacy[0], Role.OWNER), ()
        return None, [ObservedBalancer(record, Role.SHARER) for record in marked]

    async def _in_use(self, request: LoadBalancerRequest, owned: Sequence[Json]) -> Found:
        """Of several of the Service's own the one in use, and those that are not.

        A controller that ended before Octavia had answered may have made one that its successor
        could not see: where none certainly is in use, all stay.
        """
        for record in owned:
            await self._octavia.verify(record)
        balancers = [ObservedBalancer(record, Role.OWNER) for record in owned]
        if len(balancers) < 2 or not request.names.is_published:
            return balancers[0], balancers[1:]
        published = {text(item.get("ip")) for item in request.annotations.service.ingress}
        for found in balancers:
            if published & {*await self._addresses.of(request, found.record)}:
                return found, [other for other in balancers if other is not found]
        return balancers[0], ()

    async def _check_annotated(self, request: LoadBalancerRequest, record: Json) -> None:
        """Raise `NotOwned` for a load balancer by annotation that the Service may not have."""
        names, service = request.names, request.annotations.service
        what = f"load balancer {record.get('id')} of annotation {PREFIX}{BALANCER_ID}"
        if not await self._is_proven(service, record):
            raise at_octavia.NotOwned(
                f"{what} is called as another cluster's may be, and its address is not in the "
                f"Service's status: tag it with {names.owner_tag} in OpenStack if it is the "
                "Service's"
            )
        is_others = names.role_of(record) is Role.SHARER and not names.is_on(record)
        if is_others and (names.is_foreign(record) or self._restricts_annotations):
            why = "another cluster's" if names.is_foreign(record) else "not the Service's own"
            raise at_octavia.NotOwned(f"{what} is {why}")

    async def _is_proven(self, service: Service, record: Json) -> bool:
        """Whether its mark or address says whose it is, where names say that it is the Service's.

        The status of a Service has no other addresses than what its controller made.
        """
        if not Names.of(service, self._cluster).needs_proof(record):
            return True
        published = {text(item.get("ip")) for item in service.ingress} - {""}
        return await self._addresses.has_any(record, published)

    async def all_of(self, service: Service) -> list[ObservedBalancer]:
        """Every load balancer that has something of the Service's on it."""
        names = Names.of(service, self._cluster)
        balancer_id = text(service.annotations.get(PREFIX + BALANCER_ID)).strip()
        records = await self._octavia.by_marks(names)
        listed = {text(item.get("id")) for item in records}
        if is_id(balancer_id) and balancer_id not in listed:
            record = await self._octavia.by_id(balancer_id)
            is_known = record and (names.role_of(record) is Role.OWNER or names.is_on(record))
            if record and is_known and await self._is_proven(service, record):
                records.append(record)
        if not records:
            named = await self._octavia.by_name(names.balancer)
            records = [record for record in named if names.owns(record)]
        if not records:
            at_octavia.check_not_others(names, named)
            records = await self._octavia.by_name(names.legacy_balancer)
        return [ObservedBalancer(item, names.role_of(item)) for item in records]
