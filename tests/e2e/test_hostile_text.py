"""Texts of megabytes from a cloud and from one tenant: no worker dies, and others are served."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ccm.kube.client import MERGE_PATCH
from ccm.providers.simulated.load_balancers import SCHEME_ANNOTATION
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.service import TOKEN
from tests.support.environment import EVENTS, SERVICES, Environment, service
from tests.support.running import Json, Supervisor, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CONTROLLERS = "--controllers=cloud-node,cloud-node-lifecycle,service"
CONTROL = "\1"  # six bytes of JSON
HONEST = 500  # number of the first Service of someone else
WATCHED = 15.0  # seconds: more than it takes until a silent worker is ended


def hostile(number: int, value: str) -> Json:
    made = service(number)
    return made | {"metadata": made["metadata"] | {"annotations": {SCHEME_ANNOTATION: value}}}


async def until_served(env: Environment, number: int) -> float:
    """Make an honest Service; after how many seconds it has its address."""
    began = time.monotonic()
    await env.add_services(number)
    await env.until_served(number)
    return time.monotonic() - began


@asynccontextmanager
async def no_worker_dies(env: Environment) -> AsyncIterator[Supervisor]:
    await env.add_nodes(2)
    with env.supervisor(CONTROLLERS) as supervisor:
        supervisor.wait_running()
        before = supervisor.pids()
        await until_served(env, HONEST)
        yield supervisor
        assert supervisor.pids() == before
        assert not any(worker["restarts"] for worker in supervisor.workers().values())
        log = supervisor.log.read_text()
        assert max(map(len, log.splitlines())) < 50_000
        assert "message not sent" not in log
        for text in (log, str(supervisor.status()), str(await env.api.get(EVENTS))):
            assert TOKEN not in text
        events = (await env.api.get(EVENTS, {"limit": "2000"}))["items"]
        assert all(len(each["message"].encode()) <= 1024 for each in events)


@pytest.mark.parametrize(
    ("count", "value"),
    [
        pytest.param(40, "eyJ-" * 15_000, id="long words"),
        pytest.param(24, "\\" + '"' * 240_000, id="quotes"),
    ],
)
async def test_annotations_that_are_refused_stop_no_one(
    env: Environment, count: int, value: str
) -> None:
    async with no_worker_dies(env) as supervisor:
        for number in range(1, count + 1):
            await env.api.post(SERVICES, hostile(number, value))

        def refused() -> bool:
            return bool(supervisor.workers()["service"].get("failing") == count)

        await until("all of them are refused", refused)
        await until_served(env, HONEST + 1)


async def test_a_cloud_that_answers_megabytes_stops_no_one(env: Environment) -> None:
    async with no_worker_dies(env) as supervisor:
        fault = CloudFault(
            CloudFaultKind.ERROR,
            operation="CreateLoadBalancer",
            status=400,
            message=f"Bearer {TOKEN}: {TOKEN}" + '; what "you" asked\x1b[31m\n',
            message_size=5_000_000,
        )
        await env.admin.set_fault(fault)
        await env.add_services(1, 2, 3)

        def refused() -> bool:
            return bool(supervisor.workers()["service"].get("failing") == 3)

        await until("all of them are refused", refused)
        beats = time.monotonic() + WATCHED
        await until("time passes", lambda: time.monotonic() > beats)
        await env.admin.clear_faults()
        await until_served(env, HONEST + 1)


async def test_a_service_that_grows_too_large_leads_to_no_node_port_of_another(
    env: Environment,
) -> None:
    async with no_worker_dies(env):
        await until_served(env, 1)
        path = f"{SERVICES}/web-1"
        [port] = (await env.api.get(path))["spec"]["ports"]
        spec = {"ports": [{"port": 8081, "protocol": "TCP"}], "loadBalancerIP": CONTROL * 480_000}
        for body in ({"metadata": {"annotations": {"a": CONTROL * 250_000}}}, {"spec": spec}):
            await env.api.patch(path, MERGE_PATCH, body)
        other = service(2)
        await env.api.post(SERVICES, other | {"spec": other["spec"] | {"ports": [port]}})
        await env.until_served(2)

        async def leads_alone() -> bool:
            made = (await env.admin.state())["load_balancers"]
            ports = [each["node_port"] for one in made for each in one["listeners"]]
            return ports.count(port["nodePort"]) == 1

        await until("the first one leads there no more", leads_alone)
