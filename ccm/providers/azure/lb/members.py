"""The machines behind a load balancer: by their interface, or by their address."""

import asyncio
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import md5
from ipaddress import ip_address
from weakref import WeakValueDictionary

from ccm.cloud.dry_run import WouldWrite
from ccm.cloud.gate import METHOD_TIMEOUT
from ccm.cloud.machines import verify_any
from ccm.cloud.shared_read import SharedLock
from ccm.errors import CloudError, NotFound, Refused, RetryAfter
from ccm.model.objects import Json, Node, objects, text
from ccm.providers.azure import ids
from ccm.providers.azure.api import BUSY_RETRY, RACE_RETRY, AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.lb.names import IPV6, Names
from ccm.providers.azure.lb.placement import Balancers, spread
from ccm.providers.azure.lb.plan import may_fill, own_frontends, pools_of
from ccm.providers.azure.machines import IN_SET, Machine, Machines
from ccm.providers.azure.shared_writes import Missing, SharedResource, lacks

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
MEMBERS = "loadBalancerBackendAddressPools"  # of an IP configuration
ADDRESSES = "loadBalancerBackendAddresses"  # of a pool

MOST_NAME = 80  # characters of a backend address' name, as of all names in Azure's network
MOST_NAMED = 5  # nodes in a warning
BY_ADDRESS_ONLY = (
    "machines of uniform scale sets join by address only: set "
    "loadBalancerBackendPoolConfigurationType to nodeIP"
)

Backends = Mapping[str, Machine | None]
"""Machines by the names of their Nodes; None is not known, and its membership stays as it is."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Nodes and their machines, read after so many writes of interfaces."""

    nodes: Sequence[Node]
    machines: Machines
    writes: int


@dataclass(frozen=True, slots=True)
class PoolMembers:
    """A pool as it was read, and who has to be in it, by addresses of this version.

    `unknown` are the IDs of machines that are not known: they stay as they are, unless another one
    has the address, as those `taken` are.
    """

    pool: Json
    wanted: Backends
    version: int
    unknown: Collection[str] = ()
    taken: Collection[str] = ()


def backends(nodes: Iterable[Node], machines: Machines, config: AzureConfig) -> Backends:
    """The machines of Nodes; those of the control plane only if configured so.

    One that is listed without addresses, or not at all, is not known until its Node is gone: a
    list may leave it out. With pools of interfaces those of uniform scale sets are none, unless
    there are no others.
    """
    found, unread, sets = dict[str, Machine | None](), 0, set[str]()
    for node in nodes:
        is_left_out = any(label in node.labels for label in CONTROL_PLANE)
        machine_id = ids.machine_of(node.provider_id)
        scope = ids.scope_of(machine_id)
        is_ours = scope is not None and ids.same(scope.subscription, config.subscription_id)
        if is_ours and not (is_left_out and config.exclude_master_from_standard_lb):
            machine = machines.by_id.get(machine_id)
            found[node.name] = machine if machine and machine.private else None
            unread += machines.why_unread(machine_id) is not None
            sets |= {node.name} if IN_SET in machine_id else set()
    listed = sum(machine is not None for machine in found.values())
    verify_any(len(found) - unread, listed, "machines of nodes")
    single = {name: item for name, item in found.items() if name not in sets}
    return found if config.has_ip_pools else single or found


def pool_members(
    names: Names, balancers: Balancers, read: Candidates, wanted: Backends, config: AzureConfig
) -> Iterator[PoolMembers]:
    """The members of the Service's pools, and with several load balancers of the cluster's."""
    nodes = read.nodes
    shares = _shares(names, balancers, nodes, wanted, config) if config.balancers else {}
    own = {names.pool(family).lower(): family for family in names.service.ip_families}
    listed = [node for node in nodes if node.name in wanted and wanted[node.name] is None]
    unknown = {ids.machine_of(node.provider_id) for node in listed}
    taken = _addresses_of_others(read.machines.interfaces, unknown, config.vnet_id)
    for place, balancer in balancers.items():
        is_own = bool(own_frontends(balancer, names))
        for pool in pools_of(balancer):
            if config.balancers and (family := names.pools.get(_name(pool))):
                version = 6 if family == IPV6 else 4
                yield PoolMembers(pool, shares[place.name], version, unknown, taken)
            elif is_own and (family := own.get(_name(pool))) and may_fill(balancer, names, pool):
                yield PoolMembers(pool, wanted, 6 if family == IPV6 else 4, unknown, taken)


def _shares(
    names: Names, balancers: Balancers, nodes: Sequence[Node], wanted: Backends, config: AzureConfig
) -> Mapping[str, Backends]:
    """The machines behind each of several load balancers; unknown ones may be behind any."""
    owners = {ip: name for name, machine in wanted.items() if machine for ip in machine.private}
    joined = {place.name: set[str]() for place in balancers}
    for place, balancer in balancers.items():
        for pool in pools_of(balancer):
            ips = _entries(pool).values() if _name(pool) in names.pools else ()
            joined[place.name] |= {owners[ip] for ip in ips if ip in owners}
    vm_sets = {name: machine.vm_set for name, machine in wanted.items() if machine}
    known = [node for node in nodes if node.name in vm_sets]
    unknown = wanted.keys() - vm_sets.keys()
    return {
        key: {name: wanted[name] for name in some | unknown}
        for key, some in spread(config.balancers, joined, known, vm_sets).items()
    }


def private_addresses(machines: Iterable[Machine | None]) -> set[str]:
    """Those of the machines that are known."""
    return {ip for machine in filter(None, machines) for ip in machine.private}


def joined_groups(pools: Iterable[Json]) -> set[str]:
    """The resource groups of the interfaces in pools."""
    scopes = (ids.scope_of(key) for pool in pools for key in _joined(pool))
    return {scope.group for scope in scopes if scope}


def joined_addresses(pools: Sequence[Json], interfaces: Iterable[Json]) -> set[str]:
    """Those of the members of pools, which joined by address or by one of these interfaces."""
    by_address = {ip for pool in pools for ip in _entries(pool).values()}
    keys = {key for pool in pools for key in _joined(pool)}
    return (by_address | _addresses_of(keys, interfaces)) - {""}


class Members:
    """Joins machines to pools; one at a time works on interfaces."""

    def __init__(self, api: AzureApi, config: AzureConfig) -> None:
        self._api, self._config = api, config
        self._lock = SharedLock()
        self._pools = WeakValueDictionary[str, SharedResource]()  # by ID, while Services fill them
        self.writes = 0  # of interfaces
        self._written: dict[str, tuple[int, Json, float]] = {}
        """By ID: which write, its answer, and until when that may be newer than what was read."""

    def are_right(self, members: PoolMembers, interfaces: Iterable[Json]) -> bool:
        """Whether these machines are behind a pool, and no others."""
        current = (_entries if self._config.has_ip_pools else _joined)(members.pool)
        return current == self.desired(members, interfaces)

    def desired(self, members: PoolMembers, interfaces: Iterable[Json]) -> object:
        """What has to be in a pool: addresses by the names of entries, or IP configurations."""
        if self._config.has_ip_pools:
            return _entries_of(members, members.pool)
        return _configurations(members, interfaces)

    def leaving(self, members: PoolMembers, interfaces: Sequence[Json]) -> set[str]:
        """The addresses of machines behind a pool that are not wanted there."""
        if self._config.has_ip_pools:
            kept = _entries_of(members, members.pool)
            return {*_entries(members.pool).values()} - {*kept.values(), ""}
        keys = _joined(members.pool) - _configurations(members, interfaces)
        return _addresses_of(keys, interfaces) - {""}

    async def join(
        self, members: PoolMembers, interfaces: Sequence[Json], seen: int
    ) -> Sequence[str]:
        """`seen` are the writes of interfaces before they were read. Why some are not written."""
        if self._config.has_ip_pools:
            await self._join_by_address(members)
            return ()
        return await self._join_by_interface(members, interfaces, seen)

    async def _join_by_address(self, members: PoolMembers) -> None:
        """One write of the pool."""

        def edit(pool: Json) -> None:
            entries = _entries_of(members, pool)
            current = {
                text(record.get("name")).lower(): record
                for record in objects(ids.properties_of(pool).get(ADDRESSES))
            }
            listed = [
                current[name] if _ip(current.get(name, {})) == ip else _entry(name, ip)
                for name, ip in sorted(entries.items())
            ]
            vnet = {"virtualNetwork": {"id": self._config.vnet_id}}
            properties = {**vnet, **ids.properties_of(pool), ADDRESSES: listed}
            if _entries(pool) != entries:
                pool["properties"] = properties

        pool_id = ids.id_of(members.pool)
        pool = SharedResource(self._api, "BackendPool", pool_id, None)
        pool = self._pools.setdefault(pool_id.lower(), pool)
        await pool.change(edit)

    async def _join_by_interface(
        self, members: PoolMembers, interfaces: Sequence[Json], seen: int
    ) -> Sequence[str]:
        """A write of each interface that has to join or to leave; one failure stops no other.

        What another Service has written since `seen` counts as it was answered: it is newer. Raises
        where none of those that have to be in the pool can be written.
        """
        configurations = _configurations(members, interfaces)
        pool_id = ids.id_of(members.pool)
        if any(item.is_of_uniform_set for item in members.wanted.values() if item):
            raise Refused(BY_ADDRESS_ONLY)
        async with self._lock.held():
            newer = {key: item for key, (number, item, _) in self._written.items() if number > seen}
            newest = (newer.get(ids.key_of(interface), interface) for interface in interfaces)
            wrong = [item for item in newest if _is_wrong(item, pool_id, configurations)]
            writes = (self._write(item, pool_id, configurations) for item in wrong)
            results = await asyncio.gather(*writes, return_exceptions=True)
            older = (item for item in interfaces if ids.key_of(item) not in newer)
            lost = _members_of(pool_id, older) & {*configurations} - _joined(members.pool)
        pairs = zip(wrong, results, strict=True)
        failures = [(item, error) for item, error in pairs if isinstance(error, BaseException)]
        left = configurations.difference(*(_keys_of(item) for item, _ in failures))
        for _, error in failures:
            if not left or not isinstance(error, CloudError) or isinstance(error, WouldWrite):
                raise error
        if lost:  # who was its last user took it away, and all members with it
            raise RetryAfter("the pool was made again after interfaces were read", BUSY_RETRY)
        return [f"interface {ids.name_of(ids.id_of(item))}: {error}" for item, error in failures]

    async def _write(self, listed: Json, pool_id: str, wanted: Collection[str]) -> None:
        """By a read of its own: it is written whole, and a list may lack what others have there."""
        path = ids.id_of(listed)
        lock = SharedLock(None)
        resource = SharedResource(self._api, "Interface", path, None, lock=lock, is_kept=False)

        def edit(current: Json) -> None:
            is_same = current.get("etag") == listed.get("etag")
            is_all = _memberships(listed) <= _memberships(current) and not lacks(current, listed)
            if is_same and not is_all:
                raise RetryAfter("the answer lacks parts that its ETag stands for", RACE_RETRY)
            _put_in(current, pool_id, wanted)

        current = await resource.read()
        if current is None:  # it went with its machine
            return
        with suppress(Missing, NotFound):
            current = await resource.change(edit, current) or current
        self.writes, now = self.writes + 1, time.monotonic()
        kept = {key: known for key, known in self._written.items() if known[2] > now}
        self._written = {**kept, path.lower(): (self.writes, current, now + METHOD_TIMEOUT)}


def _is_wrong(interface: Json, pool_id: str, wanted: Collection[str]) -> bool:
    """Whether some of its IP configurations are to be put in the pool, or taken out of it."""
    return any(True for _ in _misplaced(interface, pool_id, wanted))


def _put_in(interface: Json, pool_id: str, wanted: Collection[str]) -> None:
    """Put those of the interface's IP configurations in the pool that are wanted, and no others."""
    for record, pools in _misplaced(interface, pool_id, wanted):
        record["properties"] = {**ids.properties_of(record), MEMBERS: pools}


def _misplaced(
    interface: Json, pool_id: str, wanted: Collection[str]
) -> Iterator[tuple[Json, list[Json]]]:
    """Those of an interface's IP configurations, each with the pools that it has to be in."""
    for record in objects(ids.properties_of(interface).get("ipConfigurations")):
        pools = objects(ids.properties_of(record).get(MEMBERS))
        others = [pool for pool in pools if ids.key_of(pool) != pool_id.lower()]
        is_in, has_to_be = len(others) < len(pools), ids.key_of(record) in wanted
        if is_in != has_to_be:
            yield record, [*others, *([{"id": pool_id}] if has_to_be else [])]


def _configurations(members: PoolMembers, interfaces: Iterable[Json]) -> set[str]:
    """The IDs of the IP configurations that have to be in the pool, one a machine.

    Of machines that are not known, and of uniform scale sets, those that are there.
    """
    found = set[str]()
    for interface in interfaces:
        properties = ids.properties_of(interface)
        if ids.key_of(properties.get("virtualMachine")) in members.unknown:
            found |= _keys_of(interface)
    found &= _joined(members.pool)
    found |= {key for key in _joined(members.pool) if IN_SET in key}
    for machine in filter(None, members.wanted.values()):
        listed = objects(ids.properties_of(machine.interface).get("ipConfigurations"))
        listed.sort(key=lambda item: ids.properties_of(item).get("primary") is not True)
        for configuration in listed:
            ip = text(ids.properties_of(configuration).get("privateIPAddress"))
            if ip and ip_address(ip).version == members.version:
                found.add(ids.key_of(configuration))
                break
    return found


def _joined(pool: Json) -> set[str]:
    return {
        ids.key_of(record)
        for record in objects(ids.properties_of(pool).get("backendIPConfigurations"))
    }


def _keys_of(interface: Json) -> set[str]:
    """The IDs of its IP configurations."""
    return {*map(ids.key_of, objects(ids.properties_of(interface).get("ipConfigurations")))}


def _memberships(interface: Json) -> set[tuple[str, str]]:
    """The IDs of its IP configurations, each with that of a pool that it is in."""
    return {
        (ids.key_of(record), ids.key_of(pool))
        for record in objects(ids.properties_of(interface).get("ipConfigurations"))
        for pool in objects(ids.properties_of(record).get(MEMBERS))
    }


def _members_of(pool_id: str, interfaces: Iterable[Json]) -> set[str]:
    """The IP configurations that have the pool, by what is said of interfaces."""
    found = (pair for interface in interfaces for pair in _memberships(interface))
    return {key for key, pool in found if pool == pool_id.lower()}


def inner_addresses(interfaces: Iterable[Json]) -> set[str]:
    """Those of all of these interfaces."""
    return {
        text(ids.properties_of(item).get("privateIPAddress"))
        for interface in interfaces
        for item in objects(ids.properties_of(interface).get("ipConfigurations"))
    }


def _addresses_of_others(
    interfaces: Iterable[Json], unknown: Collection[str], vnet_id: str
) -> set[str]:
    """Those in the network that machines other than the unknown ones have, Pods' as well."""
    return {
        text(settings.get("privateIPAddress"))
        for interface in interfaces
        if ids.key_of(ids.properties_of(interface).get("virtualMachine")) not in ("", *unknown)
        for item in objects(ids.properties_of(interface).get("ipConfigurations"))
        for settings in (ids.properties_of(item),)
        if ids.key_of(settings.get("subnet")).startswith(f"{vnet_id.lower()}/")
    }


def _addresses_of(keys: Collection[str], interfaces: Iterable[Json]) -> set[str]:
    """Those of the IP configurations that have these IDs."""
    return {
        text(ids.properties_of(item).get("privateIPAddress"))
        for interface in interfaces
        for item in objects(ids.properties_of(interface).get("ipConfigurations"))
        if ids.key_of(item) in keys
    }


def _entries_of(members: PoolMembers, pool: Json) -> dict[str, str]:
    """What has to be in the pool, of which some is there."""
    unknown = {_entry_name(name) for name, machine in members.wanted.items() if machine is None}
    found = {
        name: ip
        for name, ip in _entries(pool).items()
        if name in unknown and ip not in members.taken
    }
    for name, machine in members.wanted.items():
        for ip in machine.private if machine else ():
            if ip_address(ip).version == members.version:
                found[_entry_name(name)] = ip
    return found


def _entry_name(node: str) -> str:
    """A Node's name, or one that is short enough: Azure refuses all of a pool with a longer one."""
    name, digest = node.lower(), md5(node.encode(), usedforsecurity=False).hexdigest()
    return name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - len(digest) - 1]}_{digest}"


def _entries(pool: Json) -> dict[str, str]:
    listed = objects(ids.properties_of(pool).get(ADDRESSES))
    return {text(item.get("name")).lower(): _ip(item) for item in listed}


def _name(pool: Json) -> str:
    return text(pool.get("name")).lower()


def _ip(entry: Json) -> str:
    return text(ids.properties_of(entry).get("ipAddress"))


def _entry(name: str, ip: str) -> Json:
    return {"name": name, "properties": {"ipAddress": ip}}


def named(nodes: Sequence[str]) -> str:
    """Some nodes in a warning, and how many more there are."""
    more = len(nodes) - MOST_NAMED
    return f"nodes {', '.join(sorted(nodes)[:MOST_NAMED])}" + f" and {more} more" * (more > 0)
