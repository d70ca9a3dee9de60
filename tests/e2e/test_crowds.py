"""Nodes in numbers, of which the cloud answers half."""

import time

import pytest

from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from tests.support.environment import Environment
from tests.support.running import IS_LONG, until

pytestmark = [pytest.mark.real, *([pytest.mark.timeout(3600)] if IS_LONG else [])]

NODE_COUNT = 5_000 if IS_LONG else 200


@pytest.mark.parametrize("kind", [CloudFaultKind.PARTIAL, CloudFaultKind.ABSENT])
async def test_a_batch_that_answers_half_deletes_nobody_and_holds_up_no_other_half(
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
