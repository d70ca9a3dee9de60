"""What the cloud says about a volume, as `VolumePlace`, `Gone` or `Unknown`; many to a call."""

from typing import Any

import pytest

from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.providers.simulated.volumes import SimulatedVolumes

from .world import World, volume


async def answer(volumes: SimulatedVolumes, handle: str = "vol-0") -> PlaceAnswer:
    return (await volumes.describe([volume(handle, "pv")]))["pv"]


@pytest.mark.parametrize("handle", ["", "vol-0,vol-1", "vol 0", "vol-0&ids=x", "//vol", "vøl"])
async def test_what_cannot_be_an_id_is_gone_without_a_call(w: World, handle: str) -> None:
    assert isinstance(await answer(w.volumes, handle), Gone)
    assert w.cloud.counters.count() == 0


RECORD = {"id": "vol-0", "zones": ["zone-a"], "region": "north"}


@pytest.mark.parametrize(
    "body",
    [
        {"items": [{"id": "vol-0"}], "not_found": []},
        {"items": [{**RECORD, "zones": "zone-a"}], "not_found": []},
        {"items": [{**RECORD, "zones": [7]}], "not_found": []},
        {"items": [{**RECORD, "id": 7}], "not_found": []},
        {"items": [RECORD, {**RECORD, "zones": ["zone-b"]}], "not_found": []},
        {"items": [RECORD], "not_found": ["vol-0"]},
        {"items": ["vol-0", None], "not_found": [None, ["vol-0"]]},
        {"items": [], "not_found": ["vol-1"]},
    ],
)
async def test_an_answer_that_is_not_right_is_unknown(w: World, body: Any) -> None:
    w.answer_with(body)
    assert isinstance(await answer(w.volumes), Unknown)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"region": None}, VolumePlace(("zone-a",), "")),
        ({"zones": []}, VolumePlace((), "north")),
        ({"more": 1}, VolumePlace(("zone-a",), "north")),
    ],
)
async def test_what_the_cloud_does_not_say_stays_empty(
    w: World, change: dict[str, Any], expected: VolumePlace
) -> None:
    w.answer_with({"items": [{**RECORD, **change}], "not_found": []})
    assert await answer(w.volumes) == expected
