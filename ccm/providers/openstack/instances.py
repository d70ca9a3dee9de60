"""What Nova says about Nodes: many to a call, and three answers, never two."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from itertools import islice
from urllib.parse import quote

from ccm.cloud.lookup import MAX_PARTS
from ccm.cloud.machines import Listing, MachineLookup, join_reasons
from ccm.cloud.shared_read import SharedRead
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
MOST_FILTERS = 3  # requests for one batch; for longer names all servers are listed instead
MAX_SINGLE_READS = 10  # by ID for one batch; more servers than these are listed instead
OFF = ("SHUTOFF", "SHELVED", "SHELVED_OFFLOADED")
"""Powered off. A paused or suspended server keeps its memory, so its volumes are in use."""
GONE = ("DELETED", "SOFT_DELETED")
UNKNOWN_ZONE = "BUILD"  # the state in which a server has no zone and no addresses yet


@dataclass(slots=True)
class Servers(Listing[str, Json]):
    """Nova's records; names are exact, and several servers may have one.

    `single` is what it answers about IDs without a record; `is_all` when the list is not filtered.
    """

    by_name: dict[str, list[Json]] = field(default_factory=lambda: defaultdict(list))
    single: dict[str, Gone | Unknown] = field(default_factory=dict)
    is_all: bool = False

    def add(self, records: Iterable[Json]) -> None:
        for record in records:
            server_id = text(record.get("id")).lower()
            if server_id not in self.by_id and text(record.get("status")) not in GONE:
                self.by_name[text(record.get("name"))].append(record)
            if server_id:
                self.by_id[server_id] = record
            else:
                self.incomplete_reasons.append("ListServers: a server in the answer has no ID")

    def candidates(self, node: Node) -> list[Json]:
        """The servers that a Node may be."""
        if node.provider_id:
            server = self.by_id.get(ids.server_id_of(node.provider_id))
            return [server] if server else []
        return self.by_name[node.name]


class OpenStackInstances(MachineLookup[Servers, Json]):
    """Looks Nodes up by name, as servers are named like their Nodes; what has an ID goes by it."""

    provider_ids, batch_size, noun = ids.PROVIDER_IDS, BATCH, "server"
    mark_kinds = "network", "metadata"

    def __init__(self, api: OpenStackApi, networking: NetworkingSection, is_regional: bool) -> None:
        self._api, self._networking, self._is_regional = api, networking, is_regional
        self._list_all = SharedRead(self._read_all)

    def machine_of(self, provider_id: str) -> str:
        """The server's ID: the region may be written or not."""
        return ids.server_id_of(provider_id)

    def why_not_asked(self, node: Node) -> str:
        region, ours = ids.region_of(node.provider_id), self._api.region
        if region and ours and region != ours:
            return f"provider ID {node.provider_id} is of region {region}; ours is {ours}"
        return super().why_not_asked(node)

    async def read(self, nodes: Sequence[Node]) -> Servers:
        """One call for the servers named so; what is missing then is looked for in other ways."""
        servers, filters = Servers(), [*names_filters([node.name for node in nodes])]
        for names in filters if len(filters) <= MOST_FILTERS else ():
            servers.add(await self._list(name=names))
        missing = [node for node in nodes if not servers.candidates(node)]
        if len(missing) > MAX_SINGLE_READS or not all(node.provider_id for node in missing):
            servers.add(await self._list())
            servers.is_all = True
            return servers
        asked = [ids.server_id_of(node.provider_id) for node in missing]
        for server_id, got in zip(asked, await asyncio.gather(*map(self._get, asked)), strict=True):
            if isinstance(got, Gone | Unknown):
                servers.single[server_id] = got
            else:  # it has another name than its Node
                servers.add([got])
        return servers

    async def find(self, node: Node, listing: Servers) -> Sequence[Json] | Answer:
        found = listing.candidates(node)
        if found:
            return found
        if node.provider_id:
            return listing.single.get(ids.server_id_of(node.provider_id), [])
        return none_of(listing) if listing.by_id else Unknown("Nova lists no server at all")

    async def prove_gone(self, node: Node, listing: Servers) -> Answer:
        """By a list of all servers of the project, where there are any at all, and by its ID.

        An empty list may be of a wrong project or follow from a policy: then the ID alone counts.
        A list leaves out what is in a cell that does not answer: then a request by ID fails.
        """
        server_id = ids.server_id_of(node.provider_id)
        servers = listing if listing.is_all else await self._list_all()
        listed = servers.by_id.get(server_id, {})
        is_called_gone = listed.get("status") in GONE  # by the kind of read that found it before
        found: Json | Gone | Unknown | None = None if is_called_gone else listed
        if not found and (why := join_reasons(servers.incomplete_reasons)):
            return Unknown(why)
        found = found or listing.single.get(server_id) or await self._get(server_id)
        if isinstance(found, Gone) and servers.by_id:
            return none_of(servers)
        if isinstance(found, Gone | Unknown):
            return found
        return await self.instance(node, found, servers)

    def marks(self, machine: Json) -> Collection[str]:
        metadata = mapping(machine.get("metadata")).items()
        return {
            *(f"network:{name}" for name in mapping(machine.get("addresses"))),
            *(f"metadata:{key}={value}" for key, value in metadata),
        }

    def label(self, machine: Json) -> str:
        return text(machine.get("id"))

    async def instance(self, node: Node, machine: Json, listing: Servers) -> Answer:
        region = self._api.region
        answer = read_server(machine, self._networking, region)
        if not isinstance(answer, Instance):
            return answer
        in_id = region if self._is_regional else ""
        own = node.provider_id or ids.provider_id(answer.provider_id, in_id)
        return replace(answer, provider_id=own)

    async def _get(self, server_id: str) -> Json | Gone | Unknown:
        """By ID: a server may have another name than its Node."""
        try:
            answer = await self._api.get("GetServer", "compute", f"/servers/{server_id}")
        except NotFound as error:
            return Gone(f"Nova has no server {server_id}: {error}")
        except CloudError as error:
            return Unknown(str(error))
        server = dict(mapping(answer.get("server")))
        if text(server.get("id")).lower() != server_id:
            return Unknown(f"Nova's answer is not about server {server_id}")
        return server

    async def _read_all(self) -> Servers:
        servers = Servers(is_all=True)
        servers.add(await self._list())
        return servers

    async def _list(self, **query: str) -> Sequence[Json]:
        """The servers of the project that the query selects."""
        path = "/servers/detail"
        return await self._api.pages("ListServers", "compute", path, "servers", **query)


def none_of(servers: Servers) -> Gone:
    return Gone(f"none of the {len(servers.by_id)} servers that Nova lists has this ID or name")


def names_filters(names: Sequence[str]) -> Iterator[str]:
    """Nova's filter for these names and hardly any other; several where one would be too long.

    It is a regular expression of the database behind Nova, which quotes `|` on MySQL; a row of
    optional groups does the same. Each ends the name: parts of names in a row would be tried in
    exponentially many ways. Whether case counts depends on the database.
    """
    some, length = list[str](), 0
    for name in names:
        group = "({}$)?".format(re.sub(r"([^A-Za-z0-9-])", r"\\\1", name))
        if some and length + len(quote(group)) > MAX_FILTER:
            yield f"^{''.join(some)}$"
            some, length = [], 0
        some.append(group)
        length += len(quote(group))
    if some:
        yield f"^{''.join(some)}$"


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
    except ValueError as error:
        return Unknown(f"Nova's record of {server_id} has a wrong address: {error}")
    return Instance(
        provider_id=server_id,
        type=label_value(text(mapping(server.get("flavor")).get("original_name"))),
        zone=label_value(zone),
        region=label_value(region),
        addresses=addresses,
        power=PowerState.STOPPED if status in OFF else PowerState.RUNNING,
        names=(text(server.get("name")),),
        system_uuid=server_id,
    )


def addresses_of(server: Json, networking: NetworkingSection) -> tuple[NodeAddress, ...]:
    """A server's addresses, each once per type; ValueError when one is no IP.

    Network by network in the order of their names, which does not change while ports come and go:
    fixed addresses are InternalIP, those in a public network and floating ones ExternalIP; where
    internal networks are named, fixed addresses in others are not. Then `accessIPv4`,
    `accessIPv6` and the host name of the metadata; at last all is sorted as configured.
    """
    found = dict.fromkeys(islice(_addresses(server, networking), MAX_PARTS))
    if networking.ipv6_support_disabled:
        found = {
            item: None for item in found if item.type is AddressType.HOSTNAME or _version(item) < 6
        }
    return tuple(sorted(found, key=lambda item: _position(item, networking)))


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
