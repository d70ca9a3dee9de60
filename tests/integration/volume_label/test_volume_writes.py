"""The volume-label controller's writes, as API servers take them."""

from collections.abc import AsyncIterator

import pytest

from ccm.errors import KubernetesError
from ccm.kube.client import JSON_PATCH
from ccm.model.objects import Json
from ccm.model.volume import PersistentVolume
from tests.integration.edge_cases.servers import VOLUMES, ApiServer, api_server
from tests.support.nodes import Tweak, with_finalizer

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

__all__ = ["api_server"]


@pytest.fixture
async def world(api_server: ApiServer) -> AsyncIterator[World]:
    async with new_world(kube=api_server.kube, legacy_zone_labels=True) as made:
        yield made


async def read(api_server: ApiServer, of: PersistentVolume) -> PersistentVolume:
    return PersistentVolume(await api_server.find(of) or {})


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
    api_server: ApiServer, world: World, tweaks: list[Tweak]
) -> None:
    before = await api_server.volume(volume(*tweaks))
    written = api_server.kube.writes
    world.places.answers[before.name] = place("a", "b")
    world.feed(before)
    assert (await world.reconcile(before.name)).message == "labelled"
    labels, affinity = shown(await read(api_server, before))
    assert ALL_FOUR.items() <= labels.items()
    assert labels.keys() - ALL_FOUR.keys() == before.labels.keys() - ALL_FOUR.keys()
    assert affinity == AFFINITY
    assert api_server.kube.writes == written + 1
    world.feed(await read(api_server, before))
    assert (await world.reconcile(before.name)).message == "labelled"
    assert (api_server.kube.writes, len(world.places.reads)) == (written + 1, 1)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"/metadata/labels/{ZONE.replace('/', '~1')}", id="a-label"),
        pytest.param("/metadata/labels", id="the-first-label"),
        pytest.param("/spec/nodeAffinity", id="the-affinity"),
    ],
)
async def test_a_race_is_refused_and_planned_again(
    api_server: ApiServer, world: World, path: str
) -> None:
    """The server tests what was missing; a test that always passed would hide the race."""
    has_labels = path.endswith("zone")
    before = await api_server.volume(volume(*[labelled(other="x")] if has_labels else []))
    world.places.answers[before.name] = place("a", "b")
    world.feed(before)
    values = {
        "/metadata/labels": {ZONE: "a"},
        "/spec/nodeAffinity": terms([requirement(ZONE, "In", "a")]),
    }
    change = [{"op": "add", "path": path, "value": values.get(path, "a")}]
    await api_server.kube.patch(f"{VOLUMES}/{before.name}", JSON_PATCH, change)
    with pytest.raises(KubernetesError) as refusal:
        await world.reconcile(before.name)
    assert refusal.value.status == 422
    world.feed(await read(api_server, before))
    assert (await world.reconcile(before.name)).message == "labelled"
    assert (await read(api_server, before)).labels[ZONE] == "a"


async def test_a_volume_being_deleted_is_refused_a_write(
    api_server: ApiServer, world: World
) -> None:
    before = await api_server.volume(volume(with_finalizer("example.com/theirs")))
    world.places.answers[before.name] = place("a")
    world.feed(before)
    await api_server.kube.request("DELETE", f"{VOLUMES}/{before.name}")
    with pytest.raises(KubernetesError) as refusal:
        await world.reconcile(before.name)
    assert refusal.value.status == 422
    world.feed(await read(api_server, before))
    assert (await world.reconcile(before.name)).message == "left alone: it is being deleted"
