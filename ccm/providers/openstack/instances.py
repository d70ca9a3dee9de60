"""What Nova says about Nodes: many to a call, and three answers, never two."""

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from urllib.parse import quote

from ccm.cloud.lookup import batches, describe_in_batches, one_answer
from ccm.errors import CloudError, NotFound
from ccm.model.cloud import (
    UUID,
    AddressType,
    Answer,
    Gone,
    Instance,
    NodeAddress,
    PowerState,
    Unknown,
)
from ccm.model.objects import Json, Node, label_value, mapping, objects, text
from ccm.providers.openstack import ids
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.config import NetworkingSection

BATCH = 100
MAX_FILTER = 6000  # characters of names in one request; servers take a line of 8 KB
MAX_SINGLE_READS = 10  # by ID for one batch; more servers than these are listed instead
OFF = ("SHUTOFF", "SHELVED", "SHELVED_OFFLOADED")
"""Powered off. A paused or suspended server keeps its memory, so its volumes are in use."""
GONE = ("DELETED", "SOFT_DELETED")
UNKNOWN_ZONE = "BUILD"  # the state in which a server has no zone and no addresses yet


@dataclass(frozen=True, slots=True)
class Servers:
    """Nova's records; names are exact, and several servers may have one."""

    by_id: dict[str, Json] = field(default_factory=dict)
    by_name: dict[str, list[Json]] = field(default_factory=lambda: defaultdict(list))

    def add(self, more: "Servers") -> None:
        """Take up what another call has found."""
        self.by_id.update(more.by_id)
        self.by_name.update(more.by_name)


class OpenStackInstances:
    """Looks Nodes up by name, as servers are named like their Nodes; what has an ID goes by it."""

    batch_size = BATCH

    def __init__(self, api: OpenStackApi, networking: NetworkingSection, is_regional: bool) -> None:
        self._api, self._networking, self._is_regional = api, networking, is_regional

    def machine_of(self, provider_id: str) -> str:
        """The server's ID: the region may be written or not."""
        return ids.server_id_of(provider_id) or provider_id

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """Answer for each Node; a batch that failed makes only its own Nodes `Unknown`."""
        batch = self._describe_batch
        return await describe_in_batches(self.batch_size, nodes, self._why_unknown, batch)

    async def confirm_gone(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """The same of Nodes that have an ID, from a list of all servers."""
        batch = self._list_all
        return await describe_in_batches(self.batch_size, nodes, self._why_unknown, batch)

    def _why_unknown(self, node: Node) -> str:
        """Why nothing can be asked about a Node; empty when it can."""
        provider_id = node.provider_id
        if node.is_foreign(ids.PROVIDER_IDS):
            return f"provider ID {provider_id} is of another cloud"
        if provider_id and not ids.server_id_of(provider_id):
            return f"provider ID {provider_id} names no server"
        region, ours = ids.region_of(provider_id), self._api.region
        if region and ours and region != ours:
            return f"provider ID {provider_id} is of region {region}; ours is {ours}"
        return ""

    async def _describe_batch(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        """One call for the servers named so; what is missing then is looked for in other ways."""
        found = Servers()
        for names in names_filters([node.name for node in nodes]):
            found.add(await self._servers(name=names))
        answers = {node.name: one for node in nodes if (one := self._find(node, found))}
        missing = [node for node in nodes if node.name not in answers]
        if len(missing) > MAX_SINGLE_READS or not all(node.provider_id for node in missing):
            return answers | await self._list_all(missing)
        read = await asyncio.gather(*map(self._get, missing))
        return answers | {node.name: one for node, one in zip(missing, read, strict=True)}

    def _find(self, node: Node, servers: Servers) -> Answer | None:
        """The answer about a Node from what was found, if its server is there."""
        if node.provider_id:
            server = servers.by_id.get(ids.server_id_of(node.provider_id))
            return self._read(server, node) if server else None
        read = [self._read(server, node) for server in servers.by_name[node.name]]
        return one_answer(read, f"servers are named {node.name}") if read else None

    async def _get(self, node: Node) -> Answer:
        """By ID: a server may have another name than its Node."""
        server_id = ids.server_id_of(node.provider_id)
        try:
            answer = await self._api.get("GetServer", "compute", f"/servers/{server_id}")
        except NotFound as error:
            return Gone(f"Nova has no server {server_id}: {error}")
        except CloudError as error:
            return Unknown(str(error))
        server = dict(mapping(answer.get("server")))
        if text(server.get("id")).lower() != server_id:
            return Unknown(f"Nova's answer is not about server {server_id}")
        return self._read(server, node)

    async def _list_all(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        """From all servers of the project: what a complete list leaves out is gone."""
        servers = await self._servers()
        count = len(servers.by_id)
        if count:
            gone = Gone(f"none of the {count} servers that Nova lists has this ID or name")
            return {node.name: self._find(node, servers) or gone for node in nodes}
        # A wrong project, or a policy: an empty list says nothing about Nodes.
        some = [node for node in nodes if node.provider_id][:MAX_SINGLE_READS]
        read = await asyncio.gather(*map(self._get, some))
        unknown = {node.name: Unknown("Nova lists no server at all") for node in nodes}
        return unknown | {node.name: one for node, one in zip(some, read, strict=True)}

    async def _servers(self, **query: str) -> Servers:
        """The servers of the project that the query selects."""
        path = "/servers/detail"
        servers = Servers()
        for record in await self._api.pages("ListServers", "compute", path, "servers", **query):
            servers.by_id[text(record.get("id")).lower()] = record
            servers.by_name[text(record.get("name"))].append(record)
        return servers

    def _read(self, server: Json, node: Node) -> Answer:
        region = self._api.region
        answer = read_server(server, self._networking, region)
        if not isinstance(answer, Instance):
            return answer
        in_id = region if self._is_regional else ""
        own = node.provider_id or ids.provider_id(answer.provider_id, in_id)
        return replace(answer, provider_id=own)


def names_filters(names: Sequence[str]) -> Iterator[str]:
    """Nova's filter for these names and hardly any other; several where one would be too long.

    It is a regular expression of the database behind Nova, which quotes `|` on MySQL; a row of
    optional groups does the same. Whether case counts depends on the database.
    """
    quoted = [re.sub(r"([^A-Za-z0-9-])", r"\\\1", name) for name in names]
    length = sum(len(quote(f"({name})?")) for name in quoted)
    for some in batches(quoted, BATCH // math.ceil(length / MAX_FILTER)):
        yield f"^{''.join(f'({name})?' for name in some)}$"


def read_server(server: Json, networking: NetworkingSection, region: str) -> Answer:
    """The answer in one record, with the server's ID in place of a provider ID."""
    server_id, status = text(server.get("id")).lower(), text(server.get("status"))
    if not UUID.fullmatch(server_id) or not status:
        return Unknown("Nova's record lacks an ID or a status")
    if status in GONE:
        return Gone(f"server {server_id} is {status}")
    zone = text(server.get("OS-EXT-AZ:availability_zone"))
    if status == UNKNOWN_ZONE or not isinstance(server.get("addresses"), dict):
        return Unknown(f"server {server_id} is {status} and has no addresses yet")
    try:
        addresses = addresses_of(server, networking)
    except ValueError as wrong:
        return Unknown(f"Nova's record of {server_id} has a wrong address: {wrong}")
    return Instance(
        provider_id=server_id,
        type=label_value(text(mapping(server.get("flavor")).get("original_name"))),
        zone=label_value(zone),
        region=label_value(region),
        addresses=addresses,
        power=PowerState.STOPPED if status in OFF else PowerState.RUNNING,
    )


def addresses_of(server: Json, networking: NetworkingSection) -> tuple[NodeAddress, ...]:
    """A server's addresses, each once per type; ValueError when one is no IP.

    Network by network in the order of their names, which does not change while ports come and go:
    fixed addresses are InternalIP, those in a public network and floating ones ExternalIP; where
    internal networks are named, fixed addresses in others are none. Then `accessIPv4`,
    `accessIPv6` and the host name of the metadata; at last all is sorted as configured.
    """
    found = dict.fromkeys(_addresses(server, networking))
    if networking.ipv6_support_disabled:
        found = {
            one: None for one in found if one.type is AddressType.HOSTNAME or _version(one) < 6
        }
    return tuple(sorted(found, key=lambda one: _position(one, networking)))


def _addresses(server: Json, networking: NetworkingSection) -> Iterator[NodeAddress]:
    for network, entries in sorted(mapping(server.get("addresses")).items()):
        for entry in objects(entries):
            kind = _type(network, entry, networking)
            if kind and (ip := text(entry.get("addr"))):
                yield NodeAddress(kind, str(ip_address(ip)))
    for key in ("accessIPv4", "accessIPv6"):
        if ip := text(server.get(key)):
            yield NodeAddress(AddressType.EXTERNAL_IP, str(ip_address(ip)))
    if name := text(mapping(server.get("metadata")).get("hostname")):
        yield NodeAddress(AddressType.HOSTNAME, name)


def _type(network: str, entry: Json, networking: NetworkingSection) -> AddressType | None:
    if entry.get("OS-EXT-IPS:type") == "floating" or network in networking.public_network_name:
        return AddressType.EXTERNAL_IP
    is_internal = network in (networking.internal_network_name or (network,))
    return AddressType.INTERNAL_IP if is_internal else None


def _version(address: NodeAddress) -> int:
    return ip_address(address.address).version


def _position(address: NodeAddress, networking: NetworkingSection) -> tuple[int, int]:
    """Where `address-sort-order` puts it: by the first network that holds it, then by value."""
    order = networking.sort_order
    if order and address.type is not AddressType.HOSTNAME:
        ip = ip_address(address.address)
        for at, network in enumerate(order):
            if ip in network:
                return at, int(ip)
    return len(order), 0
