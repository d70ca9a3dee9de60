"""Where EBS volumes are: many to a call, and three answers, never two."""

from collections.abc import Mapping, Sequence

from ccm.cloud.lookup import Lookup, look_up, volume_ids
from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.objects import Json, text
from ccm.model.volume import PersistentVolume
from ccm.providers.aws import ids
from ccm.providers.aws.client import MAX_FILTER_VALUES, AwsApi

CSI_DRIVER = "ebs.csi.aws.com"
LEGACY_SOURCE = "awsElasticBlockStore"
MAX_VOLUMES_PER_PAGE = 500


class AwsVolumes:
    """Looks volumes up by the ID in `spec.csi.volumeHandle` or in the legacy source."""

    csi_drivers = frozenset({CSI_DRIVER})
    legacy_sources = frozenset({LEGACY_SOURCE})
    batch_size = MAX_FILTER_VALUES

    def __init__(self, api: AwsApi) -> None:
        self._api = api

    def describe(self, volumes: Sequence[PersistentVolume]) -> Mapping[str, PlaceAnswer]:
        """Answer for each volume by the name of its PersistentVolume."""
        asked, answers = volume_ids(volumes, CSI_DRIVER, LEGACY_SOURCE, ids.volume_id_of)
        return answers | look_up(self.batch_size, Lookup(asked, self._places))

    def _places(self, asked: Sequence[str]) -> dict[str, PlaceAnswer]:
        """What EC2 says about some volumes; a filter, unlike a list of IDs, takes absent ones."""
        filters = [{"Name": "volume-id", "Values": list(asked)}]
        records = self._api.list_pages(
            "ec2:DescribeVolumes", "Volumes", Filters=filters, MaxResults=MAX_VOLUMES_PER_PAGE
        )
        places: dict[str, PlaceAnswer] = {item: Gone(f"EC2 has no volume {item}") for item in asked}
        for record in records:
            places[text(record.get("VolumeId"))] = read_place(record, self._api.region)
        return places


def read_place(record: Json, region: str) -> PlaceAnswer:
    """The answer in EC2's record of a volume."""
    zone, state = text(record.get("AvailabilityZone")), text(record.get("State"))
    if state in ("deleting", "deleted"):
        return Gone(f"volume {text(record.get('VolumeId'))} is {state}")
    return VolumePlace((zone,), region) if zone else Unknown("EC2's record lacks its zone")
