"""What a reconcile of a Node does to the cluster, and when it asks the cloud (rows CN…)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from ccm.bus.frames import ProposeDeletions
from ccm.controllers import LIFECYCLE, NODE
from ccm.errors import CloudError, Denied, KubernetesError, NotLeading
from ccm.model.cloud import Answer, Gone, Instance, Unknown
from ccm.model.objects import Node
from tests.support.cloud import Inventory
from tests.support.context import TIMINGS
from tests.support.nodes import (
    OTHER_TAINT,
    Tweak,
    machine,
    node,
    provided_ip,
    recreated,
    tainted,
    with_addresses,
    with_provider_id,
    with_taint,
)
from tests.support.waiting import let_run, until
from workers.controller import Result

from .world import World, world

pytestmark = pytest.mark.virtual_time

SYNCED = ("Normal", "Synced", "Node synced successfully")


async def test_a_tainted_node_gets_what_its_machine_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with world() as w:
        w.put(node(tainted), answer=machine("fake://1", "InternalIP 10.0.0.1", zone="z"))
        result = await w.sync()
        after = w.cluster.node()
        assert (result.message, result.is_done) == ("initialized", True)
        assert (after.provider_id, after.is_uninitialized, len(after.addresses)) == (
            "fake://1",
            False,
            1,
        )
        assert after.labels["topology.kubernetes.io/zone"] == "z"
        assert await w.events() == [SYNCED]
        assert w.cluster.writes == 2
    (reported,) = map(vars, caplog.records)
    assert (reported["message"], reported["provider_id"]) == ("node initialized", "fake://1")
    assert (reported["node"], reported["seconds"] >= 0) == (after.name, True)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        pytest.param(None, None, id="CN6"),
        pytest.param(None, CloudError("boom"), id="CN16"),
        pytest.param(None, Denied("no"), id="denied"),
        pytest.param(None, ValueError("a bug of the provider"), id="a-provider-that-fails"),
        pytest.param(Unknown("a field is missing"), None, id="unknown"),
        pytest.param(Gone("not in the list"), None, id="gone"),
    ],
)
async def test_without_a_usable_answer_the_node_stays_as_it_is_and_is_tried_again(
    answer: Instance | Gone | Unknown | None, failure: Exception | None
) -> None:
    async with world() as w:
        having = (with_taint(OTHER_TAINT), provided_ip("10.0.0.1"), with_provider_id("fake://1"))
        w.cluster.put(node(tainted, *having))
        before = w.cluster.node()
        if answer:
            w.machines.answers["node-1"] = answer
        w.machines.failures = [failure] if failure else []
        with pytest.raises(CloudError):
            await w.sync()
        assert w.cluster.node() == before
        assert "cloud" not in w.controller.details("node-1")  # that is of nodes that are not ready
        assert SYNCED not in await w.events()
        w.machines.answers["node-1"] = machine("fake://1", "InternalIP 10.0.0.1")
        assert (await w.sync()).is_done
        assert not w.cluster.node().is_uninitialized


@pytest.mark.parametrize("answers", [None, [], {"node-1": "running"}, {"node-1": None}])
async def test_what_is_no_answer_is_the_providers_failure(answers: Any) -> None:
    machines = Inventory()
    machines.describe = lambda nodes: answers  # type: ignore[method-assign, assignment]
    async with world(machines=machines) as w:
        w.cluster.put(node(tainted))
        with pytest.raises(CloudError):
            await w.sync()


@pytest.mark.parametrize(
    ("tweaks", "answer", "reason", "complaint"),
    [
        pytest.param(
            [provided_ip("nonsense")],
            machine("fake://1", "InternalIP 10.0.0.1"),
            "InitializationFailed",
            "'nonsense' is neither one IP nor one of each family",
            id="CN8",
        ),
        pytest.param(
            [],
            machine(""),
            "InitializationFailed",
            "cloud provider does not set node provider ID for node node-1",
            id="CN9-CN15",
        ),
        pytest.param([], Gone("404 seen"), "CloudMachineNotFound", "404 seen", id="no-machine"),
    ],
)
async def test_what_does_not_fit_the_node_is_an_event(
    tweaks: list[Tweak], answer: Answer, reason: str, complaint: str
) -> None:
    async with world() as w:
        w.cluster.put(node(tainted, *tweaks))
        before = w.cluster.node()
        w.machines.answers["node-1"] = answer
        with pytest.raises(CloudError, match=complaint):
            await w.sync()
        assert w.cluster.node() == before
        ((kind, reported, message),) = await w.events()
        assert (kind, reported) == ("Warning", reason)
        assert complaint in message


async def test_an_id_by_which_no_one_finds_the_machine_again_is_not_written() -> None:
    """Nothing can change it in a Node: who has written it has to delete the Node."""
    async with world() as w:
        w.machines.machine_of = lambda provider_id: (  # type: ignore[method-assign]
            provider_id if provider_id[-1].isdigit() else ""
        )
        w.put(node(tainted), answer=machine("fake://-", "InternalIP 10.0.0.1"))
        before = w.cluster.node()
        with pytest.raises(CloudError, match="'fake://-' names no machine"):
            await w.sync()
        assert w.cluster.node() == before
        ((kind, reason, _),) = await w.events()
        assert (kind, reason) == ("Warning", "InitializationFailed")
        w.machines.answers["node-1"] = machine("fake://1", "InternalIP 10.0.0.1")
        assert (await w.sync()).is_done


@pytest.mark.parametrize(
    "there", [pytest.param(node(), id="CN3"), pytest.param(None, id="it-is-gone")]
)
async def test_nothing_is_asked_about_a_node_that_needs_nothing(there: Node | None) -> None:
    async with world() as w:
        if there:
            w.cluster.put(there)
        assert (await w.sync()).is_done
        assert (w.machines.reads, w.cluster.writes) == ([], 0)


async def test_a_node_of_another_cloud_is_left_alone_and_not_asked_about() -> None:
    async with world() as w:
        w.cluster.put(node(tainted, with_provider_id("other://1")))
        result = await w.sync()
        assert not result.is_done
        assert result.message == "left alone: other://1 is not of fake"
        assert await w.events() == [("Normal", "LeftAlone", result.message)]
        assert (w.machines.reads, w.cluster.writes) == ([], 0)


async def test_a_batch_waits_for_keys_that_are_ready_and_have_yet_to_ask() -> None:
    async with world() as w:
        names = [f"node-{number}" for number in range(3)]
        for name in names:
            w.put(node(tainted, name=name), answer=machine(f"fake://{name}"))
            w.queue.add(name)
        w.feed()
        reconciles = []
        for name in names:
            assert await w.queue.get() == name
            reconciles.append(asyncio.create_task(w.reconcile(name)))
            await asyncio.sleep(3 * TIMINGS.batch.lone_window)  # a slow machine
        await asyncio.gather(*reconciles)
        assert w.machines.reads == [names]


async def test_a_crash_between_the_two_writes_is_made_good_by_the_next_reconcile() -> None:
    async with world() as w:
        w.put(
            node(tainted, with_addresses("Hostname old")),
            answer=machine("fake://1", "InternalIP 10.0.0.1"),
        )
        w.cluster.writes_until_cut_off = 1
        with pytest.raises(KubernetesError):
            await w.sync()
        assert (w.cluster.node().is_uninitialized, len(w.cluster.node().addresses)) == (True, 2)
        w.cluster.writes_until_cut_off = 10
        assert (await w.sync()).is_done
        assert (w.cluster.node().is_uninitialized, w.cluster.node().provider_id) == (
            False,
            "fake://1",
        )
        assert w.cluster.writes == 2


async def test_without_permission_nothing_is_written() -> None:
    async with world() as w:
        w.put(node(tainted), answer=machine("fake://1"))
        w.permission.renew(0.0)
        before = w.cluster.node()
        with pytest.raises(NotLeading):
            await w.sync()
        assert w.cluster.node() == before
        w.permission.renew(float("inf"))
        assert (await w.sync()).is_done


async def test_a_plan_against_an_older_object_is_refused_by_the_cluster() -> None:
    async with asked_about(node(tainted)) as (w, reconciling):
        w.cluster.put(node(tainted, recreated))  # nobody has told the worker yet
        w.machines.gate.set()
        with pytest.raises(KubernetesError) as refusal:
            await reconciling
        assert refusal.value.status == 422
        assert w.cluster.node().is_uninitialized


@asynccontextmanager
async def asked_about(there: Node) -> AsyncIterator[tuple[World, "asyncio.Task[Result]"]]:
    """A world whose cloud takes its time to answer about this node, and the reconcile."""
    async with world() as w:
        w.cluster.put(there)
        w.feed()
        w.machines.answers["node-1"] = machine("fake://1", zone="z")
        w.machines.gate.clear()
        reconciling = asyncio.create_task(w.reconcile())
        await until(lambda: w.machines.reads)
        yield w, reconciling


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param([tainted, recreated], id="recreated"),
        pytest.param([tainted, with_provider_id("other://2")], id="someone-set-a-provider-ID"),
        pytest.param([], id="someone-took-the-taint"),
        pytest.param(None, id="it-is-gone"),
    ],
)
async def test_a_node_that_changed_while_the_cloud_was_asked_is_not_patched(
    meanwhile: list[Tweak] | None,
) -> None:
    async with asked_about(node(tainted)) as (w, reconciling):
        w.cluster.remove("Node", "node-1")
        if meanwhile is not None:
            w.cluster.put(node(*meanwhile))
        w.feed()
        w.machines.gate.set()
        result = await reconciling
        assert (result.is_done, result.requeue_after) == (False, 0.0)
        assert w.cluster.writes == 0
        w.machines.answers["node-1"] = machine("fake://2")
        await w.reconcile()  # asks again, where there is still something to ask
        assert not (after := w.cluster.nodes.get("node-1")) or after.provider_id != "fake://1"


async def test_the_plan_is_made_for_the_node_as_it_is_once_the_cloud_has_answered() -> None:
    async with asked_about(node(tainted)) as (w, reconciling):
        w.cluster.put(node(tainted, with_taint(OTHER_TAINT)))
        w.feed()
        w.machines.gate.set()
        assert (await reconciling).is_done
        assert (w.cluster.node().provider_id, w.cluster.node().taints) == (
            "fake://1",
            [OTHER_TAINT],
        )


@pytest.mark.parametrize(
    ("ttl", "reads"), [(TIMINGS.answer_ttl, 1), (0.0, 2)], ids=["kept", "too-old"]
)
async def test_an_answer_is_kept_for_a_retry_until_it_is_too_old(ttl: float, reads: int) -> None:
    async with world(timings=replace(TIMINGS, answer_ttl=ttl)) as w:
        w.put(node(tainted), answer=machine("fake://1"))
        w.cluster.writes_until_cut_off = 0
        for _ in range(2):
            with pytest.raises(KubernetesError):
                await w.sync()
        assert len(w.machines.reads) == reads


@pytest.mark.parametrize("status", [422, 503], ids=["changed", "unavailable"])
async def test_an_answer_is_not_kept_for_a_node_that_changed_before_its_write(status: int) -> None:
    """It may have a provider ID by then, and the answer be about another machine."""
    async with world() as w:
        w.put(node(tainted), answer=machine("fake://1"))
        w.cluster.failures = [KubernetesError(status, "Failed", "the write failed", None)]
        with pytest.raises(KubernetesError):
            await w.sync()
        w.put(
            node(tainted, with_provider_id("fake://2")),
            answer=replace(machine("fake://2"), type="other"),
        )
        await w.sync()
        assert w.cluster.node().labels["node.kubernetes.io/instance-type"] == "other"


async def test_the_own_write_is_seen_before_the_feed_brings_it() -> None:
    async with world() as w:
        w.put(node(tainted), answer=machine("fake://1"))
        await w.sync()
        assert (await w.reconcile()).message == "initialized"
        assert w.cluster.writes == 1


async def test_without_the_lifecycle_controller_no_pass_is_made_and_no_taint_follows_power() -> (
    None
):
    async with world(NODE) as w:
        w.cluster.put(node())  # not Ready: the lifecycle controller would ask about it
        w.feed()
        await let_run(50)
        await asyncio.sleep(0.05)  # several periods in which nothing may happen
        assert w.machines.reads == []
        assert w.sent == []


async def test_with_the_lifecycle_controller_alone_passes_are_made_and_no_node_is_initialized() -> (
    None
):
    async with world(LIFECYCLE) as w:
        w.put(node(tainted), answer=machine("fake://1"))
        w.feed()
        assert (await w.reconcile()).is_done
        await until(lambda: bool(w.sent))
        assert isinstance(w.sent[0], ProposeDeletions)
        assert w.cluster.node().is_uninitialized
