"""What the slow pass over initialized nodes costs in EC2, with the controller's own pass."""

from collections import Counter
from collections.abc import Sequence

import pytest

from ccm.controllers import NODE
from ccm.model.objects import Node
from tests.node.world import world
from tests.proc.running import long, until
from tests.providers.aws.world import Aws, node_of
from tests.worlds.nodes import node, ready, tainted, with_provider_id

PAGE = 200
REFRESH_PERIOD = 0.05  # seconds a pass takes at least


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("count", "reads"), [(PAGE + 1, 3), pytest.param(1000, 6, marks=long, id="1000")]
)
async def test_a_refresh_pass_costs_a_read_for_two_hundred_nodes(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, count: int, reads: int
) -> None:
    """The first pass reads the names of the zones once besides; 1,000 nodes may cost 10 reads."""
    assert aws.cloud.instances
    ask = aws.cloud.instances.describe
    nodes = [node_of(machine) for machine in aws.launch(count)]
    in_pass: Counter[int] = Counter()
    async with world(
        NODE,
        page=aws.cloud.instances.batch_size,
        scheme="aws",
        node_status_update_frequency=REFRESH_PERIOD,
    ) as w:

        def describe(some: Sequence[Node]) -> object:
            before, number = len(aws.proxy.requests), w.controller.status()["refresh_passes"]
            answers = ask(some)
            in_pass[number] += len(aws.proxy.requests) - before
            return answers

        monkeypatch.setattr(w.machines, "describe", describe)
        for one in nodes:
            w.cluster.put(node(ready, with_provider_id(one.provider_id), name=one.name))
        w.feed()
        await until("two passes", lambda: w.controller.status()["refresh_passes"] >= 2, 200)
    assert (in_pass[0], in_pass[1]) == (reads, reads - 1)
    assert aws.proxy.writes() == []


async def test_a_node_with_a_bare_instance_id_is_initialized(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A form that upstream takes, too; what the kubelet wrote stays."""
    assert aws.cloud.instances
    (made,) = aws.launch()
    bare = made["InstanceId"]
    async with world(NODE, scheme="aws") as w:
        monkeypatch.setattr(w.context.provider, "provider_ids", aws.cloud.provider_ids)
        monkeypatch.setattr(w.machines, "describe", aws.cloud.instances.describe)
        w.cluster.put(node(tainted, with_provider_id(bare), name="bare"))
        assert (await w.sync("bare")).message == "initialized"
        after = w.cluster.node("bare")
    assert (after.is_uninitialized, after.provider_id) == (False, bare)
    assert after.labels["node.kubernetes.io/instance-type"] == "m5.large"
