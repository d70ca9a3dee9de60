"""What the cloud says about a volume, as `VolumePlace`, `Gone` or `Unknown`; many to a call."""

from typing import Any

import orjson
import pytest

from ccm.errors import CloudError, Denied, Throttled
from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from ccm.model.volume import PersistentVolume
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.config import SimulatedConfig
from ccm.providers.simulated.volumes import CSI_DRIVER, SimulatedVolumes
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.records import Volume
from ccm.sandbox.cloud.server import CloudServer

from .doubles import CountingGate


@pytest.fixture
def volumes(api: SimulatedApi) -> SimulatedVolumes:
    return SimulatedVolumes(api, batch_size=100)


def of(handle: str, name: str = "") -> PersistentVolume:
    csi = {"driver": CSI_DRIVER, "volumeHandle": handle}
    return PersistentVolume({"metadata": {"name": name or f"pv-{handle}"}, "spec": {"csi": csi}})


def many(count: int) -> list[PersistentVolume]:
    return [of(f"vol-{number}") for number in range(count)]


def add(cloud: CloudServer, count: int) -> None:
    for number in range(count):
        cloud.state.add_volume(Volume(f"vol-{number}", (f"zone-{number % 3}",), "north"))


async def answer(volumes: SimulatedVolumes, handle: str = "vol-0") -> PlaceAnswer:
    return (await volumes.describe([of(handle, "pv")]))["pv"]


async def test_a_volume_is_in_its_zones(cloud: CloudServer, volumes: SimulatedVolumes) -> None:
    cloud.state.add_volume(Volume("vol-0", ("zone-b", "zone-a"), "north"))
    assert await answer(volumes) == VolumePlace(("zone-b", "zone-a"), "north")


async def test_a_volume_that_is_positively_not_there_is_gone(volumes: SimulatedVolumes) -> None:
    assert await answer(volumes) == Gone("the cloud has no volume vol-0")


@pytest.mark.parametrize("handle", ["", "vol-0,vol-1", "vol 0", "vol-0&ids=x", "//vol", "vøl"])
async def test_what_cannot_be_an_id_is_gone_without_a_call(
    cloud: CloudServer, volumes: SimulatedVolumes, handle: str
) -> None:
    assert isinstance(await answer(volumes, handle), Gone)
    assert cloud.counters.count() == 0


async def test_two_objects_of_one_volume_are_asked_for_once(
    cloud: CloudServer, volumes: SimulatedVolumes
) -> None:
    add(cloud, 1)
    answers = await volumes.describe([of("vol-0", name) for name in ("a", "b")])
    assert answers["a"] == answers["b"] == VolumePlace(("zone-0",), "north")
    assert cloud.counters.log[0].operation == "ListVolumes"
    assert cloud.counters.reads == 1


async def test_a_failed_page_makes_only_its_own_volumes_unknown(
    cloud: CloudServer, volumes: SimulatedVolumes, gate: CountingGate
) -> None:
    add(cloud, 250)
    cloud.faults.set(CloudFault(CloudFaultKind.ERROR, remaining=1))
    answers = await volumes.describe([*many(250), of("a,b")])
    unknown = [name for name, answer in answers.items() if isinstance(answer, Unknown)]
    assert len(answers) == 251
    assert len(unknown) in (50, 100)
    assert isinstance(answers["pv-a,b"], Gone)
    assert [type(error) for error in gate.errors] == [CloudError]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (CloudFault(CloudFaultKind.ERROR), CloudError),
        (CloudFault(CloudFaultKind.DENIED), Denied),
        (CloudFault(CloudFaultKind.THROTTLE), Throttled),
        (CloudFault(CloudFaultKind.TIMEOUT), CloudError),
        (CloudFault(CloudFaultKind.RESET), CloudError),
        (CloudFault(CloudFaultKind.GARBAGE), CloudError),
        (CloudFault(CloudFaultKind.GARBAGE, body="[]"), CloudError),
        (CloudFault(CloudFaultKind.GARBAGE, body='{"items": []}'), CloudError),
        (CloudFault(CloudFaultKind.GARBAGE, body='{"items": {}, "not_found": []}'), CloudError),
    ],
)
async def test_when_every_page_failed_the_error_is_raised(
    cloud: CloudServer, gate: CountingGate, fault: CloudFault, error: type[CloudError]
) -> None:
    config = SimulatedConfig(cloud.url, cloud.tokens.full, timeout=0.2)
    hasty = SimulatedApi(config, gate, "test")
    cloud.faults.set(fault)
    with pytest.raises(CloudError, match="ListVolumes") as raised:
        await SimulatedVolumes(hasty, 100).describe(many(150))
    assert type(raised.value) is error
    await hasty.close()


@pytest.mark.parametrize("kind", [CloudFaultKind.PARTIAL, CloudFaultKind.EMPTY])
async def test_volumes_left_out_without_a_word_are_unknown(
    cloud: CloudServer, volumes: SimulatedVolumes, kind: CloudFaultKind
) -> None:
    add(cloud, 10)
    cloud.faults.set(CloudFault(kind, share=0.5))
    answers = await volumes.describe(many(10))
    unknown = [name for name, answer in answers.items() if isinstance(answer, Unknown)]
    assert len(unknown) == (5 if kind is CloudFaultKind.PARTIAL else 10)
    assert not any(isinstance(answer, Gone) for answer in answers.values())


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
async def test_an_answer_that_is_not_right_is_unknown(
    cloud: CloudServer, volumes: SimulatedVolumes, body: Any
) -> None:
    cloud.faults.set(CloudFault(CloudFaultKind.GARBAGE, body=orjson.dumps(body).decode()))
    assert isinstance(await answer(volumes), Unknown)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"region": None}, VolumePlace(("zone-a",), "")),
        ({"zones": []}, VolumePlace((), "north")),
        ({"more": 1}, VolumePlace(("zone-a",), "north")),
    ],
)
async def test_what_the_cloud_does_not_say_stays_empty(
    cloud: CloudServer, volumes: SimulatedVolumes, change: dict[str, Any], expected: VolumePlace
) -> None:
    body = {"items": [{**RECORD, **change}], "not_found": []}
    cloud.faults.set(CloudFault(CloudFaultKind.GARBAGE, body=orjson.dumps(body).decode()))
    assert await answer(volumes) == expected
