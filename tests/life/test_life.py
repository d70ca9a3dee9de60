"""A life drawn from a seed: whatever happened, in the end the cloud is as the cluster asks."""

import asyncio
import os
import time

import pytest

from ccm.kube.client import Kube
from tests.life.life import living
from tests.life.processes import started
from tests.life.script import Script, Size
from tests.proc.running import IS_LONG, Cloud, Where

SEED = int(os.environ.get("CCM_LIFE_SEED", "1"))
STEPS = int(os.environ.get("CCM_LIFE_STEPS", "400" if IS_LONG else "30"))
SIZE = Size(nodes=100, services=50, volumes=100) if IS_LONG else Size(12, 6, 10)
REPLICAS = 2 if IS_LONG else 1
RECOVERY_TIMEOUT = 120.0  # what failed waits for its retry
STEPS_AT_ONCE = 40  # after which everything has to become right
NO_WRITES_FOR = 2.0  # seconds after everything is right

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600 if IS_LONG else 300)]


async def test_whatever_happened_the_cloud_is_as_the_cluster_asks(
    where: Where, cloud: Cloud, api: Kube
) -> None:
    print(f"CCM_LIFE_SEED={SEED} CCM_LIFE_STEPS={STEPS}")
    script = Script(SEED)
    async with living(started(where), cloud, api, REPLICAS) as life:
        await life.nodes.add_foreign("foreign", network=4000)
        for step in script.beginning(SIZE):
            await life.take(step)
        await life.until_done(RECOVERY_TIMEOUT)
        for first in range(0, STEPS, STEPS_AT_ONCE):
            for _ in range(first, min(first + STEPS_AT_ONCE, STEPS)):
                await life.take(script.draw())
            for step in script.rest():
                await life.take(step)
            began = time.monotonic()
            await life.until_done(RECOVERY_TIMEOUT)
            print(f"right after {time.monotonic() - began:.1f} s")
        await life.admin.reset_counters()
        await asyncio.sleep(NO_WRITES_FOR)
        counters = await life.admin.counters()
        assert counters["writes"] == 0, counters["rows"]
        assert await life.wrong() == []
