"""Where volumes of a real Incus are; a pool that all members share is replayed."""

from collections.abc import Iterator

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import volume
from ccm.errors import CloudError
from ccm.model.cloud import Gone, PlaceAnswer, Unknown, VolumePlace
from tests.labs.incus.gateway import Gateway
from tests.labs.incus.lab import Lab
from tests.providers.incus.adapter import DRIVER, VOLUMES, disk_spec
from tests.providers.incus.conftest import Started

VOLUME = "vol-1"


@pytest.fixture
def disk(lab: Lab) -> Iterator[str]:
    lab.call("POST", VOLUMES, {"name": VOLUME, "type": "custom"})
    yield VOLUME
    lab.delete(f"{VOLUMES}/{VOLUME}")


async def place(lab: Lab, gateway: Gateway, name: str, handle: str = "") -> PlaceAnswer:
    more = f"[Volumes]\ncsi-driver = {DRIVER}"
    cloud = await Started(lab.config(f"unix://{gateway.socket}", more=more)).start()
    assert cloud.volumes
    spec = disk_spec(DRIVER, name)
    spec["csi"]["volumeHandle"] = handle or spec["csi"]["volumeHandle"]
    try:
        return (await invoke(cloud.volumes.describe, [volume("pv", spec)]))["pv"]
    except CloudError as error:
        return Unknown(str(error))
    finally:
        await cloud.close()


async def test_a_volume_of_a_local_pool_is_where_its_member_is(
    lab: Lab, gateway: Gateway, disk: str
) -> None:
    """IN65."""
    assert await place(lab, gateway, disk) == VolumePlace(("m1",), "lab")
    assert isinstance(await place(lab, gateway, "vol-2"), Gone)
    assert isinstance(await place(lab, gateway, disk, "k8s/nothing"), Gone)


async def test_a_volume_of_a_shared_pool_has_no_zone(lab: Lab, gateway: Gateway) -> None:
    """IN65: Incus gives those of ceph and the like no location."""
    body = {"type": "sync", "metadata": [{"name": VOLUME, "location": ""}]}
    gateway.set_rules({"path": "/volumes/custom", "status": 200, "body": body})
    assert await place(lab, gateway, VOLUME) == VolumePlace((), "lab")


async def test_a_name_that_each_member_has_for_itself_is_unknown(
    lab: Lab, gateway: Gateway
) -> None:
    """IN65: pools of one member each; the list of a cluster is replayed."""
    both = [{"name": VOLUME, "location": one} for one in ("m1", "m2")]
    body = {"type": "sync", "metadata": both}
    gateway.set_rules({"path": "/volumes/custom", "status": 200, "body": body})
    answer = await place(lab, gateway, VOLUME)
    assert answer == Unknown("each of the members m1, m2 has such a volume")


@pytest.mark.parametrize(
    ("handle", "why"),
    [
        ("k8s/missing/vol-1", "pool not found"),
        ("elsewhere/default/vol-1", "0 remotes have the project elsewhere"),
    ],
)
async def test_what_may_only_be_out_of_sight_is_not_gone(
    lab: Lab, gateway: Gateway, handle: str, why: str
) -> None:
    """IN65: a list that is empty for want of rights is one, too."""
    gateway.set_rules({"path": "custom/vol-1", "status": 403})
    empty = await place(lab, gateway, VOLUME)
    assert isinstance(empty, Unknown)
    assert "403" in empty.why
    gateway.set_rules()
    answer = await place(lab, gateway, VOLUME, handle)
    assert isinstance(answer, Unknown)
    assert why in answer.why
