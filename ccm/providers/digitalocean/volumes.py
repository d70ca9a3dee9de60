"""Where volumes are: one list for many, and three answers, never two."""

from collections.abc import Mapping, Sequence

from ccm.cloud.json_api import verify_about
from ccm.cloud.lookup import Lookup, look_up_async, volume_ids
from ccm.cloud.machines import join_reasons
from ccm.errors import NotFound
from ccm.http import path_of
from ccm.model.cloud import UUID, Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.objects import mapping, text
from ccm.model.volume import PersistentVolume
from ccm.providers.digitalocean.api import DigitalOceanApi

CSI_DRIVER = "dobs.csi.digitalocean.com"
BATCH = 5000


class DigitalOceanVolumes:
    """Looks volumes up by the ID in `spec.csi.volumeHandle`; they have a region and no zones."""

    csi_drivers = frozenset({CSI_DRIVER})
    legacy_sources = frozenset[str]()
    batch_size = BATCH
    has_zones = False

    def __init__(self, api: DigitalOceanApi) -> None:
        self._api = api

    async def describe(self, volumes: Sequence[PersistentVolume]) -> Mapping[str, PlaceAnswer]:
        """Answer for each volume by the name of its PersistentVolume."""
        asked, answers = volume_ids(volumes, CSI_DRIVER, "", _volume_id)
        return answers | await look_up_async(self.batch_size, Lookup(asked, self._places))

    async def _places(self, asked: Sequence[str]) -> dict[str, PlaceAnswer]:
        if len(asked) == 1:
            return {item: await self._place(item) for item in asked}
        listed = await self._api.list("ListVolumes", "/volumes", "volumes")
        found = {str(key).lower(): record for key, record in listed.by_id.items()}
        why = join_reasons(listed.incomplete_reasons)
        return {
            item: _read_place(found[item])
            if item in found
            else (Unknown(why) if why else Gone(f"there is no volume {item}"))
            for item in asked
        }

    async def _place(self, volume_id: str) -> PlaceAnswer:
        try:
            answer = await self._api.get("GetVolume", path_of("volumes", volume_id))
        except NotFound as error:
            return Gone(str(error))
        record = mapping(answer.get("volume"))
        verify_about("GetVolume", record, "id", volume_id)
        return _read_place(record)


def _read_place(record: Mapping[str, object]) -> PlaceAnswer:
    region = text(mapping(record.get("region")).get("slug"))
    return VolumePlace((), region) if region else Unknown("the volume's record has no region")


def _volume_id(handle: str) -> str:
    return handle.lower() if UUID.fullmatch(handle) else ""
