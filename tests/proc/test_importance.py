"""What is important does not wait behind a backlog: Services while routes are made."""

import time

import pytest

from tests.proc.environment import SERVICES, Environment
from tests.proc.running import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NODES, WRITES = 500, 10  # and writes a second that the cloud takes
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
