"""When nothing changed nothing is written to the cloud, and what changed is written once.

There are 40 nodes and 20 Services; `CCM_LONG=1` makes them 100 and 50.
"""

from collections import Counter
from dataclasses import dataclass

import pytest

from tests.e2e.chaos.life import Life
from tests.e2e.chaos.processes import WORKERS
from tests.e2e.chaos.script import Step
from tests.support.environment import until_renewed
from tests.support.running import IS_LONG

pytestmark = pytest.mark.real

NODES, SERVICES, VOLUMES = (100, 50, 10) if IS_LONG else (40, 20, 10)
RECOVERY_TIMEOUT = 60.0


async def populate(life: Life, nodes: int, volumes: int = 0) -> None:
    """Services first, so that their balancers get all backends one after the other."""
    policies = ("Cluster", "Local")
    asked = [
        Step("users", "ask", (f"web-{n}", {"externalTrafficPolicy": policies[n % 2]}, {}))
        for n in range(SERVICES)
    ]
    await life.take_together(asked)
    joined = [Step("nodes", "join", (f"vm-{n}", n)) for n in range(1, nodes + 1)]
    added = [Step("users", "volume", (f"vol-{n}", ["zone-a"], False)) for n in range(volumes)]
    await life.take_together([*joined, *added])
    await life.until_done(RECOVERY_TIMEOUT)


async def calls(life: Life) -> Counter[str]:
    """Calls to the cloud since the counters began, by operation."""
    counts: Counter[str] = Counter()
    for row in (await life.admin.counters())["rows"]:
        counts[row["operation"]] += row["count"]
    return counts


def pids(life: Life) -> dict[str, int]:
    return {name: worker["pid"] for name, worker in life.processes.workers().items()}


ENDS = ("kill", "restart") if IS_LONG else ("kill",)
EVENTS = (
    *([Step("processes", how, (name,)) for name in WORKERS] for how in ENDS),
    [Step("processes", "fail_over")],
    [Step("processes", "replace", ("SIGKILL",))],  # the supervisor dies with its workers
)


async def test_neither_a_restart_nor_a_fail_over_writes_to_the_cloud(life: Life) -> None:
    await populate(life, NODES, VOLUMES)
    await life.admin.reset_counters()
    for steps in EVENTS:
        before = pids(life)
        await life.take_together(steps)
        await life.until_done(RECOVERY_TIMEOUT, besides=before)
    # Each new service worker has compared all balancers, a page in a call.
    assert (await calls(life))["ListLoadBalancers"] >= len(EVENTS)
    counters = await life.admin.counters()
    assert counters["writes"] == 0, counters["rows"]


@dataclass(frozen=True)
class Change:
    """What happens to nodes, and how many balancers have other backends then."""

    steps: tuple[Step, ...]
    updates: int


CHANGES = (
    Change((Step("nodes", "exclude", ("vm-5", True)),), SERVICES),
    Change((Step("nodes", "join", ("vm-6", 6)),), SERVICES),
    Change((Step("nodes", "stop", ("vm-4",)),), 0),
    Change((Step("nodes", "start", ("vm-4",)), Step("nodes", "exclude", ("vm-3", False))), 0),
    Change((Step("nodes", "leave", ("vm-6", True)),), SERVICES),
    # Its routes wait for a second list, and that for ten seconds.
    *([Change((Step("nodes", "unregister", ("vm-5",)),), 0)] if IS_LONG else []),
)


async def test_a_node_change_is_one_update_of_each_balancer_that_it_concerns(life: Life) -> None:
    await populate(life, nodes=5)
    await life.admin.set_limits(latency=0.2)  # a node is there before it is initialized
    for change in CHANGES:
        await life.admin.reset_counters()
        await life.take_together(change.steps)
        await life.until_done(RECOVERY_TIMEOUT)
        if not change.updates:  # what is debounced comes later
            await until_renewed(life.api)
        made = await calls(life)
        assert made["UpdateLoadBalancer"] == change.updates, change.steps
        assert not made["CreateLoadBalancer"] + made["DeleteLoadBalancer"]
        if not change.updates:
            assert not made["ListLoadBalancers"], change.steps
