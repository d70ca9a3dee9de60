"""What DigitalOcean says about Nodes: one list for all of them, and three answers, never two."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ccm.cloud.lookup import describe_in_batches
from ccm.errors import CloudError, Denied, NotFound
from ccm.model.cloud import Answer, Gone, Unknown
from ccm.model.objects import Node
from ccm.providers.digitalocean import ids
from ccm.providers.digitalocean.droplets import Droplet, DropletList, Droplets

BATCH = 5000  # Nodes; a list has all droplets anyway


class DropletInstances:
    """Looks Nodes up by the number in their provider ID, or by name while they have none."""

    batch_size = BATCH

    def __init__(self, droplets: Droplets) -> None:
        self._droplets = droplets
        self._has_gpus = True  # until it is known that there are none

    def machine_of(self, provider_id: str) -> str:
        """The number, whatever it is written like."""
        droplet_id = ids.droplet_of(provider_id)
        return ids.provider_id(droplet_id) if droplet_id else provider_id

    async def missing_permissions(self) -> list[str]:
        """The scope of the VPC, or that another team's token does not see it; lists hide that."""
        try:
            doubt = await self._droplets.doubt_of_vpc()
        except Denied:
            return ["vpc:read"]
        return [doubt] if doubt else []

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """Answer for each Node: a request for 200 droplets, however many Nodes there are."""
        return await describe_in_batches(self.batch_size, nodes, _why_unknown, self._describe_batch)

    async def confirm_gone(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """As `describe`, by a request for each droplet."""
        found = await asyncio.gather(*map(self._get, nodes))
        answers = {node.name: one for node, one in zip(nodes, found, strict=True)}
        numbers = {node.name: ids.droplet_of(node.provider_id) for node in nodes}
        gone = {numbers[name] for name, one in answers.items() if isinstance(one, Gone)}
        if gone and (
            doubt := await self._droplets.doubt_of_token(gone, {*numbers.values()} - gone)
        ):
            return {
                name: Unknown(doubt) if isinstance(one, Gone) else one
                for name, one in answers.items()
            }
        return answers

    async def _get(self, node: Node) -> Answer:
        droplet_id = ids.droplet_of(node.provider_id)
        if why := _why_unknown(node) or ("" if droplet_id else "it has no provider ID"):
            return Unknown(why)
        try:
            return _answer(await self._droplets.get(droplet_id))
        except NotFound as error:
            return Gone(str(error))
        except CloudError as error:
            return Unknown(str(error))

    async def _describe_batch(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        listed = await self._droplets.list()
        found = self._find_all(nodes, listed)
        is_one_new = any(not node.provider_id for node in nodes)
        if None in found.values() or (is_one_new and self._has_gpus):
            gpus = await self._droplets.list_gpus()
            self._has_gpus = bool(gpus.by_id or gpus.doubts)
            listed = DropletList(listed.by_id | gpus.by_id, listed.doubts + gpus.doubts)
            found = self._find_all(nodes, listed)
        machines = {one.id for one in found.values() if isinstance(one, Droplet)}
        self._droplets.remember(machines)
        missing = {
            ids.droplet_of(node.provider_id) for node in nodes if found[node.name] is None
        } - {0}
        doubt = "; ".join(listed.doubts[:3])
        doubt_of_absence = doubt or (
            await self._droplets.doubt_of_token(missing, listed.by_id) if missing else ""
        )
        return {
            node.name: _verdict(node, one, doubt if one else doubt_of_absence)
            for node, one in ((node, found[node.name]) for node in nodes)
        }

    def _find_all(
        self, nodes: Sequence[Node], listed: DropletList
    ) -> dict[str, Droplet | Unknown | None]:
        """The droplet of each Node, why it has none, or None when none is listed."""
        called = defaultdict[str, dict[int, Droplet]](dict)
        if any(not node.provider_id for node in nodes):
            for droplet in listed.by_id.values():
                if not self._droplets.may_be_ours(droplet):
                    continue
                for name in (droplet.name.lower(), *droplet.private, *droplet.public):
                    called[name][droplet.id] = droplet
        return {
            node.name: listed.by_id.get(ids.droplet_of(node.provider_id))
            if node.provider_id
            else _only(node.name, [*called[node.name].values()])
            for node in nodes
        }


def _only(name: str, droplets: Sequence[Droplet]) -> Droplet | Unknown | None:
    if len(droplets) > 1:
        numbers = ", ".join(sorted(str(one.id) for one in droplets))
        return Unknown(f"several droplets are node {name}: {numbers}")
    return droplets[0] if droplets else None


def _verdict(node: Node, found: Droplet | Unknown | None, doubt: str) -> Answer:
    """In doubt a Node that has no ID yet gets none: a twin of its droplet may be missing."""
    if isinstance(found, Unknown):
        return found
    if doubt and not (found and node.provider_id):
        return Unknown(doubt)
    if found:
        return _answer(found)
    if not node.provider_id:
        return Unknown(f"no droplet that the token may see has the name or address {node.name}")
    return Gone(f"droplet {ids.droplet_of(node.provider_id)} is not in the list of all droplets")


def _answer(droplet: Droplet) -> Answer:
    found = droplet.instance()
    if not found.addresses:
        return Unknown(f"droplet {droplet.id} is {droplet.status} and has no address yet")
    return found


def _why_unknown(node: Node) -> str:
    """Why nothing can be asked about a Node; empty when it can."""
    if node.is_foreign(ids.PROVIDER_IDS):
        return f"provider ID {node.provider_id} is of another cloud"
    if node.provider_id and not ids.droplet_of(node.provider_id):
        return f"provider ID {node.provider_id} names no droplet"
    return ""
