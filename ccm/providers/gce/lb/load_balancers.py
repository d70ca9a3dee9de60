"""The load balancers of Services: all parts are read, compared, and written in an order that lets a
repetition finish what was broken off. The forwarding rule is made last and deleted first; only
firewalls are closed before it, and that of an internal address is opened after it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from ccm.cloud.gate import warnings_as_notes
from ccm.cloud.lookup import together
from ccm.cloud.present_nodes import PresentNodes
from ccm.cloud.shared_read import SharedRead
from ccm.errors import (
    CloudError,
    Denied,
    ImplementedElsewhere,
    NotFound,
    Refused,
)
from ccm.model.cloud import Balancer, Ingress, OwnedBalancer
from ccm.model.objects import Json, Node, text
from ccm.model.service import Feature, Service, Socket
from ccm.providers.gce import ids
from ccm.providers.gce.api import GceApi
from ccm.providers.gce.config import SUBSETS, GlobalSection
from ccm.providers.gce.ids import last_part
from ccm.providers.gce.instances import GceInstances
from ccm.providers.gce.lb import addresses, design
from ccm.providers.gce.lb.backends import BackendServices, TargetPools, paths_of
from ccm.providers.gce.lb.names import (
    CLUSTER_KEY,
    CONFIG_MAP,
    OWN_NAME,
    SERVICE_KEY,
    UID_KEY,
    Names,
    described,
)
from ccm.providers.gce.lb.observed import (
    ADDRESS,
    CHECK,
    FIREWALL,
    HTTP_CHECK,
    POOL,
    RULE,
    SERVICE,
    Kind,
    Observed,
    Work,
)
from ccm.providers.gce.lb.parts import HeldAddresses, Parts
from ccm.providers.gce.lb.request import (
    PRIVILEGED,
    BalancerRequest,
    check_served,
    read_request,
)
from ccm.providers.gce.lb.shared import SharedParts, check_kind

DECIDING = (
    *("loadBalancingScheme", "networkTier", "network", "subnetwork"),
    *("IPProtocol", "ports", "allPorts", "portRange", "target", "backendService"),
)
"""What of a rule has it made again where it is another."""
GATHER = 0.1  # seconds in which Services that come together join the next read


class GceLoadBalancers:
    """Network load balancers of one region, by upstream's names and descriptions."""

    supported_features = frozenset(
        {Feature.UDP, Feature.SOURCE_RANGES, Feature.SESSION_AFFINITY, Feature.FIXED_IP}
    )
    privileged_annotations = PRIVILEGED

    def __init__(
        self,
        api: GceApi,
        section: GlobalSection,
        instances: GceInstances,
        cluster_id: Callable[[], Awaitable[str]],
    ) -> None:
        self._api, self._section, self._instances = api, section, instances
        self._cluster_id, self._parts = cluster_id, Parts(api)
        self._addresses = HeldAddresses(self._parts)
        self._pools = TargetPools(api, self._parts)
        self._services = BackendServices(api, self._parts)
        self._present = PresentNodes(instances)
        self._read = SharedRead(self._read_all)
        self._shared = SharedParts(self._parts, self._services)
        self._in_use = dict[str, str]()  # addresses, by the names of load balancers
        self._served = dict[str, frozenset[Socket]]()  # what each was last made to serve

    # The interface

    def name_for(self, service: Service) -> str:
        return service.default_balancer_name

    async def get(self, service: Service) -> Balancer | None:
        work = await self._look(service)
        own = work.rule if work.rule and work.names.is_own(work.rule) else None
        return _balancer(work.names, own) if own else None

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        """As the interface; `RetryAfter` while an operation takes long."""
        async with self._shared.kept_for(service):
            return await self._present.ensure(partial(self._ensure_all, service), nodes)

    async def _ensure_all(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        work = await self._look_up(service)
        request = read_request(service, work.place)
        await self._verify_listed(service, work)
        self._served.pop(work.names.balancer, None)  # a part of it may be done
        with warnings_as_notes(request):
            if work.is_there and work.is_internal != request.is_internal:
                await self._verify_whole(work)
                await self._delete(work)
                work = await self._look(service)
            rule = await self._ensure(work, request, nodes)
        self._served[work.names.balancer] = service.proxied
        return _balancer(work.names, rule, tuple(request.warnings))

    async def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None:
        await self._present.update(partial(self._update_all, service), nodes)

    async def _update_all(self, service: Service, nodes: Sequence[Node]) -> None:
        work = await self._look_up(service)
        if work.rule is None:
            raise Refused(f"Service {service.key} has no load balancer")
        await self._close_given_up(service, work)
        paths = paths_of(nodes, work.place)
        if work.is_internal:
            if not (name := work.used_backend):
                other = last_part(text(work.rule.get("backendService")))
                why = f"the rule leads to backend service {other}, which is not the Service's"
                raise CloudError(f"{why}: it is not changed")
            if not (backend := work.observed.get(SERVICE, name)):
                raise CloudError(f"regionBackendServices.list: the answer lacks {name}")
            update = self._services.set_backends(work.place, work.names, backend, paths)
            await self._present.write(update)
        elif pool := work.own(POOL):
            update = self._pools.set_instances(work.place, pool, paths)
            await self._present.write(update)
        else:
            raise CloudError(f"targetPools.list: the answer lacks {work.names.balancer}")

    async def _close_given_up(self, service: Service, work: Work) -> None:
        """Take ports from the firewall that nodes do not serve for the Service any more.

        One list may lack ports, or be from before a change: two have to agree, and none counts
        about what this process has made so.
        """
        current, names = work.firewall, work.names
        left = design.without_given_up(current, service)
        is_done = self._served.get(names.balancer) == service.proxied
        if is_done or not design.changes(left, current):
            return
        if (await self._look(service)).firewall != current:
            raise CloudError(f"firewalls.list: two answers about {names.firewall} differ")
        try:
            if left["allowed"]:
                await self._parts.ensure(work.place, FIREWALL, left, current, [])
            else:
                await self._parts.delete(work.place, FIREWALL, names.firewall)
        except Refused as error:  # it is tried again: the Service may never change
            raise CloudError(str(error)) from error

    async def withdraw(self, service: Service) -> None:
        """Packets arrive at the load balancer's address, and at no node port."""

    async def delete(self, service: Service) -> None:
        self._in_use.pop(service.default_balancer_name, None)
        self._served.pop(service.default_balancer_name, None)
        work = await self._look(service)
        # What we made is ours, whichever controller the tenant names.
        if not (work.is_marked or work.is_begun):
            self._check(service, work)
        await self._delete(work)

    async def owned(self) -> Sequence[OwnedBalancer]:
        """Those that say so: of upstream's, nothing proves whose cluster they are."""
        observed, cluster_id = await self._read(), await self._cluster_id()
        marked = ((text(rule.get("name")), described(rule)) for rule in observed.all(RULE))
        return [
            OwnedBalancer(name, said.get(UID_KEY, ""), said.get(SERVICE_KEY, ""))
            for name, said in marked
            if OWN_NAME.fullmatch(name) and said.get(CLUSTER_KEY) == cluster_id
        ]

    # Reading

    async def _read_all(self) -> Observed:
        await asyncio.sleep(GATHER)
        return Observed(await self._api.place(), await self._parts.read())

    async def _look(self, service: Service) -> Work:
        names = Names.of(service, await self._cluster_id())
        observed = await self._read()
        return Work(observed.place, names, observed)

    async def _look_up(self, service: Service) -> Work:
        """As `_look` and `_check`; of one that is another controller's by now, what nodes do not
        serve any more is closed: the other does not know the firewall.
        """
        work = await self._look(service)
        try:
            self._check(service, work)
        except ImplementedElsewhere:
            if work.names.is_own(work.firewall):
                await self._close_given_up(service, work)
            raise
        return work

    def _check(self, service: Service, work: Work) -> None:
        """Raise for Services of another controller, and for parts that are not the Service's."""
        is_there = work.rule is not None
        check_served(service, SUBSETS in self._section.alpha_features, is_there)
        for kind in (RULE, POOL, SERVICE, ADDRESS):
            if (part := work.own(kind)) and not work.names.is_own(part):
                cluster_id = described(part).get(CLUSTER_KEY, work.names.cluster_id)
                if cluster_id != work.names.cluster_id:
                    raise Refused(
                        f"{kind.collection} {work.names.balancer} is of the cluster {cluster_id}: "
                        f"if it is this one's, write its ID to the ConfigMap {CONFIG_MAP}"
                    )
                raise Refused(
                    f"{kind.collection} {work.names.balancer} is not described as that of Service "
                    f"{service.key}: it is not changed; delete it, or give it the description "
                    f"{work.names.description}"
                )

    async def _verify_listed(self, service: Service, work: Work) -> None:
        """Raise where a list lacks the rule of a published Service, or the rule's address.

        Its clients would be cut off, and it would get another address.
        """
        lacks = f"forwardingRules.list: the answer lacks {work.names.balancer}"
        if work.rule is None and service.ingress:
            with suppress(NotFound, Denied):  # a role of before lacks this right
                await self._parts.get(work.place, RULE, work.names.balancer)
                raise CloudError(lacks)
        if work.rule and not work.rule.get("IPAddress"):
            raise CloudError(f"{lacks}'s address")

    async def _verify_whole(self, work: Work) -> None:
        """Raise where a list lacks a part of the rule, before it goes and is made again.

        By it the rule may be of another kind, whose address is another as well.
        """
        if listed := work.rule:
            with suppress(NotFound, Denied):  # a role of before lacks this right
                rule = await self._parts.get(work.place, RULE, work.names.balancer)
                if lacking := [key for key in DECIDING if rule.get(key) and not listed.get(key)]:
                    raise CloudError(f"forwardingRules.list: the answer lacks {lacking[0]}")

    # Making

    async def _ensure(self, work: Work, request: BalancerRequest, nodes: Sequence[Node]) -> Json:
        """The forwarding rule, once all parts are as asked for."""
        place, names = work.place, work.names
        tier = addresses.tier_of(request, work.rule or work.own(ADDRESS))
        self._in_use.pop(names.balancer, None)  # who is refused another one holds none
        if wanted := addresses.requested_ip(work.observed, names, request, tier, self._in_use):
            self._in_use[names.balancer] = wanted
        rule, address = await self._addresses.kept(work, request, tier)
        pool = work.own(POOL)
        must_replace_pool = pool is not None and self._pools.must_be_replaced(request, pool)
        current = text(rule.get("IPAddress") if rule else (address or {}).get("address"))
        self._in_use[names.balancer] = wanted or current
        backend = self._api.url_of(self._backend(work, request))
        desired = design.rule(names, request, place, wanted or current, tier, backend)
        is_right = (
            bool(rule) and not must_replace_pool and design.is_rule_right(desired, rule or {})
        )
        if not is_right:
            await self._verify_whole(work)
            body = design.address(names, request, desired["IPAddress"], tier)
            if address := await self._addresses.hold(work, address, body):
                desired["IPAddress"] = text(address.get("address"))
        firewall, probes = await self._firewalls(work, request, desired["IPAddress"], nodes)
        # An internal address may be one of another network: by the rule, Google says it is not.
        is_proven = not request.is_internal or (rule or {}).get("IPAddress") == desired["IPAddress"]
        if work.firewall and not is_proven:
            await self._parts.delete(place, FIREWALL, names.firewall)
        check = await self._ensure_around(work, request, probes, firewall if is_proven else None)
        if work.rule and not is_right:
            await self._parts.delete(place, RULE, names.balancer)
        if work.rule and not rule:
            request.warnings.append("its network is another one now: so is its address")
        if must_replace_pool:
            await self._parts.delete(place, POOL, names.balancer)
            pool = None
        paths = paths_of(nodes, place)
        if request.is_internal:
            write = self._services.ensure(place, names, request, work.observed, check, paths)
        else:
            write = self._pools.ensure(place, names, request, pool, check, paths)
        await self._present.write(write)
        if not is_right:
            await self._parts.create(place, RULE, desired)
        if not is_proven:
            await self._parts.ensure(place, FIREWALL, firewall, None, request.warnings)
        if address:
            await self._parts.delete(place, ADDRESS, names.balancer)
        await self._clean_up(work, request)
        return rule if rule and is_right else desired

    def _backend(self, work: Work, request: BalancerRequest) -> str:
        if not request.is_internal:
            return self._pools.path(work.place, work.names)
        return work.place.regional(SERVICE.collection, self._services.name(work.names, request))

    async def _firewalls(
        self, work: Work, request: BalancerRequest, ip: str, nodes: Sequence[Node]
    ) -> tuple[Json, Json]:
        """The firewall of the Service's traffic, and that of the probes.

        Where an instance was not listed, as its zone may be unreachable, no tag leaves a firewall.
        """
        tags, are_all = await self._tags(nodes, request.warnings)
        firewall = design.firewall(work.names, request, work.place, ip, tags)
        probes = design.check_firewall(work.names, request, work.place, ip, tags)
        for desired in (firewall, probes):
            current = work.observed.get(FIREWALL, desired["name"])
            if current and not are_all:
                desired["targetTags"] = sorted({*tags, *(current.get("targetTags") or ())})
        return firewall, probes

    async def _ensure_around(
        self, work: Work, request: BalancerRequest, probes: Json, firewall: Json | None
    ) -> str:
        """The firewalls and the health check; the path of the check."""
        place, names, observed = work.place, work.names, work.observed
        check, kind = design.health_check(names, request), check_kind(request.is_internal)

        async def ensure(kind: Kind, desired: Json) -> None:
            current = observed.get(kind, desired["name"])
            await self._parts.ensure(place, kind, desired, current, request.warnings)

        own = [ensure(FIREWALL, firewall)] if firewall else []
        await together(*own, ensure(kind, check), ensure(FIREWALL, probes))
        return f"projects/{place.project}/global/{kind.collection}/{check['name']}"

    async def _tags(self, nodes: Sequence[Node], warnings: list[str]) -> tuple[Sequence[str], bool]:
        """Network tags of the Nodes: those of the file, else for each instance the longest tag that
        its name begins with. An instance without one is left out, unless none has one.

        False where an instance is not listed, or without such a tag.
        """
        if self._section.node_tags:
            return sorted(self._section.node_tags), True
        listing, tags, lacking = await self._instances.read(nodes), set[str](), list[str]()
        are_all = True
        for ref in filter(None, (ids.instance_of(node.provider_id) for node in nodes)):
            machine = listing.by_id.get(ref)
            fitting = [tag for tag in machine.tags if ref.name.startswith(tag)] if machine else []
            are_all &= bool(fitting)
            if fitting:
                tags.add(max(fitting, key=len))
            elif machine:
                lacking.append(str(machine))
        if lacking:
            warnings.append(
                f"instance {lacking[0]} has no network tag that its name begins with: "
                "set node-tags in [global] to a tag that all Nodes have"
            )
        if not tags:
            no_node = "there is no Node to take network tags from: set node-tags"
            raise CloudError(warnings[-1] if lacking else no_node)
        return sorted(tags), are_all

    async def _clean_up(self, work: Work, request: BalancerRequest) -> None:
        """Take away the health check of the other policy, and a backend that is no longer used."""
        kind = check_kind(request.is_internal)
        if request.is_local:
            await self._shared.delete(work, kind)
        elif work.own(kind):
            await self._shared.delete_check(work, kind, is_local=True)
        backend, before = self._services.name(work.names, request), work.used_backend
        if request.is_internal and before and before != backend:
            await self._parts.delete(work.place, SERVICE, before)

    # Deleting

    async def _delete(self, work: Work) -> None:
        """What is referred to goes after what refers to it; each part is looked for by itself.

        Google may give the rule's address to the next machine: nothing is open to it by then.
        """
        place, names = work.place, work.names
        used, firewalls = work.used_backend, [(FIREWALL, item) for item in names.own_firewalls]
        backends = [(RULE, names.balancer), (POOL, names.balancer), (SERVICE, names.balancer)]
        backends += [(SERVICE, used)] if used != names.balancer else []
        for kind, name in (*firewalls, *backends):
            if not work.observed.get(kind, name) or await self._parts.delete(place, kind, name):
                continue
            if kind in (POOL, SERVICE) and name == names.balancer:  # a list may lack its rule
                raise CloudError(f"{kind.collection} {name} is in use: its rule is not listed")
        await self._shared.delete(work, HTTP_CHECK)
        had_groups = work.is_internal or work.own(CHECK) is not None
        await self._shared.delete(work, CHECK, had_groups=had_groups)
        for kind in (HTTP_CHECK, CHECK, ADDRESS):
            if work.own(kind):
                await self._parts.delete(place, kind, names.balancer)


def _balancer(names: Names, rule: Json, warnings: tuple[str, ...] = ()) -> Balancer:
    return Balancer(names.balancer, (Ingress(ip=text(rule.get("IPAddress"))),), warnings)
