"""`ccm-supervisor plan` on a real API server: it says what `start` then does and writes nothing."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from ccm.dry_run.cluster import differences
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.kube.watch import list_once
from ccm.sandbox import workload
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.kubelets import follow_power
from tests.support.deadlines import timeout
from tests.support.environment import SERVICES, Environment
from tests.support.running import ALL_CONTROLLERS, Json, Where, until, until_none

pytestmark = pytest.mark.real

KINDS = {"Node": "nodes", "Service": "services", "PersistentVolume": "persistentvolumes"}
READ_ONLY = [{"apiGroups": [""], "resources": [*KINDS.values()], "verbs": ["list"]}]
ASSIGNED = "status.loadBalancer"
"""The cloud chooses its content, so a plan cannot know it."""

FREQUENTLY = (
    "--node-monitor-period=500ms",
    "--node-deletion-confirmation-period=0",
    "--node-status-update-frequency=1s",
)

Fields = dict[tuple[str, str, str], Any]


async def objects(api: Kube) -> dict[str, dict[str, Json]]:
    """Every object that controllers change, by kind and name."""
    return {
        kind: {
            "/".join(filter(None, (o["metadata"].get("namespace"), o["metadata"]["name"]))): o
            for o in await list_once(api, f"/api/v1/{plural}")
        }
        for kind, plural in KINDS.items()
    }


def fields(changes: list[Json]) -> Fields:
    """The new values by kind, name and field; the cloud's own choice only as done or not."""
    return {
        (one["kind"], one["name"], one["field"]): (
            bool(one["after"]) if one["field"] == ASSIGNED else one["after"]
        )
        for one in changes
    }


def plan_process(env: Environment) -> "subprocess.CompletedProcess[str]":
    """`plan` as an identity that may only read."""
    kubeconfig = env.cluster.service_account_kubeconfig("ccm-plan", "reader", READ_ONLY)
    where = Where(env.directory, kubeconfig, env.where.cloud_config)
    command = [sys.executable, "-m", "ccm.cli.main", "plan", "-o", "json"]
    flags = [*where.flags, *ALL_CONTROLLERS]
    return subprocess.run([*command, *flags], capture_output=True, text=True, timeout=timeout())


def run_plan(env: Environment) -> Json:
    """The plan of the same."""
    done = plan_process(env)
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    plan: Json = orjson.loads(done.stdout)
    return plan


async def change_cluster_and_cloud(env: Environment) -> None:
    """What happens while the controllers are away."""
    api, admin = env.api, env.admin
    await env.add_nodes(2, first=7)
    await admin.terminate("vm-1")
    await admin.stop("vm-2")
    await admin.change("vm-3", {"addresses": [{"type": "InternalIP", "address": "10.99.0.3"}]})
    await admin.change("vm-4", {"zone": "zone-c", "type": "compute-8"})

    async def is_off() -> bool:
        return any(m.name == "vm-2" and m.power == "stopped" for m in await admin.machines())

    await until("vm-2 is off", is_off)
    await follow_power(api, admin, [f"vm-{number}" for number in range(1, 9)])
    await env.add_services(3)
    ports = [{"name": "http", "port": 8080, "targetPort": 8080, "protocol": "TCP"}]
    await api.patch(f"{SERVICES}/web-0", MERGE_PATCH, {"spec": {"ports": ports}})
    await api.patch(f"{SERVICES}/web-1", MERGE_PATCH, {"spec": {"type": "ClusterIP"}})
    await api.request("DELETE", f"{SERVICES}/web-2")
    await workload.create_volume(api, admin)


def cloud_changes(before: Json, after: Json) -> set[tuple[str, str]]:
    """What differs in the cloud: (what it is about, create, update or delete)."""

    def routes(state: Json) -> set[str]:
        names = {machine["id"]: machine["name"] for machine in state["machines"]}
        return {f"route {r['cidr']} to {names.get(r['machine_id'], '')}" for r in state["routes"]}

    def balancers(state: Json) -> Mapping[str, Json]:
        return {balancer["name"]: balancer for balancer in state["load_balancers"]}

    old, new = balancers(before), balancers(after)
    return (
        {(route, "create") for route in routes(after) - routes(before)}
        | {(route, "delete") for route in routes(before) - routes(after)}
        | {(name, "create") for name in new.keys() - old.keys()}
        | {(name, "delete") for name in old.keys() - new.keys()}
        | {(name, "update") for name in old.keys() & new.keys() if old[name] != new[name]}
    )


def planned_changes(plan: Json) -> set[tuple[str, str]]:
    """The same of a plan; of a balancer, its name."""
    changes = [(change["about"], change["does"]) for change in plan["cloud"]]
    return {(a.split()[2] if a.startswith("load balancer") else a, does) for a, does in changes}


async def test_a_plan_is_what_a_start_then_does_and_needs_no_right_to_write(
    env: Environment,
) -> None:
    await env.add_services(0, 1, 2)
    with env.supervisor(*ALL_CONTROLLERS) as supervisor:
        await env.add_nodes(6)
        await env.nodes.until_initialized(6)
        await until("nothing is left to do", lambda: supervisor.is_idle(15))
        assert supervisor.end() == 0
    unchanged = await asyncio.to_thread(run_plan, env)
    assert (unchanged["kubernetes"], unchanged["cloud"], unchanged["problems"]) == ([], [], [])

    await change_cluster_and_cloud(env)
    before, state = await objects(env.api), await env.admin.state()
    await env.admin.reset_counters()
    plan = await asyncio.to_thread(run_plan, env)
    assert (await env.admin.counters())["writes"] == 0
    assert [e for e in env.cluster.audit() if e.user.endswith(":reader") and e.is_write] == []
    assert await objects(env.api) == before
    assert not [why for why in plan["waiting"].values() if "provider ID" in why]

    async def unplanned() -> list[Any]:
        """What was done and not planned, or the other way round."""
        after = await objects(env.api)
        changes = [
            {"kind": one.kind, "name": one.name, "field": one.field, "after": one.after}
            for kind in KINDS
            for one in differences(kind, before[kind], after[kind])
        ]
        done, planned = fields(changes), fields(plan["kubernetes"])
        differing = [
            (key, planned.get(key), done.get(key))
            for key in sorted(done.keys() | planned.keys())
            if planned.get(key) != done.get(key)
        ]
        in_cloud = cloud_changes(state, await env.admin.state()) ^ planned_changes(plan)
        return [*differing, *in_cloud]

    with env.supervisor(*ALL_CONTROLLERS, *FREQUENTLY, name="second") as second:
        await until_none("different from the plan", unplanned)
        assert second.end() == 0


async def test_refused_credentials_end_a_plan_at_once(env: Environment) -> None:
    await env.add_nodes(30)
    await env.admin.set_fault(CloudFault(CloudFaultKind.DENIED))
    await env.admin.reset_counters()
    done = await asyncio.to_thread(plan_process, env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "ccm-supervisor: the cloud does not let us read" in done.stderr
    assert "correct the credentials in --cloud-config" in done.stderr
    assert (await env.admin.counters())["total"] < 10
