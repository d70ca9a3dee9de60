"""What vCenter says about Nodes: one read of each for all of them, and three answers, never two."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from ccm.cloud.lookup import describe_in_batches, read_each
from ccm.errors import CloudError
from ccm.model.cloud import Answer, Instance, NodeAddress, Unknown
from ccm.model.objects import Node
from ccm.providers.vsphere import ids
from ccm.providers.vsphere.addresses import NoAddress, addresses_of
from ccm.providers.vsphere.config import VsphereConfig
from ccm.providers.vsphere.guest_os import guest_os
from ccm.providers.vsphere.inventory import MAX_DOUBTS, Inventory, InventoryReader, Machine
from ccm.providers.vsphere.search import Found, Search
from ccm.providers.vsphere.tags import Tag, TagReader
from ccm.providers.vsphere.vcenter import VCenterApi
from ccm.providers.vsphere.zones import Topology, chains_of, topology_of

log = logging.getLogger(__name__)

BATCH = 500  # Nodes; a read has all machines anyway


class VsphereInstances:
    """Looks Nodes up by the UUID in their provider ID; new ones by the kubelet's, or by name."""

    batch_size = BATCH

    def __init__(self, apis: Sequence[VCenterApi], config: VsphereConfig) -> None:
        self._readers = {api.name: InventoryReader(api) for api in apis}
        self._tags = {api.name: TagReader(api) for api in apis}
        self._families = {api.name: api.vcenter.families for api in apis}
        self._config = config
        self._logged: dict[str, str] = {}  # by Node, why it keeps what it has

    def machine_of(self, provider_id: str) -> str:
        """The provider ID as we write it; the UUID may stand in it in capitals."""
        uuid = ids.parse(provider_id)
        return ids.by_uuid(uuid) if uuid else provider_id

    async def missing_permissions(self) -> list[str]:
        """The rights that the logins lack, by vCenter, and what they do not see besides."""
        found = list[str]()
        for reader in self._readers.values():
            inventory = await reader.read()
            found += await reader.missing_permissions(inventory) + inventory.doubts[:MAX_DOUBTS]
        return found

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """Answer for each Node, from one read of each vCenter and one of the tags that matter."""
        return await describe_in_batches(self.batch_size, nodes, _why_unknown, self._describe_batch)

    async def _describe_batch(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        search = Search(await self._read(), self._readers)
        answers = await asyncio.gather(*(self._find(node, search) for node in nodes))
        found = [one for one in answers if isinstance(one, Found)]
        topologies = await self._topologies(found)
        return {
            node.name: self._answer(node, one, topologies[one.machine.moid, one.inventory.vcenter])
            if isinstance(one, Found)
            else one
            for node, one in zip(nodes, answers, strict=True)
        }

    async def _read(self) -> dict[str, Inventory | CloudError]:
        """All vCenters; raises when none could be read."""
        return await read_each({name: one.read() for name, one in self._readers.items()})

    async def _find(self, node: Node, search: Search) -> Found | Answer:
        if not node.provider_id:
            return search.by_node(node)
        return await search.by_uuid(ids.parse(node.provider_id))

    async def _topologies(self, found: Sequence[Found]) -> dict[tuple[str, str], Topology]:
        """Of all machines, by their IDs and vCenters; each vCenter is asked once for all."""
        topologies = {(one.machine.moid, one.inventory.vcenter): Topology() for one in found}
        if not self._config.zone_category:
            return topologies
        for name, reader in self._tags.items():
            here = [one for one in found if one.inventory.vcenter == name]
            chains = {one.machine.moid: chains_of(one.inventory, one.machine) for one in here}
            places = dict.fromkeys(
                place for some in chains.values() for chain in some for place in chain
            )
            tags, why = dict[str, list[Tag]](), ""
            try:
                tags |= await reader.attached(places) if places else {}
            except CloudError as error:
                why = str(error)
            categories = self._config.region_category, self._config.zone_category
            for moid, some in chains.items():
                topologies[moid, name] = (
                    Topology(why_not=why) if why else topology_of(some, tags, *categories)
                )
        return topologies

    def _answer(self, node: Node, found: Found, topology: Topology) -> Answer:
        """A new Node waits until all is known of it; one that is initialized keeps what it has."""
        machine, addresses = found.machine, tuple[NodeAddress, ...]()
        if machine.unread:
            return Unknown(f"machine {found}: {', '.join(machine.unread)} cannot be read")
        if not machine.uuid:
            return Unknown(f"machine {found} tells no UUID")
        doubts = [topology.why_not] if topology.why_not else []
        try:
            families = self._families[found.inventory.vcenter]
            addresses = addresses_of(
                node.name, machine.nics, machine.metadata, self._config, families
            )
        except NoAddress as none:
            doubts.append(str(none))
        why = f"machine {found}: {'; '.join(doubts)}" if doubts else ""
        if why and node.is_uninitialized:
            return Unknown(why)
        self._log_once(node.name, why)
        found.reader.remember(machine)
        return Instance(
            provider_id=node.provider_id or ids.by_uuid(machine.uuid),
            type=type_of(machine),
            zone=topology.zone,
            region=topology.region,
            addresses=addresses,
            power=machine.power,
        )

    def _log_once(self, node: str, why: str) -> None:
        """Log what is not followed on an initialized Node, once for as long as it is so."""
        if not why:
            self._logged.pop(node, None)
        elif self._logged.get(node) != why:
            log.warning("node keeps what it has", extra={"node": node, "why": why})
            self._logged[node] = why


def _why_unknown(node: Node) -> str:
    """Why nothing can be asked about a Node; empty when it can."""
    provider_id = node.provider_id
    if node.is_foreign(ids.PROVIDER_IDS):
        return f"provider ID {provider_id} is of another cloud"
    if provider_id and not ids.parse(provider_id):
        return f"provider ID {provider_id} names no machine"
    return ""


def type_of(machine: Machine) -> str:
    """As upstream says it, such as `vsphere-vm.cpu-4.mem-8gb.os-ubuntu`."""
    get = machine.properties.get
    cpus, megabytes = get("summary.config.numCpu"), get("summary.config.memorySizeMB")
    if not cpus or megabytes is None:
        return ""
    os = guest_os(str(get("summary.config.guestId") or ""))
    return f"vsphere-vm.cpu-{cpus}.mem-{megabytes // 1024}gb.os-{os}"
