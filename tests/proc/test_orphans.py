"""`ccm-supervisor orphans list` against a real API server and the simulated cloud."""

import asyncio
import subprocess
import sys

import pytest

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.sandbox.cloud.client import CloudAdmin
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes
from tests.proc.running import Cloud, Supervisor, Where, until
from tests.proc.workload import ALL, service, settled

pytestmark = pytest.mark.real

SERVICES = "/api/v1/namespaces/default/services"


def orphans(where: Where, *flags: str) -> str:
    command = [sys.executable, "-m", "ccm.cli.main", "orphans", "list"]
    flags = (
        "--cloud-provider=simulated",
        f"--cloud-config={where.cloud_config}",
        f"--kubeconfig={where.kubeconfig}",
        *flags,
    )
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_what_was_left_behind_is_listed_and_nothing_else(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    for number in range(2):
        await api.post(SERVICES, service(number))
    with Supervisor(where, *ALL) as supervisor:
        await add_machines_and_nodes(api, cloud.url, 3)
        await witness.until_initialised(3, 60)
        await until("all is at rest", lambda: settled(supervisor) >= 8)
        assert supervisor.end() == 0
    assert await asyncio.to_thread(orphans, where) == "orphans: none\n"
    async with CloudAdmin(cloud.url) as admin:
        await admin.reset_counters()
        await api.patch(f"{SERVICES}/web-0", MERGE_PATCH, {"metadata": {"finalizers": None}})
        await api.request("DELETE", f"{SERVICES}/web-0")
        await api.request("DELETE", "/api/v1/nodes/vm-2")
        said = await asyncio.to_thread(orphans, where)
        assert (await admin.counters())["writes"] == 0
    first, second, total = said.splitlines()
    assert first.startswith("load balancer ")
    assert first.endswith("does not exist")
    assert second.startswith("route 10.244.2.0/24")
    assert total == "orphans: 2"
    await api.patch(f"{SERVICES}/web-1", MERGE_PATCH, {"metadata": {"finalizers": None}})
    await api.request("DELETE", f"{SERVICES}/web-1")
