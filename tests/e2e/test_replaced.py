"""Load balancers and routes while machines end that Kubernetes has yet to miss."""

import asyncio

import pytest

from tests.support.deadlines import dilation
from tests.support.environment import SERVICES, Environment
from tests.support.running import ALL_CONTROLLERS, in_background, until

pytestmark = pytest.mark.real

BEFORE, REPLACED = 50, 3  # machines there are, and how many of them end in a second at rest
FLAGS = ("--controllers=cloud-node,service", "--cloud-rate=write=4")


async def replace(env: Environment) -> None:
    """For ever: machines end, and others join; Kubernetes has yet to notice those that ended."""
    first, last, times = 1, BEFORE, dilation()
    while True:
        for name in (f"vm-{number}" for number in range(first, first + REPLACED)):
            await env.admin.terminate(name)
            await asyncio.sleep(times / REPLACED)
        await env.add_nodes(REPLACED, last + 1)
        first, last = first + REPLACED, last + REPLACED


async def are_served(env: Environment, names: set[str]) -> bool:
    items = (await env.api.get(SERVICES))["items"]
    served = (one for one in items if one["status"]["loadBalancer"].get("ingress"))
    return names <= {one["metadata"]["name"] for one in served}


async def test_services_are_served_while_machines_are_replaced(env: Environment) -> None:
    """The cloud takes no write that names a machine which has ended, and few writes at all."""
    await env.add_nodes(BEFORE)
    names = {f"web-{number}" for number in range(10)}
    with env.supervisor(*FLAGS):
        await env.nodes.until_initialized(BEFORE)
        async with in_background(replace(env)):
            await env.add_services(*range(10))
            await until("they are served", lambda: are_served(env, names), 20.0)


async def test_a_route_of_a_machine_that_ended_goes_with_the_refresh_that_misses_it(
    env: Environment,
) -> None:
    """The kubelet is Ready, so the Node stays; the next full comparison would be minutes away."""
    with env.supervisor(*ALL_CONTROLLERS, "--node-status-update-frequency=1s"):
        await env.add_nodes(3)
        await env.nodes.until_initialized(3)

        async def are_routed(count: int) -> bool:
            return len((await env.admin.state())["routes"]) == count

        await until("all have routes", lambda: are_routed(3))
        await env.admin.terminate("vm-2")
        await until("its route is gone", lambda: are_routed(2))
        assert "vm-2" in await env.node_names()
