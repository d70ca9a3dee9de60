"""Which machine is a Node's: by VMID, by UUID, or by name and UUID; never a likely one."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ccm.cloud.lookup import MAX_LOST, MAX_READS, batches, in_turns, together
from ccm.cloud.machines import join_reasons
from ccm.cloud.shared_read import SharedRead
from ccm.errors import CloudError, NotFound
from ccm.model.cloud import UUID, Answer, Gone, Unknown
from ccm.model.objects import Node
from ccm.providers.proxmox.inventory import (
    CONTAINER,
    VM,
    Identity,
    Inventory,
    ListedMachine,
    MachineList,
)

NOT_READ = ""  # in place of the UUID in a configuration
SEARCH_LIMIT = 200  # machines whose configuration is read to find one by its UUID alone


@dataclass(frozen=True, slots=True)
class Found:
    """The machine of a Node, in which cluster, and what its configuration says if it was read."""

    inventory: Inventory
    machine: ListedMachine
    identity: Identity | None = None

    def __str__(self) -> str:
        return f"{self.machine.vmid} of {self.inventory.region}"


class Search:
    """Finds the machines of the Nodes of one batch in the lists that were read for it."""

    def __init__(
        self,
        lists: Mapping[str, MachineList | CloudError],
        inventories: Mapping[str, Inventory],
    ) -> None:
        self._inventories = inventories
        self._lists = {key: item for key, item in lists.items() if isinstance(item, MachineList)}
        self._failed = {
            key: str(item) for key, item in lists.items() if isinstance(item, CloudError)
        }
        self._incomplete: dict[str, asyncio.Task[list[str]]] = {}
        self._known, self._read = SharedRead(self._read_known), SharedRead(self._read_unread)
        self._by_label = defaultdict[str, list[tuple[Inventory, ListedMachine]]](list)
        for inventory, machine in self._all():
            self._by_label[machine.name.partition(".")[0]].append((inventory, machine))

    async def by_vmid(self, node: Node, region: str, vmid: int) -> Sequence[Found] | Answer:
        """The machine of this number, if it is still the one with the Node's UUID."""
        if region in self._failed:
            return Unknown(self._failed[region])
        inventory = self._inventories[region]
        machine = self._lists[region].by_id.get(vmid)
        if machine is None:
            return []
        if machine.kind == CONTAINER or machine.is_template:
            what = "container" if machine.kind == CONTAINER else "template"
            return Unknown(f"machine {vmid} of {region} is a {what}, which belongs to no Node")
        if not (system_uuid(node) or node.is_uninitialized):
            return [Found(inventory, machine, inventory.known_identity(machine))]
        found = await self._with_identity(inventory, machine)
        if system_uuid(node) and not is_of(found, node):
            inventory.doubt_identity(machine)  # the answer may have been another's
            return Unknown(f"machine {vmid} of {region} is another one: it has not the Node's UUID")
        return [found]

    async def by_name(self, node: Node) -> Sequence[Found] | Answer:
        """The one machine of this name and UUID, or else the one of this UUID."""
        if uuid := system_uuid(node):
            found = await self._with_uuid(node, uuid, is_sure=bool(self._failed))
        else:
            found = [Found(inventory, machine) for inventory, machine in self._named(node)]
        is_unsure = len(found) == 1 and self._failed and not uuid
        if not found or is_unsure:
            return Unknown(self._why_not_found(node))
        return [item if item.identity else _with_known_identity(item) for item in found]

    async def by_uuid(self, node: Node, uuid: str) -> Sequence[Found]:
        """The machines with this UUID."""
        return await self._with_uuid(node, uuid, is_sure=True)

    async def prove_vmid(self, region: str, vmid: int) -> Answer:
        """Whether a machine that the list of its cluster lacks is gone."""
        inventory = self._inventories[region]
        reasons = self._lists[region].incomplete_reasons or await self._why_incomplete(inventory)
        why = join_reasons(reasons) or await inventory.why_kept(vmid)
        gone = Gone(f"{region} has no machine {vmid}, by its list and by its last host")
        return Unknown(why) if why else gone

    async def prove_uuid(self, node: Node, uuid: str) -> Answer:
        """Whether no machine has this UUID, once the identities of all were read.

        Those that are called like the Node are read again: an answer may have been another's.
        """
        named = self._named(node)
        for inventory, machine in named:
            inventory.forget_identity(machine)
        if found := await self._of_uuid(named, uuid, is_sure=True):
            return Unknown(f"machine {found[0]} has UUID {uuid}, which one answer did not say")
        why = join_reasons(self._failed.values() or await self._why_unread(uuid))
        return Unknown(why) if why else Gone(f"no machine of any cluster has UUID {uuid}")

    async def _why_unread(self, uuid: str) -> list[str]:
        """Why a UUID may be there although no machine in the lists has it.

        What was forgotten is read again: a kubelet may name any machine, and state another UUID.
        """
        known = await self._known()
        known = await self._read() if known.get(NOT_READ) else known
        unsure = [*known.get(uuid, ()), *known.get("", ())]
        found = [f"machine {item} has no UUID, or this one" for item in unsure]
        for region, inventory in self._inventories.items():
            before = self._lists[region]
            found += before.incomplete_reasons or await self._why_incomplete(inventory)
            after = await inventory.read_again()
            if after.incomplete_reasons or after.by_id.keys() != before.by_id.keys():
                found.append(f"the machines of {region} changed meanwhile")
        return found

    def _named(self, node: Node) -> list[tuple[Inventory, ListedMachine]]:
        listed = self._by_label.get(node.name.partition(".")[0], ())
        return [item for item in listed if item[1].is_called(node.name)]

    def _all(self) -> list[tuple[Inventory, ListedMachine]]:
        return [
            (self._inventories[region], machine)
            for region, listed in self._lists.items()
            for machine in listed.virtual_machines()
        ]

    async def _with_uuid(self, node: Node, uuid: str, is_sure: bool) -> list[Found]:
        """Those with this UUID, called like the Node or not. Where none or several have it, what
        was read of some is read again the next time: an answer may have been another's.
        """
        named = self._named(node)
        found = self._with_known(await self._of_uuid(named, uuid, is_sure), uuid)
        doubted = [*((it.inventory, it.machine) for it in found), *named] if len(found) != 1 else []
        try:
            return found or await self._search(uuid)
        finally:
            for inventory, machine in doubted[:MAX_LOST]:
                inventory.doubt_identity(machine)

    async def _search(self, uuid: str) -> list[Found]:
        """Those with this UUID of all machines: a read for each, once."""
        known = await self._known()
        if (unread := len(known.get(NOT_READ, ()))) > SEARCH_LIMIT:
            problem = f"no machine is called like it, and {unread} are too many to compare UUIDs"
            raise CloudError(f"{problem}; give the machine the Node's name")
        known = await self._read() if unread else known
        return [*known.get(uuid, ())]

    async def _read_known(self) -> dict[str, list[Found]]:
        """All machines by their UUIDs, once for all Nodes that ask together: kubelets may state any
        UUID. Those that were not read are under `NOT_READ`.
        """
        found = defaultdict[str, list[Found]](list)
        async for inventory, machine in in_turns(self._all()):
            identity = inventory.known_identity(machine)
            uuid = identity.uuid if identity else NOT_READ
            found[uuid].append(Found(inventory, machine, identity))
        return found

    async def _read_unread(self) -> dict[str, list[Found]]:
        """The same once all were read; those that have none at all are under an empty one."""
        found = await self._read_known()
        for some in batches(found.pop(NOT_READ, []), MAX_READS):
            reads = (self._with_identity(item.inventory, item.machine) for item in some)
            for item in await together(*reads):
                found[item.identity.uuid if item.identity else ""].append(item)
        return found

    def _with_known(self, found: Sequence[Found], uuid: str) -> list[Found]:
        """With others that were read before and have this UUID, whatever they are called."""
        current = {(item.inventory.region, item.machine.vmid) for item in found}
        known = [
            Found(self._inventories[region], machine, identity)
            for region, listed in self._lists.items()
            for vmid in self._inventories[region].known_with(uuid)
            if (region, vmid) not in current
            and (machine := listed.by_id.get(vmid))
            and machine.may_be_node
            and (identity := self._inventories[region].known_identity(machine))
            and identity.uuid == uuid
        ]
        return [*found, *known]

    async def _of_uuid(
        self, machines: Sequence[tuple[Inventory, ListedMachine]], uuid: str, is_sure: bool
    ) -> list[Found]:
        """Those that have this UUID; unless `is_sure`, those as well that have none at all."""
        found = list[Found]()
        for some in batches(machines, MAX_READS):
            found += await together(*(self._with_identity(*machine) for machine in some))
        return [
            item
            for item in found
            if item.identity and item.identity.uuid in ((uuid,) if is_sure else (uuid, ""))
        ]

    async def _with_identity(self, inventory: Inventory, machine: ListedMachine) -> Found:
        """With its configuration; one that has just moved is looked up again."""
        try:
            return Found(inventory, machine, await inventory.identity(machine))
        except NotFound as moved:
            again = (await inventory.read_again()).by_id.get(machine.vmid)
            if again is None or again.host == machine.host:
                raise CloudError(str(moved)) from moved
            return Found(inventory, again, await inventory.identity(again))

    async def _why_incomplete(self, inventory: Inventory) -> list[str]:
        """Once for all Nodes of a batch."""
        if inventory.region not in self._incomplete:
            checks = asyncio.create_task(inventory.why_incomplete())
            self._incomplete[inventory.region] = checks
        return await self._incomplete[inventory.region]

    def _why_not_found(self, node: Node) -> str:
        """What a person can do about a Node without a machine, which is never called gone."""
        if self._failed:
            return next(iter(self._failed.values()))
        containers = [
            item
            for listed in self._lists.values()
            for item in listed.by_id.values()
            if item.kind != VM and item.is_called(node.name)
        ]
        if containers:
            return f"machine {containers[0].vmid} is a container; Nodes are virtual machines"
        return f"no virtual machine that the token may see is {node.name}"


def _with_known_identity(found: Found) -> Found:
    """With what was read of it before."""
    known = found.inventory.known_identity(found.machine)
    return Found(found.inventory, found.machine, known)


def is_of(found: Found, node: Node) -> bool:
    """Whether nothing speaks against it; a configuration without a UUID does not."""
    uuid = found.identity.uuid if found.identity else ""
    return uuid in ("", system_uuid(node))


def system_uuid(node: Node) -> str:
    """What the kubelet read of its machine's BIOS; empty when it says none."""
    uuid = node.system_uuid.lower()
    return uuid if UUID.fullmatch(uuid) else ""
