"""The main job on a real API server: every tainted node is initialized, at the promised cost.

There are 120 nodes; `CCM_LONG=1` makes them a thousand.
"""

from collections import Counter
from dataclasses import replace

import pytest

from ccm.model.objects import PROVIDED_NODE_IP
from ccm.sandbox.cloud.records import Machine
from ccm.sandbox.kubelets import registration
from tests.e2e.conftest import PAGE, Written
from tests.support.environment import EVENTS, NODES, Environment
from tests.support.fault_proxy import Fault, FaultProxy, failure
from tests.support.running import IS_LONG, Supervisor, wait_for

COUNT = 1000 if IS_LONG else 120

pytestmark = pytest.mark.real


@pytest.mark.parametrize("shards", [1, 3])
async def test_many_nodes_cost_two_writes_each_and_one_read_a_page(
    shards: int, env: Environment, written: Written
) -> None:
    await env.add_nodes(COUNT)
    with env.supervisor(f"--node-workers={shards}") as supervisor:
        await env.nodes.until_initialized(COUNT)
        counters = await env.admin.counters()
        wait_for(
            "events sent",
            lambda: all(not w["events_waiting"] for w in supervisor.workers().values()),
        )
        assert supervisor.end() == 0
    assert counters["reads"] <= COUNT // PAGE + shards
    assert counters["writes"] == 0
    per_node = written()
    assert set(per_node.values()) == {1}
    assert len(per_node) == 2 * COUNT
    assert env.nodes.rewritten() == []
    events = await env.api.get(EVENTS, {"limit": "2000"})
    assert Counter(e["reason"] for e in events["items"])["Synced"] == COUNT
    assert (await env.lease_spec())["holderIdentity"] == ""  # released


async def test_events_that_the_api_server_slows_down_hold_up_no_patch(
    env: Environment, proxy: FaultProxy
) -> None:
    """If one waited for an Event, it would wait for ever."""
    await env.add_nodes(100)
    busy = Fault(failure(429, "TooManyRequests", **{"Retry-After": "86400"}), only_for="/events")
    proxy.inject(busy)
    where = replace(env.where, kubeconfig=proxy.kubeconfig(env.where.kubeconfig))
    with Supervisor(where):
        await env.nodes.until_initialized(100)


async def test_nodes_that_cannot_be_initialized_hold_up_no_one(env: Environment) -> None:
    """A node the cloud does not know, one of another cloud, and an odd one, among ordinary ones."""
    foreign, odd = registration("foreign"), registration("odd-address")
    foreign["spec"]["providerID"] = "othercloud://x"
    odd["metadata"]["annotations"][PROVIDED_NODE_IP] = "not an ip"
    for body in (registration("unknown-machine"), foreign, odd):
        await env.api.post(NODES, body)
    await env.admin.add([Machine("odd-address")])
    await env.add_nodes(20)
    with env.supervisor() as supervisor:
        await env.nodes.until_initialized(20)

        def three_reasons() -> dict[str, str]:
            reasons: dict[str, str] = supervisor.workers()["node-0"].get("reasons", {})
            return reasons if len(reasons) == 3 else {}

        reasons = wait_for("all three are reported", three_reasons)
    assert "knows no such machine" in reasons["unknown-machine"]
    assert "is not of simulated" in reasons["foreign"]
    assert "not an ip" in reasons["odd-address"]
    for name in reasons:
        assert env.nodes.nodes[name].is_uninitialized
    assert await env.warnings() == {
        ("unknown-machine", "CloudMachineNotFound"),
        ("odd-address", "InitializationFailed"),
    }
