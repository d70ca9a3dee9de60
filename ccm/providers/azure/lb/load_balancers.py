"""Load balancers for Services: one for the public ones and one for the internal ones, or several.

Each Service has parts in them by upstream's names. What is there is read once for all Services that
come together; a Service that has to write reads the resource again, and writes it with its ETag.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ccm.cloud.gate import warnings_as_notes
from ccm.cloud.interface import ProviderContext
from ccm.cloud.lookup import together
from ccm.cloud.machines import join_reasons, verify_complete
from ccm.cloud.shared_read import SharedRead
from ccm.errors import CloudError, Denied, Refused, RetryAfter
from ccm.model.cloud import Balancer, Ingress, OwnedBalancer
from ccm.model.objects import Json, Node, text
from ccm.model.service import Feature, Service
from ccm.providers.azure import ids
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.instances import AzureInstances
from ccm.providers.azure.lb import plan
from ccm.providers.azure.lb.addresses import PublicAddresses
from ccm.providers.azure.lb.admission import Admission, extent_of
from ccm.providers.azure.lb.annotations import PREFIX, PRIVILEGED, Annotations
from ccm.providers.azure.lb.backend_pools import BackendPools
from ccm.providers.azure.lb.members import inner_addresses, private_addresses
from ccm.providers.azure.lb.names import BASE, IPV4, IPV6, Names, uid_of
from ccm.providers.azure.lb.owners import ip_of, ips_of, services_of
from ccm.providers.azure.lb.placement import Balancers, Place, choose
from ccm.providers.azure.lb.plan import (
    NO_ADDRESS_RETRY,
    BalancerPlan,
    address_of,
    own_frontends,
)
from ccm.providers.azure.lb.records import Records
from ccm.providers.azure.lb.request import (
    BalancerRequest,
    additional_ips,
    published_ips,
    read_request,
    without_taken,
)
from ccm.providers.azure.lb.resources import BalancerResources
from ccm.providers.azure.lb.security_group import Extent


class AzureLoadBalancers:
    """The Services of the cluster of this name."""

    supported_features = frozenset(Feature)
    privileged_annotations = frozenset(PREFIX + item for item in PRIVILEGED)

    def __init__(
        self,
        api: AzureApi,
        config: AzureConfig,
        instances: AzureInstances,
        context: ProviderContext,
    ) -> None:
        self._api, self._config, self._cluster = api, config, context.cluster_name
        self._read_namespace = context.read_namespace
        self._resources = BalancerResources(api, config, self._cluster)
        self._records = Records()
        self._shares = not context.restricts_annotations
        paths = [item.path for item in self._resources.by_place.values()]
        self._addresses = PublicAddresses(api, config, self._cluster, paths, not self._shares)
        self._admission = Admission(api, config, self._records)
        self._pools = BackendPools(api, config, instances, self._admission, self._resources.read)
        self._balancers = SharedRead(self._resources.read)

    # The interface

    def name_for(self, service: Service) -> str:
        return service.default_balancer_name

    def selector_labels(self, service: Service) -> Collection[str]:
        """Those by which load balancers choose their nodes."""
        return {part.key for item in self._config.balancers for part in item.node_selector or ()}

    async def get(self, service: Service) -> Balancer | None:
        names, balancers = self._names(service), await self._balancers()
        frontends = plan.frontends_in(balancers.values(), names)
        if not frontends:
            return None
        addresses = ips_of(frontends, await self._addresses.complete(frontends))
        if more := published_ips(service) - {*addresses}:
            asked = await self._admission.opened()  # also what was asked for before
            with suppress(Refused):
                asked |= {*additional_ips(Annotations(service.annotations))}
            listed = await self._addresses.list("")
            addresses += sorted((more & asked) - await self._of_others(names, balancers, listed))
        ingress = tuple(Ingress(ip=address) for address in addresses)
        is_shared = _is_shared(frontends, names)
        is_contested = is_shared and plan.is_contested([*balancers.values()], names)
        return Balancer(names.base, ingress, is_shared=is_shared, is_contested=is_contested)

    def check_service(self, service: Service) -> None:
        read_request(service, self._config, self._cluster)

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        request = read_request(service, self._config, self._cluster)
        balancers: Balancers = {}
        public = dict[str, Json]()  # by family, as far as they are there
        try:
            with warnings_as_notes(request):
                balancers = await self._balancers()
                return await self._ensure(request, nodes, balancers, public)
        except CloudError:  # its rules are none that others have to make room for
            self._records.of(request.names).place = None
            with suppress(CloudError):
                await self._give_up(request, balancers, [*public.values()])
            raise

    async def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None:
        names, balancers = self._names(service), await self._balancers()
        if not plan.frontends_in(balancers.values(), names):
            raise Refused(f"Service {service.key} has no load balancer")
        is_restricted = not self._shares and self.privileged_annotations & {*service.annotations}
        if not (Annotations(service.annotations).floats or is_restricted):
            made = await self.ensure(service, nodes)  # the security group names machines
            verify_complete(filter(None, [made.lacking]))
            return
        self._pools.nodes = nodes
        read = await self._pools.read(names, nodes, balancers)
        _, reasons = await self._pools.join(names, balancers, read)
        verify_complete(reasons)

    async def withdraw(self, service: Service) -> None:
        """Without its rules that lead to node ports; the pool of machines is all Services'."""
        await self._resources.withdraw(self._names(service), await self._balancers())

    async def delete(self, service: Service) -> None:
        """The security group first, while the addresses are known; the public ones last."""
        names, annotations = self._names(service), Annotations(service.annotations)
        owner, group = self._addresses.owner(service), annotations.resource_group
        balancers, frontends, listed = await self._had(names, group)
        addresses = {*ips_of(frontends, listed)}
        if addresses:
            _, *again = await self._had(names, group)
            if {*ips_of(*again)} != addresses:  # another's would be closed
                raise CloudError(f"two answers about the addresses of {names.base} differ")
        is_reached = plan.has_own_node_ports(balancers.values(), names)
        if is_reached or not annotations.floats:
            read = await self._pools.read(names, self._pools.nodes, balancers)
            addresses |= self._pools.addresses(names, balancers, read)
        addresses |= await self._left_open(names, balancers, listed, addresses)
        extent = extent_of(names, balancers.values(), frontends, listed)
        await self._admission.open(names, None, addresses, extent, [])
        left = await self._resources.leave(names, balancers, balancers)
        await self._addresses.release(owner, (), listed)
        self._records.forget(names)
        await self._pools.take_over(names, balancers, left)

    async def owned(self) -> Sequence[OwnedBalancer]:
        """By the names of frontends, which begin with the UID but for its last character."""
        balancers = await self._balancers()
        listed = await self._addresses.list("") if balancers else ()
        services = {ids.id_of(item).lower(): services_of(item) for item in listed}
        found = dict[str, OwnedBalancer]()
        for balancer in balancers.values():
            for frontend in plan.frontends_of(balancer):
                if match := BASE.match(text(frontend.get("name"))):
                    public = ids.key_of(ids.properties_of(frontend).get("publicIPAddress"))
                    used = services.get(public, [])
                    service = used[0] if len(used) == 1 else ""
                    base = match[0].lower()
                    found[base] = OwnedBalancer(base, uid_of(base), service)
        return list(found.values())

    # What is done

    async def _had(
        self, names: Names, resource_group: str
    ) -> tuple[Balancers, Sequence[Json], Sequence[Json]]:
        """All load balancers, a Service's frontends, and public addresses with those of them."""
        balancers = await self._balancers()
        frontends = plan.frontends_in(balancers.values(), names)
        listed = await self._addresses.list_all(resource_group)
        return balancers, frontends, await self._addresses.complete(frontends, listed)

    async def _ensure(
        self,
        request: BalancerRequest,
        nodes: Sequence[Node],
        balancers: Balancers,
        public: dict[str, Json],
    ) -> Balancer:
        names, self._pools.nodes = request.names, nodes
        reads: list[Any] = await together(
            self._pools.read(names, nodes, balancers),
            self._addresses.list_all(request.annotations.resource_group),
        )
        read, listed = reads
        before = plan.frontends_in(balancers.values(), names)
        if request.additional:
            others = await self._of_others(names, balancers, listed)
            request = without_taken(request, others, is_new=not before)
        if more := request.additional:
            for ip in sorted({*more} & inner_addresses(read.machines.interfaces)):
                raise Refused(f"{ip} is the address of a machine")
        had = ips_of(before, await self._addresses.complete(before, listed))
        named = self._addresses.named(request, listed)
        self._check_moving(request, balancers, named.values())
        place, own = await self._place(request, balancers, named.values()), self._records.of(names)
        own.place, own.rules = place, len(request.ports)
        own.may_open({*more, *had})  # whatever comes of the writes
        for family in request.public:
            found = named.get(family)
            public[family] = await self._addresses.ensure(request, family, found, listed)
        request = self._with_kept_addresses(request, place, balancers)
        planned = await self._plan(request, public, place, balancers.get(place))
        now = await self._resources.write(planned, place, balancers)
        balancer, having = now[place], plan.frontends_in(now.values(), names)
        asked = [planned.shared_frontend(balancer, family) for family in request.families]
        held = [*own_frontends(balancer, names), *filter(None, asked)]
        own.sockets = dict.fromkeys(map(address_of, held), plan.sockets_of(request))
        is_changed = now is not balancers
        wanted, reasons = await self._pools.join(names, now, read, is_changed=is_changed)
        request.warnings.extend(self._pools.warnings(wanted, read))
        addresses = [
            _address_of(planned, balancer, item, public.get(item)) for item in request.families
        ]
        having += filter(None, asked)  # no rule of its own may show that it has them
        frontends = [*before, *having]
        listed = await self._addresses.complete(frontends, [*listed, *public.values()])
        extent = extent_of(names, now.values(), frontends, listed)
        machine_ips = self._pools.addresses(names, balancers, read)
        if None in wanted.values():  # they stay behind the load balancer, and in its rules
            machine_ips &= private_addresses(wanted.values())
        kept = {*addresses, *more, *extent.shared}
        stale = {*had} - kept
        if stale:  # one list may mix up frontends
            stale -= await self._of_others(names, await self._balancers(), listed)
        stale |= await self._left_open(names, now, listed, kept)
        extent = replace(extent, stale=stale, shared={*extent.shared, *machine_ips})
        await self._admission.admit(request, addresses, extent, wanted)
        own.additional = {*more}
        left = await self._resources.leave(names, now, now.keys() - {place})
        gone = {*ips_of(_without(frontends, left), listed)} - {*stale, *kept}
        if gone:  # with the last who shared them
            await self._admission.open(None, None, (), Extent(gone), [])
        await self._pools.take_over(names, now, left)
        used = [ids.id_of(item) for item in public.values()]
        await self._addresses.release(self._addresses.owner(request.service), used, listed)
        served = [*addresses, *more]
        return Balancer(
            names.base,
            tuple(Ingress(ip=item) for item in served),
            tuple(request.warnings),
            lacking=join_reasons(reasons),
            is_shared=_is_shared(having, names),
        )

    async def _give_up(
        self, request: BalancerRequest, balancers: Balancers, public: Sequence[Json]
    ) -> None:
        """Close and release what the Service had, and no frontend has after a change that failed.

        Of another resource group also what was made for it: no list has that later.
        """
        names, group = request.names, request.annotations.resource_group
        had = plan.frontends_in(balancers.values(), names)
        if not (had or group):
            return
        now = {**balancers, **await self._balancers()}
        used = plan.public_keys(now.values())
        left = _without(had, now)
        wanted = {*map(ids.key_of, public)}
        kept = used | (wanted & {*map(address_of, had)} if group else wanted)
        listed = await self._addresses.complete(left, public)
        if left:
            await self._admission.open(names, None, (), Extent(ips_of(left, listed)), [])
        await self._addresses.release(self._addresses.owner(request.service), [*kept], listed)

    def _check_moving(
        self, request: BalancerRequest, balancers: Balancers, named: Iterable[Json]
    ) -> None:
        """Raise `RetryAfter` for another's address that no load balancer has at this moment.

        It moves, or was just made: its tags say for whom.
        """
        owner, used = self._addresses.owner(request.service), plan.public_keys(balancers.values())
        claimed = self._records.claimed(request.names)
        for item in named:
            is_anothers = self._addresses.made_here(item) and owner.is_anothers(item)
            is_unused = ids.key_of(item) not in used and not owner.is_elsewhere(item)
            if is_unused and (is_anothers or ids.key_of(item) in claimed):
                why = f"public address {item.get('name')} is another Service's, which moves"
                raise RetryAfter(why, NO_ADDRESS_RETRY)

    async def _place(
        self, request: BalancerRequest, balancers: Balancers, named: Iterable[Json]
    ) -> Place:
        """The load balancer of a Service; raises `Refused` where none takes it."""
        if not self._config.balancers:
            places = self._resources.by_place
            return next(item for item in places if item.is_internal == request.is_internal)
        labels: Mapping[str, str] = {}
        if any(item.service_namespace_selector for item in self._config.balancers):
            if self._read_namespace is None:
                raise Denied("serviceNamespaceSelector: labels of namespaces cannot be read here")
            labels = await self._read_namespace(request.service.namespace)
        public = {*map(ids.key_of, named)}
        expected = self._records.expected(request.names, balancers)
        return choose(request, balancers, public, labels, expected)

    def _with_kept_addresses(
        self, request: BalancerRequest, place: Place, balancers: Balancers
    ) -> BalancerRequest:
        """With the private addresses that the Service has, where it moves within its subnet."""
        others = [item for other, item in balancers.items() if other != place]
        kept = dict[str, str]()
        for frontend in plan.frontends_in(others, request.names) if place.is_internal else ():
            properties = ids.properties_of(frontend)
            if ids.key_of(properties.get("subnet")) == self._subnet_of(request).lower():
                ip = text(properties.get("privateIPAddress"))
                kept[IPV6 if ":" in ip else IPV4] = ip
        return replace(request, fixed={**kept, **request.fixed})

    def _subnet_of(self, request: BalancerRequest) -> str:
        return f"{self._config.vnet_id}/subnets/{request.subnet}"

    async def _plan(
        self,
        request: BalancerRequest,
        public: Mapping[str, Json],
        place: Place,
        balancer: Json | None,
    ) -> BalancerPlan:
        current = {
            text(frontend.get("name")).lower() for frontend in plan.frontends_of(balancer or {})
        }
        wanted = {request.names.frontend(family).lower() for family in request.families}
        has_new = request.is_internal and not wanted <= current
        return BalancerPlan(
            id=self._resources.by_place[place].path,
            request=request,
            public={family: ids.id_of(item) for family, item in public.items()},
            subnet=self._subnet_of(request),
            zones=await self._addresses.zones() if has_new else (),
            shares=self._shares,
            taken=self._records.taken(request.names),
            claimed=self._records.claimed(request.names) if request.has_fixed_address else (),
        )

    # Reads

    async def _left_open(
        self, names: Names, balancers: Balancers, listed: Sequence[Json], kept: Collection[str]
    ) -> set[str]:
        """Addresses that may be open for the Service, without those kept and those of others."""
        owner = self._addresses.owner(names.service)
        marked = {ip_of(item) for item in listed if owner.is_of(item)}
        found = {*published_ips(names.service), *marked, *self._records.of(names).additional}
        with suppress(Refused):
            asked = additional_ips(Annotations(names.service.annotations))
            found |= {*asked} if self._shares else set()
        found -= {"", *kept}
        return found - await self._of_others(names, balancers, listed) if found else found

    async def _of_others(
        self, names: Names, balancers: Balancers, listed: Sequence[Json]
    ) -> set[str]:
        """As `PublicAddresses.of_others`, by what is known of Services too."""
        claimed = self._records.claimed(names)
        return await self._addresses.of_others(balancers.values(), names, claimed, listed)

    def _names(self, service: Service) -> Names:
        return Names(self._cluster, service, several=bool(self._config.balancers))


def _without(frontends: Iterable[Json], balancers: Balancers) -> list[Json]:
    """Those whose address no frontend of the load balancers has."""
    used = {address_of(item) for it in balancers.values() for item in plan.frontends_of(it)}
    return [item for item in frontends if address_of(item) not in used]


def _is_shared(frontends: Sequence[Json], names: Names) -> bool:
    """Whether one of a Service's frontends is another's, who may serve any other port there."""
    return not all(names.is_own(text(item.get("name"))) for item in frontends)


def _address_of(planned: BalancerPlan, balancer: Json, family: str, public: Json | None) -> str:
    """What clients reach of one family; raises `RetryAfter` while Azure has given none."""
    name = planned.request.names.frontend(family)
    frontends = plan.frontends_of(balancer)
    own = [frontend for frontend in frontends if ids.same(text(frontend.get("name")), name)]
    shared = planned.shared_frontend(balancer, family)
    private = ids.properties_of((own or [shared or {}])[0]).get("privateIPAddress")
    address = ip_of(public) if public else text(private)
    if not address:
        raise RetryAfter(f"frontend {name} has no address yet", NO_ADDRESS_RETRY)
    return address
