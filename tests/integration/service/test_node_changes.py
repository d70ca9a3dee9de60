"""What changes of Nodes do to balancers (rows SN1…SN15, ST10…ST15)."""

import asyncio
from dataclasses import replace
from itertools import count

import pytest

from ccm.bus.frames import Objects, Resync
from ccm.errors import CloudError, RetryAfter
from ccm.model.objects import SHUTDOWN_TAINT
from ccm.model.service import LAST_APPLIED_ANNOTATION
from tests.support.context import TIMINGS
from tests.support.deadlines import within
from tests.support.nodes import Tweak, labelled, with_provider_id
from tests.support.rows import row
from tests.support.waiting import until

from .cloud import Balancers
from .objects import (
    EXCLUDED,
    KEY,
    NO_PROVIDER_ID,
    NOT_READY,
    TO_BE_DELETED,
    annotated,
    being_deleted,
    node,
    port,
    ready,
    service,
    spec,
    typed,
    with_address,
    with_taint,
)
from .world import running_with, updates

pytestmark = pytest.mark.virtual_time

N1, N2, N3 = node("n1"), node("n2"), node("n3")
BOTH = ("n1", "n2")
ALL_THREE = ["default/a", "default/b", "default/c"]
UNINITIALIZED = with_taint("node.cloudprovider.kubernetes.io/uninitialized")


def under_pressure(raw: dict[str, dict[str, list[object]]]) -> None:
    raw["status"]["conditions"].append({"type": "MemoryPressure", "status": "True"})


@pytest.mark.parametrize(
    "kinds",
    [pytest.param([], id="SN1-none"), pytest.param(["ClusterIP", "NodePort"], id="SN1-SV1")],
)
async def test_without_a_balancer_a_node_is_no_work(kinds: list[str]) -> None:
    several = [service(typed(kind), name=kind.lower()) for kind in kinds]
    async with running_with(N1, *several) as w:
        await w.put(*(node(f"n{number}") for number in range(1, 1001)))
        assert w.controller.status()["backends"] == 1000
        assert (w.balancers.calls, w.cluster.writes, await w.reported()) == ([], 0, [])


async def test_a_provider_sees_whether_nodes_are_ready() -> None:
    """A cloud that calls the machines of such gone is not trusted."""
    async with running_with(N1, node("n2", NOT_READY), service()) as w:
        seen = {item.name: item.is_ready for item in w.controller._backends.current().nodes}
        assert seen == {"n1": True, "n2": False}


@row("SN2")
async def test_nodes_that_arrive_together_are_one_update() -> None:
    async with running_with(service()) as w:
        await w.put(N1, N2, N3)
        assert updates(w) == [("web", "n1", "n2", "n3")]
        assert ("UpdatedLoadBalancer", "Updated load balancer with new hosts") in await w.reported()


async def test_nodes_that_keep_arriving_are_few_updates() -> None:
    async with running_with(service()) as w:
        for number in range(50):
            w.cluster.put(node(f"n{number}"))
            await asyncio.sleep(0.002)
        await w.rest()
        assert len(updates(w)) <= 5
        assert len(updates(w)[-1]) == 51


async def test_what_no_load_balancer_could_see_of_a_node_is_no_change() -> None:
    """Else a kubelet has all backends of all Services compared, and updates wait for its rest."""
    async with running_with(N1, N2, service()) as w:
        await w.rest()
        before = w.controller._backends.current()
        await w.put(node("n1", labelled({"written-by": "its kubelet"})))
        assert w.controller._backends.is_debounced
        assert w.controller._backends.current() is before


async def test_a_service_taken_up_while_nodes_arrive_waits_for_them() -> None:
    timings = replace(TIMINGS, node_debounce=0.1)
    async with running_with(service(), N1, timings=timings) as w:
        w.cluster.put(N2)
        w.cluster.put(w.changed(annotated({LAST_APPLIED_ANNOTATION: "{}"})))
        await asyncio.sleep(0.02)
        w.cluster.put(N3)
        await w.rest()
        assert updates(w) == [("web", "n1", "n2", "n3")]


async def test_nodes_that_never_rest_do_not_hold_up_an_update_for_ever() -> None:
    """Every balancer comes to its backends, although a node changes with each update of one."""
    timings = replace(TIMINGS, node_debounce_limit=0.05)
    names = {f"s{number}" for number in range(20)}
    numbers = count(1)
    several = [service(name=name) for name in sorted(names)]
    async with running_with(*several, timings=timings) as w:

        def change() -> None:
            w.cluster.put(node(f"n{next(numbers)}"))

        w.balancers.before_write = change
        async with within():
            while names != {name for name, *_ in updates(w)}:
                change()
                await asyncio.sleep(0.005)
        w.balancers.before_write = lambda: None
        await w.rest()


async def test_an_update_that_came_due_during_another_does_not_wait_for_the_nodes_again() -> None:
    async with running_with(service(), N1) as w:
        hold = w.balancers.holds["web"] = asyncio.Event()
        w.cluster.put(N2)
        await until(lambda: updates(w), "the first update")
        w.cluster.put(N3)
        await until(lambda: w.controller._backends.is_debounced, "the nodes are debounced")
        w.controller._backends._timings = replace(
            TIMINGS, node_debounce=60.0, node_debounce_limit=60.0
        )
        w.cluster.put(node("n4"))
        hold.set()
        await until(lambda: len(updates(w)) == 2, "the second update")


@row("SN3", "SN6", "SN12")
async def test_every_change_reaches_every_balancer_whatever_its_traffic_policy() -> None:
    policies = {"a": "Local", "b": "Cluster"}
    several = [service(spec(externalTrafficPolicy=p), name=n) for n, p in policies.items()]
    async with running_with(N1, service(typed("ClusterIP"), name="inner"), *several) as w:
        await w.put(N2)
        assert sorted(updates(w)) == [("a", *BOTH), ("b", *BOTH)]
        await w.put(N3, node("n4"))
        all_four = ("n1", "n2", "n3", "n4")
        assert sorted(updates(w)[2:]) == [("a", *all_four), ("b", *all_four)]


@row("SN4")
async def test_services_are_updated_side_by_side_up_to_the_concurrency() -> None:
    several = [service(name=f"s{number}") for number in range(4)]
    async with running_with(N1, *several, concurrent_service_syncs=2) as w:
        w.balancers.most_at_once = 0
        w.balancers.holds = dict.fromkeys([one.name for one in several], go := asyncio.Event())
        w.cluster.put(N2)
        await until(lambda: len(updates(w)) == 2, "two updates at the same time")
        go.set()
        await w.rest()
        assert sorted(updates(w)) == [(f"s{number}", *BOTH) for number in range(4)]
        assert w.balancers.most_at_once == 2


@row("SN7")
async def test_a_failed_update_is_retried_by_back_off_and_not_by_the_next_node_event() -> None:
    async with running_with(N1, *(service(name=name) for name in "abc")) as w:
        w.balancers.failures["update"] = [CloudError("boom")] * 3
        await w.put(N2)
        assert len(updates(w)) == 3
        failed = (
            "Error updating load balancer with new hosts [n1 n2] "
            "[node names limited, total number of nodes: 2], error: boom"
        )
        assert await w.reported("Warning") == [("UpdateLoadBalancerFailed", failed)] * 3
        await w.put(N2)
        assert len(updates(w)) == 3
        assert len(w.queue.failed) == 3
        await w.later()
        assert [len(record.backends) for record in w.balancers.records.values()] == [2, 2, 2]


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        pytest.param([], [], None, id="SN5"),
        pytest.param([], [NOT_READY], None, id="SN8"),
        pytest.param([], [EXCLUDED], ["n1"], id="SN9-ST11"),
        pytest.param([], [with_taint("other")], None, id="SN11"),
        pytest.param([NO_PROVIDER_ID], [], ["n1", "n2"], id="SN14"),
        pytest.param([], [labelled({"a": "b"}), with_taint("c")], None, id="ST10"),
        pytest.param([EXCLUDED], [], ["n1", "n2"], id="ST11-removed"),
        pytest.param([TO_BE_DELETED], [TO_BE_DELETED, EXCLUDED], None, id="ST11-leaving"),
        pytest.param([NOT_READY], [NOT_READY, EXCLUDED], ["n1"], id="ST11-not-ready"),
        pytest.param(
            [NO_PROVIDER_ID],
            [NO_PROVIDER_ID, EXCLUDED],
            None,
            id="ST11-no-provider-id",
        ),
        pytest.param([NOT_READY], [NOT_READY], None, id="ST12-same"),
        pytest.param([NOT_READY], [ready(None)], None, id="ST12-lost"),
        pytest.param([ready(None)], [NOT_READY], None, id="ST12-found"),
        pytest.param([ready(None)], [ready(None)], None, id="ST12-absent"),
        pytest.param([], [under_pressure], None, id="ST12-another-condition"),
        pytest.param([], [NO_PROVIDER_ID], ["n1"], id="ST14-unset"),
        pytest.param([], [with_provider_id("fake://x")], ["n1", "n2"], id="ST14-changed"),
        pytest.param(
            [EXCLUDED],
            [EXCLUDED, with_provider_id("fake://x")],
            None,
            id="ST14-excluded",
        ),
        pytest.param([TO_BE_DELETED], [TO_BE_DELETED, NOT_READY], None, id="ST15-leaving"),
        pytest.param([EXCLUDED], [EXCLUDED, NOT_READY], None, id="ST15-excluded"),
        pytest.param([NO_PROVIDER_ID], [NO_PROVIDER_ID, NOT_READY], None, id="ST15-no-provider-id"),
        pytest.param([NO_PROVIDER_ID, UNINITIALIZED], [], ["n1", "n2"], id="initialized"),
        pytest.param([with_address("")], [], ["n1", "n2"], id="its-first-address"),
        # Deliberate differences: each of these changes what a balancer should send traffic to.
        pytest.param([], [being_deleted], ["n1"], id="ST13"),
        pytest.param([], [TO_BE_DELETED], ["n1"], id="autoscaler-taint"),
        pytest.param([], [with_address("10.9.9.9")], ["n1", "n2"], id="addresses"),
        pytest.param([], [with_provider_id("other://n2")], ["n1"], id="of-another-cloud"),
    ],
)
async def test_which_changes_of_a_node_update_the_balancer(
    before: list[Tweak], after: list[Tweak], left: list[str] | None
) -> None:
    async with running_with(service(), N1) as w:
        await w.put(node("n2", *before))
        w.balancers.calls.clear()
        await w.put(node("n2", *after))
        assert updates(w) == ([("web", *left)] if left else [])


@pytest.mark.parametrize("excludes_stopped_nodes", [None, False, True])
async def test_a_cloud_that_drops_stopped_backends_gets_them_again(
    excludes_stopped_nodes: bool | None,
) -> None:
    balancers = Balancers()
    if excludes_stopped_nodes is not None:
        balancers.excludes_stopped_nodes = excludes_stopped_nodes  # type: ignore[attr-defined]
    async with running_with(service(), N1, N2, balancers=balancers) as w:
        await w.put(node("n2", with_taint(SHUTDOWN_TAINT)))
        await w.put(N2)
        assert updates(w) == ([("web", *BOTH)] * 2 if excludes_stopped_nodes else [])


@row("SN10")
async def test_a_node_that_goes_away_leaves_the_balancer() -> None:
    async with running_with(service(), N1, N2) as w:
        await w.remove("Node", "n1")
        assert updates(w) == [("web", "n2")]
        await w.remove("Node", "n2")
        assert updates(w)[1:] == [("web",)]
        reported = ("UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")
        assert await w.reported("Warning") == [reported]


@row("SN13")
async def test_while_the_nodes_are_not_known_no_balancer_changes() -> None:
    """Ours: nothing is listed at that moment; a gap in the messages changes nothing.

    (Upstream asks for the list again in each sync and hands every Service to the queue.)
    """
    async with running_with(N1, N2, *(service(name=name) for name in "abc")) as w:
        before = list(w.balancers.calls)
        w.take(Objects.of(1, 99, False, []))
        assert any(isinstance(message, Resync) for message in w.sent)
        entries = [["Node", "n1", 500, w.store.get("Node", "n1")]]
        w.take(Objects.of(2, 1, False, entries))
        await w.rest()
        assert w.balancers.calls == before
        services = [["Service", k, 500, w.store.get("Service", k)] for k in ALL_THREE]
        w.take(Objects.of(2, 2, True, services))
        await w.rest()
        assert sorted(updates(w)) == [(name, "n1") for name in "abc"]


@row("SN15")
async def test_an_update_in_progress_and_an_ensure_do_not_repeat_each_other() -> None:
    async with running_with(N1, service(name="a"), concurrent_service_syncs=1) as w:
        w.balancers.holds["a"] = asyncio.Event()
        w.cluster.put(N2)
        await until(lambda: updates(w), "the first update")
        w.cluster.put(N3)
        w.cluster.put(service(name="b"))
        w.balancers.holds.pop("a").set()
        await w.rest()
        assert [c for c in w.balancers.calls if c[1] == "b"] == [("ensure", "b", "n1", "n2", "n3")]
        assert updates(w) == [("a", "n1", "n2"), ("a", "n1", "n2", "n3")]


async def test_an_ensure_and_a_backend_update_of_one_service_never_overlap() -> None:
    async with running_with(N1, service()) as w:
        w.balancers.most_at_once = 0
        hold = w.balancers.holds["web"] = asyncio.Event()
        w.cluster.put(w.changed(spec(ports=[port(81)])))
        for number in range(2, 6):
            w.cluster.put(node(f"n{number}"))
            await asyncio.sleep(0.03)
        assert w.balancers.most_at_once == 1
        hold.set()
        w.balancers.holds.clear()
        await w.rest()
        assert w.balancers.most_at_once == 1
        assert len(updates(w)) == 1


async def test_a_balancer_deleted_by_hand_is_made_again_when_its_backends_change() -> None:
    async with running_with(service(), N1) as w:
        w.balancers.records.clear()
        await w.put(N2)
        await w.later()  # a list may lack it once
        (record,) = w.balancers.records.values()
        assert {name for name, _ in record.backends} == set(BOTH)
        assert await w.reported("Warning") == []


async def test_a_busy_balancer_gets_its_backends_exactly_when_it_said() -> None:
    async with running_with(service(), N1) as w:
        w.balancers.failures["update"] = [RetryAfter("at work", 3.0)]
        await w.put(N2)
        assert (KEY, 3.0) in w.queue.delays
        assert w.queue.failed == []
        await w.later()
        assert len(updates(w)) == 2
        assert await w.reported("Warning") == []


async def test_nodes_that_move_while_a_failed_update_waits_are_not_forgotten() -> None:
    async with running_with(service(), N1) as w:
        w.balancers.failures["update"] = [CloudError("boom")]
        await w.put(N2)
        w.cluster.put(N3)
        w.queue.ripen()
        w.cluster.remove("Node", "n3")
        await w.rest()
        await w.later()
        (record,) = w.balancers.records.values()
        assert {name for name, _ in record.backends} == set(BOTH)


async def test_twenty_names_are_shown_and_the_others_counted() -> None:
    several = [node(f"n{number:02}") for number in range(23)]
    async with running_with(service()) as w:
        w.balancers.failures["update"] = [CloudError("boom")]
        await w.put(*several)
        messages = [m for r, m in await w.reported() if r == "UpdateLoadBalancerFailed"]
        assert "n18 n19 <3 more>] [node names limited, total number of nodes: 23]" in messages[0]
