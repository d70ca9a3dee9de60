"""A new Service waits a moment for Nodes that are being initialized; nothing else does."""

import asyncio
import time
from dataclasses import replace

import pytest

from ccm.errors import RetryAfter
from ccm.model.objects import UNINITIALIZED_TAINT
from tests.support.context import TIMINGS
from tests.support.nodes import Tweak, with_provider_id
from tests.support.waiting import until

from .objects import (
    EXCLUDED,
    KEY,
    NO_PROVIDER_ID,
    finalized,
    node,
    port,
    service,
    spec,
    with_status,
    with_taint,
)
from .world import World, running_with

pytestmark = pytest.mark.virtual_time

UNINITIALIZED = with_taint(UNINITIALIZED_TAINT)
NEW = (NO_PROVIDER_ID, UNINITIALIZED)
N1, N2 = node("n1"), node("n2")
SHORT = replace(TIMINGS, node_initialization_limit=0.3)


def ensured(w: World) -> list[tuple[str, ...]]:
    return w.balancers.named("ensure")


async def test_a_new_balancer_is_made_once_with_all_nodes_that_are_being_initialized() -> None:
    async with running_with(node("n1", *NEW), node("n2", *NEW), service()) as w:
        assert w.balancers.calls == []
        await w.put(N1)
        assert w.balancers.calls == []
        await w.put(N2)
        assert w.balancers.calls == [("ensure", "web", "n1", "n2")]


async def test_a_new_service_that_waits_for_nodes_has_its_finalizer_and_says_why() -> None:
    async with running_with(node("n1", *NEW), service()) as w:
        assert w.service().has_finalizer
        result = await w.controller.reconcile(KEY)
        assert result.message == "waits for Nodes that are being initialized"


async def test_a_node_that_is_never_initialized_holds_up_a_new_service_for_a_moment() -> None:
    async with running_with(node("n1", *NEW), N2, service(), timings=SHORT) as w:
        began = time.monotonic()
        await until(lambda: ensured(w), "the balancer")
        assert time.monotonic() - began > 0.1
        await w.put(service(name="later"))
        assert len(ensured(w)) == 2


async def test_a_node_beside_many_holds_up_no_new_service() -> None:
    """Its kubelet could go on to register it."""
    async with running_with(N1, N2, node("n3", *NEW), service()) as w:
        assert len(ensured(w)) == 1


async def test_nodes_that_go_on_joining_do_not_hold_up_a_new_service_for_ever() -> None:
    async with running_with(node("n0", *NEW), service(), timings=SHORT) as w:
        for number in range(1000):
            if ensured(w):
                return
            w.cluster.put(node(f"n{number}"), node(f"n{number + 1}", *NEW))
            await asyncio.sleep(0.005)
        pytest.fail("its balancer was not made")


@pytest.mark.parametrize(
    "tweaks",
    [[UNINITIALIZED, with_provider_id("other://n2")], [*NEW, EXCLUDED]],
    ids=["of another cloud", "excluded"],
)
async def test_a_node_that_will_be_no_backend_is_not_waited_for(tweaks: list[Tweak]) -> None:
    async with running_with(N1, node("n2", *tweaks), service()) as w:
        assert ensured(w) == [("ensure", "web", "n1")]


async def test_a_balancer_that_may_be_there_does_not_wait_for_nodes() -> None:
    there = service(finalized, with_status("192.0.2.1"))
    async with running_with(node("n1", *NEW), there) as w:
        assert len(ensured(w)) == 1
        await w.change(spec(ports=[port(81)]))
        assert len(ensured(w)) == 2


async def test_a_balancer_that_is_being_made_does_not_wait_for_nodes() -> None:
    async with running_with(N1, service(), ensure=[RetryAfter("at work", 3.0)]) as w:
        w.cluster.put(node("n2", *NEW))
        await w.later()
        assert len(ensured(w)) == 2
