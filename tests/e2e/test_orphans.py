"""`ccm-supervisor orphans list` against a real API server and the simulated cloud."""

import asyncio
import subprocess
import sys

import pytest

from tests.support.deadlines import timeout
from tests.support.environment import NODES, SERVICES, Environment, force_delete
from tests.support.running import ALL_CONTROLLERS, Where, until

pytestmark = pytest.mark.real


def orphans(where: Where) -> str:
    command = [sys.executable, "-m", "ccm.cli.main", "orphans", "list", *where.flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout())
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_what_was_left_behind_is_listed_and_nothing_else(env: Environment) -> None:
    await env.add_services(0, 1)
    with env.supervisor(*ALL_CONTROLLERS) as supervisor:
        await env.add_nodes(3)
        await env.nodes.until_initialized(3)
        await until("nothing is left to do", lambda: supervisor.is_idle(8))
        assert supervisor.end() == 0
    assert await asyncio.to_thread(orphans, env.where) == "orphans: none\n"
    await env.admin.reset_counters()
    await force_delete(env.api, f"{SERVICES}/web-0")
    await env.api.request("DELETE", f"{NODES}/vm-2")
    output = await asyncio.to_thread(orphans, env.where)
    assert (await env.admin.counters())["writes"] == 0
    first, second, total = output.splitlines()
    assert first.startswith("load balancer ")
    assert first.endswith("does not exist")
    assert second.startswith("route 10.244.2.0/24")
    assert total == "orphans: 2"
