"""What the API server refuses: it is told once, tried again seldom, and holds up nothing else."""

import time
from dataclasses import replace
from typing import Any

import pytest

from ccm.errors import KubernetesError
from tests.support.context import running as under_runner
from tests.support.nodes import labelled, machine, node, tainted, with_provider_id
from tests.support.waiting import let_run, until
from workers.node import controller as module

from .world import World, world

pytestmark = pytest.mark.virtual_time

TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("fields", "left_out"),
    [
        ({"type": "m5 large"}, {TYPE}),
        ({"zone": "z" * 64}, {ZONE}),
        ({"labels": {"example.com/a": "b c", "d e": "f", "mine": "x"}}, {"example.com/a", "d e"}),
    ],
)
async def test_a_label_that_cannot_be_is_left_out_and_all_else_is_written(
    fields: dict[str, Any], left_out: set[str]
) -> None:
    async with world() as w:
        there = replace(machine("fake://1", zone="z", type="t"), **fields)
        w.put(node(tainted), answer=there)
        assert (await w.sync()).is_done
        after = w.cluster.node()
        assert not after.is_uninitialized
        assert not left_out & after.labels.keys()
        assert ({TYPE, ZONE} - left_out) <= after.labels.keys()
        reported = [
            message for kind, reason, message in await w.events() if reason == "LabelLeftOut"
        ]
        assert len(reported) == 1
        assert all(key in reported[0] for key in left_out)


async def test_a_label_that_an_initialized_node_cannot_have_costs_no_write() -> None:
    async with world() as w:
        there = replace(machine("fake://1"), type="m5 large")
        w.put(node(with_provider_id("fake://1"), labelled({TYPE: "t"})), answer=there)
        w.feed()
        w.controller._monitor_pass._answers["node-1"] = ("uid-of-node-1", there)
        assert (await w.reconcile()).is_done
        assert w.cluster.tries == 0
        assert [reason for _, reason, _ in await w.events()] == ["LabelLeftOut"]


async def test_a_refused_action_does_not_hold_up_those_that_follow_a_machine() -> None:
    async with world() as w:
        there = machine("fake://1", "InternalIP 10.0.0.1", zone="z")
        w.put(node(with_provider_id("fake://1")), answer=there)
        w.feed()
        w.controller._monitor_pass._answers["node-1"] = ("uid-of-node-1", there)
        w.cluster.failures = [KubernetesError(403, "Forbidden", "a policy says no", None)]
        with pytest.raises(KubernetesError, match="a policy says no"):
            await w.reconcile()
        assert (w.cluster.node().labels, len(w.cluster.node().addresses)) == ({}, 1)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        *((status, "spec.x: a policy says no") for status in (400, 403, 422)),
        pytest.param(500, 'failed calling webhook "a.b.c": connection refused', id="webhook"),
    ],
)
async def test_refused_content_is_one_event_and_tried_again_after_seconds(
    status: int, why: str
) -> None:
    w = World()
    async with under_runner(module, w.context, w.controller, w.port) as (runner, _work):
        w.put(node(tainted), answer=machine("fake://1", zone="z"))
        w.cluster.failures = [KubernetesError(status, "No", why, None)] * 9
        w.cluster.on_change = lambda kind, key, raw: None
        w.feed()
        began = time.monotonic()
        w.queue.add("node-1")
        await until(lambda: w.context.recorder.waiting or w.cluster.events)
        await let_run(50)
        assert w.cluster.tries == 1
        waits = w.queue.due_in("node-1") or 0.0
        assert waits <= 10.0
        assert waits + time.monotonic() - began >= 8.0
        assert runner.status()["failing"]
        ((kind, reason, message),) = await w.events()
        assert (kind, reason) == ("Warning", "WriteRefused")
        assert why in message
        w.cluster.failures = []
        w.queue.add("node-1")  # as a change of the Node does
        await until(lambda: not w.cluster.node().is_uninitialized)
        assert w.queue.failures("node-1") == 0


async def test_a_race_is_planned_again_at_once_and_ever_slower_while_nothing_changes() -> None:
    w = World()
    async with under_runner(module, w.context, w.controller, w.port):
        w.put(node(tainted), answer=machine("fake://1"))
        w.feed()
        w.cluster.failures = [KubernetesError(409, "Conflict", "it changed", None)] * 4
        w.queue.add("node-1")
        await until(lambda: not w.cluster.node().is_uninitialized)
        assert w.cluster.tries == 5
        assert "WriteRefused" not in [reason for _, reason, _ in await w.events()]


@pytest.mark.parametrize("reason", ["Not Found", "NotFound"])
async def test_the_404_of_a_proxy_is_no_word_that_a_node_is_gone(reason: str) -> None:
    """Its work would count as done, until another pass asks the cloud about all of them."""
    w = World()
    async with under_runner(module, w.context, w.controller, w.port):
        w.put(node(tainted), answer=machine("fake://1"))
        w.feed()
        w.cluster.failures = [KubernetesError(404, reason, "404 page not found", None)]
        began = time.monotonic()
        w.queue.add("node-1")
        await until(lambda: not w.cluster.node().is_uninitialized)
        assert time.monotonic() - began < w.context.settings.node_monitor_period


@pytest.mark.parametrize("number", [1, 2])
async def test_an_answer_that_a_proxy_kept_is_no_word_that_a_node_was_written(number: int) -> None:
    """It would count as initialized, with its taint or without addresses."""
    w = World()
    async with under_runner(module, w.context, w.controller, w.port):
        w.put(node(tainted), answer=machine("fake://1", "InternalIP 10.0.0.1"))
        w.feed()
        w.cluster.kept = {number}
        w.queue.add("node-1")
        await until(lambda: not w.cluster.node().is_uninitialized)
        assert w.cluster.node().addresses
