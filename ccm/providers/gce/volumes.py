"""Where persistent disks are: one read for many, and three answers, never two."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ccm.cloud.json_api import verify_about
from ccm.cloud.lookup import Lookup, look_up_async
from ccm.errors import NotFound
from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.objects import Json, mapping, text
from ccm.model.volume import PLACEHOLDER, PersistentVolume
from ccm.providers.gce.api import GceApi
from ccm.providers.gce.ids import NAME, PROJECT, last_part, region_of

CSI_DRIVER = "pd.csi.storage.gke.io"
LEGACY_SOURCE = "gcePersistentDisk"
BATCH = 1000
UNSPECIFIED = "UNSPECIFIED"
"""What stands in handles that were translated from the in-tree source."""
_HANDLE = re.compile(
    f"projects/({PROJECT}|{UNSPECIFIED})/((?:zones|regions)/(?:{NAME}|{UNSPECIFIED}))/"
    f"disks/({NAME})"
)


class GceVolumes:
    """Looks disks up by the path in `volumeHandle`, or by the name in the in-tree source."""

    csi_drivers = frozenset({CSI_DRIVER})
    legacy_sources = frozenset({LEGACY_SOURCE})
    batch_size = BATCH

    def __init__(self, api: GceApi) -> None:
        self._api = api

    async def describe(self, volumes: Sequence[PersistentVolume]) -> Mapping[str, PlaceAnswer]:
        """Answer for each volume by the name of its PersistentVolume."""
        project = (await self._api.place()).project
        asked, answers = dict[str, str](), dict[str, PlaceAnswer]()
        for volume in volumes:
            disk = disk_of(volume, project)
            if isinstance(disk, str):
                asked[volume.name] = disk
            else:
                answers[volume.name] = disk
        return answers | await look_up_async(self.batch_size, Lookup(asked, self._places))

    async def _places(self, asked: Sequence[str]) -> dict[str, PlaceAnswer]:
        """By path, or by name where the zone is not known."""
        if len(asked) == 1 and "/" in asked[0]:
            return {asked[0]: await self._place(asked[0])}
        project = (await self._api.place()).project
        listed = await self._api.aggregated("disks")
        found = defaultdict[str, list[Json]](list)
        for scope, records in listed.records.items():
            for record in records:
                name = text(record.get("name"))
                for key in (name, f"projects/{project}/{scope}/disks/{name}"):
                    found[key].append(record)
        failures = [*listed.failures.values()]
        return {item: _answer(item, found.get(item, ()), failures) for item in asked}

    async def _place(self, path: str) -> PlaceAnswer:
        method = "regionDisks.get" if "/regions/" in path else "disks.get"
        try:
            record = await self._api.get(method, path)
        except NotFound as error:
            return Gone(str(error))
        verify_about(method, record, "name", path.rpartition("/")[2])
        return read_place(record)


def disk_of(volume: PersistentVolume, project: str) -> str | PlaceAnswer:
    """The path of a volume's disk, or its name where the zone is not known; or an answer."""
    handle = volume.csi_handle
    if volume.csi_driver != CSI_DRIVER:
        name = text(mapping(volume.spec.get(LEGACY_SOURCE)).get("pdName"))
        handle = f"projects/{UNSPECIFIED}/zones/{UNSPECIFIED}/disks/{name}"
    if PLACEHOLDER in handle:
        return Unknown("the volume is still being made")
    if not (found := _HANDLE.fullmatch(handle)):
        return Gone(f"{handle!r} cannot be the ID of a disk")
    owner, scope, name = found.groups()
    if owner not in (UNSPECIFIED, project):
        return Unknown(f"disk {handle} is of another project than {project}")
    return name if scope.endswith(UNSPECIFIED) else f"projects/{project}/{scope}/disks/{name}"


def _answer(asked: str, records: Sequence[Json], failures: Sequence[str]) -> PlaceAnswer:
    if failures and not ("/" in asked and records):
        return Unknown(failures[0])
    if len(records) > 1:
        return Unknown(f"several zones have a disk {asked}")
    return read_place(records[0]) if records else Gone(f"there is no disk {asked}")


def read_place(record: Json) -> PlaceAnswer:
    """The answer in a record: a disk of a region is in each zone that has a replica."""
    zone = last_part(text(record.get("zone")))
    replicas = record.get("replicaZones")
    zones = (
        [last_part(text(replica)) for replica in replicas] if isinstance(replicas, list) else [zone]
    )
    if not all(zones):
        return Unknown("the disk's record has no zone")
    return VolumePlace(tuple(sorted(zones)), region_of(zones[0]))
