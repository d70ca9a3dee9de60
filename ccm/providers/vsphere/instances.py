"""What vCenter says about Nodes: one read of each for all of them, and three answers, never two."""

import logging
from collections.abc import Collection, Sequence
from urllib.parse import unquote

from ccm.cloud.lookup import NOT_UNDERSTOOD, read_each
from ccm.cloud.machines import MAX_REASONS, MachineLookup
from ccm.cloud.newest import Newest
from ccm.errors import CloudError
from ccm.model.cloud import Answer, Instance, NodeAddress, Unknown, swapped_uuid
from ccm.model.objects import Node
from ccm.providers.vsphere import ids
from ccm.providers.vsphere.addresses import NoAddress, addresses_of
from ccm.providers.vsphere.config import VsphereConfig
from ccm.providers.vsphere.guest_os import guest_os
from ccm.providers.vsphere.inventory import InventoryReader, Machine, machine_parents
from ccm.providers.vsphere.search import Found, Search
from ccm.providers.vsphere.tags import Tag, TagReader
from ccm.providers.vsphere.vcenter import VCenterApi
from ccm.providers.vsphere.zones import Topology, chains_of, topology_of

log = logging.getLogger(__name__)

BATCH = 500  # Nodes; a read has all machines anyway
PLACE_KINDS = {
    "Folder": "folder",
    "Datacenter": "datacenter",
    "ClusterComputeResource": "cluster",
    "ResourcePool": "pool",
}


class VsphereInstances(MachineLookup[Search, Found]):
    """Looks Nodes up by the UUID in their provider ID; new ones by the kubelet's, or by name."""

    provider_ids, batch_size = ids.PROVIDER_IDS, BATCH
    mark_kinds = tuple(PLACE_KINDS.values())

    def __init__(self, apis: Sequence[VCenterApi], config: VsphereConfig) -> None:
        self._readers = {api.name: InventoryReader(api) for api in apis}
        self._tags = {api.name: TagReader(api) for api in apis}
        self._families = {api.name: api.vcenter.families for api in apis}
        self._config = config
        self._logged = Newest[str, str]()  # by Node, why it keeps what it has

    def machine_of(self, provider_id: str) -> str:
        """By its UUID in small letters, whichever order of bytes it is written in."""
        uuid = ids.parse(provider_id)
        return ids.by_uuid(min(uuid, swapped_uuid(uuid))) if uuid else ""

    async def missing_permissions(self) -> list[str]:
        """The rights that the logins lack, by vCenter, and what they do not see besides."""
        found = list[str]()
        for reader in self._readers.values():
            inventory = await reader.read()
            found += (
                await reader.missing_permissions(inventory)
                + inventory.incomplete_reasons[:MAX_REASONS]
            )
        return found

    async def read(self, nodes: Sequence[Node]) -> Search:
        """One read of each vCenter."""
        read = await read_each({name: item.read() for name, item in self._readers.items()})
        return Search(read, self._readers)

    async def find(self, node: Node, listing: Search) -> Sequence[Found] | Answer:
        if not node.provider_id:
            return await listing.by_node(node)
        return listing.by_uuid(ids.parse(node.provider_id))

    async def prepare(self, machines: Sequence[Found], listing: Search) -> None:
        """One read of the tags that matter."""
        listing.topologies = await self._topologies(machines)

    async def why_incomplete(self, nodes: Sequence[Node], listing: Search) -> Sequence[str]:
        """Also rights that the login lacks."""
        return await listing.why_incomplete()

    async def prove_gone(self, node: Node, listing: Search) -> Answer:
        return await listing.prove_gone(ids.parse(node.provider_id))

    async def _topologies(self, found: Sequence[Found]) -> dict[tuple[str, str], Topology]:
        """Of all machines, by their IDs and vCenters; each vCenter is asked once for all."""
        topologies = {(item.machine.moid, item.inventory.vcenter): Topology() for item in found}
        if not self._config.zone_category:
            return topologies
        for name, reader in self._tags.items():
            here = [item for item in found if item.inventory.vcenter == name]
            chains = {item.machine.moid: chains_of(item.inventory, item.machine) for item in here}
            places = dict.fromkeys(
                place for some in chains.values() for chain in some for place in chain
            )
            tags, why = dict[str, list[Tag]](), ""
            try:
                tags |= await reader.attached(places) if places else {}
            except (CloudError, *NOT_UNDERSTOOD) as error:
                why = str(error)
            categories = self._config.region_category, self._config.zone_category
            for moid, some in chains.items():
                topologies[moid, name] = (
                    Topology(why_not=why) if why else topology_of(some, tags, *categories)
                )
        return topologies

    def marks(self, machine: Found) -> Collection[str]:
        """All that it is in, from the inside out."""
        inventory = machine.inventory
        return {
            f"{PLACE_KINDS[place.kind]}:{unquote(place.name)}"
            for start in machine_parents(machine.machine)
            for place in inventory.chain(start)
            if place.kind in PLACE_KINDS
        }

    async def instance(self, node: Node, found: Found, listing: Search) -> Answer:
        """A new Node waits until all is known of it; one that is initialized keeps what it has."""
        machine, addresses = found.machine, tuple[NodeAddress, ...]()
        topology = listing.topologies[machine.moid, found.inventory.vcenter]
        if machine.unread:
            return Unknown(f"machine {found}: {', '.join(machine.unread)} cannot be read")
        if not machine.uuid:
            return Unknown(f"machine {found} has no UUID")
        reasons = [topology.why_not] if topology.why_not else []
        try:
            families = self._families[found.inventory.vcenter]
            addresses = addresses_of(
                node.name, machine.nics, machine.metadata, self._config, families
            )
        except NoAddress as error:
            reasons.append(str(error))
        why = f"machine {found}: {'; '.join(reasons)}" if reasons else ""
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
            names=(machine.name, *machine.guest_names()),
            system_uuid=machine.uuid,
        )

    def _log_once(self, node: str, why: str) -> None:
        """Log what is not followed on an initialized Node, once for as long as it is so."""
        if not why:
            self._logged.pop(node, None)
        elif self._logged.get(node) != why:
            log.warning("node keeps what it has", extra={"node": node, "why": why})
            self._logged[node] = why


def type_of(machine: Machine) -> str:
    """As upstream says it, such as `vsphere-vm.cpu-4.mem-8gb.os-ubuntu`."""
    get = machine.properties.get
    cpus, megabytes = get("summary.config.numCpu"), get("summary.config.memorySizeMB")
    if not cpus or megabytes is None:
        return ""
    os = guest_os(str(get("summary.config.guestId") or ""))
    return f"vsphere-vm.cpu-{cpus}.mem-{megabytes // 1024}gb.os-{os}"
