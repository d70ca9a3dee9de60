"""An etcd that is restored from a backup: its past is the truth, and nobody needs a restart."""

import asyncio
import time

import pytest

from ccm.kube.client import MERGE_PATCH
from tests.support.environment import LEASES, NODES, Environment
from tests.support.running import until

pytestmark = pytest.mark.real

COUNT = 5


async def test_after_a_restore_of_etcd_the_restored_state_is_the_truth(env: Environment) -> None:
    """The backup is older than the nodes' first initialization: they have to get another.

    The supervisor leads without an election, and so without a Lease.
    """
    names = await env.add_nodes(COUNT)
    backup = await asyncio.to_thread(env.cluster.back_up)
    flags = ("--leader-elect=false", "--leader-elect-resource-name=ccm-none")
    with env.supervisor(*flags) as supervisor:
        await until("the nodes are initialized", env.are_initialized)
        pids = supervisor.pids()
        for number in range(50):  # so that the versions of the restored past stay below
            note = {"metadata": {"annotations": {"number": str(number)}}}
            await env.api.patch(f"{NODES}/{names[0]}", MERGE_PATCH, note)
        newest = await versions(env)
        await asyncio.to_thread(env.cluster.restore, backup)
        restored = time.monotonic()
        assert max(await versions(env)) < max(newest)
        await until("the restored nodes are initialized", env.are_initialized)
        print(f"restored nodes initialized after {time.monotonic() - restored:.1f} s")
        assert supervisor.pids() == pids
        assert supervisor.is_leading()
        assert supervisor.end() == 0
    leases = (await env.api.get(LEASES))["items"]
    assert "ccm-none" not in {lease["metadata"]["name"] for lease in leases}


async def versions(env: Environment) -> list[int]:
    nodes = (await env.api.get(NODES))["items"]
    return [int(node["metadata"]["resourceVersion"]) for node in nodes]
