"""Routes to pod networks: what `ipv4.routes` and `ipv6.routes` of the instances' NICs say.

The networks that are ours stand in the instance's own configuration, and are written with the NIC
in one request, which Incus refuses when someone has changed the instance since it was read.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from urllib.parse import quote, unquote

from ccm.cloud.lookup import in_turns
from ccm.cloud.machines import verify_complete
from ccm.cloud.shared_read import KeptRead, SharedRead
from ccm.errors import CloudError, NotFound, Refused, RetryAfter
from ccm.http import path_of
from ccm.model.cloud import Network, Route, read_network
from ccm.model.objects import Json, Node, mapping, text
from ccm.providers.incus import ids
from ccm.providers.incus.api import RACE_RETRY, IncusApi
from ccm.providers.incus.config import REPLUG, RouteSection
from ccm.providers.incus.inventory import (
    NODE_KEY,
    InstanceList,
    Inventory,
    ListedInstance,
    Nic,
    candidates_of,
    instance_of,
)
from ccm.providers.incus.zones import NO_LOCATION

MARK = "user.ccm.routes"
"""In an instance's configuration: `CLUSTER:CIDR` for each network that a cluster routes to it."""
KEYS = {4: "ipv4.routes", 6: "ipv6.routes"}
OVN = "ovn"
ROUTES = "which routes there are"
MAX_TEXT = 64 << 10  # characters; another cluster may write any number to its own instances
BACK_WAIT, BACK_AGAIN = 60.0, 600.0
"""Seconds for which one without its addresses holds up others, once in so many: root in it may take
them away, and give them back, and its kubelet may have its routes changed."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Which networks of an instance are which clusters', as they are written in it."""

    by_network: Mapping[Network, Set[str]]

    @classmethod
    def of(cls, instance: ListedInstance) -> "Marks":
        """Those of the instance itself: what a profile says is not about one machine."""
        found = defaultdict[Network, set[str]](set)
        written = "" if too_long(instance) else text(instance.config.get(MARK))
        for entry in written.split(","):
            cluster, _, cidr = entry.strip().partition(":")
            if network := read_network(cidr):
                found[network].add(unquote(cluster))
        return cls(dict(found))

    def clusters(self, network: Network) -> Set[str]:
        """Whose a network is."""
        return self.by_network.get(network, frozenset())

    def networks(self, cluster: str) -> set[Network]:
        """Those of one cluster."""
        return {network for network, owners in self.by_network.items() if cluster in owners}

    def written(self, keep: set[Network], cluster: str) -> str:
        """All of other clusters, and ours of the networks that are kept."""
        kept = [(cluster, network) for network in keep]
        for network, owners in self.by_network.items():
            kept += [(owner, network) for owner in owners - {cluster}]
        return ",".join(sorted(f"{quote(item, safe='')}:{network}" for item, network in kept))


class IncusRoutes:
    """A route is ours by the mark alone. One that someone made for a Node's own pod network counts
    as this Node's, and is never taken away.
    """

    def __init__(
        self, inventory: Inventory, network: str, section: RouteSection, cluster: str
    ) -> None:
        self._inventory, self._network = inventory, network
        self._section, self._cluster = section, cluster
        self._list = SharedRead(self._read_all)
        self._named: dict[str, str] = {}  # Nodes by the UUID of the instance that they have by name
        self._kinds: dict[tuple[str, str], KeptRead[str]] = {}  # of networks, by project and name
        self._replugging = asyncio.Lock()
        self._replugged = "", 0  # the UUID of the last one, and how many addresses it had
        self._away: dict[str, float] = {}  # by UUID, when one was first seen without addresses

    async def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
        """Our routes, and those of others that lead a Node's pod network to it."""
        listed = await self._list()
        found = {node.name: instance_of(node, listed) for node in nodes}
        wanted = [node for node in nodes if ids.PROVIDER_IDS.fullmatch(node.provider_id)]
        if any(found[node.name] is None for node in wanted):
            verify_complete(await self._inventory.incomplete_reasons(), ROUTES)
        names_last = sorted(nodes, key=_is_named)  # a UUID is any kubelet's word, a name its own
        by_uuid = {item.uuid: node for node in names_last if (item := found[node.name])}
        self._named = {uuid: node.name for uuid, node in by_uuid.items() if _is_named(node)}
        unsure = filter(_is_named, (node for node in wanted if found[node.name] is None))
        twins = {it.uuid: node for node in unsure for it in candidates_of(node, listed)}
        owners = twins | by_uuid
        return [
            route
            async for instance in in_turns(listed)
            for route in self._routes_of(instance, owners.get(instance.uuid))
        ]

    async def create(self, node: Node, cidr: str) -> None:
        """As the interface; on OVN at a running instance only where that was chosen."""
        network = ip_network(cidr, strict=False)
        if not ids.PROVIDER_IDS.fullmatch(node.provider_id):
            raise Refused(f"node {node.name} has no instance")
        listed = await self._list()
        instance = instance_of(node, listed)
        if instance is None:
            raise CloudError(f"Incus lists no instance of node {node.name}")
        if (owner := self._named.get(instance.uuid, node.name)) != node.name:
            raise Refused(f"instance {instance.name} is node {owner}")
        nic = self._nic(instance)
        async for other in in_turns(listed):
            if other.uuid != instance.uuid and network in networks_at(other, nic.network):
                raise Refused(f"instance {other.name} has the route for {network}")
        await self._change(instance, network, is_wanted=True, node=node.name)

    async def delete(self, route: Route) -> None:
        """Nothing that lacks our mark is taken away."""
        uuid, _, cidr = route.id.partition("@")
        found = (await self._list()).by_uuid.get(uuid)
        if not found:
            verify_complete(await self._inventory.incomplete_reasons(), ROUTES)
        for instance in found or ():
            await self._change(instance, ip_network(cidr, strict=False), is_wanted=False)

    # Reading

    async def _read_all(self) -> InstanceList:
        listed = await self._inventory.read(recursion=1)
        verify_complete(listed.incomplete_reasons, ROUTES)
        return listed

    def _routes_of(self, instance: ListedInstance, node: Node | None) -> Iterator[Route]:
        marks = Marks.of(instance)
        own = {read_network(cidr) for cidr in node.pod_cidrs} if node else set()
        for network in dict.fromkeys(routed_by(instance)):
            clusters = marks.clusters(network)
            is_marked = self._cluster in clusters
            if is_marked or (network in own and not clusters):
                name, route_id = node.name if node else "", f"{instance.uuid}@{network}"
                yield Route(str(network), name, id=route_id, is_marked=is_marked)

    def _nic(self, instance: ListedInstance) -> Nic:
        """The NIC that pods are reached by."""
        nics = instance.nics(self._network)
        if not nics or (self._network and nics[0].network != self._network):
            where = f" in network {self._network}" if self._network else ""
            raise Refused(f"instance {instance.name} has no NIC{where}")
        return nics[0]

    async def _kind(self, instance: ListedInstance, nic: Nic) -> str:
        """`ovn`, `bridge` or what else the network is; empty for one that Incus does not manage."""
        if "network" not in nic.config:
            return ""
        key = instance.project, nic.network
        if key not in self._kinds:
            self._kinds[key] = KeptRead(
                partial(_read_kind, instance.api, instance.project, nic.network)
            )
        return await self._kinds[key]()

    # Writing

    async def _change(
        self, listed: ListedInstance, network: Network, is_wanted: bool, node: str = ""
    ) -> None:
        """Add or remove one network of one NIC, unless someone changes the instance meanwhile."""
        instance, tag = await self._read_tagged(listed)
        if key := too_long(instance):
            raise Refused(f"instance {instance.name}: {key} has more than {MAX_TEXT} characters")
        nic = self._nic(instance)
        marks, current = Marks.of(instance), list(networks_of(nic))
        is_ours = self._cluster in marks.clusters(network)
        if is_wanted and network in current and not is_ours:
            raise Refused(f"instance {instance.name} has a route for {network} that is not ours")
        if (is_ours and network in current) == is_wanted or not (is_wanted or is_ours):
            return
        left = [item for item in current if item != network] + [network] * is_wanted
        ours = marks.networks(self._cluster) & {*left} | ({network} if is_wanted else set())
        body: Json = {
            "config": {MARK: marks.written(ours, self._cluster)},
            "devices": {nic.device: with_routes(nic, left, network.version)},
        }
        if await self._kind(instance, nic) != OVN:
            self._check_bridge(instance)
            await self._write(instance, body, tag)
        elif instance.is_stopped:
            self._check_is_node(instance, node)
            await self._write(instance, body, tag)
        else:
            await self._replug(instance, nic, body, tag)

    async def _read_tagged(self, listed: ListedInstance) -> tuple[ListedInstance, str]:
        query = {"project": listed.project}
        try:
            record, tag = await listed.api.get_tagged("GetInstance", listed.path, query)
        except NotFound as error:
            raise RetryAfter(str(error), RACE_RETRY) from error  # renamed, moved, or deleted
        instance = ListedInstance(listed.api, listed.project, dict(mapping(record)))
        if instance.uuid != listed.uuid:
            raise RetryAfter(f"instance {listed.name} is another one by now", RACE_RETRY)
        if _written_back(instance) != _written_back(listed):
            raise RetryAfter(f"instance {listed.name} is listed otherwise", RACE_RETRY)
        return instance, tag

    def _check_bridge(self, instance: ListedInstance) -> None:
        if instance.location not in NO_LOCATION:
            raise Refused("the routes of a bridge are on one cluster member: use an OVN network")

    def _check_is_node(self, instance: ListedInstance, node: str) -> None:
        """A route stays once the instance runs: any kubelet may name one that is off."""
        if self._section.on_ovn != REPLUG and node not in ("", instance.node_name):
            name = f"instance {instance.name} is off, and node {instance.node_name} by its name"
            raise Refused(f"{name}: if it is node {node}, set {NODE_KEY} in its configuration")

    async def _write(self, instance: ListedInstance, body: Json, tag: str) -> None:
        query = {"project": instance.project}
        await instance.api.call("UpdateInstance", "PATCH", instance.path, query, body, tag)

    async def _replug(self, instance: ListedInstance, nic: Nic, body: Json, tag: str) -> None:
        """One instance at a time: the next only when the one before has its addresses again."""
        if self._section.on_ovn != REPLUG:
            raise Refused(
                f"instance {instance.name} runs, and OVN takes a NIC out to change its routes: "
                f"make it with {' and '.join(KEYS.values())}, stop it once, or set [Routes] "
                f"on-ovn = {REPLUG}"
            )
        async with self._replugging:
            count = 0
            async for item in in_turns(await self._inventory.read(recursion=2)):
                self._check_is_back(item)
                if item.uuid == instance.uuid:
                    count = min(self._count(item), len(item.given_to(nic)))
            self._replugged = instance.uuid, count
            await self._write(instance, body, tag)

    def _check_is_back(self, instance: ListedInstance) -> None:
        """Raise `RetryAfter` while one that runs may be without addresses for its routes, not long.

        The one that was replugged last has all that it had before. A process before us may have
        replugged any other of ours: at least one address says that it is over.
        """
        uuid, count = self._replugged
        if instance.uuid != uuid:
            count = min(1, len(Marks.of(instance).networks(self._cluster)))
        if instance.is_stopped or self._count(instance) >= count:
            return
        now = time.monotonic()
        if now - self._away.get(instance.uuid, float("-inf")) > BACK_AGAIN:
            self._away[instance.uuid] = now
        if now - self._away[instance.uuid] < BACK_WAIT:
            raise RetryAfter(f"instance {instance.name} has not all its addresses yet", RACE_RETRY)

    def _count(self, instance: ListedInstance) -> int:
        return len(instance.guest_addresses(self._network))


def _written_back(instance: ListedInstance) -> tuple[object, ...]:
    """What a change writes whole: two answers have to agree, as one may lack a part."""
    return instance.nics(""), instance.config.get(MARK)


def too_long(instance: ListedInstance) -> str:
    """By its key what is longer than what is read, and says nothing then; empty for nothing."""
    routes = ((key, nic.config.get(key)) for nic in instance.nics("") for key in KEYS.values())
    written = ((MARK, instance.config.get(MARK)), *routes)
    return next((key for key, value in written if len(text(value)) > MAX_TEXT), "")


async def _read_kind(api: IncusApi, project: str, network: str) -> str:
    path = path_of("networks", network)
    found = await api.get_named("GetNetwork", path, network, project=project)
    if not (kind := text(found.get("type"))):
        raise CloudError(f"GetNetwork: the answer does not say what {network} is")
    return kind


def _is_named(node: Node) -> bool:
    """Whether its provider ID has the name of an instance, which then has to be its own."""
    return bool(ids.name_of(node.provider_id))


def networks_of(nic: Nic) -> Iterator[Network]:
    """What Incus leads to a NIC."""
    for key in KEYS.values():
        written = text(nic.config.get(key))
        for cidr in written.split(",") if len(written) <= MAX_TEXT else ():
            if network := read_network(cidr.strip()):
                yield network


def routed_by(instance: ListedInstance) -> Iterator[Network]:
    """What Incus leads to an instance."""
    for nic in instance.nics(""):
        yield from networks_of(nic)


def networks_at(instance: ListedInstance, network: str) -> set[Network]:
    """What Incus leads from one network to an instance."""
    nics = [nic for nic in instance.nics(network) if nic.network == network]
    return {item for nic in nics for item in networks_of(nic)}


def with_routes(nic: Nic, networks: Sequence[Network], family: int) -> Json:
    """The whole device, wherever it is from, with other routes of one IP family."""
    kept = {key: value for key, value in nic.config.items() if key != KEYS[family]}
    own = ",".join(str(network) for network in networks if network.version == family)
    return {**kept, KEYS[family]: own} if own else kept
