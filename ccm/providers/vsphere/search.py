"""Which machine is a Node's: by UUID in both orders of bytes, else by name; never a likely one."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ccm.cloud.lookup import in_turns
from ccm.cloud.machines import join_reasons
from ccm.errors import CloudError
from ccm.model.cloud import Answer, Gone, Unknown, swapped_uuid
from ccm.model.objects import Node
from ccm.providers.vsphere import ids
from ccm.providers.vsphere.inventory import Inventory, InventoryReader, Machine
from ccm.providers.vsphere.zones import Topology


@dataclass(frozen=True, slots=True)
class Found:
    """The machine of a Node, and in which vCenter it is."""

    reader: InventoryReader
    inventory: Inventory
    machine: Machine

    def __str__(self) -> str:
        return f"{self.machine.name} ({self.machine.moid}) of {self.inventory.vcenter}"


_Index = defaultdict[str, list[Found]]


class Search:
    """Finds the machines of the Nodes of one batch in what was read for it."""

    def __init__(
        self,
        inventories: Mapping[str, Inventory | CloudError],
        readers: Mapping[str, InventoryReader],
    ) -> None:
        self._readers = readers
        self._read = {
            name: item for name, item in inventories.items() if isinstance(item, Inventory)
        }
        self._by_name: _Index | None = None
        self._indexing = asyncio.Lock()
        self.topologies: Mapping[tuple[str, str], Topology] = {}
        self._failed = [
            str(inventory)
            for inventory in inventories.values()
            if isinstance(inventory, CloudError)
        ]

    def by_uuid(self, uuid: str) -> list[Found]:
        """The machines with this UUID, in the order of bytes that there is one for.

        A copy elsewhere than in our datacenters is no Node's, while there is one in them.
        """
        found = self._with_uuid(uuid) or self._with_uuid(swapped_uuid(uuid))
        return [item for item in found if self._is_ours(item)] or found

    async def why_incomplete(self) -> list[str]:
        """Why a machine may be missing in what was read."""
        reasons = [*self._failed]
        for name, inventory in self._read.items():
            reasons += inventory.incomplete_reasons
            reasons = reasons or await self._readers[name].missing_permissions(inventory)
        return reasons

    async def prove_gone(self, uuid: str) -> Answer:
        """Gone when the index of every vCenter says so as well."""
        for reader in self._readers.values():
            if why := await reader.why_kept(uuid):
                return Unknown(why)
        return Gone(f"no vCenter has a machine with UUID {uuid}, by its inventory and its index")

    async def by_node(self, node: Node) -> Sequence[Found] | Answer:
        """The one machine that is a new Node's; it is never called gone."""
        uuid = ids.read_uuid(node.system_uuid)
        forms = dict.fromkeys((uuid, swapped_uuid(uuid))) if uuid else ()
        found = [item for form in forms for item in self._with_uuid(form) if self._is_ours(item)]
        found = found or await self._called(node.name)
        if len(found) > 1:
            return found
        if not found:
            return Unknown(self._why_not_found(node))
        item = found[0]
        if uuid and item.machine.uuid not in (uuid, swapped_uuid(uuid), ""):
            has = f"has UUID {item.machine.uuid}, and the kubelet read {uuid}"
            return Unknown(f"machine {item} has the Node's name, but not its UUID: it {has}")
        if not uuid and self._failed:
            return Unknown(join_reasons(self._failed))
        return found

    def _with_uuid(self, uuid: str) -> list[Found]:
        return [
            Found(self._readers[name], inventory, machine)
            for name, inventory in self._read.items()
            for machine in inventory.with_uuid(uuid)
        ]

    async def _called(self, name: str) -> list[Found]:
        """Those whose guest is called so, or that vCenter calls so."""
        async with self._indexing:
            if self._by_name is None:
                self._by_name = await self._index()
        return self._by_name.get(name.lower(), [])

    async def _index(self) -> _Index:
        """Those that a new Node may be on, by their guests' names and by those in vCenter."""
        index = _Index(list)
        for name, inventory in self._read.items():
            async for machine in in_turns(inventory.machines.values()):
                if machine.is_template or not inventory.is_ours(machine):
                    continue
                for written in {machine.name.lower(), *machine.guest_names()}:
                    index[written].append(Found(self._readers[name], inventory, machine))
        return index

    def _is_ours(self, found: Found) -> bool:
        return found.inventory.is_ours(found.machine)

    def _why_not_found(self, node: Node) -> str:
        """What a person can do about a Node without a machine."""
        if self._failed:
            return join_reasons(self._failed)
        uuid = f" or has UUID {node.system_uuid}" if node.system_uuid else ""
        reasons = join_reasons(
            why for item in self._read.values() for why in item.incomplete_reasons
        )
        why = f"no machine that the login may see is called {node.name} in its guest{uuid}"
        return "; ".join(filter(None, [why, reasons]))
