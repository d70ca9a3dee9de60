"""The runner with a node controller: keys that wait for the cloud, few places, and the end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ccm.bus.frames import Ack, Objects
from tests.support.cloud import Inventory
from tests.support.context import running as under_runner
from tests.support.nodes import machine, node, tainted
from tests.support.waiting import let_run, until
from workers.node import controller as module
from workers.runner import Runner

from .world import World

pytestmark = pytest.mark.virtual_time

NAMES = [f"node-{number}" for number in range(5)]


@asynccontextmanager
async def running(limit: int) -> AsyncIterator[tuple[World, Runner, "asyncio.Task[None]"]]:
    """A runner that was told of five tainted nodes, which all have a machine."""
    w = World(Inventory(5), limit=limit)
    async with under_runner(module, w.context, w.controller, w.port) as (runner, work):
        for name in NAMES:
            w.cluster.put(node(tainted, name=name))
            w.machines.answers[name] = machine(f"fake://{name}")
        entries = [["Node", name, 101, node(tainted, name=name).raw] for name in NAMES]
        runner.on_message(Objects.of(1, 1, True, entries))
        yield w, runner, work


def initialized(w: World) -> int:
    return sum(not there.is_uninitialized for there in w.cluster.nodes.values())


@pytest.mark.parametrize("limit", [1, 2, 32])
async def test_keys_that_wait_for_the_cloud_fill_a_page_whatever_the_width(limit: int) -> None:
    async with running(limit=limit) as (w, _, _work):
        await until(lambda: initialized(w) == len(NAMES))
        assert w.machines.reads == [NAMES]


async def test_keys_in_flight_are_finished_while_a_runner_drains() -> None:
    async with running(limit=32) as (w, runner, work):
        w.cluster.gate.clear()
        await until(lambda: w.cluster.tries == len(NAMES))
        runner.drain(5.0)
        await let_run(20)
        w.cluster.gate.set()
        await asyncio.wait_for(work, 1.0)
        assert initialized(w) == len(NAMES)


async def test_keys_that_are_not_finished_in_time_are_broken_off() -> None:
    async with running(limit=32) as (w, runner, work):
        w.cluster.gate.clear()
        await until(lambda: w.cluster.tries == len(NAMES))
        runner.drain(1.0)
        await asyncio.wait_for(work, 5.0)
        assert initialized(w) == 0


async def test_a_runner_that_drains_does_not_wait_for_the_cloud() -> None:
    async with running(limit=1) as (w, runner, work):
        w.machines.gate.clear()
        await until(lambda: w.machines.reads)
        runner.drain(5.0)
        await asyncio.wait_for(work, 1.0)
        assert initialized(w) == 0
        assert w.cluster.writes == 0


async def test_what_waits_for_the_cloud_is_pending_but_not_in_flight() -> None:
    """So it keeps no other worker from having the key, and is told to people as what it is."""
    async with running(limit=1) as (w, runner, _work):
        w.machines.gate.clear()
        await until(lambda: w.machines.reads)
        runner.on_message(
            Objects.of(1, 2, False, [["Node", NAMES[0], 0, None]], ["Node", NAMES[0]])
        )
        await until(lambda: Ack(1, 2) in w.port.sent)
        assert runner.status()["queue"]["oldest_seconds"] == 0
        assert runner.status()["queue"]["parked"] == len(NAMES)
        waiting = dict.fromkeys(NAMES, "waits for the cloud's answer")
        await until(lambda: runner.status()["reasons"] == waiting)
        w.machines.gate.set()
        await until(lambda: initialized(w) == len(NAMES) - 1)
        await until(lambda: not runner.status()["pending"])
        assert runner.status()["queue"]["parked"] == 0
