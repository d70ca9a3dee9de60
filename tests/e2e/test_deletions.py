"""Nothing healthy is ever deleted on incomplete evidence, and what is really gone is gone soon."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from ccm.kube.client import MERGE_PATCH
from ccm.model.objects import SHUTDOWN_TAINT
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.kubelets import ready_condition, registration
from tests.support.deadlines import timeout
from tests.support.environment import EVENTS, NODES, Environment, until_asked
from tests.support.running import Json, Supervisor, command, until

pytestmark = pytest.mark.real

PERIOD = 0.5
COUNT = 12
QUICK = (f"--node-monitor-period={PERIOD}s", "--node-deletion-confirmation-period=0")


STRANGERS = tuple(f"stranger-{number}" for number in range(1, 6))
"""Nodes that no machine is named after; with one more, they would be a mass."""


async def silence_kubelets(env: Environment, names: Sequence[str]) -> None:
    """The nodes are not Ready any more; their machines run on."""
    body = {"status": {"conditions": [ready_condition(False)]}}
    for name in names:
        await env.api.patch(f"{NODES}/{name}/status", MERGE_PATCH, body)


def deletions(supervisor: Supervisor) -> Json:
    found: Json = supervisor.status()["deletions"]
    return found


LIES = (
    CloudFault(CloudFaultKind.ABSENT),
    CloudFault(CloudFaultKind.ABSENT, share=0.5),
    CloudFault(CloudFaultKind.EMPTY),
    CloudFault(CloudFaultKind.PARTIAL, share=0.5),
    CloudFault(CloudFaultKind.DENIED, status=401),
    CloudFault(CloudFaultKind.DENIED, status=403),
    CloudFault(CloudFaultKind.THROTTLE, retry_after=0.2),
    CloudFault(CloudFaultKind.ERROR),
    CloudFault(CloudFaultKind.TIMEOUT),
    CloudFault(CloudFaultKind.GARBAGE),
)


async def test_no_lie_of_the_cloud_deletes_a_node_and_a_real_end_does(env: Environment) -> None:
    """Every kubelet is silent, so that all nodes are asked about; every machine is fine."""
    env.cloud.config.write_text(env.cloud.config.read_text() + f"timeout = {timeout(0.15):g}s\n")
    names = await env.add_nodes(COUNT)
    flags = (*QUICK, "--node-workers=2")
    with env.supervisor(*flags) as supervisor:
        await env.nodes.until_initialized(COUNT)
        await silence_kubelets(env, names)
        for lie in LIES:
            in_force = await env.admin.set_fault(lie)
            await until(f"{lie.kind} is met", lambda: is_met(env, in_force))  # noqa: B023
            assert await env.node_names() == set(names), lie.kind
            if lie.kind is CloudFaultKind.ABSENT:
                await until("deletions are held", lambda: deletions(supervisor)["held"])
                await env.admin.clear_faults()
                await until("none is gone", lambda: not deletions(supervisor)["candidates"])
            assert not deletions(supervisor)["candidates"], f"{lie.kind}: some are taken for gone"
            await env.admin.clear_faults()
        assert deletions(supervisor)["counts"]["permitted"] == 0
        await until("nothing is held back", lambda: not deletions(supervisor)["held"])
        await until_asked(env.admin)  # passes go on as usual, after what the last lie made of them
        began = time.monotonic()
        await env.admin.terminate("vm-3")
        await until("its node is gone", lambda: env.has_no_node("vm-3"), 2 * PERIOD + 1.0)
        seconds = time.monotonic() - began
        assert await env.node_names() == set(names) - {"vm-3"}
        assert supervisor.end() == 0
    print(f"a terminated machine's node was deleted after {seconds:.2f} s, period {PERIOD} s")
    events = (await env.api.get("/api/v1/namespaces/kube-system/events"))["items"]
    assert any(event["type"] == "Warning" for event in events)
    events = (await env.api.get(EVENTS))["items"]
    deleting = [e["involvedObject"]["name"] for e in events if e["reason"] == "DeletingNode"]
    assert deleting == ["vm-3"]


async def is_met(env: Environment, fault: CloudFault) -> bool:
    """Whether so many passes met it that they could have confirmed the lie."""
    return any(each.hits >= 4 for each in await env.admin.faults() if each.id == fault.id)


async def test_what_the_cloud_says_for_a_moment_only_deletes_no_node(env: Environment) -> None:
    """Neither the brake against a mass helps, nor Nodes that are Ready."""
    confirmation = timeout(2.0)
    names = await env.add_nodes(3)
    period = f"--node-deletion-confirmation-period={confirmation}s"
    with env.supervisor(QUICK[0], period, "--node-vanish-share=1") as supervisor:
        await env.nodes.until_initialized(3)
        await silence_kubelets(env, names)
        for _ in range(2):
            began = time.monotonic()
            await env.admin.set_fault(CloudFault(CloudFaultKind.ABSENT))
            await until(
                "they are candidates", lambda: len(deletions(supervisor)["candidates"]) == 3
            )
            rest = began + 0.7 * confirmation - time.monotonic()
            await asyncio.sleep(rest)  # the fault, not a wait: both together are long enough
            await env.admin.clear_faults()
            await until("they are none", lambda: not deletions(supervisor)["candidates"])
        assert deletions(supervisor)["counts"]["permitted"] == 0
        assert await env.node_names() == set(names)
        began = time.monotonic()
        await env.admin.terminate("vm-3")
        await until("its node is gone", lambda: env.has_no_node("vm-3"), 2 * confirmation)
        assert time.monotonic() - began >= confirmation
        assert supervisor.end() == 0


async def test_while_the_cloud_calls_ready_nodes_gone_no_node_is_deleted(env: Environment) -> None:
    """CT3: half of the machines are lost, one of them of a Node that is not Ready."""
    await env.add_nodes(10)
    with env.supervisor(*QUICK) as supervisor:
        await env.nodes.until_initialized(10)
        await silence_kubelets(env, ["vm-1"])
        lost = [f"vm-{number}" for number in range(1, 6)]
        for machine in lost:
            await env.admin.terminate(machine)
        await until("deletions are held", lambda: deletions(supervisor)["held"])
        assert "5 of 10" in deletions(supervisor)["held"]
        assert {one["node"] for one in deletions(supervisor)["candidates"]} == {*lost}
        assert deletions(supervisor)["counts"]["permitted"] == 0
        assert supervisor.end() == 0
    events = (await env.api.get("/api/v1/namespaces/kube-system/events"))["items"]
    assert any("4 of them Ready" in event["message"] for event in events)


async def test_ready_and_foreign_nodes_and_a_freeze_are_respected_and_a_freeze_survives(
    env: Environment,
) -> None:
    names = await env.add_nodes(COUNT)
    foreign = {"metadata": {"name": "foreign"}, "spec": {"providerID": "othercloud://1"}}
    await env.api.post(NODES, {"apiVersion": "v1", "kind": "Node", **foreign})
    for name in STRANGERS:
        silent = {"status": {"conditions": [ready_condition(False)]}}
        await env.api.post(NODES, registration(name) | silent)
    flags = (*QUICK, f"--state-dir={env.directory}")
    with env.supervisor(*flags) as supervisor:
        await env.nodes.until_initialized(COUNT)
        await command(supervisor, "deletions", action="freeze", reason="an upgrade")
        await silence_kubelets(env, ["vm-2"])
        for machine in ("vm-1", "vm-2"):
            await env.admin.terminate(machine)
        await until("it is a candidate", lambda: deletions(supervisor)["candidates"])
        await until_asked(env.admin)
        assert supervisor.end() == 0
    with env.supervisor(*flags, name="again") as supervisor:
        supervisor.wait_running()
        assert deletions(supervisor)["frozen"]["why"] == "an upgrade"
        await until_asked(env.admin)
        assert await env.node_names() == {*names, *STRANGERS, "foreign"}
        assert not deletions(supervisor)["held"]
        await command(supervisor, "deletions", action="allow")
        await until("its node is gone", lambda: env.has_no_node("vm-2"))
        assert await env.node_names() == {*names, *STRANGERS, "foreign"} - {"vm-2"}
        assert supervisor.end() == 0


async def test_the_shutdown_taint_follows_the_power_of_the_machine_both_ways(
    env: Environment,
) -> None:
    await env.add_nodes(2)

    def is_tainted() -> bool:
        return any(taint["key"] == SHUTDOWN_TAINT for taint in env.nodes.nodes["vm-1"].taints)

    with env.supervisor(*QUICK) as supervisor:
        await env.nodes.until_initialized(2)
        await env.admin.stop("vm-1")
        await silence_kubelets(env, ["vm-1"])
        await until("it is tainted", is_tainted)
        await env.admin.start("vm-1")
        await until("the taint is gone though the node is not Ready", lambda: not is_tainted())
        assert not env.nodes.nodes["vm-1"].is_ready
        assert supervisor.end() == 0
