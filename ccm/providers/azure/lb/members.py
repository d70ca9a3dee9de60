"""The machines behind a load balancer: by their interface, or by their address."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from ipaddress import ip_address

from ccm.cloud.machines import verify_complete
from ccm.errors import CloudError, NotFound, Refused
from ccm.model.objects import Json, Node, objects, text
from ccm.providers.azure import ids
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.machines import Machine, Machines
from ccm.providers.azure.shared_writes import SharedResource

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
MEMBERS = "loadBalancerBackendAddressPools"  # of an IP configuration
ADDRESSES = "loadBalancerBackendAddresses"  # of a pool


def backends(nodes: Iterable[Node], machines: Machines, config: AzureConfig) -> dict[str, Machine]:
    """The machines of Nodes, by name; those of the control plane only if configured so."""
    found = dict[str, Machine]()
    for node in nodes:
        is_left_out = any(label in node.labels for label in CONTROL_PLANE)
        machine = machines.by_id.get(ids.machine_of(node.provider_id))
        if machine and not (is_left_out and config.exclude_master_from_standard_lb):
            found[node.name] = machine
    return found


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
    """Joins machines to pools; one at a time works on one load balancer's."""

    def __init__(self, api: AzureApi, config: AzureConfig) -> None:
        self._api, self._config = api, config
        self._lock = asyncio.Lock()
        self.writes = 0  # of interfaces
        self._written: dict[str, tuple[int, Json]] = {}  # by ID: which write, and its answer

    def are_right(self, pool: Json, wanted: Mapping[str, Machine], version: int) -> bool:
        """Whether these machines are behind a pool, and no others."""
        if self._config.has_ip_pools:
            return _entries(pool) == _entries_of(wanted, version)
        return _joined(pool) == set(_configurations(wanted.values(), version))

    def leaving(
        self, pool: Json, wanted: Mapping[str, Machine], version: int, interfaces: Iterable[Json]
    ) -> set[str]:
        """The addresses of machines behind a pool that are not wanted there."""
        if self._config.has_ip_pools:
            return {*_entries(pool).values()} - {*_entries_of(wanted, version).values(), ""}
        keys = _joined(pool) - {*_configurations(wanted.values(), version)}
        return _addresses_of(keys, interfaces) - {""}

    async def join_by_address(
        self, pool_id: str, wanted: Mapping[str, Machine], version: int
    ) -> None:
        """One write of the pool."""
        entries = _entries_of(wanted, version)

        def edit(pool: Json) -> None:
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

        await SharedResource(self._api, "BackendPool", pool_id, None).change(edit)

    async def join_by_interface(
        self,
        pool_id: str,
        wanted: Mapping[str, Machine],
        version: int,
        interfaces: Sequence[Json],
        seen: int,
    ) -> None:
        """A write of each interface that has to join or to leave; one failure stops no other.

        What another Service has written since `seen` counts as it was answered: it is newer.
        """
        configurations = _configurations(wanted.values(), version)
        sets = [item for item in wanted.values() if "/virtualmachinescalesets/" in item.key]
        if sets:
            raise Refused(
                "machines of uniform scale sets join by address only: set "
                "loadBalancerBackendPoolConfigurationType to nodeIP"
            )
        async with self._lock:
            newer = {key: item for key, (number, item) in self._written.items() if number > seen}
            newest = (newer.get(ids.key_of(interface), interface) for interface in interfaces)
            found = (_changed(item, pool_id, configurations) for item in newest)
            changes = [item for item in found if item]
            results = await asyncio.gather(*map(self._write, changes), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if len(failures) == 1 or not isinstance(failure, CloudError):
                raise failure
        verify_complete(map(str, failures))

    async def _write(self, interface: Json) -> None:
        path, etag = ids.id_of(interface), text(interface.get("etag"))
        try:
            answer = await self._api.put("PutInterface", path, interface, etag)
        except NotFound:  # it went with its machine
            return
        self.writes += 1
        self._written[path.lower()] = self.writes, answer


def _changed(interface: Json, pool_id: str, wanted: Collection[str]) -> Json | None:
    """The interface with its IP configurations in the pool or out of it; None if they are right."""
    changed = deepcopy(interface)
    is_other = False
    for record in objects(ids.properties_of(changed).get("ipConfigurations")):
        properties = record.setdefault("properties", {})
        pools = objects(properties.get(MEMBERS))
        others = [pool for pool in pools if ids.key_of(pool) != pool_id.lower()]
        is_in, has_to_be = len(others) < len(pools), ids.key_of(record) in wanted
        if is_in != has_to_be:
            properties[MEMBERS] = [*others, *([{"id": pool_id}] if has_to_be else [])]
            is_other = True
    return changed if is_other else None


def _configurations(machines: Iterable[Machine], version: int) -> list[str]:
    """The IDs of the IP configurations with an address of this version, one a machine."""
    found = list[str]()
    for machine in machines:
        listed = objects(ids.properties_of(machine.interface).get("ipConfigurations"))
        listed.sort(key=lambda item: ids.properties_of(item).get("primary") is not True)
        for configuration in listed:
            ip = text(ids.properties_of(configuration).get("privateIPAddress"))
            if ip and ip_address(ip).version == version:
                found.append(ids.key_of(configuration))
                break
    return found


def _joined(pool: Json) -> set[str]:
    return {
        ids.key_of(record)
        for record in objects(ids.properties_of(pool).get("backendIPConfigurations"))
    }


def _addresses_of(keys: Collection[str], interfaces: Iterable[Json]) -> set[str]:
    """Those of the IP configurations that have these IDs."""
    return {
        text(ids.properties_of(item).get("privateIPAddress"))
        for interface in interfaces
        for item in objects(ids.properties_of(interface).get("ipConfigurations"))
        if ids.key_of(item) in keys
    }


def _entries_of(wanted: Mapping[str, Machine], version: int) -> dict[str, str]:
    return {
        name.lower(): ip
        for name, machine in wanted.items()
        for ip in machine.private
        if ip_address(ip).version == version
    }


def _entries(pool: Json) -> dict[str, str]:
    listed = objects(ids.properties_of(pool).get(ADDRESSES))
    return {text(item.get("name")).lower(): _ip(item) for item in listed}


def _ip(entry: Json) -> str:
    return text(ids.properties_of(entry).get("ipAddress"))


def _entry(name: str, ip: str) -> Json:
    return {"name": name, "properties": {"ipAddress": ip}}
