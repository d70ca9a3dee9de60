"""The balancers of Services: each work on one is reads, a plan, and at most one change of Octavia.

Octavia is at work on a load balancer for a while after each change; `RetryAfter` lets the worker
do something else meanwhile.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from ccm.cloud.gate import warnings_as_notes
from ccm.cloud.many_members import compute
from ccm.errors import CloudError, Refused, TakenByAnother
from ccm.model.cloud import Balancer, OwnedBalancer
from ccm.model.objects import Json, Node, objects, text
from ccm.model.service import Feature, Service, asking_for_nothing
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.config import BalancerClass, BalancerSection
from ccm.providers.openstack.ids import Cluster
from ccm.providers.openstack.lb import octavia as at_octavia
from ccm.providers.openstack.lb import plan
from ccm.providers.openstack.lb.addresses import Addresses
from ccm.providers.openstack.lb.annotations import (
    ADDRESS,
    PREFIX,
    PRIVILEGED,
    Annotations,
)
from ccm.providers.openstack.lb.backends import Backends
from ccm.providers.openstack.lb.finding import Finder
from ccm.providers.openstack.lb.members import MemberUpdates
from ccm.providers.openstack.lb.names import Names, Role, sharers
from ccm.providers.openstack.lb.networks import Networks
from ccm.providers.openstack.lb.octavia import Octavia
from ccm.providers.openstack.lb.plan import ObservedBalancer
from ccm.providers.openstack.lb.request import (
    LoadBalancerRequest,
    families_of,
    node_selector,
    read_request,
)
from ccm.providers.openstack.lb.waiting import ERROR, PENDING_DELETE

SELECTOR_READ = 16_384  # characters of a selector that are read with each change of a Service
FIXED = {
    "flavor-id": "flavor_id",
    "availability-zone": "availability_zone",
    "subnet-id": "vip_subnet_id",
    "network-id": "vip_network_id",
    "port-id": "vip_port_id",
}
"""Annotations that count when a load balancer is made, and where its record says what it got."""


class OctaviaLoadBalancers:
    """Octavia's load balancers by upstream's names, ours by the UID of their Service."""

    supported_features = frozenset(Feature)
    privileged_annotations = frozenset(PREFIX + name for name in PRIVILEGED)

    def __init__(
        self,
        api: OpenStackApi,
        config: BalancerSection,
        classes: Mapping[str, BalancerClass],
        cluster: Cluster,
        restricts_annotations: bool = False,
    ) -> None:
        self._restricts_annotations = restricts_annotations
        self._config, self._classes, self._cluster = config, classes, cluster
        self._octavia, self._networks = Octavia(api), Networks(api)
        self._addresses = Addresses(api, self._networks)
        self._backends = Backends(api, self._networks, config.manage_security_groups)
        self._finder = Finder(self._octavia, self._addresses, cluster, restricts_annotations)
        self._members = MemberUpdates(self._octavia, self._backends, self._finder)

    def name_for(self, service: Service) -> str:
        return self._names(service).balancer

    def check_service(self, service: Service) -> None:
        self._read(service)

    def selector_labels(self, service: Service) -> Collection[str]:
        return node_selector(Annotations(service), self._config, SELECTOR_READ).keys()

    async def get(self, service: Service) -> Balancer | None:
        """By its marks, as what it names may not be what it is on."""
        try:
            request = self._read(service)
        except Refused:
            request = self._read(asking_for_nothing(service))
        try:
            every = await self._finder.all_of(service)
        except at_octavia.NotOwned:
            return None
        if not every:
            return None
        found, names = [item.record for item in every], self._names(service)
        shared = [item for item in every if item.role is Role.SHARER]
        listening = [await self._octavia.with_listeners(item) for item in shared]
        is_contested = any(item.is_contested(names, service.sockets) for item in listening)
        kept = [item for item in found if item.get("provisioning_status") != PENDING_DELETE]
        addresses = [item for it in kept for item in await self._addresses.of(request, it)]
        balancer = self._balancer(request, (kept or found)[0], addresses)
        return replace(balancer, is_contested=is_contested)

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        """As the interface; `RetryAfter` follows each change that Octavia needs time for."""
        request = self._read(service)
        if self._members.is_deleting(service.uid):  # what is made now is another one
            await self.delete(service)
        with warnings_as_notes(request.annotations):
            found, others = await self._members.find(request)
            await self._leave(request.names, others)
            if found is None:
                if service.ingress:
                    ports = await self._addresses.ports(service, request.names)
                    await self._octavia.verify_none(request.names, ports)
                await self._create(request, nodes)
            if found.role is Role.SHARER:  # before all that may take long, or fail
                current = await self._octavia.with_listeners(found)
                plan.check_ports(request.names, request.node_ports(), current)
            self._octavia.waiting.check(found.record)
            await self._check_error(request, found, is_new=not service.ingress)
            request = self._with_families_of(found.record, request)
            return await self._ensure(request, found, nodes)

    async def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None:
        await self._members.update(self._read(service), nodes)

    async def delete(self, service: Service) -> None:
        """Success once Octavia says that it is gone; what else was made for it goes after it."""
        names, uid = self._names(service), service.uid
        is_asked = service.annotations.get(f"{PREFIX}keep-floatingip") == "true"
        keeps = is_asked and not self._restricts_annotations
        ports = {text(service.annotations.get(f"{PREFIX}port-id"))}
        if self._members.is_deleting(uid):
            ports.add(await self._members.deleted_port(uid))
        else:
            self._members.forget(uid)
            all_of_it = await self._finder.all_of(service)
            for found in all_of_it:
                if call := await self._detach_service(names, found):
                    if plan.is_deletion(call) and len(all_of_it) == 1:
                        await self._backends.close(names)
                        self._members.begin_deletion(uid, found.record)
                    self._octavia.waiting.retry_when_done(found.id)
            self._octavia.check_answered(names)
            await self._backends.close(names)
        await self._addresses.release(names, keeps, ports)
        self._members.forget(uid)

    async def owned(self) -> Sequence[OwnedBalancer]:
        records = await self._octavia.of_cluster(self._cluster)
        return [
            OwnedBalancer(text(record.get("name")), at_octavia.service_uid_of(record))
            for record in records
        ]

    # Reading

    def _names(self, service: Service) -> Names:
        return Names.of(service, self._cluster)

    def _read(self, service: Service, families: tuple[str, ...] = ()) -> LoadBalancerRequest:
        return read_request(service, self._config, self._classes, self._cluster, families)

    def _with_families_of(self, record: Json, request: LoadBalancerRequest) -> LoadBalancerRequest:
        """The same for the address families that the load balancer was created with."""
        service, current = request.annotations.service, at_octavia.families_of(record)
        if {*families_of(service)} <= {*current} or not current:
            return request
        lacking = ", ".join(sorted({*families_of(service)} - {*current}))
        why = f"the load balancer was created without {lacking}; recreate the Service to get it"
        if request.must_be_dual or not {*families_of(service)} & {*current}:
            raise Refused(why)
        kept, request = request.annotations.warnings, self._read(service, current)
        return replace(request, annotations=replace(request.annotations, warnings=[*kept, why]))

    # Acting

    async def _create(self, request: LoadBalancerRequest, nodes: Sequence[Node]) -> NoReturn:
        """Make the load balancer; while Octavia is at work it gets its address, and is let in."""
        where, request = await self._addresses.place(request, nodes, self._read)
        subnet_id = text(where.get("vip_subnet_id"))
        backends = await self._backends.of(request, nodes, subnet_id)
        members = await backends.by_port(request)
        listeners = tuple(request.listeners(members))
        is_whole = not self._config.provider_requires_serial_api_calls
        creation = await compute(
            backends.count(request),
            lambda: plan.creation(request.names, listeners, where, is_whole),
        )
        record, opened = await asyncio.gather(
            self._octavia.create(request.names, creation),
            self._backends.open(request, backends, subnet_id),
            return_exceptions=True,
        )
        if isinstance(record, BaseException):
            raise record
        made = ObservedBalancer(record, Role.OWNER, objects(record.get("listeners")))
        self._members.remember(request, made, members)
        if opened is None and subnet_id == text(record.get("vip_subnet_id")):
            self._members.opened(request, backends)
        addresses = await self._addresses.ensure(request, record, Role.OWNER)
        await self._members.open(request, backends)
        if is_whole:
            self._members.created(request, addresses)
        self._octavia.waiting.retry_when_done(made.id)

    async def _ensure(
        self, request: LoadBalancerRequest, found: ObservedBalancer, nodes: Sequence[Node]
    ) -> Balancer:
        names, vip_subnet_id = request.names, text(found.record.get("vip_subnet_id"))
        if addresses := await self._members.complete(request, nodes):
            return self._balancer(request, found.record, addresses)
        backends = await self._backends.of(request, nodes, vip_subnet_id)
        listeners = tuple(request.listeners(await backends.by_port(request)))
        self._check_share(request, found)
        observed = await self._octavia.with_parts(found, names)
        steps = plan.plan(names, listeners, observed)
        if call := await compute(backends.count(request), lambda: next(steps, None)):
            await self._octavia.change(found.record, call)
            self._octavia.waiting.retry_when_done(found.id)
        self._members.remember(request, observed, {})
        addresses = await self._addresses.ensure(request, found.record, found.role)
        await self._members.open(request, backends)
        if found.role is Role.SHARER:
            marked = await self._octavia.by_marks(names)
            every = [ObservedBalancer(record, names.role_of(record)) for record in marked]
            await self._leave(names, [other for other in every if other.id != found.id])
        return self._balancer(request, found.record, addresses)

    def _balancer(
        self, request: LoadBalancerRequest, record: Json, addresses: Sequence[str]
    ) -> Balancer:
        for name, key in FIXED.items():
            asked, current = request.annotations.text(name), text(record.get(key))
            if asked and asked != current and not request.balancer_id:
                why = f"the load balancer has {current or 'none'}, which cannot be changed after"
                request.annotations.ignore(name, f"{why} creation; recreate the Service")
        warnings = tuple(dict.fromkeys(request.annotations.warnings))
        shown = {PREFIX + ADDRESS: addresses[0]} if addresses else {}
        made = Balancer(text(record.get("name")), request.ingress(addresses), warnings, shown)
        return replace(made, is_shared=request.names.role_of(record) is Role.SHARER)

    def _check_share(self, request: LoadBalancerRequest, found: ObservedBalancer) -> None:
        """Raise `Refused` when the Service may not be on a load balancer of another.

        Nodes lead clients of its address to each port of the Service, also to one without listener.
        """
        current, names = sharers(found.record), request.names
        if found.role is Role.OWNER:
            return
        name = text(found.record.get("name"))
        if len(request.ports) < len(request.annotations.service.ports):
            why = f"load balancer {name} is another's: there each port needs a node port"
            raise TakenByAnother(why)
        if names.is_on(found.record):
            return
        if len(current) >= self._config.max_shared_lb:
            raise Refused(
                f"load balancer {name} is shared by {len(current)} Services (max-shared-lb)"
            )
        if current and request.is_internal:
            raise Refused(f"an internal Service cannot share load balancer {name}")

    async def _check_error(
        self, request: LoadBalancerRequest, found: ObservedBalancer, *, is_new: bool
    ) -> None:
        """Raise when Octavia has failed; repaired is what is not yet used, or on request."""
        if found.record.get("provisioning_status") != ERROR:
            return
        what, names = f"load balancer {found.id} is in ERROR: see Octavia's log", request.names
        is_own = plan.is_deletable(names, found) and names.owns(found.record)
        if is_own and (is_new or request.on_error == "recreate"):
            for call in plan.plan_deletion(names, found, True):
                await self._octavia.change(found.record, call)
            raise CloudError(f"{what}; it is deleted and will be recreated")
        if found.role is Role.OWNER and request.on_error == "failover":
            await self._octavia.change(found.record, plan.failover(found))
            self._octavia.waiting.retry_when_done(found.id)
        raise CloudError(f"{what}, or annotate the Service with {PREFIX}on-error=failover")

    async def _detach_service(self, names: Names, found: ObservedBalancer) -> ApiCall | None:
        """Make the next call that takes a Service off a load balancer; None when all are made."""
        self._octavia.waiting.check(found.record)
        is_cascade = self._config.cascade_delete
        if not (is_cascade and plan.is_deletable(names, found)):
            found = await self._octavia.with_parts(found, names)
        call = next(plan.plan_deletion(names, found, is_cascade), None)
        if call is None:
            return None
        if plan.is_deletion(call):
            await self._addresses.mark(names, found.record)
        await self._octavia.change(found.record, call)
        return call

    async def _leave(self, names: Names, others: Sequence[ObservedBalancer]) -> None:
        """Take a Service off these load balancers; `RetryAfter` follows each change."""
        for other in others:
            if await self._detach_service(names, other):
                self._octavia.waiting.retry_when_done(other.id)
