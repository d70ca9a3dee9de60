"""What is important does not wait behind a backlog, and what is less so goes on meanwhile."""

import asyncio
import time
from collections import Counter

import pytest

from tests.support.deadlines import dilation
from tests.support.environment import NODES as NODES_PATH
from tests.support.environment import SERVICES, Environment
from tests.support.running import IS_LONG, in_background, until

pytestmark = pytest.mark.real

NODES, WRITES = 500 if IS_LONG else 150, 10  # and writes a second that the cloud takes, at rest
FLAGS = ("--controllers=cloud-node,route,service", "--cluster-cidr=10.244.0.0/14")


@pytest.fixture
def times() -> int:
    """How many times less the cloud takes, so that the machine is not the limit."""
    return dilation()


async def has_address(env: Environment, path: str, names: set[str]) -> bool:
    items = (await env.api.get(path))["items"]
    served = {
        item["metadata"]["name"] for item in items if item["status"]["loadBalancer"].get("ingress")
    }
    return names <= served


async def test_services_do_not_wait_for_the_routes_of_hundreds_of_nodes(
    env: Environment, times: int
) -> None:
    await env.add_nodes(NODES)
    with env.supervisor(*FLAGS, f"--cloud-rate=write={WRITES / times:g}"):
        await env.nodes.until_initialized(NODES)
        await env.add_services(*range(10))
        names = {f"web-{number}" for number in range(10)}
        await until("they are served", lambda: has_address(env, SERVICES, names), 3.0 * times)
        made = len((await env.admin.state())["routes"])
    assert made < NODES, "there was no backlog"


FEW_WRITES = 4  # that the cloud takes a second, at rest
CHURN = 5  # Nodes that join in a second; all but one of them leave again
BEFORE = 30  # Nodes that are there before
SERVED_WITHIN = 8.0  # seconds at rest, for ten writes, and as many of routes
GONE_WITHIN = 1.25 * 2 * 2 * 10 / FEW_WRITES
"""Seconds at rest: each of ten Services may have its backends written before it goes, and between
any two of these twenty writes there is one of a route."""


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
    env: Environment, times: int
) -> None:
    await env.add_nodes(BEFORE)
    names, rate = {f"web-{number}" for number in range(10)}, FEW_WRITES / times
    with env.supervisor(*FLAGS, f"--cloud-rate=write={rate:g}"):
        await env.nodes.until_initialized(BEFORE)
        async with in_background(join_and_leave(env)) as churning:
            await env.add_services(*range(10))
            await until(
                "they are served", lambda: has_address(env, SERVICES, names), SERVED_WITHIN * times
            )
            await env.admin.reset_counters()
            began = time.monotonic()
            await until("backends are updated", lambda: has_written(env, 9 * FEW_WRITES))
            meanwhile, seconds = await writes(env), time.monotonic() - began
            await asyncio.gather(*(env.api.request("DELETE", f"{SERVICES}/{n}") for n in names))
            await until("they are gone", lambda: has_no_balancer(env), GONE_WITHIN * times)
            assert not churning.done()
        nodes = (await env.api.get(NODES_PATH))["items"]
        routed = {route["cidr"] for route in (await env.admin.state())["routes"]}
        assert any(node["spec"]["podCIDR"] not in routed for node in nodes), "there was no backlog"
    print(f"in {seconds:.1f} s meanwhile {meanwhile}")
    updates, routes = meanwhile["UpdateLoadBalancer"], meanwhile["CreateRoute"]
    assert updates + 2 >= routes >= 2, "they take turns, as all Services are in one namespace"
    assert meanwhile.total() <= rate * seconds + 2 * FEW_WRITES


async def has_written(env: Environment, count: int) -> bool:
    """Whether the cloud took so many writes; host updates alone are more than it takes."""
    return (await writes(env)).total() >= count


async def has_no_balancer(env: Environment) -> bool:
    return not (await env.admin.state())["load_balancers"]
