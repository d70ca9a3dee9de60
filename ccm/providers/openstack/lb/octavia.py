"""Octavia's records: found, read with their parts, waited for, and changed call by call."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ccm.cloud.json_api import verify_about
from ccm.cloud.lookup import batches
from ccm.cloud.shared_read import SharedLock
from ccm.errors import CloudError, Conflict, NotFound, Refused, RetryAfter, Unanswered
from ccm.model.cloud import UUID
from ccm.model.objects import Json, mapping, objects, objects_with, text
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.ids import Cluster
from ccm.providers.openstack.lb import plan
from ccm.providers.openstack.lb.names import (
    CLUSTER_TAG,
    CLUSTER_UID_TAG,
    OWNER_TAG,
    Names,
    Role,
    tags_of,
)
from ccm.providers.openstack.lb.plan import ROOT, ObservedBalancer, read_members
from ccm.providers.openstack.lb.request import IPV4, IPV6, Member
from ccm.providers.openstack.lb.waiting import ACTIVE, ERROR, LONGEST, Waiting
from ccm.providers.openstack.neutron import VALUES_PER_CALL

LB = "load-balancer"
RACE_RETRY = 1.0  # seconds until what went away meanwhile is read again
PENDING_KEPT = 0.5  # seconds for which a look that found something at work is good for all
READY_KEPT = 5.0  # seconds for one that found it done
UNANSWERED = 120.0  # seconds after which what was not answered is made again
DELETED = "DELETED"
UUID_LENGTH = 36
LINKS = "protocol", "protocol_port", "default_pool_id", "healthmonitor_id", "loadbalancers"


class Octavia:
    """The load balancers of the project; while one is at work, `RetryAfter` is raised."""

    def __init__(self, api: OpenStackApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock, self.waiting = api, clock, Waiting(clock)
        self._seen: dict[str, Json] = {}  # by ID, the last list of those at work
        self._seen_at = self._seen_until = 0.0  # when it was asked for, and answered
        self._looking = SharedLock()
        self._unanswered: dict[str, float] = {}  # creations, by the UID of their Services

    # Finding

    async def by_id(self, balancer_id: str) -> Json | None:
        """The load balancer of this ID, unless it is gone."""
        path = f"{ROOT}/loadbalancers/{balancer_id}"
        try:
            answer = await self._api.get("GetLoadBalancer", LB, path)
        except NotFound:
            found: Json = {}
        else:
            found = dict(mapping(answer.get("loadbalancer")))
            if text(found.get("id")) != balancer_id:
                raise CloudError("GetLoadBalancer: the answer lacks loadbalancer")
        if found and found.get("provisioning_status") != DELETED:
            return found
        self.waiting.end(balancer_id)
        return None

    async def look(self, balancer_id: str) -> Json | None:
        """As `by_id`; where several are waited for, one list has them all.

        That a list lacks one does not prove that it is gone: it is asked for by its ID then.
        """
        async with self._looking.held():  # who comes meanwhile finds what is read
            tags = self.waiting.tags()
            if len(tags) > 1 and balancer_id in tags:
                if not self._has_seen(balancer_id):
                    await self._list(sorted(set(tags.values())))
                if found := self._seen.get(balancer_id):
                    return found
        return await self.by_id(balancer_id)

    def _has_seen(self, balancer_id: str) -> bool:
        """Whether the last list is recent and has what was begun last."""
        state = text(self._seen.get(balancer_id, {}).get("provisioning_status"))
        kept = READY_KEPT if state in (ACTIVE, ERROR) else PENDING_KEPT
        is_newer = self.waiting.since(balancer_id) <= self._seen_at
        return is_newer and self._clock() <= self._seen_until + kept

    async def _list(self, tags: Sequence[str]) -> None:
        self._seen_at, self._seen = self._clock(), {}
        for some in batches(tags, VALUES_PER_CALL):
            listed = await self._find(**{"tags-any": ",".join(some)})
            self._seen |= {text(item.get("id")): item for item in listed}
        self._seen_until = self._clock()

    async def by_name(self, name: str) -> list[Json]:
        """Those of this name, of any owner; the oldest first."""
        return objects_with(await self._find(name=name), "name", name)

    async def by_marks(self, names: Names) -> list[Json]:
        """Those that carry a mark of this Service."""
        marks = names.owner_tag, names.sharer_tag
        found = await self._find(**{"tags-any": ",".join(marks)})
        marked = [item for item in found if not tags_of(item).isdisjoint(marks)]
        if any(map(names.owns, marked)):
            self._unanswered.pop(names.uid, None)  # here it is
        return marked

    async def verify_none(self, names: Names, ports: Iterable[Json]) -> None:
        """Raise `CloudError` where one of these ports is of the Service's own, which no list has.

        Octavia and its drivers end a port's name with the ID of its load balancer.
        """
        for port in ports:
            balancer_id = text(port.get("name"))[-UUID_LENGTH:]
            record = await self.by_id(balancer_id) if UUID.fullmatch(balancer_id) else None
            if record and names.owns(record):
                raise CloudError(f"Octavia does not list {names.balancer}, but has {balancer_id}")

    async def of_cluster(self, cluster: Cluster) -> list[Json]:
        """Those that carry the mark of this cluster: its UID, or its name where none is known."""
        by_uid = f"{CLUSTER_UID_TAG}{cluster.uid}" if cluster.uid else ""
        mark = by_uid or f"{CLUSTER_TAG}{cluster.name}"
        return [item for item in await self._find(tags=mark) if mark in tags_of(item)]

    async def _find(self, **query: str) -> list[Json]:
        path = f"{ROOT}/loadbalancers"
        query["project_id"] = await self._api.project_id()
        found = await self._api.pages("ListLoadBalancers", LB, path, "loadbalancers", **query)
        current = [item for item in found if item.get("provisioning_status") != DELETED]
        return sorted(
            current, key=lambda item: (text(item.get("created_at")), text(item.get("id")))
        )

    # Reading

    async def with_listeners(self, observed: ObservedBalancer) -> ObservedBalancer:
        """The same with its listeners, those of others included."""
        listed = await self._parts("listeners", observed)
        found = [await self._tagged(item, observed) for item in listed]
        return replace(observed, listeners=found)

    async def _parts(self, kind: str, observed: ObservedBalancer) -> list[Json]:
        """Its listeners or pools; where others have some, two lists have to agree.

        One may mix up whose they are, and another's would be changed or deleted.
        """
        path, operation = f"{ROOT}/{kind}", f"List{kind.title()}"
        lists = [
            await self._api.pages(operation, LB, path, kind, loadbalancer_id=observed.id)
            for _ in range(1 + observed.is_shared)
        ]
        if _links(lists[0]) != _links(lists[-1]):
            raise CloudError(f"{operation}: two answers about {observed.id} differ")
        return _parts_of(observed.id, lists[0])

    async def _tagged(self, listener: Json, observed: ObservedBalancer) -> Json:
        """A listener with its tags: without any it would be the owner's, and not another's.

        A list may lack them. Where the load balancer has none, there were none yet.
        """
        is_unclear = observed.role is Role.OWNER and tags_of(observed.record)
        if tags_of(listener) or not is_unclear:
            return listener
        listener_id = text(listener.get("id"))
        answer = await self._api.get("GetListener", LB, f"{ROOT}/listeners/{listener_id}")
        found = dict(mapping(answer.get("listener")))
        verify_about("GetListener", found, "id", listener_id)
        return found

    async def with_parts(self, observed: ObservedBalancer, names: Names) -> ObservedBalancer:
        """The same with all that is this Service's."""
        try:
            return await self._with_parts(observed, names)
        except NotFound as error:
            raise RetryAfter(f"a part went away meanwhile: {error}", RACE_RETRY) from error

    async def _with_parts(self, observed: ObservedBalancer, names: Names) -> ObservedBalancer:
        observed = await self.with_listeners(observed)
        pools = {text(item.get("id")): item for item in await self._parts("pools", observed)}
        observed = replace(observed, pools=pools)
        members, monitors = dict[str, frozenset[Member]](), dict[str, Json]()
        for listener in observed.own_listeners(names):
            if pool := observed.pool_of(listener):
                pool_id, monitor_id = text(pool.get("id")), text(pool.get("healthmonitor_id"))
                if pool.get("members"):
                    members[pool_id] = await self._members(pool_id)
                if monitor_id:
                    monitors[pool_id] = await self._monitor(monitor_id)
        return replace(observed, members=members, monitors=monitors)

    async def _members(self, pool_id: str) -> frozenset[Member]:
        path = f"{ROOT}/pools/{pool_id}/members"
        return read_members(await self._api.pages("ListMembers", LB, path, "members"))

    async def _monitor(self, monitor_id: str) -> Json:
        path = f"{ROOT}/healthmonitors/{monitor_id}"
        answer = await self._api.get("GetHealthMonitor", LB, path)
        found = dict(mapping(answer.get("healthmonitor")))
        verify_about("GetHealthMonitor", found, "id", monitor_id)
        return found

    async def tree(self, balancer_id: str) -> Json | None:
        """States of a load balancer and of all its parts, members included, in one answer."""
        path = f"{ROOT}/loadbalancers/{balancer_id}/status"
        try:
            answer = await self._api.get("GetLoadBalancerStatus", LB, path)
        except NotFound:
            return None
        return dict(mapping(mapping(answer.get("statuses")).get("loadbalancer")))

    # Waiting and changing

    def check_answered(self, names: Names) -> None:
        """Raise `RetryAfter` while a load balancer of the Service may be on its way.

        Octavia goes on with a request whose client has left, and its load balancer is in no list
        until it answers: a second one would be made, or the one stay without its Service.
        """
        left = self._unanswered.get(names.uid, float("-inf")) + UNANSWERED - self._clock()
        if left > 0:
            why = f"load balancer {names.balancer} may be on its way: Octavia has not answered"
            raise RetryAfter(why, min(left, LONGEST))
        self._unanswered.pop(names.uid, None)

    async def create(self, names: Names, call: ApiCall) -> Json:
        """Make a load balancer; the record says its ID and its port, before it works."""
        self.check_answered(names)
        try:
            answer = await self._api.make(call)
        except Unanswered:
            self._unanswered[names.uid] = self._clock()
            raise
        record = dict(mapping(answer.get("loadbalancer")))
        verify_about(call.operation, record, "name", names.balancer)
        if not record.get("id"):
            raise CloudError("CreateLoadBalancer: the answer lacks its ID")
        listeners = objects(mapping(call.body).get("loadbalancer", {}).get("listeners"))
        self.waiting.begin(record["id"], call.operation, names.owner_tag, len(listeners))
        return record

    async def change(self, observed: Json, call: ApiCall) -> None:
        """Make one change, which Octavia needs time for."""
        if plan.rests_on_tags(call):
            await self.verify(observed)
        try:
            await self._api.make(call)
        except (NotFound, Conflict) as error:  # not what was planned for: planned again
            if call.method != "DELETE":
                raise CloudError(str(error)) from error
        balancer_id = text(observed.get("id"))
        marks = [tag for tag in sorted(tags_of(observed)) if tag.startswith(OWNER_TAG)]
        count = len(objects(observed.get("listeners")))
        self.waiting.begin(balancer_id, call.operation, next(iter(marks), ""), count)

    async def verify(self, listed: Json) -> None:
        """Raise `CloudError` where another answer has other tags or another name: the marks of who
        shares it, its owner's, or listeners would go for good, or marks of who left would come
        back; and one whose ID is another's would have that one changed.
        """
        current = await self.by_id(text(listed.get("id"))) or listed
        if odd := _marks(current) ^ _marks(listed):
            raise CloudError(f"GetLoadBalancer: two answers differ in {', '.join(sorted(odd))}")


def _marks(record: Json) -> set[str]:
    """What says whose a load balancer is."""
    return {*tags_of(record), text(record.get("name"))}


def _links(parts: Iterable[Json]) -> dict[str, tuple[Any, ...]]:
    """What says of each listener or pool whose it is, and what belongs to it."""
    return {text(it.get("id")): (tags_of(it), *map(it.get, LINKS)) for it in parts}


def _parts_of(balancer_id: str, listed: Iterable[Json]) -> list[Json]:
    """Those that are not another load balancer's, whatever else the answer has."""
    owners = (
        (item, [each.get("id") for each in objects(item.get("loadbalancers"))]) for item in listed
    )
    return [item for item, ids in owners if not ids or balancer_id in ids]


def service_uid_of(record: Json) -> str:
    """The Service whose own a load balancer says that it is."""
    tags = (tag for tag in sorted(tags_of(record)) if tag.startswith(OWNER_TAG))
    return next(tags, "").removeprefix(OWNER_TAG)


def families_of(record: Json) -> tuple[str, ...]:
    """The IP families of the addresses in a record."""
    return tuple(IPV6 if ":" in address else IPV4 for address in addresses_of(record))


def addresses_of(record: Json) -> list[str]:
    """The virtual IPs in a record, the first one first."""
    more = [text(item.get("ip_address")) for item in objects(record.get("additional_vips"))]
    return [item for item in (text(record.get("vip_address")), *more) if item]


class NotOwned(Refused):
    """A load balancer that is not, or not proved to be, the Service's."""


def check_not_others(names: Names, records: Collection[Json]) -> None:
    """Raise `NotOwned` for a load balancer of the Service's name that is not proved to be its.

    One that a former Service of the name has left to others is not, nor is one of another cluster
    of the same name.
    """
    for record in records:
        if names.is_left_behind(record) or names.is_of_another_cluster(record):
            continue
        raise NotOwned(
            f"load balancer {names.balancer} ({record.get('id')}) carries no mark of this Service: "
            "it is not touched. If it is the Service's, annotate that with "
            "loadbalancer.openstack.org/load-balancer-id; give each cluster its own --cluster-name "
            "if it is another's"
        )
