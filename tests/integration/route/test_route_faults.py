"""Whatever goes wrong, no right route goes, nobody else is held up, and people learn why."""

from collections.abc import Sequence

import pytest

from ccm.errors import (
    CloudError,
    Denied,
    KubernetesError,
    NotLeading,
    Refused,
    RetryAfter,
    Throttled,
)
from ccm.model.cloud import Route
from ccm.model.objects import Node
from tests.integration.route.cloud import outage
from tests.integration.route.world import World, successor, world
from tests.support.nodes import (
    SCHEME,
    changed,
    network_condition,
    recreated,
    routed,
    with_condition,
    with_pod_cidrs,
    with_provider_id,
)
from workers.route.controller import FULL_PASS
from workers.route.listing import Listing
from workers.route.steps import MOST_ROUTES
from workers.timings import Timings

pytestmark = pytest.mark.virtual_time

A4, B4, C4, D4 = (f"10.244.{number}.0/24" for number in range(4))
A6 = "fd00:244::/64"
COULD_NOT = "Could not create route uid-of-{0} {1} for node {0}: {2}"


def reported(w: World, name: str) -> tuple[str, str]:
    """Status and message of the condition."""
    condition = network_condition(w.cluster.node(name))
    return condition.get("status", ""), condition.get("message", "")


ANSWERS = [
    CloudError("500"),
    Denied("403"),
    Refused("400"),
    Throttled("429", 0.0),
    RetryAfter("busy", 0.0),
    ValueError("a bug of the provider"),
]


@pytest.mark.parametrize("failure", ANSWERS, ids=lambda failure: type(failure).__name__)
async def test_without_a_list_nothing_happens_and_then_everything_does(failure: Exception) -> None:
    async with world(routed("a", A4), routed("b", B4)) as w:
        w.cloud.put(C4, "x")
        w.cloud.answers["list"] = [failure]
        await w.settle()
        if FULL_PASS in w.failures:
            assert w.cloud.writes == w.cluster.writes == 0
            assert not w.results["a"].is_done
            assert not isinstance(w.failures[FULL_PASS], Refused)  # it would never be tried again
        await w.retry()
        assert w.cloud.routes == {A4: "a", B4: "b"}
        assert w.failures == {}
        assert w.results["a"].is_done


async def test_an_answer_that_a_proxy_kept_is_no_word_that_a_condition_was_written() -> None:
    async with world(routed("a", A4)) as w:
        w.cluster.kept = {1}
        await w.settle()
        assert "of before it" in str(w.failures["a"])
        await w.retry()
        assert reported(w, "a")[0] == "False"


async def test_a_failing_list_is_not_asked_for_by_every_node() -> None:
    there = [routed(f"n{n}", f"10.244.{n}.0/24") for n in range(50)]
    async with world(*there) as w:
        w.cloud.answers["list"] = outage(3)
        await w.settle()
        await w.retry()
        await w.retry()
        assert w.cloud.calls["list"] == 3
        await w.retry()
        assert len(w.cloud.routes) == 50


@pytest.mark.parametrize("left_out", [{A4}, {A4, B4, C4}], ids=["partial", "empty"])
@pytest.mark.parametrize("is_new", [True, False], ids=["a-new-process", "a-full-pass"])
async def test_a_list_that_leaves_routes_out_leads_to_no_write(
    left_out: set[str], is_new: bool
) -> None:
    there = [routed(name, cidr) for name, cidr in (("a", A4), ("b", B4), ("c", C4))]
    async with world(*there) as w:
        await w.settle()
        cloud, kube = w.cloud.writes, w.cluster.writes
        real, calls = w.cloud.list, w.cloud.calls["list"]

        async def partial(nodes):  # type: ignore[no-untyped-def]
            w.cloud.left_out = left_out if w.cloud.calls["list"] == calls else set()
            return await real(nodes)

        w.cloud.list = partial  # type: ignore[method-assign]
        if is_new:
            async with successor(w) as next_one:
                await next_one.settle()
        else:
            await w.full_pass()
        assert w.cloud.calls["list"] == calls + 2
        assert (w.cloud.writes, w.cluster.writes) == (cloud, kube)


async def test_a_list_of_more_routes_than_a_cluster_has_is_an_error() -> None:
    """A hundred thousand took five seconds of two turns, and each was a key to look at."""
    async with world(routed("a", A4), routed("b", B4)) as w:
        await w.settle()
        real = w.cloud.list

        async def many(nodes: Sequence[Node]) -> Sequence[Route]:
            found = await real(nodes)
            return [*found, *(Route(C4, "", f"made-up-{at}") for at in range(MOST_ROUTES))]

        w.cloud.list = many  # type: ignore[method-assign]
        await w.full_pass()
        assert "more than 15000 records" in str(w.failures[FULL_PASS])
        assert w.failures.keys() == {FULL_PASS}
        w.cloud.list = real  # type: ignore[method-assign]
        await w.retry()
        assert not w.failures
        assert w.cloud.routes == {A4: "a", B4: "b"}


async def test_a_list_that_always_leaves_a_route_out_costs_a_creation_that_finds_it() -> None:
    async with world(routed("a", A4), routed("b", B4)) as w:
        await w.settle()
        w.cloud.left_out = {A4}
        await w.full_pass()
        assert w.cloud.routes == {A4: "a", B4: "b"}
        assert w.cloud.calls["delete"] == 0
        assert reported(w, "a")[0] == "False"
        assert w.failures == {}


@pytest.mark.parametrize("makes_room", [True, False], ids=["a-node-leaves", "a-full-pass"])
async def test_a_full_table_is_reported_on_the_node_and_tried_when_there_is_room(
    makes_room: bool,
) -> None:
    async with world(routed("a", A4), routed("b", B4)) as w:
        w.cloud.most = 1
        await w.settle()
        full, fits = ("a", "b") if B4 in w.cloud.routes else ("b", "a")
        cidr = A4 if full == "a" else B4
        assert isinstance(w.failures[full], Refused)
        cause = "1 of 1 routes are used"
        assert reported(w, full) == (
            "True",
            f"RouteController failed to create a route: {cidr}: {cause}",
        )
        assert reported(w, fits)[0] == "False"
        event = (full, "FailedToCreateRoute", COULD_NOT.format(full, cidr, cause))
        assert await w.reported() == [event]
        assert w.controller.status()["refused"] == 1
        creates = w.cloud.calls["create"]
        assert creates == 2  # the echo of the condition did not lead to another one
        await w.retry()
        assert await w.reported() == [event]
        if makes_room:
            w.cluster.remove("Node", fits)
            await w.settle()
            assert w.cloud.routes == {cidr: full}
        else:
            w.cloud.most = 2
            await w.full_pass()
            assert w.cloud.routes == {A4: "a", B4: "b"}
        assert reported(w, full)[0] == "False"
        assert w.controller.status()["refused"] == 0


async def test_one_network_that_fails_does_not_hold_up_the_other_of_the_node() -> None:
    """The message names the latest cause."""
    async with world(routed("a", A4, A6)) as w:
        w.cloud.answers["create"] = outage()
        await w.settle()
        assert w.cloud.routes == {A6: "a"}
        assert reported(w, "a")[0] == "True"
        assert "500 from the cloud" in reported(w, "a")[1]
        assert isinstance(w.failures["a"], CloudError)
        w.cloud.answers["create"] = [Refused("50 of 50\n routes are used")]
        await w.retry()
        assert "50 of 50 routes are used" in reported(w, "a")[1]
        assert w.cluster.writes == 2
        await w.retry()
        assert w.cloud.routes == {A4: "a", A6: "a"}
        assert reported(w, "a")[0] == "False"
        assert w.cloud.calls["create"] == 4


@pytest.mark.parametrize("wait", [Throttled("429", 0.0), RetryAfter("busy", 0.0)])
async def test_having_to_wait_records_no_event(wait: Exception) -> None:
    async with world(routed("a", A4)) as w:
        w.cloud.answers["create"] = [wait, wait]
        await w.settle()
        assert w.cloud.routes == {A4: "a"}
        assert w.cluster.writes == 1
        assert await w.reported() == []


async def test_the_condition_waits_for_a_network_that_waits() -> None:
    async with world(routed("a", A4, A6)) as w:
        w.cloud.answers["create"] = [RetryAfter("busy", 0.0), *outage(), RetryAfter("busy", 0.0)]
        seen: list[str] = []
        w.cloud.before_call = lambda: seen.append(reported(w, "a")[0])
        await w.settle()
        await w.retry()
        assert w.cloud.routes == {A4: "a", A6: "a"}
        assert set(seen) == {""}
        assert reported(w, "a")[0] == "False"


async def test_a_deletion_that_fails_is_tried_again_and_holds_up_no_one() -> None:
    async with world(routed("a", A4), routed("b", B4)) as w:
        w.cloud.put(C4, "x")
        w.cloud.put(D4, "y")
        w.cluster.put(routed("c", C4))
        w.cloud.answers["delete"] = outage(2)
        await w.settle()
        assert w.cloud.routes == {A4: "a", B4: "b", C4: "x", D4: "y"}
        assert set(w.failures) == {"c", f"route {D4}"}
        assert reported(w, "c")[0] == "True"
        await w.retry()
        assert w.cloud.routes == {A4: "a", B4: "b", C4: "c"}
        assert reported(w, "c")[0] == "False"
        assert w.cloud.calls["list"] == 1


async def test_a_pod_cidr_that_is_not_a_network_is_one_event_and_holds_up_nothing() -> None:
    async with world(routed("a", "banana", A6), routed("b", B4)) as w:
        await w.settle()
        assert w.cloud.routes == {A6: "a", B4: "b"}
        cause = "it is not a network"
        assert reported(w, "a") == (
            "True",
            f"RouteController failed to create a route: banana: {cause}",
        )
        await w.full_pass()
        message = COULD_NOT.format("a", "banana", cause)
        assert await w.reported() == [("a", "FailedToCreateRoute", message)]
        assert not w.results["a"].is_done
        assert w.failures == {}
        w.cluster.put(changed(w.cluster.node("a"), with_pod_cidrs("banana")))
        await w.full_pass()
        assert w.cloud.routes == {A6: "a", B4: "b"}, "what leads to it is kept"


async def test_what_a_write_answers_beside_the_condition_is_a_change_as_any_other() -> None:
    async with world(routed("a", A4), routed("b", A4)) as w:
        await w.settle()
        assert w.cloud.routes == {A4: "a"}
        other = with_pod_cidrs(B4)
        w.cluster.before_write = lambda: w.cluster.put(changed(w.cluster.node("a"), other))
        w.cluster.put(changed(w.cluster.node("a"), with_condition("False", "CalicoIsUp")))
        await w.settle()
        assert w.cloud.routes == {A4: "b", B4: "a"}
        assert reported(w, "b")[0] == "False"


@pytest.mark.parametrize("status", [409, 422, 500])
async def test_a_condition_that_cannot_be_written_is_written_later(status: int) -> None:
    async with world(routed("a", A4)) as w:
        w.cluster.failures = [KubernetesError(status, "No", "no", None)]
        await w.settle()
        assert set(w.failures) == {"a"}
        await w.retry()
        assert reported(w, "a")[0] == "False"
        assert w.cloud.calls["create"] == 1


async def test_a_condition_that_the_api_server_refuses_is_not_hurried_by_full_passes() -> None:
    async with world(routed("a", A4)) as w:
        denial = KubernetesError(403, "Forbidden", "a policy says no", None)
        w.cluster.failures = [denial] * 5
        await w.settle()
        assert w.failures == {"a": denial}
        tries = w.cluster.tries
        await w.full_pass()
        assert w.cluster.tries == tries
        w.cloud.routes.clear()  # there is something else to do for it
        await w.full_pass()
        assert w.cloud.routes == {A4: "a"}
        w.cluster.failures = []
        await w.retry()
        assert reported(w, "a")[0] == "False"


async def test_without_permission_nothing_is_written() -> None:
    async with world(routed("a", A4)) as w:
        w.permission.renew(0.0)
        await w.settle()
        assert isinstance(w.failures["a"], NotLeading)
        assert w.cloud.writes == w.cluster.writes == 0
        w.permission.renew(float("inf"))
        await w.retry()
        assert w.cloud.routes == {A4: "a"}


async def test_a_creation_that_was_done_but_not_answered_is_adopted() -> None:
    async with world(routed("a", A4)) as w:
        await w.settle()
        w.cloud.put(B4, "b")  # the table in the worker does not have it
        w.cluster.put(routed("b", B4))
        await w.settle()
        assert w.cloud.routes == {A4: "a", B4: "b"}
        assert reported(w, "b")[0] == "False"
        w.cluster.put(routed("c", C4))
        w.cloud.answers["create"] = outage()
        await w.settle()
        w.cloud.put(C4, "c")  # the call that failed was performed
        created = w.cloud.calls["create"]
        await w.full_pass()
        assert w.cloud.calls["create"] == created, "the list shows it"
        assert reported(w, "c")[0] == "False"


@pytest.mark.parametrize("is_back", [False, True], ids=["gone", "back-with-another-network"])
async def test_a_route_that_was_made_without_an_answer_goes_with_its_node(is_back: bool) -> None:
    async with world(routed("a", A4), routed("b", B4)) as w:
        await w.settle()
        w.cluster.put(routed("c", C4))
        w.cloud.answers["create"] = outage()
        await w.settle()
        w.cloud.put(C4, "c")  # the call that failed was performed
        w.cluster.remove("Node", "c")
        if is_back:
            w.cluster.put(routed("c", A6, tweaks=(recreated,)))
        await w.settle()
        assert w.cloud.routes == {A4: "a", B4: "b"} | ({A6: "c"} if is_back else {})


@pytest.mark.parametrize("is_listing", [False, True], ids=["at-rest", "while-routes-are-listed"])
async def test_a_node_that_comes_back_on_another_machine_gets_its_network_there(
    is_listing: bool,
) -> None:
    """Same name and network, and nothing in between was seen; the machine was replaced."""
    another = routed("a", A4, tweaks=(recreated, with_provider_id(f"{SCHEME}://a2")))
    async with world(routed("a", A4), routed("b", B4)) as w:
        await w.settle()
        reported_before: list[tuple[str, str]] = []
        w.cloud.before_call = lambda: reported_before.append(reported(w, "a"))
        real = w.cloud.list

        async def meanwhile(nodes: Sequence[Node]) -> Sequence[Route]:
            w.cloud.list = real  # type: ignore[method-assign]
            found = await real(nodes)
            w.cluster.put(another)
            w.feed()
            return found

        if is_listing:
            w.cloud.list = meanwhile  # type: ignore[method-assign]
            await w.full_pass()
        else:
            w.cluster.put(another)
            await w.settle()
            assert reported_before == [("", "")] * 2
        assert w.cloud.routes == {A4: "a2", B4: "b"}
        assert reported(w, "a")[0] == "False"


def test_lists_that_nodes_ask_for_keep_their_distance() -> None:
    scheduled: list[float] = []
    asked = Listing(scheduled.append, Timings())
    asked.ask("a")
    asked.ask("b")
    asked.begin()
    asked.ask("c")
    assert asked.end() == {"a", "b", "c"}
    asked.ask("d")
    first, second = scheduled
    assert first == 0.0
    assert 9.0 < second <= 10.0


def test_a_list_covers_the_changes_before_it() -> None:
    asked = Listing(lambda _: None, Timings())
    asked.changed("a")
    assert not asked.covers("a")
    asked.begin()
    asked.changed("b")
    asked.end()
    assert asked.covers("a", "nobody")
    assert not asked.covers("a", "b")
