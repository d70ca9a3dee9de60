"""A cluster of two members, one of which is held: nothing is deleted, and all of it comes back."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import node, service, volume
from ccm.errors import CloudError
from ccm.model.cloud import Gone, Instance, Unknown
from tests.labs.incus.lab import MISSING, Failed, Lab, is_installed, running_lab
from tests.providers.incus.adapter import DRIVER, VOLUMES, disk_spec
from tests.providers.incus.conftest import Started
from tests.providers.incus.test_incus_balancers import NODES, Balancers
from tests.providers.incus.test_incus_incomplete import ABSENT
from tests.support.deadlines import within
from tests.support.needed import needed
from tests.support.running import long, until, wait_for

pytestmark = [long, pytest.mark.timeout(600)]

HEARTBEAT = 90.0  # seconds until all members see one again, at the most


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two members, `m1` with node-1 and node-3, `m2` with node-2."""
    needed(is_installed(), MISSING)
    with running_lab(os.environ.get("INCUS_PAIR", "pair"), members=2) as lab:
        yield lab


@pytest.fixture(autouse=True)
def ready(lab: Lab) -> None:
    """Both members take requests: one that comes back answers others a while before it does."""
    wait_for("all members are ready", lambda: is_ready(lab), HEARTBEAT)


def is_ready(lab: Lab) -> bool:
    try:
        return all(lab.get("/resources", target=member) for member in ("m1", "m2"))
    except Failed:
        return False


@pytest.fixture
async def cloud(lab: Lab) -> AsyncIterator[Started]:
    config = lab.config().replace("zone-key = user.zone", "zone-group-prefix = zone-")
    started = await Started(config).start()
    yield started
    await started.close()


async def test_a_member_that_is_down_costs_no_one_a_node_and_comes_back_whole(
    lab: Lab, cloud: Started
) -> None:
    """IN24, IN25, IN48, IN49."""
    balancers = Balancers(lab, cloud)
    nodes = [*balancers.nodes.values()]
    before = await cloud.describe(*nodes)
    assert [one.zone for one in before.values() if isinstance(one, Instance)] == [
        "zone-a", "zone-b", "zone-a"
    ]  # fmt: skip
    (way,) = (await balancers.ensure(service())).ingress
    (other,) = (await balancers.ensure(service("other"))).ingress
    balancers.answering(way.ip, *NODES)
    lab.run("api", "hold", "2")
    try:
        answers = await cloud.describe(*nodes, node("absent", ABSENT))
        assert [type(one) for one in answers.values()] == [Instance, Unknown, Instance, Unknown]
        absent = answers["absent"]
        assert isinstance(absent, Unknown)
        assert "instance node-2 on m2 cannot be read" in absent.why
        records = balancers.records()
        for names in (("node-1", "node-2"), ("node-1",)):
            with pytest.raises(CloudError):
                await balancers.update(service(), *names)
        assert balancers.records() == records, "nothing was made, and nothing lost"
        with pytest.raises(CloudError):
            await balancers.part.delete(service("other"))
        assert other.ip not in balancers.records(), "Incus says 500, and has done it"
        await balancers.part.delete(service("other"))
        balancers.answering(way.ip, *NODES)
    finally:
        lab.run("api", "resume", "2")

    async def is_whole() -> bool:
        return await cloud.describe(*nodes) == before

    await until("all instances are read as before", is_whole, HEARTBEAT)
    assert isinstance(await cloud.describe_one("absent", ABSENT), Gone)
    await until_written(balancers)
    balancers.answering(way.ip, "node-1", "node-2")
    await balancers.part.delete(service())
    assert not balancers.records()


async def until_written(balancers: Balancers) -> None:
    """Writes go through again, as soon as all members see each other."""
    async with within(HEARTBEAT):
        while True:
            try:
                return await balancers.update(service(), "node-1", "node-2")
            except CloudError:
                await asyncio.sleep(1)


async def test_an_instance_that_moves_keeps_its_id_and_changes_its_zone(
    lab: Lab, cloud: Started
) -> None:
    """IN15."""
    lab.remove("moving")
    lab.create("moving", target="m1")
    there = await cloud.describe_one("moving")
    assert isinstance(there, Instance)
    lab.set_state(["moving"], "stop")
    lab.call("POST", "/instances/moving", {"name": "moving", "migration": True}, target="m2")
    moved = await cloud.describe_one("moving", there.provider_id)
    lab.remove("moving")
    assert isinstance(moved, Instance)
    assert (there.zone, moved.zone) == ("zone-a", "zone-b")
    assert moved.provider_id == there.provider_id


async def test_a_volume_that_each_member_has_is_in_no_zone(lab: Lab) -> None:
    """IN65: a pool of members' own disks takes one name on each of them."""
    body = {"name": "twice", "type": "custom"}
    for member in ("m1", "m2"):
        lab.call("POST", VOLUMES, body, target=member)
    config = lab.config(more=f"[Volumes]\ncsi-driver = {DRIVER}")
    cloud = await Started(config).start()
    try:
        assert cloud.volumes
        asked = [volume("pv", disk_spec(DRIVER, "twice"))]
        answer = (await invoke(cloud.volumes.describe, asked))["pv"]
        assert answer == Unknown("each of the members m1, m2 has such a volume")
    finally:
        await cloud.close()
        for member in ("m1", "m2"):
            lab.call("DELETE", f"{VOLUMES}/twice", target=member)
