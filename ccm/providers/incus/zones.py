"""The zones of instances and volumes, by the cluster members that they are on."""

from collections.abc import Mapping

from ccm.cloud.shared_read import KeptRead
from ccm.errors import CloudError
from ccm.model.objects import Json, label_value, mapping, objects, text
from ccm.providers.incus.api import IncusApi
from ccm.providers.incus.config import NodeSection
from ccm.providers.incus.inventory import ListedInstance

NO_LOCATION = ("", "none")


class Zones:
    """The failure domains of the members of one Incus, kept for all who ask."""

    def __init__(self, api: IncusApi, section: NodeSection) -> None:
        self._api, self._section = api, section
        self._members = KeptRead(self._read_members)
        self._server_name = KeptRead(self._read_server_name)

    async def of_instance(self, instance: ListedInstance) -> str:
        """What the instance says, if that counts, or the zone of its member; never empty."""
        own = text(instance.expanded_config.get(self._section.zone_key))
        return label_value(own) or await self.of_location(instance.location)

    async def of_location(self, location: str) -> str:
        """The zone of a member, by the name of a member; of the only server otherwise."""
        if location in NO_LOCATION:
            zone = await self._server_name()
        else:
            zone = zone_of(await self._member(location), self._section.zone_group_prefix)
        if not label_value(zone):
            raise CloudError(f"{zone!r} cannot be the name of a zone")
        return label_value(zone)

    async def _read_server_name(self) -> str:
        answer = mapping(await self._api.get("GetServer", ""))
        if not (name := text(mapping(answer.get("environment")).get("server_name"))):
            raise CloudError("GetServer: the answer has no name of the server")
        return name

    async def _member(self, name: str) -> Json:
        if name not in (members := await self._members(lambda known: name in known)):
            raise CloudError(f"Incus lists no cluster member {name}")
        return members[name]

    async def _read_members(self) -> Mapping[str, Json]:
        listed = await self._api.get("ListMembers", "/cluster/members", recursion="1")
        return {text(record.get("server_name")): record for record in objects(listed)}


def zone_of(member: Json, group_prefix: str) -> str:
    """Its failure domain, the one group that begins so, or its name."""
    domain = text(member.get("failure_domain"))
    if domain not in ("", "default"):
        return domain
    listed = member.get("groups")
    groups = listed if isinstance(listed, list) else []
    marked = [
        text(group) for group in groups if group_prefix and text(group).startswith(group_prefix)
    ]
    return marked[0] if len(marked) == 1 else text(member.get("server_name"))
