"""The write of the condition, on the sandbox's API server and on a real one."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ccm.errors import KubernetesError
from ccm.kube import config
from ccm.kube.client import Kube
from ccm.model.objects import Json, Node
from ccm.model.writes import Merge
from ccm.sandbox.kubernetes.server import SandboxServer
from tests.kube.cluster import RealCluster
from tests.route.nodes import network_condition
from workers.route.plan import condition
from workers.route.steps import patch_for

NAME = "route-condition"
FIRST, SECOND = (datetime(2026, 3, 4, 5, 6, second, tzinfo=UTC) for second in (1, 2))


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.real)])
async def kube(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kube]:
    if request.param == "sandbox":
        server = SandboxServer()
        await server.start()
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    else:
        cluster: RealCluster = request.getfixturevalue("fresh_kube")
        kubeconfig = cluster.kubeconfig("admin")
    client = Kube(await config.load(str(kubeconfig)), "test")
    yield client
    await client.close()
    if request.param == "sandbox":
        await server.stop()


async def perform(kube: Kube, write: Merge) -> Node:
    kind = "application/strategic-merge-patch+json"
    return Node(await kube.patch(write.path, kind, write.body))


async def test_the_condition_is_set_beside_the_others_and_turns_only_when_it_turns(
    kube: Kube,
) -> None:
    ready: Json = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    body: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}}
    made = await kube.post("/api/v1/nodes", body)
    status = {"status": {"conditions": [ready]}}
    await kube.patch(
        f"/api/v1/nodes/{NAME}/status", "application/strategic-merge-patch+json", status
    )
    node = Node(made)
    for is_created, causes, now, turned in (
        (False, ["full"], FIRST, FIRST),
        (False, ["broken"], SECOND, FIRST),
        (True, [], SECOND, SECOND),
    ):
        (action,) = condition(node, is_created, causes)
        node = await perform(kube, patch_for(node, action, now))
        found = network_condition(node)
        assert found["lastTransitionTime"] == turned.strftime("%Y-%m-%dT%H:%M:%SZ")
        assert found["lastHeartbeatTime"] == now.strftime("%Y-%m-%dT%H:%M:%SZ")
        assert list(condition(node, is_created, causes)) == []
        assert {each["type"] for each in node.raw["status"]["conditions"]} == {
            "Ready",
            "NetworkUnavailable",
        }
    other = Node({**node.raw, "metadata": {"name": NAME, "uid": "of-an-earlier-node"}})
    (action,) = condition(other, False, [])
    with pytest.raises(KubernetesError) as refusal:
        await perform(kube, patch_for(other, action, SECOND))
    assert refusal.value.status in (409, 422)
    await kube.request("DELETE", f"/api/v1/nodes/{NAME}")
