"""New Nodes behind a load balancer that is there: a request a pool, and hardly anything read."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from ccm.cloud.many_members import compute
from ccm.errors import CloudError, Refused
from ccm.model.objects import Json, Node, objects, text
from ccm.providers.openstack.lb import plan
from ccm.providers.openstack.lb.backends import Backends, NodeBackends
from ccm.providers.openstack.lb.octavia import Octavia
from ccm.providers.openstack.lb.plan import ObservedBalancer
from ccm.providers.openstack.lb.request import LoadBalancerRequest, Member
from ccm.providers.openstack.lb.waiting import ERROR

Finder = Callable[[LoadBalancerRequest], Awaitable[ObservedBalancer | None]]
Members = Mapping[str, frozenset[Member]]  # by pool ID


@dataclass(frozen=True, slots=True)
class CachedMembers:
    """What was seen of a load balancer, or sent to it; it may be outdated."""

    balancer: Json
    ports: Mapping[str, int]  # node ports by pool ID; 0 where the members have to say
    members: Members | None = None
    opened: Mapping[str, str] | None = None  # the Nodes that let it in

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

    def __init__(self, octavia: Octavia, backends: Backends, find: Finder) -> None:
        self._octavia, self._backends, self._find = octavia, backends, find
        self._cached: dict[str, CachedMembers] = {}  # by the UID of a Service

    def balancer_id(self, uid: str) -> str:
        """The load balancer that a Service was last seen to have; empty when none is known."""
        cached = self._cached.get(uid)
        return cached.id if cached else ""

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
            found = await self._find(request)
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
