"""Leader migration on a real API server: what migrates starts when the other component lets go."""

import asyncio
from datetime import UTC, datetime

import pytest

from ccm.errors import ExitCode
from ccm.kube.client import MERGE_PATCH
from tests.e2e.test_deletions import silence_kubelets
from tests.support.environment import LEASES, Environment, until_renewed
from tests.support.replicas import Durations
from tests.support.running import Json, Supervisor, until

pytestmark = pytest.mark.real

PERIOD = 0.5
COUNT = 3
SECOND = "cloud-provider-extraction-migration"
FLAGS = (
    "--enable-leader-migration",
    f"--node-monitor-period={PERIOD}s",
    "--node-deletion-confirmation-period=0",
)


def held_by(holder: str) -> Json:
    """What a component writes that will not renew it for an hour."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": now}


async def test_nodes_are_removed_only_by_who_holds_the_second_lease(env: Environment) -> None:
    """By upstream's default, of our controllers only the lifecycle one migrates."""
    other = {"metadata": {"name": SECOND}, "spec": held_by("kube-controller-manager")}
    await env.api.post(LEASES, other)
    with env.supervisor(*FLAGS, *Durations.short().flags()) as supervisor:
        names = await env.add_nodes(COUNT)
        await env.nodes.until_initialized(COUNT)
        before = supervisor.workers()["node-0"]
        await env.admin.terminate("vm-2")
        await silence_kubelets(env, ["vm-2"])
        await until_renewed(env.api)  # a period in which it could have been found gone, each time
        assert await env.node_names() == set(names)
        assert migration(supervisor) == {"lease": SECOND, "is_leader": False}

        await env.api.patch(f"{LEASES}/{SECOND}", MERGE_PATCH, {"spec": {"holderIdentity": ""}})
        await until("the second lease is held", lambda: migration(supervisor)["is_leader"])
        await until("its node is gone", lambda: env.has_no_node("vm-2"))
        assert await env.node_names() == set(names) - {"vm-2"}
        after = supervisor.workers()["node-0"]
        assert after["pid"] != before["pid"]  # the work was handed over: nobody died
        assert (after["state"], after["deaths_in_a_row"]) == ("running", 0)

        await env.api.patch(f"{LEASES}/{SECOND}", MERGE_PATCH, {"spec": held_by("someone-else")})
        code = await asyncio.to_thread(supervisor.exit_code)
        assert code == ExitCode.FAILED
        assert "leadership lost" in supervisor.log.read_text()


def migration(supervisor: Supervisor) -> Json:
    leader: Json = supervisor.status().get("leader", {})
    return dict(leader.get("migration", {"is_leader": False}))
