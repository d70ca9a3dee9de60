"""Where managed disks are: one list for many, and three answers, never two."""

import asyncio
import re
from collections.abc import Mapping, Sequence

from ccm.cloud.lookup import Lookup, look_up_async, read_each
from ccm.errors import CloudError, NotFound
from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.objects import Json, label_value, mapping, text
from ccm.model.volume import PLACEHOLDER, PersistentVolume
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.ids import COMPUTE, Scope, key_of, scope_of

CSI_DRIVER = "disk.csi.azure.com"
LEGACY_SOURCE = "azureDisk"
BATCH = 5000
_DISK = re.compile(
    r"/subscriptions/[^/]+/resourcegroups/[^/]+/providers/microsoft.compute/disks/[^/]+"
)


class AzureVolumes:
    """Looks disks up by the ID in `spec.csi.volumeHandle` or in the in-tree source."""

    csi_drivers = frozenset({CSI_DRIVER})
    legacy_sources = frozenset({LEGACY_SOURCE})
    batch_size = BATCH
    has_zones = False  # a disk without zones can be used in the whole region

    def __init__(self, api: AzureApi) -> None:
        self._api = api

    async def describe(self, volumes: Sequence[PersistentVolume]) -> Mapping[str, PlaceAnswer]:
        """Answer for each volume by the name of its PersistentVolume."""
        asked, answers = dict[str, str](), dict[str, PlaceAnswer]()
        for volume in volumes:
            handle = handle_of(volume)
            if _DISK.fullmatch(handle.lower()) and scope_of(handle):
                asked[volume.name] = handle.lower()
            elif handle == PLACEHOLDER:
                answers[volume.name] = Unknown("the volume is still being made")
            else:
                answers[volume.name] = Gone(f"{handle!r} cannot be the ID of a disk")
        return answers | await look_up_async(self.batch_size, Lookup(asked, self._places))

    async def _places(self, asked: Sequence[str]) -> dict[str, PlaceAnswer]:
        if len(asked) == 1:
            return {item: await self._place(item) for item in asked}
        scopes = {scope for item in asked if (scope := scope_of(item))}
        lists = await read_each({scope: self._list(scope) for scope in sorted(scopes, key=str)})
        answers = await asyncio.gather(*(self._answer(item, lists) for item in asked))
        return dict(zip(asked, answers, strict=True))

    async def _list(self, scope: Scope) -> dict[str, Json]:
        listed = await self._api.list("ListDisks", scope.id(COMPUTE, "disks"))
        return {key_of(record): record for record in listed}

    async def _answer(
        self, disk_id: str, lists: Mapping[Scope, dict[str, Json] | CloudError]
    ) -> PlaceAnswer:
        """By the list of its group, else by itself; what cannot be read costs no other disk."""
        scope = scope_of(disk_id)
        assert scope
        try:
            if isinstance(listed := lists[scope], CloudError):
                raise listed
            record = listed.get(disk_id)
            return read_place(record) if record else await self._place(disk_id)
        except CloudError as error:
            return Unknown(str(error))

    async def _place(self, disk_id: str) -> PlaceAnswer:
        try:
            record = await self._api.get("GetDisk", disk_id)
        except NotFound as error:
            return Gone(str(error))
        if key_of(record) != disk_id:
            raise CloudError(f"GetDisk: the answer is not about {disk_id}")
        return read_place(record)


def handle_of(volume: PersistentVolume) -> str:
    """The disk's ID, wherever the volume has it."""
    if volume.csi_driver == CSI_DRIVER:
        return volume.csi_handle
    return text(mapping(volume.spec.get(LEGACY_SOURCE)).get("diskURI"))


def read_place(record: Json) -> PlaceAnswer:
    """The zones of a disk as Nodes have them; none for one that is in the region."""
    region = text(record.get("location")).replace(" ", "").lower()
    zones = record.get("zones")
    named = [text(zone) for zone in zones] if isinstance(zones, list) else []
    if not region:
        return Unknown("the disk's record has no location")
    return VolumePlace(
        tuple(label_value(f"{region}-{item}") for item in named if item), label_value(region)
    )
