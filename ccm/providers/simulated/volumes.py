"""Where the simulated cloud's volumes are: many to a call, and three answers, never two."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ccm.errors import CloudError
from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.objects import mapping, text
from ccm.model.volume import PLACEHOLDER, PersistentVolume
from ccm.providers.simulated.api import Call, SimulatedApi
from ccm.providers.simulated.instances import ASKABLE

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
        answers = {handle: without_asking(handle) for handle in handles.values()}
        asked = [handle for handle, answer in answers.items() if answer is None]
        batches = [asked[at : at + self.batch_size] for at in range(0, len(asked), self.batch_size)]
        results = await asyncio.gather(*(self._look_up(batch) for batch in batches))
        failures = [result for result in results if isinstance(result, CloudError)]
        if failures and len(failures) == len(results):
            raise failures[0]
        for batch, result in zip(batches, results, strict=True):
            if isinstance(result, CloudError):
                result = dict.fromkeys(batch, Unknown(str(result)))
            answers |= result
        return {name: answer for name, at in handles.items() if (answer := answers[at])}

    async def _look_up(self, ids: Sequence[str]) -> dict[str, PlaceAnswer] | CloudError:
        """What one call says. An id names one volume, so that the answer fits into one page."""
        call = Call("ListVolumes", "read", "GET", "/v1/volumes", {"ids": ",".join(ids)})
        try:
            return judge(ids, await self._api.call(call))
        except CloudError as failure:
            return failure


def without_asking(handle: str) -> PlaceAnswer | None:
    """The answer that needs no call; None when the cloud has to be asked."""
    if handle == PLACEHOLDER:
        return Unknown("the volume is still being made")
    if not ASKABLE.fullmatch(handle):
        return Gone(f"{handle!r} cannot be the id of a volume")
    return None


def judge(ids: Sequence[str], answer: object) -> dict[str, PlaceAnswer]:
    """What the cloud says about each id; whatever it does not say is `Unknown`."""
    items, absent = mapping(answer).get("items"), mapping(answer).get("not_found")
    if not isinstance(items, list) or not isinstance(absent, list):
        raise CloudError("ListVolumes: the answer lacks items or not_found")
    said: dict[str, list[PlaceAnswer]] = defaultdict(list)
    for fields in map(mapping, items):
        said[text(fields.get("id"))].append(read_place(fields))
    for missing in absent:
        said[text(missing)].append(Gone(f"the cloud has no volume {missing}"))
    return {asked: one_of(asked, said.get(asked, [])) for asked in ids}


def one_of(asked: str, said: Sequence[PlaceAnswer]) -> PlaceAnswer:
    """The one answer in everything that was said about an id."""
    match said:
        case []:
            return Unknown(f"the cloud's answer leaves {asked} out")
        case [only]:
            return only
        case _:
            return Unknown(f"the cloud says {len(said)} things about {asked}")


def read_place(fields: Mapping[str, object]) -> PlaceAnswer:
    """The place in one record; `Unknown` when it is not what a record should be."""
    zones = fields.get("zones")
    if not isinstance(zones, list) or not all(isinstance(zone, str) for zone in zones):
        return Unknown("the cloud's record lacks its zones")
    return VolumePlace(tuple(zones), text(fields.get("region")))
