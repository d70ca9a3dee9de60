"""What DigitalOcean says about Nodes: one list for all of them, and three answers, never two."""

from collections.abc import Collection, Sequence

from ccm.cloud.machines import MachineLookup, join_reasons
from ccm.errors import Denied, NotFound
from ccm.model.cloud import Answer, Gone, Unknown
from ccm.model.objects import Node
from ccm.providers.digitalocean import ids
from ccm.providers.digitalocean.droplets import Droplet, DropletList, Droplets

BATCH = 5000  # Nodes; a list has all droplets anyway


class DropletInstances(MachineLookup[DropletList, Droplet]):
    """Looks Nodes up by the number in their provider ID, or by name while they have none."""

    provider_ids, batch_size, noun = ids.PROVIDER_IDS, BATCH, "droplet"
    mark_kinds = "tag", "vpc"

    def __init__(self, droplets: Droplets, vpc_id: str = "") -> None:
        self._droplets = droplets
        self.required_marks = frozenset([f"vpc:{vpc_id.lower()}"] if vpc_id else ())
        self._has_gpus = True  # until it is known that there are none

    def machine_of(self, provider_id: str) -> str:
        droplet_id = ids.droplet_of(provider_id)
        return ids.provider_id(droplet_id) if droplet_id else ""

    async def missing_permissions(self) -> list[str]:
        """The scope of the VPC, or that another team's token does not see it; lists hide that."""
        try:
            why = await self._droplets.why_vpc_is_foreign()
        except Denied:
            return ["vpc:read"]
        return [why] if why else []

    async def read(self, nodes: Sequence[Node]) -> DropletList:
        """A request for 200 droplets, however many Nodes there are."""
        listed = await self._droplets.list()
        is_one_new = any(not node.provider_id for node in nodes)
        is_one_missing = not all(candidates(node, listed) for node in nodes)
        if is_one_missing or (is_one_new and self._has_gpus):
            self._has_gpus = await self._droplets.add_gpus(listed)
        return listed

    async def find(self, node: Node, listing: DropletList) -> Sequence[Droplet] | Answer:
        """In doubt a Node that has no ID yet gets none: a twin of its droplet may be missing."""
        found = candidates(node, listing)
        if node.provider_id or len(found) > 1:
            return found
        why = join_reasons(listing.incomplete_reasons)
        if not found and not why:
            why = f"no droplet that the token may see has the name or address {node.name}"
        return Unknown(why) if why else found

    def marks(self, machine: Droplet) -> Collection[str]:
        return {f"vpc:{machine.vpc}", *(f"tag:{tag}" for tag in machine.tags)}

    async def prepare(self, machines: Sequence[Droplet], listing: DropletList) -> None:
        self._droplets.remember({machine.id for machine in machines})

    async def instance(self, node: Node, machine: Droplet, listing: DropletList) -> Answer:
        found = machine.instance()
        if not found.addresses:
            return Unknown(f"droplet {machine.id} is {machine.status} and has no address yet")
        return found

    async def why_incomplete(self, nodes: Sequence[Node], listing: DropletList) -> Sequence[str]:
        """Also a token that sees nothing else of the cluster: it may be another team's."""
        missing = {ids.droplet_of(node.provider_id) for node in nodes}
        reasons = listing.incomplete_reasons
        why = "" if reasons else await self._droplets.why_token_is_foreign(missing, listing.by_id)
        return reasons or list(filter(None, [why]))

    async def prove_gone(self, node: Node, listing: DropletList) -> Answer:
        """By a request for the droplet alone."""
        try:
            droplet = await self._droplets.get(ids.droplet_of(node.provider_id))
        except NotFound as error:
            return Gone(str(error))
        return droplet.instance()


def candidates(node: Node, listing: DropletList) -> list[Droplet]:
    """The droplets that a Node may be."""
    if node.provider_id:
        droplet = listing.by_id.get(ids.droplet_of(node.provider_id))
        return [droplet] if droplet else []
    return listing.called(node.name)
