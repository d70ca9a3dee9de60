"""Leader migration on a real API server: what migrates starts when the other component lets go."""

import asyncio
from datetime import UTC, datetime

import pytest

from ccm.errors import ExitCode
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.sandbox.cloud.client import CloudAdmin
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes
from tests.proc.replicas import LEASES, SHORT
from tests.proc.running import Cloud, Json, Supervisor, Where, until
from tests.proc.test_deletions import names_of_nodes, silence_kubelets, until_gone

pytestmark = pytest.mark.real

PERIOD = 0.5
NODES = 3
SECOND = "cloud-provider-extraction-migration"
FLAGS = ("--enable-leader-migration", f"--node-monitor-period={PERIOD}s", *SHORT.flags())


def held_by(holder: str) -> Json:
    """What a component writes that will not renew it for an hour."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": now}


async def test_nodes_are_removed_only_by_who_holds_the_second_lease(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    """By upstream's default, of our controllers only the lifecycle one migrates."""
    other = {"metadata": {"name": SECOND}, "spec": held_by("kube-controller-manager")}
    await api.post(LEASES, other)
    async with CloudAdmin(cloud.url) as admin:
        with Supervisor(where, *FLAGS) as supervisor:
            names = await add_machines_and_nodes(api, cloud.url, NODES)
            await witness.until_initialised(NODES, 30)
            before = supervisor.workers()["node-0"]
            await admin.terminate("vm-2")
            await silence_kubelets(api, ["vm-2"])
            await asyncio.sleep(4 * PERIOD)  # rounds in which it could have been found gone
            assert await names_of_nodes(api) == set(names)
            assert migration(supervisor) == {"lease": SECOND, "is_leader": False}

            await api.patch(f"{LEASES}/{SECOND}", MERGE_PATCH, {"spec": {"holderIdentity": ""}})
            await until("the second lease is held", lambda: migration(supervisor)["is_leader"])
            await until_gone(api, "vm-2")
            assert await names_of_nodes(api) == set(names) - {"vm-2"}
            after = supervisor.workers()["node-0"]
            assert after["pid"] != before["pid"]  # the work was handed over: nobody died
            assert (after["state"], after["deaths_in_a_row"]) == ("running", 0)

            await api.patch(f"{LEASES}/{SECOND}", MERGE_PATCH, {"spec": held_by("somebody-else")})
            code = await asyncio.to_thread(supervisor.process.wait, 30)
            assert code == ExitCode.FAILED
            assert "leadership lost" in supervisor.log.read_text()


def migration(supervisor: Supervisor) -> Json:
    leader: Json = supervisor.status().get("leader", {})
    return dict(leader.get("migration", {"is_leader": False}))
