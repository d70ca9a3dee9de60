"""The balancers of Services: reads, a plan, and one write for each IP family that differs.

A balancer is known by its address, so it is ours by the marks in its configuration alone. Each has
one writer, this one: nothing but that keeps two changes of one record apart.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from ccm.cloud.shared_read import SharedRead
from ccm.errors import CloudError, Conflict, NoRoom, NotFound, Refused, RetryAfter
from ccm.http import path_of
from ccm.model.cloud import Balancer, Ingress, IpMode, Network, OwnedBalancer
from ccm.model.objects import Json, Node, objects, text
from ccm.model.service import Feature, Service
from ccm.providers.incus.api import RACE_RETRY, IncusApi
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
    family_of,
    read_listeners,
    read_request,
)

MAX_TRIES = 16  # of free addresses in one reconcile: somebody whom we do not see may have them
Records = dict[str, Json]
"""Balancers of one Service by their addresses."""


class IncusLoadBalancers:
    """Balancers of one network, OVN's or forwards of a bridge."""

    supported_features = frozenset(
        {Feature.UDP, Feature.MIXED_PROTOCOLS, Feature.FIXED_IP, Feature.DUAL_STACK}
    )
    privileged_annotations = frozenset[str]()
    excludes_stopped_nodes = True

    def __init__(
        self, api: IncusApi, inventory: Inventory, section: BalancerSection, cluster: Cluster
    ) -> None:
        self._api, self._section, self._cluster = api, section, cluster
        self._backends = BackendReader(api, inventory, section)
        self._pools = Pools(api, section)
        kind = "forwards" if section.mode == FORWARD else "load-balancers"
        self._path = path_of("networks", section.network, kind)
        self._noun = "Forward" if section.mode == FORWARD else "LoadBalancer"
        self._query = {"project": section.project}
        self._list = SharedRead(self._read_all)
        # Two creations of one address at once may both succeed, and then nobody can change either.
        self._creating = asyncio.Lock()

    def name_for(self, service: Service) -> str:
        return service.default_balancer_name

    async def get(self, service: Service) -> Balancer | None:
        own = self._own(service, await self._list())
        if not own:
            return None
        request = read_request(service, self._section, self._cluster)
        kept = [one for family in request.families if (one := choose(request, family, own))]
        return self._balancer(service, kept or sorted(own), request.warnings)

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        request = read_request(service, self._section, self._cluster)
        listed = await self._list()
        warnings, own = list(request.warnings), self._own(service, listed)
        candidates = await self._backends.read(nodes)
        kept: list[str] = []
        for family in request.families:
            backends = candidates.of_family(family)
            if there := choose(request, family, own):
                await self._update(own[there], request, backends)
                kept.append(there)
            elif made := await self._create(request, family, backends):
                kept.append(made)
            else:
                warnings.append(f"no range has addresses of {family}")
        for address in own.keys() - set(kept):
            await self._delete(address)
        warnings += candidates.warnings
        return self._balancer(service, kept, tuple(warnings))

    async def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None:
        own = self._own(service, await self._list())
        if not own:
            raise Refused(f"Service {service.key} has no load balancer")
        candidates = await self._backends.read(nodes)
        for address, there in sorted(own.items()):
            try:
                listeners = read_listeners(plan.listeners_mark(there))
            except ValueError as odd:
                raise Refused(f"what {address} serves is not written in it") from odd
            backends = candidates.of_family(family_of(address))
            await self._write(
                there, plan.with_backends(self._section.mode, there, listeners, backends)
            )

    async def delete(self, service: Service) -> None:
        """Success once Incus lists none; it may delete one and say that it failed."""
        for address in self._own(service, await self._list()):
            await self._delete(address)

    async def owned(self) -> Sequence[OwnedBalancer]:
        configs = [plan.config_of(record) for record in await self._list()]
        ours = {
            text(config.get(SERVICE_UID)): text(config.get(SERVICE))
            for config in configs
            if self._cluster.owns(config) and config.get(SERVICE_UID)
        }
        return [
            OwnedBalancer(Service({"metadata": {"uid": uid}}).default_balancer_name, uid, service)
            for uid, service in ours.items()
        ]

    # Reading

    async def _read_all(self) -> list[Json]:
        listed = await self._api.get(f"List{self._noun}s", self._path, **self._query, recursion="1")
        if not isinstance(listed, list):
            raise CloudError(f"List{self._noun}s: the answer is no list")
        if not listed:  # as also where the certificate has no right to the project
            await self._api.get("GetProject", path_of("projects", self._section.project))
        return objects(listed)

    def _own(self, service: Service, listed: Sequence[Json]) -> Records:
        cluster, uid = self._cluster, service.uid
        own = {address_of(one): one for one in listed if plan.is_marked(one, cluster, uid)}
        counts = Counter(map(address_of, listed))
        if twice := sorted(address for address in own if counts[address] > 1):
            raise CloudError(
                f"Incus has a balancer at {twice[0]} twice, and takes no change of either: its "
                "administrator has to remove one (incus admin sql global)"
            )
        return own

    def _balancer(
        self, service: Service, addresses: Sequence[str], warnings: tuple[str, ...]
    ) -> Balancer:
        ingress = tuple(Ingress(ip=one, ip_mode=IpMode.VIP) for one in addresses)
        return Balancer(self.name_for(service), ingress, warnings)

    # Writing

    async def _update(
        self, there: Json, request: BalancerRequest, backends: Sequence[Backend]
    ) -> None:
        mode, listeners = self._section.mode, request.listeners
        await self._write(there, plan.body(mode, request.config, listeners, backends, there))

    async def _write(self, there: Json, wanted: Json) -> None:
        """The whole record at once: in some versions a part ends the request without an answer."""
        if plan.is_different(wanted, there):
            path = self._path + path_of(address_of(there))
            try:
                await self._api.call(f"Update{self._noun}", "PUT", path, self._query, wanted)
            except NotFound as error:  # somebody deletes it
                raise RetryAfter(str(error), RACE_RETRY) from error

    async def _create(
        self, request: BalancerRequest, family: str, backends: Sequence[Backend]
    ) -> str:
        """The address of a new one; empty where there is none of this family and none is needed."""
        wanted = request.addresses.get(family)
        record = plan.body(self._section.mode, request.config, request.listeners, backends)
        async with self._creating:
            pools = await self._pools.of_family(family)
            if not pools and not (wanted or request.needs_all_families):
                return ""
            if wanted and not is_usable(wanted, pools):
                raise Refused(f"address {wanted} is in none of the ranges: {names(pools)}")
            taken = {address_of(one) for one in await self._list()}
            candidates = list(islice(candidates_for(request, family, pools, taken), MAX_TRIES))
            for address in candidates:
                if await self._is_created({"listen_address": address, **record}):
                    return address
        if wanted:
            raise Refused(f"address {wanted} is another's")
        if len(candidates) < MAX_TRIES:
            raise NoRoom(f"no address of {family} is free in {names(pools)}")
        raise CloudError(f"{MAX_TRIES} addresses of {family} were tried, and others have them")

    async def _is_created(self, record: Json) -> bool:
        """Whether nobody else has the address; Incus shows only some of those who may."""
        try:
            await self._api.call(f"Create{self._noun}", "POST", self._path, self._query, record)
        except Conflict:
            return False
        return True

    async def _delete(self, address: str) -> None:
        path = self._path + path_of(address)
        try:
            await self._api.call(f"Delete{self._noun}", "DELETE", path, self._query)
        except NotFound:
            return


def choose(request: BalancerRequest, family: str, own: Mapping[str, Json]) -> str:
    """Which of its balancers a Service keeps for an IP family; empty for none of them.

    The one of the address that is asked for, that is published, or any: two are there when an
    answer was lost.
    """
    there = sorted(address for address in own if family_of(address) == family)
    if wanted := request.addresses.get(family):
        return wanted if wanted in there else ""
    published = request.published.get(family)
    return published if published in there else next(iter(there), "")


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
