"""Load balancers: whose they are, and by what they are found."""

from contextlib import suppress

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.gate import Interruption, ProcessKilled
from ccm.errors import (
    CloudError,
    ImplementedElsewhere,
    Refused,
)
from ccm.model.cloud import Ingress
from ccm.model.objects import Json
from ccm.providers.digitalocean.ids import SERVICE_TAG
from ccm.providers.digitalocean.lb.annotations import BALANCER_ID, DISOWN
from tests.labs.digitalocean.server import DigitalOcean
from tests.providers.digitalocean.adapter import config_of
from tests.providers.digitalocean.balancers import NAME, only, web
from tests.providers.digitalocean.conftest import Started, host


@pytest.mark.parametrize("how", [Interruption.KILLED, Interruption.LOST])
async def test_what_a_broken_off_creation_left_is_taken_up(
    do: DigitalOcean, worker: Json, how: Interruption
) -> None:
    """DO21, DO22: by its name."""
    for number in range(1, 6):
        do.balancers.clear()
        first, second = Started(config_of(do)), Started(config_of(do))
        await first.start()
        await second.start()
        first.gate.interrupt_call(number, how)
        with suppress(CloudError, ProcessKilled):
            await first.ensure(web({"name": "front"}), host(worker))
        await second.ensure(web({"name": "front"}), host(worker))
        assert only(do)["name"] == "front"


async def test_an_id_of_nothing_makes_no_second_one(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO24: where there is one, it is taken; else there is a new one, and that is told."""
    stale = web({BALANCER_ID: "4de7ac8b-495b-4884-9a69-1050c6793cd6"})
    made = await cloud.ensure(stale, host(worker))
    assert any(BALANCER_ID in warning for warning in made.warnings)
    restarted = await Started(config_of(do)).start()
    await restarted.ensure(stale, host(worker))
    await restarted.ensure(web({BALANCER_ID: "no-id"}), host(worker))
    assert len(do.bodies("POST", "load_balancers")) == 1


@pytest.mark.parametrize(
    "tags", [[], [f"{SERVICE_TAG}another"], ["k8s:another"]], ids=["nobody", "service", "cluster"]
)
async def test_another_ones_load_balancer_is_refused(
    do: DigitalOcean, cloud: Started, worker: Json, tags: list[str]
) -> None:
    """DO25: a tenant may write any ID, and any name; not into a status, and not into the cloud."""
    theirs = do.add_balancer(name="shop", tags=tags)
    claims = [
        web({BALANCER_ID: theirs["id"]}),
        web({BALANCER_ID: theirs["id"], "name": "shop"}),
        web({BALANCER_ID: theirs["id"], "name": "shop", "hostname": "shop.example.com"}),
    ]
    before = dict(theirs)
    for claim in claims:
        with pytest.raises(Refused, match=f"rename it to {NAME}"):
            await cloud.ensure(claim, host(worker))
        assert cloud.load_balancers
        await invoke(cloud.load_balancers.delete, claim)
    assert cloud.load_balancers
    with pytest.raises(Refused, match="has no load balancer"):
        await invoke(cloud.load_balancers.update_nodes, claims[0], [host(worker)])
    assert do.balancers == {theirs["id"]: before}
    assert not do.writes()


async def test_who_may_change_the_cloud_gives_one_to_a_service(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    theirs = do.add_balancer(name=NAME)
    found = await cloud.ensure(web(), host(worker))
    assert found.ingress == (Ingress(theirs["ip"]),)
    assert only(do)["droplet_ids"] == [worker["id"]]


async def test_a_name_may_change(do: DigitalOcean, cloud: Started, worker: Json) -> None:
    """DO26: it is the same one, and is found again by its tag."""
    first = await cloud.ensure(web({"name": "front"}), host(worker))
    balancer_id = only(do)["id"]
    assert first.name == "front"
    for name in ("back", ""):
        restarted = await Started(config_of(do)).start()
        renamed = await restarted.ensure(web({"name": name} if name else {}), host(worker))
        assert (renamed.name, only(do)["id"]) == (name or NAME, balancer_id)


async def test_a_name_that_another_has_is_reported_and_the_rest_is_done(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    do.add_balancer(name="front")
    made = await cloud.ensure(web({"name": "front"}), host(worker))
    assert (made.name, bool(made.ingress)) == (NAME, True)
    assert any("another load balancer has this name" in one for one in made.warnings)


async def test_where_tags_are_not_shown_a_name_waits_for_the_address(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO26: nothing else would tell whose it is."""
    do.shows_tags = False
    asked = web({"name": "front"})
    made = await cloud.ensure(asked, host(worker))
    assert made.name == NAME
    assert any("called after the Service's UID" in one for one in made.warnings)
    published = web({"name": "front"}, ip=only(do)["ip"])
    assert (await cloud.ensure(published, host(worker))).name == "front"
    restarted = await Started(config_of(do)).start()
    before = len(do.writes())
    assert (await restarted.ensure(published, host(worker))).name == "front"
    assert len(do.writes()) == before


async def test_where_tags_are_not_shown_a_host_name_takes_the_name_away_again(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO26: else each one whose status has only a host name would stay, and be made again."""
    do.shows_tags = False
    await cloud.ensure(web(), host(worker))
    balancer_id, ip = only(do)["id"], only(do)["ip"]
    assert (await cloud.ensure(web({"name": "front"}, ip=ip), host(worker))).name == "front"
    named = {"name": "front", "hostname": "web.example.org"}
    made = await cloud.ensure(web(named, ip=ip), host(worker))
    published = web(named, hostname="web.example.org")
    await cloud.ensure(published, host(worker))
    assert (only(do)["id"], made.name) == (balancer_id, NAME)
    assert any("called after the Service's UID" in one for one in made.warnings)
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.delete, published)
    assert not do.balancers


async def test_a_disowned_one_is_not_even_looked_at(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO47: and is taken up again as it was."""
    await cloud.ensure(web(), host(worker))
    before = len(do.requests)
    disowned = web({DISOWN: "true"})
    parts = cloud.load_balancers
    assert parts
    for method, *rest in (
        (parts.ensure, [host(worker)]),
        (parts.update_nodes, []),
        (parts.delete,),
    ):
        with pytest.raises(ImplementedElsewhere):
            await invoke(method, disowned, *rest)
    assert len(do.requests) == before
    assert (await cloud.ensure(web({DISOWN: "false"}), host(worker))).ingress
    assert not [one for one in do.writes() if one.startswith("PUT")]


async def test_the_clusters_tag_is_set_once(do: DigitalOcean, worker: Json) -> None:
    """DO51: at the start, or on one that lacks it."""
    started = await Started(config_of(do, "cluster-id = one")).start()
    await started.ensure(web(), host(worker))
    assert "k8s:one" in do.bodies("POST", "load_balancers")[0]["tags"]
    only(do)["tags"] = []
    for _ in range(2):
        await started.ensure(web(), host(worker))
    assert do.writes()[-3:] == [
        "POST /v2/tags/k8s:one/resources",
        "POST /v2/tags",
        "POST /v2/tags/k8s:one/resources",
    ]
    assert only(do)["tags"] == ["k8s:one"]


async def test_a_copy_of_the_cluster_under_another_id_takes_no_load_balancer(
    do: DigitalOcean, worker: Json
) -> None:
    """As from a backup: its Services have the same UIDs, from which load balancers have names."""
    first = await Started(config_of(do, "cluster-id = one")).start()
    await first.ensure(web(), host(worker))
    before, other = dict(only(do)), do.add_droplet("other")
    copy = await Started(config_of(do, "cluster-id = two")).start()
    assert copy.load_balancers
    with pytest.raises(Refused, match=r"carries the tag of another cluster: .* k8s:two"):
        await copy.ensure(web(), host(other))
    with pytest.raises(Refused, match="has no load balancer"):
        await invoke(copy.load_balancers.update_nodes, web(), [host(other)])
    with pytest.raises(Refused, match="another cluster"):
        await invoke(copy.load_balancers.delete, web())
    assert only(do) == before


async def test_a_cluster_that_is_given_an_id_later_keeps_its_load_balancers(
    do: DigitalOcean, worker: Json
) -> None:
    uid = "5c6f9f7e-0000-4000-8000-000000000001"
    first = await Started(config_of(do), cluster_uid=uid).start()
    await first.ensure(web(), host(worker))
    again = await Started(config_of(do, "cluster-id = one"), cluster_uid=uid).start()
    await again.ensure(web(), host(worker))
    assert {f"k8s:{uid}", "k8s:one"} <= {*only(do)["tags"]}
