"""Where the simulated cloud's volumes are: many to a call, and three answers, never two."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ccm.errors import CloudError
from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.objects import mapping, text
from ccm.model.volume import PLACEHOLDER, PersistentVolume
from ccm.providers.simulated.api import LookupResult, SimulatedApi
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
        answers = {handle: answer_without_call(handle) for handle in handles.values()}
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
        try:
            result = await self._api.look_up("ListVolumes", "/v1/volumes", "ids", ids)
        except CloudError as failure:
            return failure
        return read_answers(ids, result)


def answer_without_call(handle: str) -> PlaceAnswer | None:
    """The answer that needs no call; None when the cloud has to be asked."""
    if handle == PLACEHOLDER:
        return Unknown("the volume is still being made")
    if not QUERYABLE_VALUE.fullmatch(handle):
        return Gone(f"{handle!r} cannot be the id of a volume")
    return None


def read_answers(ids: Sequence[str], result: LookupResult) -> dict[str, PlaceAnswer]:
    """What the cloud says about each id; whatever it does not say is `Unknown`."""
    answers: dict[str, list[PlaceAnswer]] = defaultdict(list)
    for fields in map(mapping, result.records):
        answers[text(fields.get("id"))].append(read_place(fields))
    for missing in result.not_found:
        answers[missing].append(Gone(f"the cloud has no volume {missing}"))
    return {value: answer_for(value, answers.get(value, [])) for value in ids}


def answer_for(value: str, answers: Sequence[PlaceAnswer]) -> PlaceAnswer:
    """The one answer that all records about an id come to."""
    match answers:
        case []:
            return Unknown(f"the cloud's answer leaves {value} out")
        case [only]:
            return only
        case _:
            return Unknown(f"the cloud says {len(answers)} things about {value}")


def read_place(fields: Mapping[str, object]) -> PlaceAnswer:
    """The place in one record; `Unknown` when it is not what a record should be."""
    zones = fields.get("zones")
    if not isinstance(zones, list) or not all(isinstance(zone, str) for zone in zones):
        return Unknown("the cloud's record lacks its zones")
    return VolumePlace(tuple(zones), text(fields.get("region")))
