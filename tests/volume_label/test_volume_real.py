"""The volume-label controller's writes, as a real API server takes them."""

from collections.abc import AsyncIterator

import pytest

from ccm.errors import KubernetesError
from ccm.kube import config
from ccm.kube.client import Kube
from ccm.model.objects import Json
from ccm.model.volume import PersistentVolume
from tests.kube.cluster import RealCluster
from tests.worlds.nodes import Tweak

from .volumes import (
    OLD_REGION,
    OLD_ZONE,
    REGION,
    ZONE,
    labelled,
    place,
    requirement,
    terms,
    volume,
    with_source,
)
from .world import World
from .world import world as new_world

pytestmark = pytest.mark.real

VOLUMES = "/api/v1/persistentvolumes"
NAME = "pv-of-volume-label"


@pytest.fixture
async def api(kube: RealCluster) -> AsyncIterator[Kube]:
    source = str(kube.kubeconfig("admin"))
    api = Kube(await config.load(source), "volume-label-test")
    yield api
    await api.close()


@pytest.fixture
async def world(api: Kube) -> AsyncIterator[World]:
    async with new_world(kube=api, legacy_zone_labels=True) as made:
        yield made
    await api.request("DELETE", f"{VOLUMES}/{NAME}")
    forget = [{"op": "remove", "path": "/metadata/finalizers"}]
    await api.patch(f"{VOLUMES}/{NAME}", "application/json-patch+json", forget)


async def create(api: Kube, *tweaks: Tweak) -> PersistentVolume:
    raw = volume(*tweaks, name=NAME).raw
    del raw["metadata"]["uid"], raw["metadata"]["resourceVersion"]
    return PersistentVolume(await api.post(VOLUMES, raw))


async def read(api: Kube) -> PersistentVolume:
    return PersistentVolume(await api.get(f"{VOLUMES}/{NAME}"))


def shown(found: PersistentVolume) -> tuple[dict[str, str], Json | None]:
    affinity = found.node_affinity
    return dict(found.labels), dict(affinity) if affinity is not None else None


ALL_FOUR = {ZONE: "a__b", OLD_ZONE: "a__b", REGION: "north", OLD_REGION: "north"}
AFFINITY = terms([requirement(ZONE, "In", "a", "b"), requirement(REGION, "In", "north")])


@pytest.mark.parametrize(
    "tweaks",
    [
        pytest.param([], id="no-labels"),
        pytest.param([labelled(other="x", zone="")], id="some-labels"),
        pytest.param([with_source("cinder", volumeID="v-1")], id="legacy-source"),
    ],
)
async def test_labels_and_affinity_are_one_patch_and_a_second_run_writes_nothing(
    api: Kube, world: World, tweaks: list[Tweak]
) -> None:
    before = await create(api, *tweaks)
    written = api.writes
    world.places.answers[NAME] = place("a", "b")
    world.feed(before)
    assert (await world.reconcile(NAME)).message == "labelled"
    labels, affinity = shown(await read(api))
    assert ALL_FOUR.items() <= labels.items()
    assert labels.keys() - ALL_FOUR.keys() == before.labels.keys() - ALL_FOUR.keys()
    assert affinity == AFFINITY
    assert api.writes == written + 1
    world.feed(await read(api))
    assert (await world.reconcile(NAME)).message == "labelled"
    assert (api.writes, len(world.places.reads)) == (written + 1, 1)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"/metadata/labels/{ZONE.replace('/', '~1')}", id="a-label"),
        pytest.param("/metadata/labels", id="the-first-label"),
        pytest.param("/spec/nodeAffinity", id="the-affinity"),
    ],
)
async def test_a_race_is_refused_and_planned_again(api: Kube, world: World, path: str) -> None:
    """The server tests what was missing; a test that always passed would hide the race."""
    has_labels = path.endswith("zone")
    before = await create(api, *[labelled(other="x")] if has_labels else [])
    world.places.answers[NAME] = place("a", "b")
    world.feed(before)
    values = {
        "/metadata/labels": {ZONE: "a"},
        "/spec/nodeAffinity": terms([requirement(ZONE, "In", "a")]),
    }
    change = [{"op": "add", "path": path, "value": values.get(path, "a")}]
    await api.patch(f"{VOLUMES}/{NAME}", "application/json-patch+json", change)
    with pytest.raises(KubernetesError) as refusal:
        await world.reconcile(NAME)
    assert refusal.value.status == 422
    world.feed(await read(api))
    assert (await world.reconcile(NAME)).message == "labelled"
    assert (await read(api)).labels[ZONE] == "a"


async def test_a_volume_being_deleted_is_refused_a_write(api: Kube, world: World) -> None:
    before = await create(api)
    world.places.answers[NAME] = place("a")
    world.feed(before)
    await api.request("DELETE", f"{VOLUMES}/{NAME}")  # stays: it has a finalizer
    with pytest.raises(KubernetesError) as refusal:
        await world.reconcile(NAME)
    assert refusal.value.status == 422
    world.feed(await read(api))
    assert (await world.reconcile(NAME)).message == "left alone: it is being deleted"
