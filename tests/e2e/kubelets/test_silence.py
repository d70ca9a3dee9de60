"""No client writes to Nodes while nothing happens: after the other tests, in their cluster."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from tests.e2e.kubelets.world import FLAGS, NAMES, World
from tests.support.kube.kubelets import Kubelets
from tests.support.running import IS_LONG, Supervisor, Where, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SILENCE = 60.0 if IS_LONG else 20.0  # seconds
REPORT = ("hollow-kubelet", "status")  # which a kubelet sends every 300 s, whatever happens
SETTLED = 15.0  # seconds: a kubelet reports once more 10 s after it registered


async def test_no_one_writes_to_nodes_when_nothing_happens_not_even_a_new_leader(
    world: World,
) -> None:
    where = Where(
        world.kubelets.cluster.directory,
        world.kubelets.cluster.kubeconfig("ccm"),
        world.cloud.config,
    )
    with Supervisor(where, *FLAGS, name="second") as second:
        await until("the second replica is ready", lambda: second.workers().get("node-0"))
        await until_quiet(world.kubelets)
        world.kubelets.cluster.forget_audit()
        world.supervisor.end()
        await until("it leads", second.is_leading)
        await asyncio.sleep(SILENCE)
        writes: Counter[Any] = world.kubelets.node_writes()
    assert writes.pop(REPORT, 0) <= len(NAMES), writes
    assert not writes, writes


async def until_quiet(kubelets: Kubelets) -> None:
    """Until no client has written to a Node for a while, however late kubelets are."""

    def left() -> float:
        return kubelets.last_node_write() + SETTLED - time.time()

    async def is_quiet() -> bool:
        await asyncio.sleep(max(0.0, left()))
        return left() <= 0

    await until("no client writes", is_quiet, 10 * SETTLED)
