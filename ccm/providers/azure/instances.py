"""What Resource Manager says about Nodes: lists for all of them, and three answers, never two."""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from ccm.cloud.interface import NOT_LOOKED
from ccm.cloud.machines import NOT_FOUND, MachineLookup
from ccm.cloud.shared_read import SharedRead
from ccm.decide.budget import Allowances
from ccm.errors import CloudError, Denied, NotFound, Refused
from ccm.model.cloud import AddressType, Answer, Gone, Instance, NodeAddress, Unknown
from ccm.model.objects import Node, label_value, mapping, text
from ccm.providers.azure import ids
from ccm.providers.azure.api import AzureApi, Elsewhere
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.machines import Machine, MachineReader, Machines, first_of_each_family

BATCH = 5000  # Nodes; a list has all machines anyway
LOOKS, LOOK_PAUSE = 5, 30.0  # seconds; into groups in which no Node's machine was found so far
FEW = 3  # machines of a group, two reads each; more are read by its lists
UNMANAGED = "kubernetes.azure.com/managed"
"""Label of a Node that is no machine of Azure's where it is false: upstream's."""


class AzureInstances(MachineLookup[Machines, Machine]):
    """Looks Nodes up by the ID in their provider ID, or by the machine's or its host's name."""

    provider_ids, batch_size, noun = ids.PROVIDER_IDS, BATCH, "virtual machine"
    mark_kinds = "resource-group", "vnet", "tag"

    def __init__(self, api: AzureApi, config: AzureConfig) -> None:
        self._config = config
        self.reader = MachineReader(api, config)
        vnet, group = config.vnet_id.lower(), config.resource_group.lower()
        self.required_marks = frozenset([f"vnet:{vnet}" if vnet else f"resource-group:{group}"])
        self._read_shared = SharedRead(
            lambda keys: self.reader.read(keys[0].split("\n"), has_states=False)
        )

        self._joined = set[str]()  # other groups in which a Node's machine was found
        self._looks = Allowances[str](LOOKS, LOOK_PAUSE, most=1)

    def machine_of(self, provider_id: str) -> str:
        return ids.machine_of(provider_id)

    def why_not_asked(self, node: Node) -> str:
        if node.labels.get(UNMANAGED) == "false":
            return f"label {UNMANAGED}: the machine is not Azure's"
        scope = ids.scope_of(ids.machine_of(node.provider_id))
        if scope and not ids.same(scope.subscription, self._config.subscription_id):
            return f"provider ID {node.provider_id} is of another subscription"
        return super().why_not_asked(node)

    async def missing_permissions(self) -> Sequence[str]:
        """The right to the list of power states, which is of the whole subscription."""
        await self.reader.read([self._config.resource_group.lower()])
        lacks = self.reader.lacks_states
        return ["Microsoft.Compute/virtualMachines/read of the subscription"] if lacks else []

    async def look_up(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """As in the interface, of groups that are looked at now."""
        later = self._later(nodes)
        found = await super().look_up([node for node in nodes if node.name not in later])
        return {node.name: found.get(node.name, NOT_FOUND) for node in nodes}

    async def foreign(self, nodes: Sequence[Node]) -> Mapping[str, str]:
        """As in the interface, of groups that are looked at now."""
        later = self._later(nodes)
        try:
            found = await super().foreign([node for node in nodes if node.name not in later])
        except CloudError:
            self._looks.give_back("")
            raise
        return {**found, **dict.fromkeys(later, NOT_LOOKED)}

    def _later(self, nodes: Sequence[Node]) -> set[str]:
        """The names of those in groups in which no Node's machine was found, where it is not time.

        Nodes may name groups without end: all such are read together, once in a while.
        """
        groups = {node.name: self._other_group(node) for node in nodes}
        new = {name for name, group in groups.items() if group and group not in self._joined}
        return new if new and self._looks.take("", time.monotonic()) else set()

    async def read(self, nodes: Sequence[Node]) -> Machines:
        """The machines of the cluster's group, and of those that provider IDs name."""
        own = self._config.resource_group.lower()
        found = await self.reader.read(self._named(nodes, [own], few=0))
        self._note_joined(nodes, found)
        return found

    def _other_group(self, node: Node) -> str:
        """The group that a Node's ID names; empty for the cluster's, or in another subscription."""
        scope, config = ids.scope_of(ids.machine_of(node.provider_id)), self._config
        is_here = scope and ids.same(scope.subscription, config.subscription_id)
        is_other = scope and not ids.same(scope.group, config.resource_group)
        return scope.group if scope and is_here and is_other else ""

    def _note_joined(self, nodes: Sequence[Node], found: Machines) -> None:
        for node in nodes:
            machine = found.by_id.get(ids.machine_of(node.provider_id))
            if machine and not self.why_foreign(machine):
                self._joined.add(self._other_group(node))

    async def read_all(self, nodes: Sequence[Node], joined: Collection[str] = ()) -> Machines:
        """The same for load balancers and routes, in one read for all that ask; or it raises.

        `joined` are the groups of what is behind load balancers. Of another group any Node may name
        machines: a few are read one by one, and where one, or the group, is missing, refused, or
        may not be read, nothing is known.
        """
        own = self._config.resource_group.lower()
        return await self._read_asked(self._named(nodes, [own, *sorted(joined)]))

    async def read_few(self, nodes: Sequence[Node]) -> Machines:
        """As `read_all`, but only of these Nodes."""
        return await self._read_asked(self._named(nodes, []))

    async def _read_asked(self, asked: Sequence[str]) -> Machines:
        found = await self._read_shared("\n".join(asked)) if asked else Machines()
        for name, error in found.unread.items():
            is_own = ids.same(name, self._config.resource_group)
            if is_own or not isinstance(error, Refused | Denied | Elsewhere):
                raise error
        return found

    def _named(self, nodes: Sequence[Node], groups: Sequence[str], few: int = FEW) -> list[str]:
        """These groups and others that provider IDs name, or their machines where they are few:
        old Nodes' first, as who registers new ones may name groups without end.
        """
        oldest = sorted(nodes, key=lambda node: node.age_order)
        named = dict.fromkeys(ids.machine_of(node.provider_id) for node in oldest)
        own = self._config.subscription_id.lower()
        group_of = {
            item: scope.group
            for item in named
            if (scope := ids.scope_of(item)) and scope.subscription == own
        }
        counts = Counter(group_of.values())
        more = (
            item if counts[group] <= few else group
            for item, group in group_of.items()
            if group not in groups
        )
        return [*dict.fromkeys([*groups, *more])]

    async def find(self, node: Node, listing: Machines) -> Sequence[Machine] | Answer:
        """A group that was not read says nothing of its Nodes, nor of those without an ID.

        By name the cluster's group counts alone: a Node's ID has any other group read.
        """
        group, machine_id = self._config.resource_group.lower(), ids.machine_of(node.provider_id)
        if why := listing.why_unread(machine_id) if machine_id else listing.unread.get(group):
            return Unknown(str(why))
        if machine_id:
            found = listing.by_id.get(machine_id)
            return [found] if found else []
        named = [
            item
            for item in listing.by_name.get(node.name.lower(), [])
            if (scope := ids.scope_of(item.key)) and scope.group == group
        ]
        return named or Unknown(f"no machine in resource group {group} is node {node.name}")

    async def prepare(self, machines: Sequence[Machine], listing: Machines) -> None:
        await self.reader.read_public(listing, machines)

    def marks(self, machine: Machine) -> Collection[str]:
        scope, tags = ids.scope_of(machine.key), mapping(machine.record.get("tags"))
        return {
            *(f"tag:{key}={value}" for key, value in tags.items()),
            *(f"vnet:{vnet}" for vnet in machine.networks),
            f"resource-group:{scope.group if scope else ''}",
        }

    def label(self, machine: Machine) -> str:
        return machine.id

    async def instance(self, node: Node, machine: Machine, listing: Machines) -> Answer:
        zone = machine.zone
        if zone is None:
            return Unknown(f"{machine.id} has no zone, and its fault domain is not known")
        if error := listing.why_no_public(machine):
            return Unknown(f"the public addresses of {machine.id} are not known: {error}")
        addresses = addresses_of(node.name, machine, listing)
        if not addresses:
            return Unknown(f"{machine.id} has no address yet")
        return Instance(
            provider_id=node.provider_id or ids.provider_id(machine.id),
            type=label_value(machine.type),
            zone=label_value(zone),
            region=label_value(machine.region),
            addresses=addresses,
            power=machine.power,
            names=machine.names,
            system_uuid=text(machine.properties.get("vmId")),
        )

    async def prove_gone(self, node: Node, listing: Machines) -> Answer:
        """By a request for the machine alone, once its Node is not new."""
        grace = self._config.node_instance_not_found_grace_period_in_seconds
        if (age := age_of(node)) is not None and age < grace:
            return Unknown(f"the Node is {age:.0f} s old: its machine may not be listed yet")
        machine_id = ids.machine_of(node.provider_id)
        try:
            await self.reader.get(machine_id)
        except NotFound as error:
            return Gone(str(error))
        return Unknown(f"the list lacks {machine_id}, which is there")


def addresses_of(name: str, machine: Machine, listing: Machines) -> tuple[NodeAddress, ...]:
    """The first of each family, in upstream's order; none while there is no private one."""
    host = name if name.lower() in machine.names else next(iter(machine.names), name)
    outer = first_of_each_family(
        listing.public.get(public_id.lower(), "") for public_id in machine.public_ids
    )
    if not machine.private:
        return ()
    return (
        *(NodeAddress(AddressType.INTERNAL_IP, item) for item in machine.private),
        NodeAddress(AddressType.HOSTNAME, host),
        *(NodeAddress(AddressType.EXTERNAL_IP, item) for item in outer),
    )


def age_of(node: Node) -> float | None:
    """Seconds since a Node was made, by our clock; None where it does not say."""
    try:
        made = datetime.fromisoformat(text(node.meta.get("creationTimestamp")))
    except ValueError:
        return None
    return max((datetime.now(UTC) - made).total_seconds(), 0.0)
