"""What is important does not wait behind a backlog, and what is less so goes on meanwhile."""

import asyncio
import time
from collections import Counter

import pytest

from tests.support.environment import NODES as NODES_PATH
from tests.support.environment import SERVICES, Environment
from tests.support.running import IS_LONG, in_background, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NODES, WRITES = 500 if IS_LONG else 250, 10  # and writes a second that the cloud takes
FLAGS = (
    "--controllers=cloud-node,route,service",
    "--cluster-cidr=10.244.0.0/14",
    f"--cloud-rate=write={WRITES}",
)


async def has_address(env: Environment, path: str, names: set[str]) -> bool:
    items = (await env.api.get(path))["items"]
    served = {
        item["metadata"]["name"] for item in items if item["status"]["loadBalancer"].get("ingress")
    }
    return names <= served


async def test_services_do_not_wait_for_the_routes_of_hundreds_of_nodes(env: Environment) -> None:
    await env.add_nodes(NODES)
    with env.supervisor(*FLAGS):
        await env.nodes.until_initialized(NODES, 90)
        began = time.monotonic()
        await env.add_services(*range(10))
        names = {f"web-{number}" for number in range(10)}
        await until("they are served", lambda: has_address(env, SERVICES, names), 60)
        waited, made = time.monotonic() - began, len((await env.admin.state())["routes"])
    assert made < NODES, "there was no backlog"
    assert waited < 3.0


FEW_WRITES = 4  # that the cloud takes a second
CHURN = 5  # Nodes that join in a second; all but one of them leave again
BEFORE = 50  # Nodes that are there before


async def join_and_leave(env: Environment) -> None:
    """For ever: more routes and host updates than the cloud takes writes."""
    first = BEFORE + 1
    while True:
        names, _ = await asyncio.gather(env.add_nodes(CHURN, first), asyncio.sleep(1.0))
        for name in names[1:]:
            await env.api.request("DELETE", f"{NODES_PATH}/{name}")
        first += CHURN


async def writes(env: Environment) -> Counter[str]:
    """Writes that the cloud took, by operation."""
    return Counter(
        each["operation"] for each in await env.admin.requests() if each["budget"] == "write"
    )


async def test_none_starves_while_nodes_churn_faster_than_the_cloud_takes_writes(
    env: Environment,
) -> None:
    await env.add_nodes(BEFORE)
    names = {f"web-{number}" for number in range(10)}
    with env.supervisor(*FLAGS[:2], f"--cloud-rate=write={FEW_WRITES}"):
        await env.nodes.until_initialized(BEFORE, 90)
        async with in_background(join_and_leave(env)) as churning:
            began = time.monotonic()
            await env.add_services(*range(10))
            await until("they are served", lambda: has_address(env, SERVICES, names), 60)
            served = time.monotonic() - began
            await env.admin.reset_counters()
            await asyncio.sleep(10.0)  # of host updates, which alone are more than the cloud takes
            meanwhile = await writes(env)
            began = time.monotonic()
            await asyncio.gather(*(env.api.request("DELETE", f"{SERVICES}/{n}") for n in names))
            await until("they are gone", lambda: has_no_balancer(env), 60)
            gone = time.monotonic() - began
            assert not churning.done()
        assert len((await env.admin.state())["routes"]) < len(await env.node_names())
    print(f"served in {served:.1f} s, gone in {gone:.1f} s, in 10 s meanwhile {meanwhile}")
    assert served < 8.0
    assert gone < 8.0
    assert meanwhile["UpdateLoadBalancer"] > meanwhile["CreateRoute"] >= 2
    assert meanwhile.total() <= 10 * FEW_WRITES + 2 * FEW_WRITES


async def has_no_balancer(env: Environment) -> bool:
    return not (await env.admin.state())["load_balancers"]
