"""What Incus says about Nodes: one list for all, and three answers, never two."""

import asyncio
import re
from collections.abc import Mapping, Sequence

from ccm.cloud.lookup import describe_in_batches
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


class IncusInstances:
    """Looks Nodes up by the UUID in their provider ID, or by name while they have none."""

    batch_size = BATCH

    def __init__(
        self, apis: Sequence[IncusApi], inventory: Inventory, section: NodeSection
    ) -> None:
        self._inventory, self._section = inventory, section
        self._zones = {api: Zones(api, section) for api in apis}

    def machine_of(self, provider_id: str) -> str:
        """The UUID: an instance may move to another project, and the ID on its Node does not."""
        return ids.uuid_of(provider_id) or provider_id

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """Answer for each Node, from one list of each project; absent ones cost some reads more."""
        return await describe_in_batches(self.batch_size, nodes, why_unknown, self._describe_batch)

    async def _describe_batch(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        listed = await self._inventory.read(recursion=2)
        found = {node.name: find(node, listed) for node in nodes}
        are_missing = not all(some for some, _ in found.values())
        doubts = listed.doubts or (await self._inventory.doubts() if are_missing else [])
        answers = await asyncio.gather(
            *(self._answer(node, *found[node.name], doubts) for node in nodes)
        )
        return {node.name: answer for node, answer in zip(nodes, answers, strict=True)}

    async def _answer(
        self,
        node: Node,
        found: Sequence[ListedInstance],
        unsure: Sequence[str],
        doubts: Sequence[str],
    ) -> Answer:
        if len(found) > 1:
            where = ", ".join(sorted(f"{one.name} in {one.project}" for one in found))
            return Unknown(f"several instances are node {node.name}: {where}")
        if why := unsure if found else doubts:
            return Unknown("; ".join(why[:3]))
        return await (self._read(found[0], node) if found else self._prove_gone(node))

    async def _prove_gone(self, node: Node) -> Answer:
        """What the lists lack is asked for by name: only a project that can be read says 404."""
        uuid, name = ids.uuid_of(node.provider_id), ids.name_of(node.provider_id) or host_name(node)
        try:
            there = await self._inventory.find_by_name(name)
        except CloudError as error:
            return Unknown(str(error))
        same = [one for one in there if not uuid or one.uuid in ("", uuid)]
        if same:
            return Unknown(f"instance {name} is there, and the list does not say it is this Node's")
        wanted = uuid or f"named {name}"
        return Gone(f"no project has an instance {wanted}, by its list and by name {name}")

    async def _read(self, instance: ListedInstance, node: Node) -> Answer:
        if not instance.is_readable:
            where = f"member {instance.location}" if instance.location else "its member"
            return Unknown(f"instance {instance.name} cannot be read: {where} does not answer")
        if not instance.uuid:
            return Unknown(f"instance {instance.name} has no volatile.uuid: start it once")
        try:
            zone = await self._zones[instance.api].of_instance(instance)
        except CloudError as error:
            return Unknown(f"the zone of instance {instance.name}: {error}")
        addresses = instance.addresses(self._section.network)
        found = [NodeAddress(AddressType.INTERNAL_IP, one) for one in addresses]
        return Instance(
            provider_id=node.provider_id or ids.provider_id(instance.project, instance.uuid),
            type=type_of(instance),
            zone=zone,
            region=label_value(instance.api.region),
            # Without any a Node keeps those that it has.
            addresses=(*found, NodeAddress(AddressType.HOSTNAME, instance.name)) if found else (),
            power=PowerState.STOPPED if instance.is_stopped else PowerState.RUNNING,
        )


def why_unknown(node: Node) -> str:
    """Why nothing can be asked about a Node; empty when it can."""
    provider_id = node.provider_id
    if node.is_foreign(ids.PROVIDER_IDS):
        return f"provider ID {provider_id} is of another cloud"
    if provider_id and not (ids.uuid_of(provider_id) or ids.name_of(provider_id)):
        return f"provider ID {provider_id} names no instance"
    return ""


def find(node: Node, listed: InstanceList) -> tuple[Sequence[ListedInstance], Sequence[str]]:
    """The instances in the lists that a Node may be, and why there may be others.

    By name only while it has no ID: every list then has to be there, and what an instance says of
    its Node has to be readable of all.
    """
    if uuid := ids.uuid_of(node.provider_id):
        return listed.by_uuid.get(uuid, []), []
    named = listed.named(ids.name_of(node.provider_id) or node.name, node)
    if named or node.provider_id:
        return named, listed.failures
    return listed.by_node.get(node.name, []), listed.doubts


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
