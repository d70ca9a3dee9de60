"""New Nodes behind a load balancer that is there: a request a pool, and hardly anything read.

What is kept of a Service's load balancer from one work on it to the next is all in here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from ccm.cloud.many_members import compute
from ccm.errors import CloudError, Refused
from ccm.model.objects import Json, Node, objects, text
from ccm.providers.openstack.lb import plan
from ccm.providers.openstack.lb.backends import Backends, NodeBackends
from ccm.providers.openstack.lb.finding import Finder, Found
from ccm.providers.openstack.lb.octavia import Octavia
from ccm.providers.openstack.lb.plan import ObservedBalancer
from ccm.providers.openstack.lb.request import LoadBalancerRequest, Member
from ccm.providers.openstack.lb.waiting import ERROR

Members = Mapping[str, frozenset[Member]]  # by pool ID


@dataclass(frozen=True, slots=True)
class CachedMembers:
    """What was seen of a load balancer, or sent to it; it may be outdated, and only saves calls."""

    balancer: Json
    ports: Mapping[str, int]  # node ports by pool ID; 0 where the members have to say
    members: Members | None = None
    opened: Mapping[str, str] | None = None  # the Nodes that let it in
    created_for: LoadBalancerRequest | None = None  # by the call under way, with all its parts
    addresses: Sequence[str] = ()  # what comes of that
    is_deleting: bool = False  # nothing else is the Service's

    @property
    def id(self) -> str:
        return text(self.balancer.get("id"))

    @property
    def subnet_id(self) -> str:
        return text(self.balancer.get("vip_subnet_id"))

    def first_change(
        self, request: LoadBalancerRequest, backends: NodeBackends
    ) -> tuple[str, frozenset[Member]] | None:
        """The first pool that has not the members it is to have, and those."""
        listed = self.members or {}
        ports = {
            pool_id: port or min((item.port for item in listed.get(pool_id, ())), default=0)
            for pool_id, port in self.ports.items()
        }
        wanted = {pool_id: backends.members(request, port) for pool_id, port in ports.items()}
        return next(plan.changed_members(wanted, listed), None)


class MemberUpdates:
    """Gives pools their members; what was sent last saves reading it before the next time."""

    def __init__(self, octavia: Octavia, backends: Backends, finder: Finder) -> None:
        self._octavia, self._backends, self._finder = octavia, backends, finder
        self._cached: dict[str, CachedMembers] = {}  # by the UID of a Service

    async def find(self, request: LoadBalancerRequest) -> Found:
        """As the finder; what is kept of another load balancer is forgotten."""
        cached = self._cached.get(request.names.uid)
        found, others = await self._finder.find(request, cached.id if cached else "")
        if cached and (found is None or found.id != cached.id):
            self.forget(request.names.uid)
        return found, others

    def forget(self, uid: str) -> None:
        self._cached.pop(uid, None)

    def remember(
        self,
        request: LoadBalancerRequest,
        observed: ObservedBalancer,
        sent: Mapping[int, frozenset[Member]],
    ) -> CachedMembers:
        """Keep what is there, or was `sent` by node port when the load balancer was made."""
        by_key = request.node_ports()
        ports = {
            text(listener.get("default_pool_id")): by_key.get(plan.key_of(listener), 0)
            for listener in observed.own_listeners(request.names)
            if listener.get("default_pool_id")
        }
        current = {
            pool_id: observed.members.get(pool_id) or sent.get(port, frozenset())
            for pool_id, port in ports.items()
        }
        cached = self._cached[request.names.uid] = CachedMembers(observed.record, ports, current)
        return cached

    def created(self, request: LoadBalancerRequest, addresses: Sequence[str]) -> None:
        """It is on its way, as this request wants it, and has these addresses."""
        cached = self._cached[request.names.uid]
        self._cached[request.names.uid] = replace(
            cached, created_for=request, addresses=tuple(addresses)
        )

    async def complete(self, request: LoadBalancerRequest, nodes: Sequence[Node]) -> Sequence[str]:
        """The addresses of one that was created for this very request, with these Nodes behind it.

        None of any other, of which all has to be read.
        """
        cached = self._cached.get(request.names.uid)
        if cached is None or cached.created_for is None:
            return ()
        is_right = cached.created_for == request
        if is_right:
            await self.update(request, nodes)  # Nodes may have come meanwhile
        cached = self._cached[request.names.uid]
        self._cached[request.names.uid] = replace(cached, created_for=None)
        return cached.addresses if is_right else ()

    def begin_deletion(self, uid: str, record: Json) -> None:
        """The last load balancer of a Service is being deleted."""
        self._cached[uid] = CachedMembers(record, {}, is_deleting=True)

    def is_deleting(self, uid: str) -> bool:
        return uid in self._cached and self._cached[uid].is_deleting

    async def deleted_port(self, uid: str) -> str:
        """The port of what was being deleted, once it is gone; `RetryAfter` before."""
        cached = self._cached[uid]
        if current := await self._octavia.look(cached.id):
            self._octavia.waiting.check(current)
            self.forget(uid)
            raise CloudError(f"load balancer {cached.id} could not be deleted: see Octavia")
        return text(cached.balancer.get("vip_port_id"))

    async def update(self, request: LoadBalancerRequest, nodes: Sequence[Node]) -> None:
        """As `update_nodes`; `RetryAfter` follows each change, `Refused` without load balancer."""
        cached = await self._settled(request) or await self._read(request)
        backends = await self._backends.of(request, nodes, cached.subnet_id)
        count = backends.count(request)
        if change := await compute(count, lambda: cached.first_change(request, backends)):
            await self._send(request, cached, backends, *change)
        await self.open(request, backends)

    async def open(self, request: LoadBalancerRequest, backends: NodeBackends) -> None:
        """Let a known load balancer in to Nodes that do not yet, and to no others."""
        uid = request.names.uid
        if self._cached[uid].opened != backends.addresses:
            await self._backends.open(request, backends, self._cached[uid].subnet_id)
            self.opened(request, backends)

    def opened(self, request: LoadBalancerRequest, backends: NodeBackends) -> None:
        """These Nodes let it in."""
        uid = request.names.uid
        self._cached[uid] = replace(self._cached[uid], opened=backends.addresses)

    async def _settled(self, request: LoadBalancerRequest) -> CachedMembers | None:
        """What is known, once Octavia is done with what was sent."""
        cached = self._cached.get(request.names.uid)
        if cached is None or not cached.members:
            return None
        if cached.id in self._octavia.waiting:
            record = await self._octavia.look(cached.id)
            if record is None:
                self.forget(request.names.uid)
                return None
            self._check(request, record)
        return cached

    def _check(self, request: LoadBalancerRequest, record: Json) -> None:
        """Raise while Octavia is at work, and when it failed."""
        self._octavia.waiting.check(record)
        if record.get("provisioning_status") == ERROR:
            self.forget(request.names.uid)
            raise CloudError(f"load balancer {record.get('id')} is in ERROR")

    async def _read(self, request: LoadBalancerRequest) -> CachedMembers:
        """The same from one answer with all members; `Refused` without a load balancer."""
        cached = self._cached.get(request.names.uid)
        tree = await self._octavia.tree(cached.id) if cached else None
        if not (cached and tree and cached.ports and cached.ports.keys() <= _pools_in(tree).keys()):
            found, _ = await self.find(request)
            if found is None:
                raise Refused(f"there is no load balancer {request.names.balancer}")
            cached = self.remember(request, await self._octavia.with_listeners(found), {})
            tree = await self._octavia.tree(cached.id) or {}
        self._check(request, tree)
        current = _pools_in(tree)
        ports = {pool_id: port for pool_id, port in cached.ports.items() if pool_id in current}
        listed = {item: objects(current[item].get("members")) for item in ports}
        members = await compute(
            sum(map(len, listed.values())),
            lambda: {item: plan.read_members(some) for item, some in listed.items()},
        )
        cached = replace(cached, ports=ports, members=members)
        self._cached[request.names.uid] = cached
        return cached

    async def _send(
        self,
        request: LoadBalancerRequest,
        cached: CachedMembers,
        backends: NodeBackends,
        pool_id: str,
        members: frozenset[Member],
    ) -> NoReturn:
        """Change one pool; while Octavia is at work the Nodes let it in."""
        uid = request.names.uid
        self._cached[uid] = replace(cached, members=None)  # unless Octavia takes it
        await self._octavia.change(cached.balancer, plan.members_update(pool_id, members))
        self._cached[uid] = replace(cached, members={**(cached.members or {}), pool_id: members})
        await self.open(request, backends)
        self._octavia.waiting.retry_when_done(cached.id)


def _pools_in(tree: Json) -> dict[str, Json]:
    pools = (
        pool for record in objects(tree.get("listeners")) for pool in objects(record.get("pools"))
    )
    return {text(pool.get("id")): pool for pool in pools}
