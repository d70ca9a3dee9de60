"""Slow writes of one namespace: the API server has few of them at a time, and no other waits."""

import asyncio
from typing import Any

import pytest

from ccm.model.objects import Json
from ccm.model.service import Service
from tests.support.cluster import Cluster
from tests.support.waiting import until
from workers.service.turns import WRITES_OF_A_NAMESPACE

from .objects import node, service
from .world import World, running

pytestmark = pytest.mark.virtual_time

HOSTILE = 100  # Services, more than are reconciled at the same time


def hostile(number: int) -> Service:
    made = service(name=f"web-{number}")
    made.raw["metadata"]["namespace"] = "hostile"
    return made


class SlowCluster(Cluster):
    """Patches in the namespace `hostile` wait until `opened`."""

    def __init__(self) -> None:
        super().__init__()
        self.opened, self.at_once, self.most = asyncio.Event(), 0, 0

    async def patch(self, path: str, *what: Any, **how: Any) -> Json:
        if "/hostile/" in path:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await self.opened.wait()
            self.at_once -= 1
        return await super().patch(path, *what, **how)


async def test_slow_writes_of_one_namespace_hold_up_no_other() -> None:
    cluster = SlowCluster()
    w = World(node("n1"), *map(hostile, range(HOSTILE)), cluster=cluster)
    async with running(w, until_rest=False):
        await until(lambda: cluster.at_once == WRITES_OF_A_NAMESPACE, "some write")
        cluster.put(service())
        await until(lambda: w.service().ingress, "the other one's address")
        cluster.opened.set()
        await w.rest()
        assert cluster.most == WRITES_OF_A_NAMESPACE
        assert all(w.service(f"hostile/web-{at}").ingress for at in range(HOSTILE))
