"""Zones and regions: tags of two categories on what a machine is in."""

import asyncio
from typing import Any, cast

import pytest

from ccm.errors import CloudError
from ccm.model.cloud import Instance, Unknown
from ccm.providers.vsphere.inventory import Place
from ccm.providers.vsphere.tags import NAME_TTL, Tag, TagReader
from ccm.providers.vsphere.vcenter import VCenterApi
from ccm.providers.vsphere.zones import topology_of
from tests.labs.vsphere.lab import Lab
from tests.providers.vsphere.conftest import Started, node_of
from tests.support.running import until

HOST = Place("HostSystem", "host-1", "H0", "domain-1")
CLUSTER = Place("ClusterComputeResource", "domain-1", "C0", "group-1")
CENTER = Place("Datacenter", "datacenter-1", "DC0", "")
FOLDER = Place("Folder", "group-9", "team", "datacenter-1")
PLACES, FOLDERS = (HOST, CLUSTER, CENTER), (FOLDER, CENTER)
REGION, ZONE = Tag("region", "r"), Tag("zone", "z")


def near(tags: dict[Place, list[Tag]]) -> tuple[str, str, str]:
    by_id = {place.moid: some for place, some in tags.items()}
    found = topology_of((PLACES, FOLDERS), by_id, "region", "zone")
    return found.region, found.zone, found.why_not


@pytest.mark.parametrize(
    ("tags", "zone"),
    [
        ({CENTER: [REGION], CLUSTER: [ZONE]}, "z"),
        ({CENTER: [REGION], CLUSTER: [ZONE], HOST: [Tag("zone", "near")]}, "z"),
        ({CENTER: [REGION, ZONE], HOST: [Tag("zone", "near")]}, "near"),
        ({HOST: [REGION], CLUSTER: [Tag("zone", "near")], CENTER: [ZONE]}, "near"),
        ({CENTER: [REGION, ZONE], HOST: [Tag("other", "x")]}, "z"),
        ({FOLDER: [REGION, ZONE], CENTER: [Tag("zone", "other-chain")]}, "z"),
    ],
)
def test_tags_on_several_levels_count_as_upstream_counts(
    tags: dict[Place, list[Tag]], zone: str
) -> None:
    """VS44, VS45: outwards, until both are known; the next chain begins again."""
    assert near(tags) == ("r", zone, "")


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ({CENTER: [REGION]}, "nothing that it is in has tags of both region and zone"),
        ({}, "nothing that it is in has tags of both region and zone"),
        ({CENTER: [REGION], HOST: [ZONE, Tag("zone", "a")]}, "HostSystem H0 has zone a, z"),
        (
            {CENTER: [Tag("region", "a b"), ZONE]},
            "tag 'a b' of region on Datacenter DC0 cannot be the value of a label",
        ),
    ],
)
def test_an_undecidable_zone_has_its_reason(tags: dict[Place, list[Tag]], why: str) -> None:
    """VS46, VS47, VS50: both or neither."""
    assert near(tags) == ("", "", why)


async def test_a_zone_follows_the_machine(lab: Lab, tagged: Started) -> None:
    """VS44, VS51: and it follows a live migration."""
    (made,) = lab.create("node-1")
    for host, zone in (
        ("DC0_C0_H0", "zone-DC0_C0"),
        ("DC0_C0_H1", "zone-DC0_C0"),
        ("DC0_C1_H0", "zone-DC0_C1"),
    ):
        lab.change("node-1", host=host)
        found = await tagged.known(node_of(made))
        assert (found.region, found.zone) == ("region-DC0", zone)


async def test_without_categories_no_tag_is_read(lab: Lab, cloud: Started) -> None:
    (made,) = lab.create("node-1")
    found = await cloud.known(node_of(made))
    assert (found.region, found.zone) == ("", "")
    assert not [name for name in lab.calls() if "/rest/" in name]


@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 403}, {"status": 200, "text": "{}"}])
async def test_tags_that_cannot_be_read_are_no_other_zone(
    lab: Lab, tagged: Started, fault: dict[str, object]
) -> None:
    """VS49: a new Node waits, one that is initialized keeps its labels; all else is served."""
    (made,) = lab.create("node-1")
    lab.fail("tag-association", **fault)
    assert "ListAttachedTags" in await tagged.why(node_of(made, is_new=True))
    kept = await tagged.known(node_of(made))
    assert (kept.region, kept.zone, kept.addresses != ()) == ("", "", True)
    lab.heal()
    assert (await tagged.known(node_of(made, is_new=True))).zone == "zone-DC0_C0"


async def test_a_tag_that_is_gone_but_for_who_has_it_keeps_no_other_waiting(
    lab: Lab, tagged: Started
) -> None:
    """Who may make tags deletes one; vCenter may list it on what had it, whose zone is unclear."""
    one, two = lab.create("node-1", "node-2")
    lab.change("node-2", host="DC0_C1_H0")
    await tagged.known(node_of(one))
    lab.fail("GET /rest/com/vmware/cis/tagging/tag", status=404, text='{"type": "not_found"}')
    answers = await tagged.describe(node_of(one, is_new=True), node_of(two, is_new=True))
    assert isinstance(found := answers["node-1"], Instance), found
    assert found.zone == "zone-DC0_C0"
    assert isinstance(unclear := answers["node-2"], Unknown)
    assert "has a tag that vCenter does not find" in unclear.why


async def test_tags_without_number_are_read_some_at_a_time_and_kept() -> None:
    """Each read waits for its grant: all at once are a flood, of which nothing was kept."""
    count, under_way, most, reads = 450, 0, 0, 0

    class Api:
        name = "lab"

        async def rest(self, operation: str, method: str, path: str, body: Any = None) -> Any:
            nonlocal under_way, most, reads
            if operation == "ListAttachedTags":
                tags = [f"t{number}" for number in range(count)]
                return [{"object_id": {"id": HOST.moid}, "tag_ids": tags}]
            reads, under_way = reads + 1, under_way + 1
            number = reads
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            if number == 400:
                raise CloudError("no call is free in time")
            identity = path.rpartition(":")[2]
            return {"id": identity, "name": f"n-{identity}", "category_id": "c"}

    tags = TagReader(cast(VCenterApi, Api()))
    with pytest.raises(CloudError, match="no call is free"):
        await tags.attached([HOST])
    found = await tags.attached([HOST])
    assert found[HOST.moid][-1] == Tag("n-c", "n-t449")
    assert (most, reads) == (100, 401 + 150)  # 300 tags were kept


async def test_a_category_that_nothing_has_is_reported(lab: Lab) -> None:
    """VS46: as upstream, a new Node waits; here it is told why."""
    (made,) = lab.create("node-1")
    cloud = await Started(lab.config({"region": "k8s-region", "zone": "rack"})).start()
    assert "has tags of both k8s-region and rack" in await cloud.why(node_of(made, is_new=True))
    assert (await cloud.known(node_of(made))).zone == ""


async def test_names_of_tags_are_kept_for_a_while(lab: Lab, tagged: Started) -> None:
    (made,) = lab.create("node-1")
    reader = tagged.instances._tags["lab"]  # type: ignore[union-attr]
    for _ in range(3):
        await tagged.known(node_of(made))
    assert lab.calls()["GET /rest/com/vmware/cis/tagging/tag/{id}"] == 3
    reader._read_at -= NAME_TTL + 1
    await tagged.known(node_of(made))
    assert lab.calls()["GET /rest/com/vmware/cis/tagging/tag/{id}"] == 6


async def test_names_that_are_forgotten_meanwhile_are_known_to_whoever_asked(
    lab: Lab, tagged: Started
) -> None:
    """Two batches at once, and the second begins when the time of the names is up."""
    machines = lab.create("node-1", "node-2")
    lab.change("node-2", host="DC0_C1_H0")
    reader = tagged.instances._tags["lab"]  # type: ignore[union-attr]
    await tagged.known(node_of(machines[0]))
    lab.fail("GET /rest/com/vmware/cis/tagging/tag", delay_ms=300)
    second = asyncio.create_task(tagged.known(node_of(machines[1])))
    await until("a new tag is asked for", lambda: tagged.gate.calls[-1].operation == "GetTag")
    reader._read_at -= NAME_TTL + 1
    found = await asyncio.gather(tagged.known(node_of(machines[0])), second)
    assert [one.zone for one in found] == ["zone-DC0_C0", "zone-DC0_C1"]
