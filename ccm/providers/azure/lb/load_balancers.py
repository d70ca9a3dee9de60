"""Load balancers for Services: one for the cluster's public ones, and one for the internal ones.

Each Service has parts in them by upstream's names. What is there is read once for all Services that
come together; a Service that has to write reads the resource again, and writes it with its ETag.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from ccm.cloud.shared_read import SharedRead
from ccm.errors import Refused, RetryAfter, warnings_as_notes
from ccm.model.cloud import Balancer, Ingress, OwnedBalancer
from ccm.model.objects import Json, Node, objects, text
from ccm.model.service import Feature, Service
from ccm.providers.azure import ids
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.instances import AzureInstances
from ccm.providers.azure.lb import plan, security_group
from ccm.providers.azure.lb.addresses import Owner, PublicAddresses, ip_of, services_of
from ccm.providers.azure.lb.annotations import PREFIX, PRIVILEGED, Annotations
from ccm.providers.azure.lb.members import Members, backends, joined_addresses, joined_groups
from ccm.providers.azure.lb.names import BASE, INTERNAL_SUFFIX, IPV4, IPV6, Names, pool_of, uid_of
from ccm.providers.azure.lb.plan import BalancerPlan, own_frontends
from ccm.providers.azure.lb.request import BalancerRequest, additional_ips, read_request
from ccm.providers.azure.lb.security_group import Access
from ccm.providers.azure.machines import Machine, Machines, together
from ccm.providers.azure.shared_writes import SharedResource

NO_FLOATING = f"{PREFIX}disable-load-balancer-floating-ip"
NO_ADDRESS_RETRY = 2.0  # seconds
Balancers = Mapping[bool, Json]
"""The load balancers that are there, by whether they are the internal one."""


class AzureLoadBalancers:
    """The Services of the cluster of this name."""

    supported_features = frozenset(Feature)
    privileged_annotations = frozenset(PREFIX + item for item in PRIVILEGED)

    def __init__(
        self,
        api: AzureApi,
        config: AzureConfig,
        instances: AzureInstances,
        cluster: str,
        restricts: bool = False,
    ) -> None:
        self._api, self._config, self._cluster = api, config, cluster
        self._instances = instances
        scope = config.network_scope(config.load_balancer_resource_group)
        name, empty = config.load_balancer_name or cluster, self._empty()
        self._list_path = scope.id(ids.NETWORK, "loadBalancers")
        self._resources = {
            is_internal: SharedResource(
                api, "LoadBalancer", f"{self._list_path}/{name}{suffix}", empty, plan.is_used
            )
            for is_internal, suffix in ((False, ""), (True, INTERNAL_SUFFIX))
        }
        group = config.network_scope(config.security_group_resource_group)
        path = group.id(ids.NETWORK, "networkSecurityGroups", config.security_group_name)
        self._group = SharedResource(api, "SecurityGroup", path, None)
        self._addresses = PublicAddresses(api, config, cluster, restricts)
        self._shares = not restricts
        self._members = Members(api, config)
        self._balancers = SharedRead(self._read_balancers)
        self._read_group = SharedRead(self._group.read)

    # The interface

    def name_for(self, service: Service) -> str:
        return service.default_balancer_name

    async def get(self, service: Service) -> Balancer | None:
        names, balancers = Names(self._cluster, service), await self._balancers()
        frontends = [
            frontend for found in balancers.values() for frontend in own_frontends(found, names)
        ]
        if not frontends:
            return None
        addresses = await self._addresses_of(frontends, service)
        return Balancer(names.base, tuple(Ingress(ip=address) for address in addresses))

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        request = read_request(service, self._config, self._cluster)
        with warnings_as_notes(request):
            return await self._ensure(request, nodes)

    async def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None:
        names, balancers = Names(self._cluster, service), await self._balancers()
        own = {key: item for key, item in balancers.items() if own_frontends(item, names)}
        if not own:
            raise Refused(f"Service {service.key} has no load balancer")
        if service.annotations.get(NO_FLOATING) == "true":  # the security group names machines
            await self.ensure(service, nodes)
            return
        seen, machines = self._members.writes, await self._machines(nodes, balancers)
        wanted = backends(nodes, machines, self._config)
        for is_internal in own:
            await self._join(service, is_internal, balancers, wanted, machines, seen)

    async def delete(self, service: Service) -> None:
        """The security group first, while the addresses are known; the public ones last."""
        names, balancers = Names(self._cluster, service), await self._balancers()
        owner, group = Owner(self._cluster, service.key), _group_of(service)
        listed = await self._addresses.list(group)
        frontends = [
            frontend for found in balancers.values() for frontend in own_frontends(found, names)
        ]
        addresses = {*_addresses_in(frontends, listed)}
        addresses |= {ip_of(item) for item in listed if owner.is_of(item)} - {""}
        if service.annotations.get(NO_FLOATING) == "true":
            machines = await self._machines((), balancers)
            addresses = joined_addresses(self._pools(balancers), machines.interfaces)
        with suppress(Refused):
            more = additional_ips(Annotations(service.annotations))
            addresses |= {*more} - await self._of_others(balancers, names) if more else set()
        await self._open(None, addresses, (), plan.ports_of_others(balancers, names, frontends), [])
        for is_internal, balancer in balancers.items():
            if own_frontends(balancer, names) or plan.has_parts(balancer, names):
                await self._resources[is_internal].change(lambda item: plan.remove(item, names))
        await self._addresses.release(owner, group, (), listed)

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

    async def _ensure(self, request: BalancerRequest, nodes: Sequence[Node]) -> Balancer:
        names, group = request.names, _group_of(request.service)
        seen, balancers = self._members.writes, await self._balancers()
        reads: list[Any] = await together(
            self._machines(nodes, balancers), self._addresses.list(group)
        )
        machines, listed = reads
        before = [
            frontend for found in balancers.values() for frontend in own_frontends(found, names)
        ]
        if more := additional_ips(request.annotations):
            for ip in sorted({*more} & await self._of_others(balancers, names)):
                raise Refused(f"{ip} is the address of another Service")
        public = {
            family: await self._addresses.ensure(request, family, listed)
            for family in request.public
        }
        planned = await self._plan(request, public, balancers.get(request.is_internal))
        balancer = await self._write(planned, balancers.get(request.is_internal))
        wanted = backends(nodes, machines, self._config)
        now = {**balancers, request.is_internal: balancer}
        await self._join(request.service, request.is_internal, now, wanted, machines, seen)
        addresses = [
            _address_of(planned, balancer, item, public.get(item)) for item in request.families
        ]
        stale = {*_addresses_in(before, listed)} - {*addresses}
        await self._admit(request, addresses, stale, wanted, machines, balancers, balancer)
        other = balancers.get(not request.is_internal)
        if other and (own_frontends(other, names) or plan.has_parts(other, names)):
            resource = self._resources[not request.is_internal]
            await resource.change(lambda item: plan.remove(item, names))
        used = [ids.id_of(item) for item in public.values()]
        await self._addresses.release(self._addresses.owner(request), group, used, listed)
        served = [*addresses, *additional_ips(request.annotations)]
        return Balancer(
            names.base, tuple(Ingress(ip=item) for item in served), tuple(request.warnings)
        )

    async def _plan(
        self, request: BalancerRequest, public: Mapping[str, Json], balancer: Json | None
    ) -> BalancerPlan:
        current = {
            text(frontend.get("name")).lower() for frontend in plan.frontends_of(balancer or {})
        }
        wanted = {request.names.frontend(family).lower() for family in request.families}
        has_new = request.is_internal and not wanted <= current
        return BalancerPlan(
            id=self._resources[request.is_internal].path,
            cluster=self._cluster,
            request=request,
            public={family: ids.id_of(item) for family, item in public.items()},
            subnet=f"{self._config.vnet_id}/subnets/{request.subnet}",
            zones=await self._addresses.zones() if has_new else (),
            shares=self._shares,
        )

    async def _write(self, planned: BalancerPlan, current: Json | None) -> Json:
        """The load balancer with the Service's parts; what is right is not written."""
        copy = deepcopy(current) if current else self._empty()
        planned.apply(copy)
        has_failed = current and ids.properties_of(current).get("provisioningState") == "Failed"
        if current and copy == current and not has_failed:
            return current
        resource = self._resources[planned.request.is_internal]
        return await resource.change(planned.apply, current) or {}

    async def _join(
        self,
        service: Service,
        is_internal: bool,
        balancers: Balancers,
        wanted: Mapping[str, Machine],
        machines: Machines,
        seen: int,
    ) -> None:
        """`seen` are the writes of interfaces before `machines` were read.

        Who leaves is in no rule before: afterwards no pool would show it.
        """
        pools = objects(ids.properties_of(balancers[is_internal]).get(plan.POOLS))
        for family in service.ip_families:
            version, name = 6 if family == IPV6 else 4, pool_of(self._cluster, family)
            pool = next(item for item in pools if ids.same(text(item.get("name")), name))
            if self._members.are_right(pool, wanted, version):
                continue
            left = self._members.leaving(pool, wanted, version, machines.interfaces)
            if left and plan.has_node_ports(balancers.values()):
                await self._open(None, (), left, {}, [])
            pool_id = f"{self._resources[is_internal].path}/{plan.POOLS}/{name}"
            if self._config.has_ip_pools:
                await self._members.join_by_address(pool_id, wanted, version)
            else:
                await self._members.join_by_interface(
                    pool_id, wanted, version, machines.interfaces, seen
                )

    async def _admit(
        self,
        request: BalancerRequest,
        addresses: Sequence[str],
        stale: Collection[str],
        wanted: Mapping[str, Machine],
        machines: Machines,
        balancers: Balancers,
        balancer: Json,
    ) -> None:
        """Let clients reach the Service's addresses, or the machines' where none floats."""
        if not request.is_floating:
            stale = {*stale, *addresses}
            addresses = sorted({ip for machine in wanted.values() for ip in machine.private})
        addresses = [*addresses, *additional_ips(request.annotations)]
        access = Access(request.sources, request.security_ports(), request.denies_others)
        is_off = request.annotations.is_true("disable-load-balancer-nsg-rule")
        seen = {**balancers, request.is_internal: balancer}
        kept = plan.ports_of_others(seen, request.names, own_frontends(balancer, request.names))
        machine_ips = joined_addresses(self._pools(balancers), machines.interfaces)
        warnings = request.annotations.warnings
        await self._open(None if is_off else access, addresses, stale, kept, warnings, machine_ips)

    async def _open(
        self,
        access: Access | None,
        addresses: Collection[str],
        stale: Collection[str],
        kept: Mapping[str, Collection[str]],
        warnings: list[str],
        machine_ips: Collection[str] = (),
    ) -> None:
        if not self._config.security_group_name:
            return
        group = await self._read_group()
        if group is None:
            name = self._config.security_group_name
            warnings.append(f"security group {name} is missing: no client is let in")
            return

        def edit(item: Json) -> None:
            security_group.apply(item, access, addresses, stale, kept, machine_ips)

        copy = deepcopy(group)
        edit(copy)
        if copy != group:
            await self._group.change(edit, group)

    # Reads

    async def _read_balancers(self) -> Balancers:
        listed = await self._api.list("ListLoadBalancers", self._list_path)
        paths = {item.path.lower(): is_internal for is_internal, item in self._resources.items()}
        return {paths[ids.key_of(item)]: item for item in listed if ids.key_of(item) in paths}

    async def _machines(self, nodes: Sequence[Node], balancers: Balancers) -> Machines:
        """Those in the groups of Nodes, and of what is in the cluster's pools."""
        groups = joined_groups(self._pools(balancers))
        return await self._instances.read_all(nodes, groups)

    def _pools(self, balancers: Balancers) -> list[Json]:
        """The cluster's."""
        names = {pool_of(self._cluster, family).lower() for family in (IPV4, IPV6)}
        pools = (
            pool
            for balancer in balancers.values()
            for pool in objects(ids.properties_of(balancer).get(plan.POOLS))
        )
        return [pool for pool in pools if text(pool.get("name")).lower() in names]

    async def _addresses_of(self, frontends: Sequence[Json], service: Service) -> list[str]:
        is_public = any("publicIPAddress" in ids.properties_of(frontend) for frontend in frontends)
        listed = await self._addresses.list(_group_of(service)) if is_public else ()
        return _addresses_in(frontends, listed)

    async def _of_others(self, balancers: Balancers, names: Names) -> set[str]:
        """The addresses of all frontends that are not this Service's."""
        frontends = [
            frontend
            for balancer in balancers.values()
            for frontend in plan.frontends_of(balancer)
            if frontend not in own_frontends(balancer, names)
        ]
        public = [
            ids.key_of(ids.properties_of(frontend).get("publicIPAddress")) for frontend in frontends
        ]
        groups = sorted({scope.group for item in public if (scope := ids.scope_of(item))})
        listed = [item for group in groups for item in await self._addresses.list(group)]
        return {*_addresses_in(frontends, listed)}

    def _empty(self) -> Json:
        tags = self._config.resource_tags
        found: Json = {
            "location": self._config.location,
            "sku": {"name": "Standard"},
            "properties": {},
        }
        return found | ({"tags": tags} if tags else {})


def _group_of(service: Service) -> str:
    """The resource group of its public addresses; empty for the cluster's."""
    return text(service.annotations.get(f"{PREFIX}load-balancer-resource-group")).strip()


def _addresses_in(frontends: Sequence[Json], listed: Sequence[Json]) -> list[str]:
    """The addresses of frontends, public ones by a list of those."""
    public = {ids.key_of(item): ip_of(item) for item in listed}
    found = list[str]()
    for frontend in frontends:
        properties = ids.properties_of(frontend)
        address = public.get(ids.key_of(properties.get("publicIPAddress")))
        found.append(address or text(properties.get("privateIPAddress")))
    return [item for item in found if item]


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
