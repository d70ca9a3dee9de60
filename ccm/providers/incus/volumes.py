"""Where custom storage volumes are: by the cluster member that their pool has them on."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ccm.cloud.lookup import Lookup, look_up_async, read_each, volume_ids
from ccm.errors import CloudError, NotFound
from ccm.http import path_of
from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.objects import Json, label_value, mapping, objects, text
from ccm.model.volume import PersistentVolume
from ccm.providers.incus.api import IncusApi
from ccm.providers.incus.config import NodeSection
from ccm.providers.incus.zones import Zones

BATCH = 100
NO_VOLUME = "volume not found"  # in Incus' answer; otherwise it is the pool or the project


class IncusVolumes:
    """Looks volumes up by `PROJECT/POOL/VOLUME` in `spec.csi.volumeHandle`."""

    legacy_sources = frozenset[str]()
    batch_size = BATCH

    def __init__(self, apis: Sequence[IncusApi], section: NodeSection, csi_driver: str) -> None:
        self.csi_drivers = frozenset({csi_driver})
        self._driver = csi_driver
        self._zones = {api: Zones(api, section) for api in apis}

    async def describe(self, volumes: Sequence[PersistentVolume]) -> Mapping[str, PlaceAnswer]:
        """Answer for each volume by the name of its PersistentVolume."""
        asked, answers = volume_ids(volumes, self._driver, "", read_handle)
        return answers | await look_up_async(self.batch_size, Lookup(asked, self._places))

    async def _places(self, handles: Sequence[str]) -> dict[str, PlaceAnswer]:
        """One list for all volumes of a pool in a project; raises when none could be read."""
        by_pool: dict[tuple[str, str], list[str]] = defaultdict(list)
        for handle in handles:
            project, pool, _ = handle.split("/")
            by_pool[project, pool].append(handle)
        reads = {pool: self._in_pool(*pool, some) for pool, some in by_pool.items()}
        answers: dict[str, PlaceAnswer] = {}
        for place, result in (await read_each(reads)).items():
            if isinstance(result, CloudError):
                result = dict.fromkeys(by_pool[place], Unknown(str(result)))
            answers |= result
        return answers

    async def _in_pool(
        self, project: str, pool: str, handles: Iterable[str]
    ) -> dict[str, PlaceAnswer]:
        apis = [api for api in self._zones if project in api.projects]
        if len(apis) != 1:
            why = f"{len(apis)} remotes have the project {project}"
            return dict.fromkeys(handles, Unknown(why))
        path = path_of("storage-pools", pool, "volumes", "custom")
        try:
            listed = await apis[0].get("ListVolumes", path, project=project, recursion="1")
        except NotFound as error:
            raise CloudError(str(error)) from error
        if not isinstance(listed, list):
            raise CloudError("ListVolumes: the answer is not a list")
        found = defaultdict[str, list[Json]](list)
        for record in objects(listed):
            found[text(record.get("name"))].append(record)
        answers: dict[str, PlaceAnswer] = {}
        for handle in handles:
            name = handle.rpartition("/")[2]
            if some := found.get(name):
                answers[handle] = await self._place(apis[0], some)
            else:
                answers[handle] = await self._prove_gone(apis[0], project, path, name)
        return answers

    async def _prove_gone(self, api: IncusApi, project: str, path: str, name: str) -> PlaceAnswer:
        """What a list lacks is asked for: it is empty, too, where there are no rights."""
        try:
            found = await api.get("GetVolume", path + path_of(name), project=project)
        except NotFound as error:
            return Gone(str(error)) if NO_VOLUME in str(error) else Unknown(str(error))
        except CloudError as error:
            return Unknown(str(error))
        record = dict(mapping(found))
        if record.get("name") != name:
            return Unknown(f"Incus' answer is not about volume {name}")
        return await self._place(api, [record])

    async def _place(self, api: IncusApi, records: Sequence[Json]) -> PlaceAnswer:
        """A volume of a pool that all members share is in no zone.

        In a pool that each member has for itself there may be one of the same name on each.
        """
        locations = sorted(text(record.get("location")) for record in records)
        if len(locations) > 1:
            return Unknown(f"each of the members {', '.join(locations)} has such a volume")
        try:
            zones = tuple(
                [await self._zones[api].of_location(location) for location in locations if location]
            )
        except CloudError as error:
            return Unknown(str(error))
        return VolumePlace(zones, label_value(api.region))


def read_handle(handle: str) -> str:
    """The handle of a PersistentVolume, if it can name a volume; empty otherwise."""
    parts = handle.split("/")
    return handle if len(parts) == 3 and all(parts) else ""
