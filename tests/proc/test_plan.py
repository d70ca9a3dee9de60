"""`ccm-supervisor plan` on a real API server: it says what `start` then does and writes nothing."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
import pytest

from ccm.dry_run.cluster import differences
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.kube.watch import list_once
from ccm.sandbox import workload
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.kubelets import follow_power
from tests.kube.cluster import RealCluster
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes
from tests.proc.running import Cloud, Json, Supervisor, Where, until
from tests.proc.workload import ALL, service, settled, until_so

pytestmark = pytest.mark.real

KINDS = {"Node": "nodes", "Service": "services", "PersistentVolume": "persistentvolumes"}
READ_ONLY = [{"apiGroups": [""], "resources": [*KINDS.values()], "verbs": ["list"]}]
SERVICES = "/api/v1/namespaces/default/services"
ASSIGNED = "status.loadBalancer"
"""The cloud chooses its content, so a plan cannot know it."""

SOON = ("--node-monitor-period=500ms", "--node-status-update-frequency=1s")

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


async def until_equal(what_differs: Callable[[], Awaitable[list[Any]]]) -> None:
    """Until nothing differs; fails with what does: object, planned, done."""
    deadline = time.monotonic() + 60
    while left := await what_differs():
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.25)


def run_plan(where: Where, kubeconfig: str, *flags: str) -> Json:
    command = [sys.executable, "-m", "ccm.cli.main", "plan", "-o", "json"]
    done = subprocess.run(
        [
            *command,
            "--cloud-provider=simulated",
            f"--cloud-config={where.cloud_config}",
            f"--kubeconfig={kubeconfig}",
            *flags,
        ],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    plan: Json = orjson.loads(done.stdout)
    return plan


async def change_much(api: Kube, admin: CloudAdmin, cloud: Cloud) -> None:
    """What happens to a cluster whose controllers are away for a while."""
    await add_machines_and_nodes(api, cloud.url, 2, first=7)
    await admin.terminate("vm-1")
    await admin.stop("vm-2")
    await admin.change("vm-3", {"addresses": [{"type": "InternalIP", "address": "10.99.0.3"}]})
    await admin.change("vm-4", {"zone": "zone-c", "type": "compute-8"})
    names = [f"vm-{number}" for number in range(1, 9)]
    await until_so("vm-2 is off", lambda: is_off(admin, "vm-2"))
    await follow_power(api, admin, names)
    await api.post(SERVICES, service(3))
    ports = [{"name": "http", "port": 8080, "targetPort": 8080, "protocol": "TCP"}]
    await api.patch(f"{SERVICES}/web-0", MERGE_PATCH, {"spec": {"ports": ports}})
    await api.patch(f"{SERVICES}/web-1", MERGE_PATCH, {"spec": {"type": "ClusterIP"}})
    await api.request("DELETE", f"{SERVICES}/web-2")
    await workload.create_volume(api, admin)


async def is_off(admin: CloudAdmin, name: str) -> bool:
    return any(m.name == name and m.power == "stopped" for m in await admin.machines())


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
    return {
        (
            what.split()[2] if what.startswith("load balancer") else what,
            change["does"],
        )
        for change in plan["cloud"]
        for what in (change["about"],)
    }


async def test_a_plan_is_what_a_start_then_does_and_needs_no_right_to_write(
    where: Where, cloud: Cloud, api: Kube, witness: Witness, cluster: RealCluster
) -> None:
    cluster.grant("nobody", READ_ONLY)
    kubeconfig = str(cluster.kubeconfig("nobody"))
    async with CloudAdmin(cloud.url) as admin:
        for number in range(3):
            await api.post(SERVICES, service(number))
        with Supervisor(where, *ALL) as supervisor:
            await add_machines_and_nodes(api, cloud.url, 6)
            await witness.until_initialised(6, 60)
            await until("all is at rest", lambda: settled(supervisor) >= 15)
            assert supervisor.end() == 0
        calm = await asyncio.to_thread(run_plan, where, kubeconfig, *ALL)
        assert (calm["kubernetes"], calm["cloud"], calm["problems"]) == ([], [], [])

        await change_much(api, admin, cloud)
        before, state = await objects(api), await admin.state()
        await admin.reset_counters()
        plan = await asyncio.to_thread(run_plan, where, kubeconfig, *ALL)
        assert (await admin.counters())["writes"] == 0
        wrote = [entry for entry in cluster.audit() if entry.user == "nobody" and entry.is_write]
        assert wrote == []
        assert await objects(api) == before

        with Supervisor(where, *ALL, *SOON, name="second") as second:

            async def what_differs() -> list[Any]:
                after = await objects(api)
                changes = [
                    {"kind": one.kind, "name": one.name, "field": one.field, "after": one.after}
                    for kind in KINDS
                    for one in differences(kind, before[kind], after[kind])
                ]
                done, planned = fields(changes), fields(plan["kubernetes"])
                keys = sorted(done.keys() | planned.keys())
                at_cloud = cloud_changes(state, await admin.state()) ^ planned_changes(plan)
                return [
                    *(
                        (key, planned.get(key), done.get(key))
                        for key in keys
                        if planned.get(key) != done.get(key)
                    ),
                    *at_cloud,
                ]

            await until_equal(what_differs)
            assert second.end() == 0
    for name in ("web-0", "web-1", "web-3"):
        await api.patch(f"{SERVICES}/{name}", MERGE_PATCH, {"metadata": {"finalizers": None}})
        await api.request("DELETE", f"{SERVICES}/{name}")
    await api.request("DELETE", "/api/v1/persistentvolumes/data")
