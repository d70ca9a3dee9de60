"""What Incus says about Nodes: one list for all, and three answers, never two."""

import re
from collections.abc import Collection, Sequence

from ccm.cloud.machines import MachineLookup, join_reasons
from ccm.errors import CloudError
from ccm.model.cloud import AddressType, Answer, Gone, Instance, NodeAddress, PowerState, Unknown
from ccm.model.objects import Node, label_value, text
from ccm.providers.incus import ids
from ccm.providers.incus.api import IncusApi
from ccm.providers.incus.config import NodeSection
from ccm.providers.incus.inventory import InstanceList, Inventory, ListedInstance
from ccm.providers.incus.zones import Zones

BATCH = 500  # Nodes; a list has all instances anyway
TYPE_KEY = "user.instance-type"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


class IncusInstances(MachineLookup[InstanceList, ListedInstance]):
    """Looks Nodes up by the UUID in their provider ID, or by name while they have none."""

    provider_ids, batch_size, noun = ids.PROVIDER_IDS, BATCH, "instance"
    mark_kinds = "project", "profile", "network", "config"

    def __init__(
        self, apis: Sequence[IncusApi], inventory: Inventory, section: NodeSection
    ) -> None:
        self._inventory, self._section = inventory, section
        self._zones = {api: Zones(api, section) for api in apis}

    def machine_of(self, provider_id: str) -> str:
        """By the UUID: an instance may move to another project, and the ID on its Node does not."""
        return ids.uuid_of(provider_id) or (provider_id if ids.name_of(provider_id) else "")

    async def read(self, nodes: Sequence[Node]) -> InstanceList:
        """One list of each project."""
        return await self._inventory.read(recursion=2, nodes=nodes)

    async def find(self, node: Node, listing: InstanceList) -> Sequence[ListedInstance] | Answer:
        """By name only while it has no UUID: every list then has to be there, and what an instance
        says of its Node has to be readable of all.
        """
        if ids.uuid_of(node.provider_id):
            return listing.of_uuid(node)
        found = listing.named(ids.name_of(node.provider_id) or node.name, node)
        reasons = listing.failures
        if not (found or node.provider_id):
            found, reasons = listing.by_node.get(node.name, []), listing.incomplete_reasons
        is_one = len(found) == 1
        return Unknown(join_reasons(reasons)) if is_one and reasons else found

    def marks(self, machine: ListedInstance) -> Collection[str]:
        profiles = machine.record.get("profiles")
        return {
            f"project:{machine.project}",
            *(f"profile:{name}" for name in (profiles if isinstance(profiles, list) else ())),
            *(f"network:{nic.network}" for nic in machine.nics("")),
            *(f"config:{key}={value}" for key, value in machine.expanded_config.items()),
        }

    async def why_incomplete(self, nodes: Sequence[Node], listing: InstanceList) -> Sequence[str]:
        """Also a project that is not there for us any more."""
        return listing.incomplete_reasons or await self._inventory.incomplete_reasons()

    async def prove_gone(self, node: Node, listing: InstanceList) -> Answer:
        """What the lists lack is asked for by name: only a project that can be read says 404."""
        uuid, name = ids.uuid_of(node.provider_id), ids.name_of(node.provider_id) or host_name(node)
        current = await self._inventory.find_by_name(name)
        same = [item for item in current if not uuid or item.uuid in ("", uuid)]
        if same:
            return Unknown(
                f"instance {name} is there, but the list does not assign it to this Node"
            )
        wanted = uuid or f"named {name}"
        return Gone(f"no project has an instance {wanted}, by its list and by name {name}")

    async def instance(self, node: Node, machine: ListedInstance, listing: InstanceList) -> Answer:
        if not machine.is_readable:
            where = f"member {machine.location}" if machine.location else "its member"
            return Unknown(f"instance {machine.name} cannot be read: {where} does not answer")
        if not machine.uuid:
            return Unknown(f"instance {machine.name} has no volatile.uuid: start it once")
        try:
            zone = await self._zones[machine.api].of_instance(machine)
        except CloudError as error:
            return Unknown(f"the zone of instance {machine.name}: {error}")
        addresses = machine.addresses(self._section.network)
        found = [NodeAddress(AddressType.INTERNAL_IP, address) for address in addresses]
        return Instance(
            provider_id=node.provider_id or ids.provider_id(machine.project, machine.uuid),
            type=type_of(machine),
            zone=zone,
            region=label_value(machine.api.region),
            # Without any a Node keeps those that it has.
            addresses=(*found, NodeAddress(AddressType.HOSTNAME, machine.name)) if found else (),
            power=PowerState.STOPPED if machine.is_stopped else PowerState.RUNNING,
            names=(machine.node_name,),
            aliases=(
                ids.provider_id(machine.project, machine.uuid),
                ids.by_name(machine.name),
            ),
        )


def host_name(node: Node) -> str:
    """The name of a Node's instance as it was last seen; the kubelet may write any there."""
    names = [
        text(a.get("address")) for a in node.addresses if a.get("type") == AddressType.HOSTNAME
    ]
    return next(filter(NAME.fullmatch, names), node.name)


def type_of(instance: ListedInstance) -> str:
    """What its configuration says, or its kind and limits, such as `container-c4-m8GiB`."""
    config = instance.expanded_config
    if given := text(config.get(TYPE_KEY)):
        return label_value(given)
    parts = [text(instance.record.get("type"))]
    for letter, key in (("c", "limits.cpu"), ("m", "limits.memory")):
        if limit := text(config.get(key)):
            parts.append(letter + limit)
    return label_value("-".join(parts))
