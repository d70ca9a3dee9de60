"""Nothing healthy is ever deleted on doubt, and what is really gone is gone soon."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import SHUTDOWN_TAINT
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.kubelets import ready_condition
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes
from tests.proc.running import Cloud, Json, Supervisor, Where, tell, until

pytestmark = pytest.mark.real

PERIOD = 0.5
NODES = 12


async def silence_kubelets(api: Kube, names: Sequence[str]) -> None:
    """The nodes are not Ready any more; their machines run on."""
    body = {"status": {"conditions": [ready_condition(False)]}}
    for name in names:
        await api.patch(f"/api/v1/nodes/{name}/status", MERGE_PATCH, body)


async def names_of_nodes(api: Kube) -> set[str]:
    items = (await api.get("/api/v1/nodes"))["items"]
    return {item["metadata"]["name"] for item in items}


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


async def test_no_lie_of_the_cloud_deletes_a_node_and_a_real_end_does(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    """Every kubelet is silent, so that all nodes are asked about; every machine is fine."""
    cloud.config.write_text(cloud.config.read_text() + "timeout = 300ms\n")
    names = await add_machines_and_nodes(api, cloud.url, NODES)
    flags = (f"--node-monitor-period={PERIOD}s", "--node-workers=2")
    async with CloudAdmin(cloud.url) as admin:
        with Supervisor(where, *flags) as supervisor:
            await witness.until_initialised(NODES, 30)
            await silence_kubelets(api, names)
            for lie in LIES:
                told = await admin.set_fault(lie)
                await asyncio.sleep(4 * PERIOD)  # rounds that could have confirmed the lie
                counts = {fault.id: fault.hits for fault in await admin.faults()}
                assert counts[told.id] >= 2, f"{lie.kind} was not met"
                assert await names_of_nodes(api) == set(names), lie.kind
                if lie.kind is CloudFaultKind.ABSENT:
                    assert deletions(supervisor)["held"]
                await admin.clear_faults()
            assert deletions(supervisor)["counts"]["permitted"] == 0
            await until("it is calm again", lambda: not deletions(supervisor)["held"])
            seconds = await end_of(api, admin, "vm-3")
            assert await names_of_nodes(api) == set(names) - {"vm-3"}
            assert supervisor.end() == 0
    print(f"a terminated machine's node was deleted after {seconds:.2f} s, period {PERIOD} s")
    assert seconds <= 2 * PERIOD + 1.0
    events = (await api.get("/api/v1/namespaces/kube-system/events"))["items"]
    assert any(event["type"] == "Warning" for event in events)
    told_of = (await api.get("/api/v1/namespaces/default/events"))["items"]
    deleting = [e["involvedObject"]["name"] for e in told_of if e["reason"] == "DeletingNode"]
    assert deleting == ["vm-3"]


async def end_of(api: Kube, admin: CloudAdmin, name: str) -> float:
    """Terminate a machine; seconds until its node is gone."""
    began = time.monotonic()
    await admin.terminate(name)
    await until_gone(api, name)
    return time.monotonic() - began


async def until_gone(api: Kube, name: str) -> None:
    async with asyncio.timeout(20):
        while name in await names_of_nodes(api):  # noqa: ASYNC110 - the server is asked
            await asyncio.sleep(0.02)


async def test_ready_and_foreign_nodes_and_a_freeze_are_respected_and_a_freeze_survives(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    names = await add_machines_and_nodes(api, cloud.url, NODES)
    foreign = {"metadata": {"name": "foreign"}, "spec": {"providerID": "othercloud://1"}}
    await api.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **foreign})
    flags = (f"--node-monitor-period={PERIOD}s", f"--state-dir={where.directory}")
    async with CloudAdmin(cloud.url) as admin:
        with Supervisor(where, *flags) as supervisor:
            await witness.until_initialised(NODES, 30)
            await tell(supervisor, command="deletions", action="freeze", reason="an upgrade")
            await silence_kubelets(api, ["vm-2"])
            for machine in ("vm-1", "vm-2"):
                await admin.terminate(machine)
            await until("it is seen", lambda: deletions(supervisor)["candidates"])
            await asyncio.sleep(3 * PERIOD)
            assert supervisor.end() == 0
        with Supervisor(where, *flags, name="again") as supervisor:
            supervisor.wait_running()
            assert deletions(supervisor)["frozen"]["why"] == "an upgrade"
            await asyncio.sleep(4 * PERIOD)
            assert await names_of_nodes(api) == {*names, "foreign"}
            await tell(supervisor, command="deletions", action="allow")
            await until_gone(api, "vm-2")
            assert await names_of_nodes(api) == {*names, "foreign"} - {"vm-2"}
            assert supervisor.end() == 0


async def test_the_shutdown_taint_follows_the_power_of_the_machine_both_ways(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    await add_machines_and_nodes(api, cloud.url, 2)

    def is_tainted() -> bool:
        return any(taint["key"] == SHUTDOWN_TAINT for taint in witness.nodes["vm-1"].taints)

    async with CloudAdmin(cloud.url) as admin:
        with Supervisor(where, f"--node-monitor-period={PERIOD}s") as supervisor:
            await witness.until_initialised(2, 30)
            await admin.stop("vm-1")
            await silence_kubelets(api, ["vm-1"])
            await until("it is tainted", is_tainted)
            await admin.start("vm-1")
            await until("the taint is gone though the node is not Ready", lambda: not is_tainted())
            assert not witness.nodes["vm-1"].is_ready
            assert supervisor.end() == 0
