"""The balancers of Services: a record for each IP family.

A balancer is known by its address, so it is ours by the marks in its configuration alone. Each has
one writer, this one: nothing but that keeps two changes of one record apart.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from ccm.cloud.interface import Instances
from ccm.cloud.json_api import verify_about
from ccm.cloud.many_members import check_members, compute
from ccm.cloud.record_balancers import Desired, RecordBalancers
from ccm.cloud.shared_read import SharedLock
from ccm.errors import CloudError, Conflict, NoRoom, NotFound, Refused
from ccm.http import path_of
from ccm.model.cloud import Balancer, Ingress, IpMode, Network, OwnedBalancer
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.model.service import Feature, Service
from ccm.providers.incus.api import IncusApi
from ccm.providers.incus.config import FORWARD, BalancerSection
from ccm.providers.incus.ids import Cluster
from ccm.providers.incus.inventory import Inventory
from ccm.providers.incus.lb import plan
from ccm.providers.incus.lb.addresses import Pools, free_addresses, is_usable
from ccm.providers.incus.lb.backends import BackendReader
from ccm.providers.incus.lb.plan import Backend, address_of
from ccm.providers.incus.lb.request import (
    SERVICE,
    SERVICE_UID,
    BalancerRequest,
    Listener,
    family_of,
    read_listeners,
    read_request,
)

MAX_TRIES = 16  # of free addresses in one reconcile: an owner that we do not see may have them


class IncusLoadBalancers(RecordBalancers[BalancerRequest]):
    """Balancers of one network, OVN's or forwards of a bridge."""

    supported_features = frozenset(
        {Feature.UDP, Feature.MIXED_PROTOCOLS, Feature.FIXED_IP, Feature.DUAL_STACK}
    )
    excludes_stopped_nodes = True

    def __init__(
        self,
        api: IncusApi,
        instances: Instances,
        inventory: Inventory,
        section: BalancerSection,
        cluster: Cluster,
    ) -> None:
        super().__init__(instances)
        self._api, self._section, self._cluster = api, section, cluster
        self._backends = BackendReader(api, inventory, section)
        self._pools = Pools(api, section)
        kind = "forwards" if section.mode == FORWARD else "load-balancers"
        self._path = path_of("networks", section.network, kind)
        self._noun = "Forward" if section.mode == FORWARD else "LoadBalancer"
        # Two creations of one address at once may both succeed, and then neither can be changed.
        self._creating = SharedLock()

    async def read_all(self) -> Sequence[Json]:
        query = {"project": self._section.project}
        listed = await self._api.get(f"List{self._noun}s", self._path, **query, recursion="1")
        if not isinstance(listed, list):
            raise CloudError(f"List{self._noun}s: the answer is not a list")
        if not listed:  # as also where the certificate has no right to the project
            await self._api.get("GetProject", path_of("projects", self._section.project))
        if len(records := objects(listed)) < len(listed):
            raise CloudError(f"List{self._noun}s: the answer has something else than records")
        return records

    def own(self, service: Service, records: Sequence[Json]) -> Sequence[Json]:
        cluster, uid = self._cluster, service.uid
        own = {
            address_of(record): record for record in records if plan.is_marked(record, cluster, uid)
        }
        counts = Counter(map(address_of, records))
        if twice := sorted(address for address in own if counts[address] > 1):
            raise CloudError(
                f"Incus has a load balancer at {twice[0]} twice, and takes no change of either: "
                "its administrator has to remove one (incus admin sql global)"
            )
        return [own[address] for address in sorted(own)]

    def owner_of(self, record: Json) -> OwnedBalancer | None:
        config = plan.config_of(record)
        uid = text(config.get(SERVICE_UID))
        if not uid or not self._cluster.owns(config):
            return None
        name = Service({"metadata": {"uid": uid}}).default_balancer_name
        return OwnedBalancer(name, uid, text(config.get(SERVICE)))

    def id_of(self, record: Json) -> str:
        return address_of(record)

    def check_service(self, service: Service) -> None:
        read_request(service, self._section, self._cluster)

    async def request(self, service: Service, own: Sequence[Json]) -> BalancerRequest:
        return read_request(service, self._section, self._cluster)

    async def desired(
        self, request: BalancerRequest, nodes: Sequence[Node], own: Sequence[Json]
    ) -> Sequence[Desired]:
        mode, listeners = self._section.mode, request.listeners
        candidates = await self._backends.read(nodes)
        request.warnings.extend(candidates.warnings)
        by_address = {address_of(item): item for item in own}
        desired = list[Desired]()
        for family in request.families:
            current = by_address.get(choose(request, family, by_address))
            backends = candidates.of_family(family, current)
            write = partial(plan.body, mode, request.config, current=current)
            content = await self._content(write, listeners, backends)
            desired.append(Desired(current, content, family, candidates.lacking))
        return desired

    async def desired_backends(self, record: Json, nodes: Sequence[Node]) -> Desired:
        try:
            listeners = read_listeners(plan.listeners_mark(record))
        except ValueError as error:
            raise Refused(f"what {address_of(record)} serves is not written in it") from error
        family = family_of(address_of(record))
        candidates = await self._backends.read(nodes)
        backends = candidates.of_family(family, record)
        write = partial(plan.with_backends, self._section.mode, record)
        content = await self._content(write, listeners, backends)
        return Desired(record, content, family, candidates.lacking)

    async def _content(
        self,
        write: Callable[[Sequence[Listener], Sequence[Backend]], Json],
        listeners: Sequence[Listener],
        backends: Sequence[Backend],
    ) -> Json:
        """What a record has to be; on OVN each port has backends of its own."""
        if self._section.mode != FORWARD:
            check_members(len(listeners), len(backends))
        return await compute(len(listeners) * len(backends), partial(write, listeners, backends))

    async def compare(self, desired: Json, record: Json) -> Json:
        size = len(objects(desired.get("backends")))
        return await compute(size, partial(self.differences, desired, record))

    def check_ready(self, record: Json) -> None:
        """Incus answers once it is done."""

    def balancer(self, request: BalancerRequest, records: Sequence[Json]) -> Balancer:
        by_address = {address_of(record): record for record in records}
        kept = [
            item for family in request.families if (item := choose(request, family, by_address))
        ]
        ingress = tuple(Ingress(ip=item, ip_mode=IpMode.VIP) for item in kept or by_address)
        name = Service({"metadata": {"uid": request.uid}}).default_balancer_name
        return Balancer(name, ingress, tuple(request.warnings))

    async def create(self, request: BalancerRequest, desired: Desired) -> Json | None:
        """None where there is no address of this family and none is needed."""
        family, wanted = desired.part, request.addresses.get(desired.part)
        async with self._creating.held():
            pools = await self._pools.of_family(family)
            if not pools and not (wanted or request.needs_all_families):
                request.warnings.append(f"no range has addresses of {family}")
                return None
            if wanted and not is_usable(wanted, pools):
                raise Refused(f"address {wanted} is in none of the ranges: {names(pools)}")
            if not wanted and (before := request.published.get(family)):
                await self._verify_not_own(request, before)
            taken = {address_of(item) for item in await self.shared_list()}
            candidates = list(islice(candidates_for(request, family, pools, taken), MAX_TRIES))
            for address in candidates:
                record = {"listen_address": address, **desired.content}
                try:
                    await self._call("Create", "POST", "", record)
                except Conflict:  # its owner is one that Incus does not show
                    continue
                return record
        if wanted:
            raise Refused(f"address {wanted} is another's")
        if len(candidates) < MAX_TRIES:
            raise NoRoom(f"no address of {family} is free in {names(pools)}")
        raise CloudError(f"{MAX_TRIES} addresses of {family} were tried, and others have them")

    async def _verify_not_own(self, request: BalancerRequest, address: str) -> None:
        """Raise for what a list lacked: the Service would get another address."""
        found = await self.look(address)
        if found and plan.is_marked(found, self._cluster, request.uid):
            raise CloudError(f"List{self._noun}s: the answer lacked the Service's own {address}")

    async def look(self, record_id: str) -> Json | None:
        path, query = self._path + path_of(record_id), {"project": self._section.project}
        try:
            found = dict(mapping(await self._api.get(f"Get{self._noun}", path, **query)))
        except NotFound:
            return None
        verify_about(f"Get{self._noun}", found, "listen_address", record_id)
        return found

    def marks_of(self, record: Json) -> Mapping[str, Any]:
        return plan.config_of(record)

    async def update(self, record: Json, changes: Json) -> Json:
        """The whole record at once: in some versions a part ends the request without an answer."""
        body = {key: record[key] for key in plan.WRITTEN if key in record} | changes
        await self._call("Update", "PUT", address_of(record), body)
        return record | changes

    async def remove(self, record: Json) -> None:
        """Success once Incus lists none; it may delete one and say that it failed."""
        await self._call("Delete", "DELETE", address_of(record))

    async def _call(self, verb: str, method: str, address: str, body: Json | None = None) -> Any:
        path = self._path + (path_of(address) if address else "")
        query = {"project": self._section.project}
        return await self._api.call(f"{verb}{self._noun}", method, path, query, body)


def choose(request: BalancerRequest, family: str, own: Mapping[str, Json]) -> str:
    """Which of its balancers a Service keeps for an IP family; empty for none of them.

    The one of the address that is asked for, that is published, or any: two are there when an
    answer was lost.
    """
    current = sorted(address for address in own if family_of(address) == family)
    if wanted := request.addresses.get(family):
        return wanted if wanted in current else ""
    published = request.published.get(family)
    return published if published in current else next(iter(current), "")


def candidates_for(
    request: BalancerRequest, family: str, pools: Sequence[Network], taken: Collection[str]
) -> Iterator[str]:
    """The address that is asked for, or the one that was published before, and free ones."""
    if wanted := request.addresses.get(family):
        yield from [] if wanted in taken else [wanted]
        return
    before = request.published.get(family, "")
    if before and before not in taken and is_usable(before, pools):
        yield before
    yield from free_addresses(pools, taken)


def names(pools: Sequence[Network]) -> str:
    return ", ".join(map(str, pools)) or "none"
