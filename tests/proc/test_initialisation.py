"""The main job on a real API server: every tainted node is initialised, at the promised cost.

There are 300 nodes; `CCM_LONG=1` makes them a thousand.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from ccm.kube.client import Kube
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Machine
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes, kill
from tests.proc.conftest import PAGE
from tests.proc.running import IS_LONG, Cloud, Supervisor, Where, is_alive, wait_for

NODES = 1000 if IS_LONG else 300

pytestmark = pytest.mark.real


async def lease(api: Kube) -> tuple[str, int]:
    """Who holds the lease, and how often it changed hands."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
    spec = (await api.get(path))["spec"]
    return spec["holderIdentity"], spec["leaseTransitions"]


@pytest.mark.parametrize("shards", [1, 3])
async def test_many_nodes_cost_two_writes_each_and_one_read_a_page(
    shards: int,
    where: Where,
    cloud: Cloud,
    api: Kube,
    witness: Witness,
    written: Callable[[], Counter[tuple[str, str]]],
) -> None:
    await add_machines_and_nodes(api, cloud.url, NODES)
    with Supervisor(where, f"--node-workers={shards}") as supervisor:
        await witness.until_initialised(NODES, 90)
        async with CloudAdmin(cloud.url) as admin:
            counters = await admin.counters()
        wait_for(
            "events sent",
            lambda: all(not w["events_waiting"] for w in supervisor.workers().values()),
        )
        assert supervisor.end() == 0
    assert counters["reads"] <= NODES // PAGE + shards
    assert counters["writes"] == 0
    per_node = written()
    assert set(per_node.values()) == {1}
    assert len(per_node) == 2 * NODES
    assert witness.rewritten() == []
    events = await api.get("/api/v1/namespaces/default/events", {"limit": "2000"})
    assert Counter(e["reason"] for e in events["items"])["Synced"] == NODES
    assert (await lease(api))[0] == ""  # given back


@pytest.mark.parametrize("shards", [1, 3])
async def test_a_killed_worker_loses_nothing_and_the_lease_stays(
    shards: int, where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    await add_machines_and_nodes(api, cloud.url, NODES)
    with Supervisor(where, f"--node-workers={shards}") as supervisor:
        await witness.until_initialised(NODES // 3, 60)
        before, held = supervisor.workers(), await lease(api)
        kill(before["node-0"]["pid"])
        assert witness.initialised() < NODES
        await witness.until_initialised(NODES, 90)
        after = supervisor.wait_running()
        assert await lease(api) == held
        assert after["node-0"]["pid"] != before["node-0"]["pid"]
        assert after["node-0"]["restarts"] == 1
        for name in set(after) - {"node-0"}:
            assert after[name]["pid"] == before[name]["pid"]
        pids = [worker["pid"] for worker in after.values()]
        assert supervisor.end() == 0
    assert not any(is_alive(pid) for pid in pids)
    assert witness.rewritten() == []


async def test_nodes_that_cannot_be_initialised_hold_up_nobody(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    """A node the cloud does not know, one of another cloud, and an odd one, among ordinary ones."""
    taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
    odd = [
        {"metadata": {"name": "unknown-machine"}, "spec": {"taints": [taint]}},
        {
            "metadata": {"name": "foreign"},
            "spec": {"taints": [taint], "providerID": "othercloud://x"},
        },
        {
            "metadata": {
                "name": "odd-address",
                "annotations": {"alpha.kubernetes.io/provided-node-ip": "not an ip"},
            },
            "spec": {"taints": [taint]},
        },
    ]
    for node in odd:
        await api.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **node})
    async with CloudAdmin(cloud.url) as admin:
        await admin.add([Machine("odd-address")])
    await add_machines_and_nodes(api, cloud.url, 20)
    with Supervisor(where) as supervisor:
        await witness.until_initialised(20, 30)

        def three_reasons() -> dict[str, str]:
            reasons: dict[str, str] = supervisor.workers()["node-0"].get("reasons", {})
            return reasons if len(reasons) == 3 else {}

        reasons = wait_for("all three are reported", three_reasons)
    assert "knows no such machine" in reasons["unknown-machine"]
    assert "not ours" in reasons["foreign"]
    assert "not an ip" in reasons["odd-address"]
    for node in odd:
        name = str(node["metadata"]["name"])  # type: ignore[index]
        assert witness.nodes[name].is_uninitialized
    events = (await api.get("/api/v1/namespaces/default/events"))["items"]
    told = {(e["involvedObject"]["name"], e["reason"]) for e in events if e["type"] == "Warning"}
    assert told == {
        ("unknown-machine", "CloudMachineNotFound"),
        ("odd-address", "InitializationFailed"),
    }
