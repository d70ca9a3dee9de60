"""The zones of instances and volumes, by the cluster members that they are on."""

import time

from ccm.cloud.shared_read import KEPT_RETRY, KeptRead, SharedRead
from ccm.errors import CloudError
from ccm.model.objects import Json, label_value, mapping, objects, text
from ccm.providers.incus.api import IncusApi
from ccm.providers.incus.config import NodeSection
from ccm.providers.incus.inventory import ListedInstance

MEMBERS_TTL = 300.0  # seconds; a member hardly ever gets another failure domain
NO_LOCATION = ("", "none")


class Zones:
    """The failure domains of the members of one Incus, read once in a while for all who ask."""

    def __init__(self, api: IncusApi, section: NodeSection) -> None:
        self._api, self._section = api, section
        self._list_members = SharedRead(self._read_members)
        self._server_name = KeptRead(self._read_server_name)
        self._members: dict[str, Json] = {}
        self._read_at = float("-inf")

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
        """What is known counts while it cannot be read."""
        is_known = name in self._members
        if not is_known or time.monotonic() > self._read_at + MEMBERS_TTL:
            try:
                await self._list_members()
            except CloudError:
                if not is_known:
                    raise
                self._read_at = time.monotonic() - MEMBERS_TTL + KEPT_RETRY
        if name not in self._members:
            raise CloudError(f"Incus lists no cluster member {name}")
        return self._members[name]

    async def _read_members(self) -> None:
        listed = await self._api.get("ListMembers", "/cluster/members", recursion="1")
        self._members = {text(record.get("server_name")): record for record in objects(listed)}
        self._read_at = time.monotonic()


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
