"""What Proxmox says about Nodes: one list of each cluster for all, and three answers, never two."""

from collections.abc import Collection, Sequence

from ccm.cloud.lookup import read_each
from ccm.cloud.machines import MachineLookup
from ccm.model.cloud import Answer, Instance, PowerState, Unknown
from ccm.model.objects import Node, label_value
from ccm.providers.proxmox import ids
from ccm.providers.proxmox.addresses import GuestAgents, addresses_of
from ccm.providers.proxmox.config import ProxmoxConfig
from ccm.providers.proxmox.inventory import (
    RUNNING,
    STOPPED,
    Identity,
    Inventory,
    ListedMachine,
)
from ccm.providers.proxmox.search import Found, Search

BATCH = 500  # Nodes; a list has all machines anyway
GIB = 1 << 30
LABELS = "topology.proxmox.sinextra.dev/"
POWER_STATES = {RUNNING: PowerState.RUNNING, STOPPED: PowerState.STOPPED}


class ProxmoxInstances(MachineLookup[Search, Found]):
    """Looks Nodes up by the VMID or UUID in their provider ID, or by name while they have none."""

    provider_ids, batch_size = ids.PROVIDER_IDS, BATCH
    mark_kinds = "tag", "pool"

    def __init__(self, inventories: Sequence[Inventory], config: ProxmoxConfig) -> None:
        self._inventories = {inventory.region: inventory for inventory in inventories}
        self._config = config
        self._agents = {
            inventory.region: GuestAgents(inventory.api, config.network)
            for inventory in inventories
        }

    async def close(self) -> None:
        """Give up what is under way."""
        for agents in self._agents.values():
            await agents.close()

    def machine_of(self, provider_id: str) -> str:
        """Cluster and VMID, or the UUID."""
        match ids.parse(provider_id):
            case ids.Numbered(region, vmid):
                return ids.numbered(self._region(region), vmid)
            case ids.ByUuid(uuid):
                return ids.by_uuid(uuid)
        return ""

    async def missing_permissions(self) -> list[str]:
        """The rights that the tokens lack, by cluster."""
        found = list[str]()
        for region, inventory in self._inventories.items():
            found += await inventory.missing_permissions(self._agents[region].is_asked)
        return found

    def _region(self, written: str) -> str:
        """An old provider ID has no region: it is of the only cluster."""
        only = next(iter(self._inventories)) if len(self._inventories) == 1 else ""
        return written or only

    def why_not_asked(self, node: Node) -> str:
        named = ids.parse(node.provider_id)
        if isinstance(named, ids.Numbered) and self._region(named.region) not in self._inventories:
            return f"provider ID {node.provider_id} is in no cluster of the configuration"
        return super().why_not_asked(node)

    async def prepare(self, machines: Sequence[Found], listing: Search) -> None:
        """Ask the guests for their addresses."""
        for region, agents in self._agents.items():
            await agents.ask(
                [
                    (machine.machine, machine.identity)
                    for machine in machines
                    if machine.inventory.region == region
                    and machine.identity
                    and machine.machine.status == RUNNING
                ]
            )

    async def read(self, nodes: Sequence[Node]) -> Search:
        """One list of each cluster that these Nodes may be in."""
        named = [ids.parse(node.provider_id) for node in nodes]
        regions = {self._region(item.region) for item in named if isinstance(item, ids.Numbered)}
        is_anywhere = any(not isinstance(item, ids.Numbered) for item in named)
        asked = [
            inventory for inventory in self._inventories if is_anywhere or inventory in regions
        ]
        lists = await read_each({region: self._inventories[region].read() for region in asked})
        return Search(lists, self._inventories)

    async def find(self, node: Node, listing: Search) -> Sequence[Found] | Answer:
        """New ones cost a read more, once."""
        match ids.parse(node.provider_id):
            case ids.Numbered(region, vmid):
                return await listing.by_vmid(node, self._region(region), vmid)
            case ids.ByUuid(uuid):
                return await listing.by_uuid(node, uuid)
        return await listing.by_name(node)

    async def prove_gone(self, node: Node, listing: Search) -> Answer:
        """By the host that it was on last; or every machine was read, and has another UUID."""
        match ids.parse(node.provider_id):
            case ids.Numbered(region, vmid):
                return await listing.prove_vmid(self._region(region), vmid)
            case ids.ByUuid(uuid):
                return await listing.prove_uuid(node, uuid)
        return Unknown("a Node without a provider ID is never gone")

    def marks(self, machine: Found) -> Collection[str]:
        listed = machine.machine
        return {f"pool:{listed.pool}", *(f"tag:{tag}" for tag in listed.tags)}

    async def instance(self, node: Node, found: Found, listing: Search) -> Answer:
        machine, region = found.machine, found.inventory.region
        identity = found.identity
        numbered, uuid = ids.numbered(region, machine.vmid), identity.uuid if identity else ""
        if self._config.has_uuid_ids and not (node.provider_id or uuid):
            return Unknown(f"machine {machine.vmid} of {region} has no UUID in its smbios1")
        by_uuid = ids.by_uuid(uuid) if uuid else ""
        own = by_uuid if self._config.has_uuid_ids else numbered
        reported = self._agents[region].reported(machine, identity)
        labels = {f"{LABELS}region": label_value(region), f"{LABELS}zone": machine.host}
        return Instance(
            provider_id=node.provider_id or own,
            type=type_of(machine, identity),
            zone=machine.host,
            region=label_value(region),
            addresses=addresses_of(node, reported, self._config.network),
            labels=labels,
            power=POWER_STATES.get(machine.status, PowerState.UNKNOWN),
            aliases=tuple(filter(None, (numbered, by_uuid))),
            names=(machine.name,),
            system_uuid=uuid,
        )


def type_of(machine: ListedMachine, identity: Identity | None) -> str:
    """The SKU in its configuration, or its size, such as `4VCPU-8GB`."""
    size = f"{machine.cpus}VCPU-{machine.memory_bytes // GIB}GB" if machine.cpus else ""
    return identity.sku if identity and identity.sku else size
