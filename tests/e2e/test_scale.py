"""A change of the number of node workers while they write, and are restarted and killed."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from aiohttp import web

from tests.support.cluster_nodes import kill
from tests.support.environment import Environment
from tests.support.fault_proxy import FaultProxy
from tests.support.kube.cluster import RealCluster
from tests.support.replicas import churn, taint
from tests.support.running import Supervisor, Where, command, in_background, long, until

pytestmark = pytest.mark.real

COUNT = 20
WRITE_SECONDS = 1.5  # that each write of a Node takes: a new owner would begin one meanwhile
GAP = 0.15  # seconds between two Nodes that get the taint again
DISTURBANCES = 3  # of each change of the number


class NodeWrites(FaultProxy):
    """Holds each write of a Node for a while; `doubled` are Nodes with two at the same time."""

    def __init__(self, cluster: RealCluster) -> None:
        super().__init__(cluster.url, cluster.ca_file)
        self.done, self.doubled = 0, Counter[str]()
        self._under_way: set[str] = set()

    async def _pass(self, request: web.Request) -> web.Response:
        path, _, name = request.path.removesuffix("/status").rpartition("/")
        if request.method != "PATCH" or path != "/api/v1/nodes":
            return await super()._pass(request)
        if name in self._under_way:
            self.doubled[name] += 1
        self._under_way.add(name)
        try:
            await asyncio.sleep(WRITE_SECONDS)  # the fault, not a wait
            return await super()._pass(request)
        finally:
            self.done += 1
            self._under_way.discard(name)


@pytest.fixture
def writes(cluster: RealCluster) -> Iterator[NodeWrites]:
    with NodeWrites(cluster) as writes:
        yield writes


@pytest.fixture
def where(where: Where, writes: NodeWrites) -> Where:
    return replace(where, kubeconfig=writes.kubeconfig(where.kubeconfig))


async def disturb(supervisor: Supervisor, chance: random.Random) -> str:
    """Reload, or restart or kill one of the node workers."""
    pids = await until("some have a process", lambda: of_processes(supervisor))
    name, how = chance.choice(sorted(pids)), chance.choice(["restart", "reload", "kill"])
    match how:
        case "restart":
            await command(supervisor, "restart", worker=name)
        case "reload":
            supervisor.process.send_signal(signal.SIGHUP)
        case "kill":
            kill(pids[name])
    return how


def of_processes(supervisor: Supervisor) -> dict[str, int]:
    """The workers that have a process at the moment."""
    return {name: pid for name, pid in supervisor.pids().items() if pid}


def known(supervisor: Supervisor) -> int:
    """How many Nodes its workers know."""
    return sum(worker.get("objects", 0) for worker in supervisor.workers().values())


async def until_each_is_handled(env: Environment, names: list[str]) -> None:
    """Each Node that is tainted now gets rid of it: some worker owns it."""
    for name in names:
        await taint(env.api, name, turn=-1)
    await until("each is handled", env.are_initialized)


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_node_has_two_owners_while_workers_are_restarted_and_killed_in_a_scale(
    env: Environment, writes: NodeWrites, seed: int
) -> None:
    chance = random.Random(seed)
    names = await env.add_nodes(COUNT)
    with env.supervisor("--worker-steady-time=10ms") as supervisor:
        supervisor.wait_running()
        await env.nodes.until_initialized(COUNT)
        async with churn(env.api, names, GAP):
            for count in (3, 1, 2):
                async with asyncio.TaskGroup() as group:
                    scaling = group.create_task(command(supervisor, "scale", count=count))
                    for _ in range(DISTURBANCES):
                        await asyncio.sleep(chance.uniform(0.0, 1.0))  # the fault, not a wait
                        print(await disturb(supervisor, chance), end=" ")
                print(scaling.result())
                assert scaling.result().startswith(f"{count} node workers instead of")
                assert writes.doubled == {}
        await until_each_is_handled(env, names)
        await until("they all run", lambda: supervisor.is_in("running"))
        await until("they know their share", lambda: known(supervisor) == COUNT)
        assert supervisor.workers().keys() == {"node-0", "node-1"}
        assert supervisor.end() == 0
    print(f"{writes.done} writes")
    assert writes.doubled == {}


@long
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
async def test_a_scale_that_is_given_up_leaves_no_node_without_an_owner(
    env: Environment, writes: NodeWrites, before: int, after: int
) -> None:
    """An old worker is stopped, so that it never lets its Nodes go."""
    names = await env.add_nodes(COUNT)
    flags = ("--worker-silence-limit=300s", f"--node-workers={before}")
    with env.supervisor(*flags) as supervisor:
        stopped = supervisor.wait_running()[f"node-{before - 1}"]["pid"]
        await env.nodes.until_initialized(COUNT)
        async with in_background(until_each_is_handled(env, names)):
            await until("it writes", lambda: writes.done > COUNT)
            os.kill(stopped, signal.SIGSTOP)
            said = await command(supervisor, "scale", count=after)
            assert "not done within 60 s" in said
            os.kill(stopped, signal.SIGCONT)
        await until_each_is_handled(env, names)
        await until("they all run", lambda: supervisor.is_in("running"))
        assert len(supervisor.pids()) == before
        assert supervisor.end() == 0
    assert writes.doubled == {}
