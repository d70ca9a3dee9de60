"""What Proxmox says about Nodes: one list of each cluster for all, and three answers, never two."""

import asyncio
from collections.abc import Mapping, Sequence

from ccm.cloud.lookup import describe_in_batches, read_each
from ccm.errors import CloudError
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
    MachineList,
)
from ccm.providers.proxmox.search import Found, Search

BATCH = 500  # Nodes; a list has all machines anyway
GIB = 1 << 30
LABELS = "topology.proxmox.sinextra.dev/"
POWER_STATES = {RUNNING: PowerState.RUNNING, STOPPED: PowerState.STOPPED}


class ProxmoxInstances:
    """Looks Nodes up by the VMID or UUID in their provider ID, or by name while they have none."""

    batch_size = BATCH

    def __init__(self, inventories: Sequence[Inventory], config: ProxmoxConfig) -> None:
        self._inventories = {one.region: one for one in inventories}
        self._config = config
        self._agents = {one.region: GuestAgents(one.api, config.network) for one in inventories}

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
        return provider_id

    async def missing_permissions(self) -> list[str]:
        """The rights that the tokens lack, by cluster."""
        found = list[str]()
        for region, inventory in self._inventories.items():
            found += await inventory.missing_permissions(self._agents[region].is_asked)
        return found

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """Answer for each Node, from one list of each cluster; new ones cost a read more, once."""
        return await describe_in_batches(
            self.batch_size, nodes, self._why_unknown, self._describe_batch
        )

    def _region(self, written: str) -> str:
        """An old provider ID has no region: it is of the only cluster."""
        only = next(iter(self._inventories)) if len(self._inventories) == 1 else ""
        return written or only

    def _why_unknown(self, node: Node) -> str:
        """Why nothing can be asked about a Node; empty when it can."""
        provider_id = node.provider_id
        if node.is_foreign(ids.PROVIDER_IDS):
            return f"provider ID {provider_id} is of another cloud"
        named = ids.parse(provider_id)
        if provider_id and named is None:
            return f"provider ID {provider_id} names no machine"
        if isinstance(named, ids.Numbered) and self._region(named.region) not in self._inventories:
            return f"provider ID {provider_id} is in no cluster of the configuration"
        return ""

    async def _describe_batch(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        search = Search(await self._read(nodes), self._inventories)
        found = await asyncio.gather(*(self._find(node, search) for node in nodes))
        for region, agents in self._agents.items():
            machines = [one for one in found if isinstance(one, Found)]
            await agents.ask(
                [
                    (one.machine, one.identity)
                    for one in machines
                    if one.inventory.region == region
                    and one.identity
                    and one.machine.status == RUNNING
                ]
            )
        return {
            node.name: self._answer(node, one) if isinstance(one, Found) else one
            for node, one in zip(nodes, found, strict=True)
        }

    async def _read(self, nodes: Sequence[Node]) -> dict[str, MachineList | CloudError]:
        """The lists of the clusters that these Nodes may be in; raises when none could be read."""
        named = [ids.parse(node.provider_id) for node in nodes]
        regions = {self._region(one.region) for one in named if isinstance(one, ids.Numbered)}
        is_anywhere = any(not isinstance(one, ids.Numbered) for one in named)
        asked = [one for one in self._inventories if is_anywhere or one in regions]
        return await read_each({region: self._inventories[region].read() for region in asked})

    async def _find(self, node: Node, search: Search) -> Found | Answer:
        try:
            match ids.parse(node.provider_id):
                case ids.Numbered(region, vmid):
                    return await search.by_vmid(node, self._region(region), vmid)
                case ids.ByUuid(uuid):
                    return await search.by_uuid(node, uuid)
            return await search.by_name(node)
        except CloudError as error:
            return Unknown(str(error))

    def _answer(self, node: Node, found: Found) -> Answer:
        machine, region = found.machine, found.inventory.region
        identity = found.identity
        provider_id = node.provider_id or ids.numbered(region, machine.vmid)
        if not node.provider_id and self._config.has_uuid_ids:
            if not identity or not identity.uuid:
                return Unknown(f"machine {machine.vmid} of {region} has no UUID in its smbios1")
            provider_id = ids.by_uuid(identity.uuid)
        told = self._agents[region].told(machine, identity)
        labels = {f"{LABELS}region": label_value(region), f"{LABELS}zone": machine.host}
        return Instance(
            provider_id=provider_id,
            type=type_of(machine, identity),
            zone=machine.host,
            region=label_value(region),
            addresses=addresses_of(node, told, self._config.network),
            labels=labels,
            power=POWER_STATES.get(machine.status, PowerState.UNKNOWN),
        )


def type_of(machine: ListedMachine, identity: Identity | None) -> str:
    """The SKU in its configuration, or its size, such as `4VCPU-8GB`."""
    size = f"{machine.cpus}VCPU-{machine.memory_bytes // GIB}GB" if machine.cpus else ""
    return identity.sku if identity and identity.sku else size
