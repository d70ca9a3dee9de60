"""Two clusters of one name on one Incus: neither touches what is the other's."""

from collections.abc import AsyncIterator

import pytest

from ccm.cloud.testkit.harness import service
from ccm.errors import Refused
from ccm.providers.incus.ids import CLUSTER, CLUSTER_UID
from ccm.providers.incus.lb.request import SERVICE_UID
from tests.labs.incus.gateway import Gateway
from tests.labs.incus.lab import Lab
from tests.providers.incus.conftest import Started
from tests.providers.incus.test_incus_balancers import ROOT, Balancers, clean
from tests.providers.incus.test_incus_routes import POD_CIDR, bridged, create, listed, node_of

__all__ = ["bridged", "clean"]

UIDS = ("11111111-aaaa", "22222222-bbbb")
Pair = tuple[Balancers, Balancers]


@pytest.fixture
async def pair(lab: Lab, gateway: Gateway, clean: None) -> AsyncIterator[Pair]:
    config = lab.config(f"unix://{gateway.socket}")
    one, other = [await Started(config, uid=uid).start() for uid in UIDS]
    yield Balancers(lab, one), Balancers(lab, other)
    await one.close()
    await other.close()


async def owned(balancers: Balancers) -> list[str]:
    return [one.service_uid for one in await balancers.part.owned()]


async def test_a_balancer_of_another_cluster_of_the_same_name_is_left_alone(
    lab: Lab, pair: Pair
) -> None:
    one, other = pair
    asked = service(loadBalancerIP="192.0.2.5")
    await one.ensure(asked)
    before = one.records()
    assert before["192.0.2.5"]["config"][CLUSTER_UID] == UIDS[0]
    assert (await owned(one), await owned(other)) == ([asked.uid], [])
    assert await other.part.get(asked) is None
    await other.part.delete(asked)
    for work in (other.ensure(asked), other.update(asked)):
        with pytest.raises(Refused):
            await work
    assert one.records() == before
    await one.part.delete(asked)
    assert one.records() == {}


async def test_a_balancer_from_before_the_uid_was_known_is_its_services(
    lab: Lab, gateway: Gateway, pair: Pair
) -> None:
    """Its name alone does not make it an orphan of ours; without our UID the mark stays."""
    one, _ = pair
    nameless = await Started(lab.config(f"unix://{gateway.socket}")).start()
    asked = service(loadBalancerIP="192.0.2.5")
    before = Balancers(lab, nameless)
    await before.ensure(asked)
    assert (await owned(before), await owned(one)) == ([asked.uid], [])
    await one.ensure(asked)
    assert (await owned(before), await owned(one)) == ([], [asked.uid])
    await before.ensure(asked, "node-1")
    config = one.records()["192.0.2.5"]["config"]
    wanted = {CLUSTER: "kit", CLUSTER_UID: UIDS[0], SERVICE_UID: asked.uid}
    assert {key: config.get(key) for key in wanted} == wanted
    await before.part.delete(asked)
    assert lab.get(ROOT) == [], "a Service's UID is no other cluster's"
    await nameless.close()


async def test_a_route_of_another_cluster_of_the_same_name_is_left_alone(
    lab: Lab, gateway: Gateway, bridged: list[dict[str, object]]
) -> None:
    config = lab.config(f"unix://{gateway.socket}", "bridged").replace("network = ovn0", "")
    one, other = [await Started(config, uid=uid).start() for uid in UIDS]
    node = node_of(bridged[0], POD_CIDR)
    await create(one, node)
    assert [route.cidr for route in await listed(one, node)] == [POD_CIDR]
    assert list(await listed(other, node)) == []
    with pytest.raises(Refused, match="is not ours"):
        await create(other, node)
    await one.close()
    await other.close()
