"""Slow writes of one namespace: the API server has few of them at a time, and no other waits."""

import asyncio
from typing import Any

import pytest

from ccm.model.objects import Json
from ccm.model.service import Service
from tests.support.cluster import Cluster
from tests.support.waiting import until
from workers.executor import LARGE, REST, TURNS

from .objects import node, service
from .world import World, running

pytestmark = pytest.mark.virtual_time

HOSTILE = 100  # Services, more than are reconciled at the same time
FEW, WRITE = 20, 0.02  # Services; seconds


def hostile(number: int, annotation: str = "") -> Service:
    made = service(name=f"web-{number}")
    made.raw["metadata"] |= {"namespace": "hostile", "annotations": {"large": annotation}}
    return made


class SlowCluster(Cluster):
    """Patches in the namespace `hostile` wait until `opened`, and take so many seconds."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.opened, self.at_once, self.most = asyncio.Event(), 0, 0
        self.seconds = seconds

    async def patch(self, path: str, *what: Any, **how: Any) -> Json:
        if "/hostile/" in path:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await self.opened.wait()
            await asyncio.sleep(self.seconds)
            self.at_once -= 1
        return await super().patch(path, *what, **how)


async def test_slow_writes_of_one_namespace_hold_up_no_other() -> None:
    cluster = SlowCluster()
    w = World(node("n1"), *map(hostile, range(HOSTILE)), cluster=cluster)
    async with running(w, until_rest=False):
        await until(lambda: cluster.at_once == TURNS, "some write")
        cluster.put(service())
        await until(lambda: w.service().ingress, "the other one's address")
        cluster.opened.set()
        await w.rest()
        assert cluster.most == TURNS
        assert all(w.service(f"hostile/web-{at}").ingress for at in range(HOSTILE))


@pytest.mark.parametrize(
    ("size", "writes"),
    [
        pytest.param(1, 2 / TURNS, id="several small ones at a time"),
        pytest.param(LARGE, 2 * (1 + REST), id="large ones, one at a time, with rests"),
    ],
)
async def test_large_writes_of_one_namespace_leave_the_api_server_time(
    size: int, writes: float
) -> None:
    """What a small write takes says more of the API server than of the Service."""
    cluster, now = SlowCluster(WRITE), asyncio.get_running_loop().time
    cluster.opened.set()
    services = [hostile(at, "x" * size) for at in range(FEW)]
    began, w = now(), World(node("n1"), *services, cluster=cluster)
    async with running(w, until_rest=False):
        await until(lambda: all(w.service(it.key).ingress for it in services), "all addresses")
    assert now() - began == pytest.approx(FEW * writes * WRITE, rel=0.1)


async def test_calls_of_one_namespace_that_take_long_leave_slots_for_others() -> None:
    """Load balancers of fifty ports wait for hundreds of grants of the cloud's budget."""
    many = [hostile(number) for number in range(HOSTILE)]
    w = World(node("n1"), *many, concurrent_service_syncs=10)
    for one in many:
        w.balancers.holds[one.name] = asyncio.Event()
    async with running(w, until_rest=False):
        await until(lambda: len(w.balancers.calls) == 8, "eight of ten slots are theirs")
        w.cluster.put(service(name="other"))
        await until(lambda: w.service("default/other").ingress, "the other one's address")
        for hold in w.balancers.holds.values():
            hold.set()
        await w.rest()
        assert all(w.service(f"hostile/web-{at}").ingress for at in range(HOSTILE))
