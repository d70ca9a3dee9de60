"""Where the simulated cloud's volumes are: many to a call, and three answers, never two."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ccm.cloud.lookup import Lookup, look_up_async
from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.objects import mapping, text
from ccm.model.volume import PLACEHOLDER, PersistentVolume
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.instances import QUERYABLE_VALUE

CSI_DRIVER = "simulated.csi.ccm"


class SimulatedVolumes:
    """Looks volumes up by `spec.csi.volumeHandle`, which is the id in the cloud."""

    csi_drivers = frozenset({CSI_DRIVER})
    legacy_sources: frozenset[str] = frozenset()

    def __init__(self, api: SimulatedApi, batch_size: int) -> None:
        self.batch_size = batch_size
        self._api = api

    async def describe(self, volumes: Sequence[PersistentVolume]) -> Mapping[str, PlaceAnswer]:
        """Answer for each volume; a call that failed makes only its own volumes `Unknown`."""
        handles = {volume.name: volume.csi_handle for volume in volumes}
        answers: dict[str, PlaceAnswer] = {}
        for name, handle in handles.items():
            if handle == PLACEHOLDER:
                answers[name] = Unknown("the volume is still being made")
            elif not QUERYABLE_VALUE.fullmatch(handle):
                answers[name] = Gone(f"{handle!r} cannot be the id of a volume")
        asked = {name: handle for name, handle in handles.items() if name not in answers}
        return answers | await look_up_async(self.batch_size, Lookup(asked, self._look_up))

    async def _look_up(self, ids: Sequence[str]) -> Mapping[str, PlaceAnswer]:
        result = await self._api.look_up("ListVolumes", "/v1/volumes", "ids", ids)
        found: dict[str, list[PlaceAnswer]] = defaultdict(list)
        for fields in map(mapping, result.records):
            found[text(fields.get("id"))].append(read_place(fields))
        for missing in result.not_found:
            found[missing].append(Gone(f"the cloud has no volume {missing}"))
        return {
            value: answers[0]
            if len(answers) == 1
            else Unknown(f"the cloud gives {len(answers)} answers about {value}")
            for value, answers in found.items()
        }


def read_place(fields: Mapping[str, object]) -> PlaceAnswer:
    """The place in one record; `Unknown` when it is not what a record should be."""
    zones = fields.get("zones")
    if not isinstance(zones, list) or not all(isinstance(zone, str) for zone in zones):
        return Unknown("the cloud's record lacks its zones")
    return VolumePlace(tuple(zones), text(fields.get("region")))
