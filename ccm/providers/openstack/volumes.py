"""Where Cinder's volumes are: one list for many, and three answers, never two."""

from collections.abc import Mapping, Sequence

from ccm.cloud.lookup import Lookup, look_up_async, volume_ids
from ccm.errors import CloudError, NotFound
from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.objects import Json, label_value, mapping, text
from ccm.model.volume import PersistentVolume
from ccm.providers.openstack import ids
from ccm.providers.openstack.api import OpenStackApi

CSI_DRIVER = "cinder.csi.openstack.org"
LEGACY_SOURCE = "cinder"
BATCH = 100
PAGE = "1000"  # Cinder filters by no ID: a list is of all volumes, in its longest pages
GONE = ("deleting", "deleted")


class OpenStackVolumes:
    """Looks volumes up by the ID in `spec.csi.volumeHandle` or in the in-tree source."""

    csi_drivers = frozenset({CSI_DRIVER})
    legacy_sources = frozenset({LEGACY_SOURCE})
    batch_size = BATCH

    def __init__(self, api: OpenStackApi) -> None:
        self._api = api

    async def describe(self, volumes: Sequence[PersistentVolume]) -> Mapping[str, PlaceAnswer]:
        """Answer for each volume by the name of its PersistentVolume."""
        asked, answers = volume_ids(volumes, CSI_DRIVER, LEGACY_SOURCE, ids.volume_id_of)
        return answers | await look_up_async(self.batch_size, Lookup(asked, self._places))

    async def _places(self, asked: Sequence[str]) -> dict[str, PlaceAnswer]:
        if len(asked) == 1:
            return {item: await self._place(item) for item in asked}
        path = "/volumes/detail"
        listed = await self._api.pages("ListVolumes", "volume", path, "volumes", limit=PAGE)
        found = {text(record.get("id")).lower(): record for record in listed}
        return {
            item: read_place(found[item], self._api.region)
            if item in found
            else Gone(f"Cinder lists no volume {item}")
            for item in asked
        }

    async def _place(self, volume_id: str) -> PlaceAnswer:
        try:
            answer = await self._api.get("GetVolume", "volume", f"/volumes/{volume_id}")
        except NotFound as error:
            return Gone(str(error))
        record = dict(mapping(answer.get("volume")))
        if text(record.get("id")).lower() != volume_id:
            raise CloudError(f"Cinder's answer is not about volume {volume_id}")
        return read_place(record, self._api.region)


def read_place(record: Json, region: str) -> PlaceAnswer:
    """The answer in Cinder's record of a volume."""
    zone, status = text(record.get("availability_zone")), text(record.get("status"))
    if status in GONE:
        return Gone(f"volume {text(record.get('id'))} is {status}")
    if not zone:
        return Unknown("Cinder's record lacks its zone")
    return VolumePlace((label_value(zone),), label_value(region))
