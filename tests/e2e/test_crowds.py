"""Objects in numbers: Services that come and go at once, Nodes of which a batch answers half."""

import asyncio
import time

import pytest

from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from tests.support.environment import SERVICES, Environment, service
from tests.support.running import ALL_CONTROLLERS, IS_LONG, until

pytestmark = [pytest.mark.real, *([pytest.mark.timeout(3600)] if IS_LONG else [])]

SERVICE_COUNT = 10_000 if IS_LONG else 300
NODE_COUNT = 5_000 if IS_LONG else 200
AT_ONCE = 16  # clients


async def test_services_made_and_removed_by_the_thousand_leave_nothing(env: Environment) -> None:
    numbers = iter(range(100, 100 + SERVICE_COUNT))

    async def come_and_go() -> None:
        for number in numbers:
            await env.api.post(SERVICES, service(number))
            await env.api.request("DELETE", f"{SERVICES}/web-{number}")

    async def are_gone() -> bool:
        left = (await env.api.get(SERVICES))["items"]
        return {one["metadata"]["name"] for one in left} <= {"kubernetes"}

    async def has_no_balancer() -> bool:
        return not (await env.admin.state())["load_balancers"]

    await env.add_nodes(2)
    with env.supervisor(*ALL_CONTROLLERS) as supervisor:
        await env.nodes.until_initialized(2)
        before = supervisor.pids()
        began = time.monotonic()
        await asyncio.gather(*(come_and_go() for _ in range(AT_ONCE)))
        came = time.monotonic()
        await until("all are gone", are_gone)
        await until("no load balancer is left", has_no_balancer)
        ended = time.monotonic()
        await env.add_services(1)
        await env.until_served(1)
        print(
            f"{SERVICE_COUNT} in {came - began:.1f} s, gone after {ended - came:.1f} s,"
            f" the next one served after {time.monotonic() - ended:.1f} s"
        )
        assert supervisor.pids() == before
        assert supervisor.end() == 0


@pytest.mark.parametrize("kind", [CloudFaultKind.PARTIAL, CloudFaultKind.ABSENT])
async def test_a_batch_that_answers_half_deletes_no_node_and_holds_up_no_other_half(
    env: Environment, kind: CloudFaultKind
) -> None:
    await env.add_nodes(NODE_COUNT // 2)
    flags = ("--node-deletion-confirmation-period=1s", "--node-monitor-period=1s")
    with env.supervisor(*flags) as supervisor:
        await env.nodes.until_initialized(NODE_COUNT // 2)
        before = supervisor.pids()
        await env.admin.set_fault(CloudFault(kind, share=0.5))
        await env.add_nodes(NODE_COUNT - NODE_COUNT // 2, first=NODE_COUNT // 2 + 1)
        await env.nodes.until_initialized(NODE_COUNT * 5 // 8)
        reads = (await env.admin.counters())["reads"]

        async def is_asked_again() -> bool:
            return bool((await env.admin.counters())["reads"] > reads + 8)

        await until("it is asked again", is_asked_again)
        assert len(await env.node_names()) == NODE_COUNT
        await env.admin.clear_faults()
        began = time.monotonic()
        await env.nodes.until_initialized(NODE_COUNT)
        print(f"{kind}: right after {time.monotonic() - began:.1f} s")
        assert len(await env.node_names()) == NODE_COUNT
        assert supervisor.pids() == before
        assert supervisor.end() == 0
