"""Kubelets that register with another machine's provider ID, on a real API server."""

import time
from datetime import datetime

import pytest

from ccm.model.objects import Node
from ccm.sandbox.kubelets import registration
from tests.support.environment import NODES, Environment
from tests.support.running import until, wait_for

pytestmark = pytest.mark.real

HOSTILE = [f"hostile-{number}" for number in range(6)]  # so that every worker has some


async def test_a_node_of_any_worker_gets_nothing_of_a_machine_that_an_older_one_has(
    env: Environment,
) -> None:
    (name,) = await env.add_nodes(1)
    with env.supervisor("--node-workers=3") as supervisor:
        await env.nodes.until_initialized(1)
        victim = Node(await env.api.get(f"{NODES}/{name}"))
        born = datetime.fromisoformat(victim.meta["creationTimestamp"]).timestamp()
        wait_for("the next second", lambda: time.time() > born + 1)
        for each in HOSTILE:
            body = registration(each)
            body["spec"]["providerID"] = victim.provider_id
            await env.api.post(NODES, body)
        reported = {(each, "DuplicateProviderID") for each in HOSTILE}

        async def are_reported() -> bool:
            return reported <= await env.warnings()

        async def initialized() -> list[str]:
            nodes = [Node(item) for item in (await env.api.get(NODES))["items"]]
            return [
                node.name
                for node in nodes
                if not node.is_uninitialized
                or node.addresses != registration(node.name)["status"]["addresses"]
            ]

        await until("all told", are_reported)
        assert await initialized() == [name]
        await env.api.request("DELETE", f"{NODES}/{name}")
        (successor,) = await until("another has the machine", initialized)
        assert successor in HOSTILE
        assert supervisor.end() == 0
