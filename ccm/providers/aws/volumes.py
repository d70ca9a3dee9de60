"""Where EBS volumes are: many to a call, and three answers, never two."""

from collections.abc import Mapping, Sequence

from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.objects import Json, mapping, text
from ccm.model.volume import PLACEHOLDER, PersistentVolume
from ccm.providers.aws import ids
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.lookup import Found, Kind, look_up

CSI_DRIVER = "ebs.csi.aws.com"
LEGACY_SOURCE = "awsElasticBlockStore"
BATCH = 200
VOLUME = Kind("InvalidVolume.NotFound", "InvalidVolumeID.Malformed", ids.VOLUME_ID)


class AwsVolumes:
    """Looks volumes up by the ID in `spec.csi.volumeHandle` or in the legacy source."""

    csi_drivers = frozenset({CSI_DRIVER})
    legacy_sources = frozenset({LEGACY_SOURCE})
    batch_size = BATCH

    def __init__(self, api: AwsApi) -> None:
        self._api = api

    def describe(self, volumes: Sequence[PersistentVolume]) -> Mapping[str, PlaceAnswer]:
        """Answer for each volume by the name of its PersistentVolume."""
        handles = {volume.name: handle_of(volume) for volume in volumes}
        volume_ids = {name: ids.volume_id_of(handle) for name, handle in handles.items()}
        asked = sorted(set(volume_ids.values()) - {""})
        found = [
            look_up(VOLUME, asked[at : at + BATCH], self._ask) for at in range(0, len(asked), BATCH)
        ]
        places = {one: place for part in found for one, place in self._places(part).items()}
        return {
            name: without_asking(handles[name])
            if not volume_id
            else places.get(volume_id, Unknown(f"EC2's answer leaves {volume_id} out"))
            for name, volume_id in volume_ids.items()
        }

    def _ask(self, volume_ids: Sequence[str]) -> Sequence[Json]:
        return self._api.pages("ec2:DescribeVolumes", "Volumes", VolumeIds=list(volume_ids))

    def _places(self, found: Found) -> dict[str, PlaceAnswer]:
        places: dict[str, PlaceAnswer] = {}
        for record in found.records:
            places[text(record.get("VolumeId"))] = read_place(record, self._api.region)
        for absent in found.absent:
            places[absent] = Gone(f"EC2 has no volume {absent}")
        for malformed in found.malformed:
            places[malformed] = Unknown(f"EC2 does not take {malformed} for a volume ID")
        return places


def handle_of(volume: PersistentVolume) -> str:
    """What names the volume: the CSI driver's handle, else the legacy source's ID."""
    if volume.csi_driver == CSI_DRIVER:
        return volume.csi_handle
    return text(mapping(volume.spec.get(LEGACY_SOURCE)).get("volumeID"))


def without_asking(handle: str) -> PlaceAnswer:
    """The answer for a handle that names no volume."""
    if handle == PLACEHOLDER:
        return Unknown("the volume is still being made")
    return Gone(f"{handle!r} cannot be the ID of a volume")


def read_place(record: Json, region: str) -> PlaceAnswer:
    zone, state = text(record.get("AvailabilityZone")), text(record.get("State"))
    if state in ("deleting", "deleted"):
        return Gone(f"volume {text(record.get('VolumeId'))} is {state}")
    return VolumePlace((zone,), region) if zone else Unknown("EC2's record lacks its zone")
