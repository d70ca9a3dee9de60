"""What one sync of a Service does to the cluster and the cloud (rows SV…)."""

import asyncio
from dataclasses import replace

import pytest

from ccm.decide.budget import Priority
from ccm.errors import (
    CloudError,
    Denied,
    ImplementedElsewhere,
    KubernetesError,
    Refused,
    RetryAfter,
    Throttled,
)
from ccm.model.cloud import IpMode
from ccm.model.service import FINALIZER
from tests.support.context import TIMINGS
from tests.support.nodes import Tweak
from tests.support.rows import row
from tests.support.waiting import until

from .cloud import Record
from .objects import (
    KEY,
    being_deleted,
    finalized,
    node,
    port,
    service,
    spec,
    typed,
    with_status,
)
from .world import World, running, running_with

pytestmark = pytest.mark.virtual_time


async def with_balancer(*tweaks: Tweak) -> World:
    """A cluster and a cloud as an earlier start left them: one Service with its balancer."""
    async with running_with(service(), node("n1")) as w:
        pass
    w.cluster.on_change = lambda *_: None
    w.cluster.put(w.changed(*tweaks))
    return w.restarted()


@pytest.mark.parametrize(
    "tweak",
    [pytest.param(typed("ClusterIP"), id="SV3"), pytest.param(being_deleted, id="SV4")],
)
async def test_a_balancer_comes_and_goes_with_two_patches_each(tweak: Tweak) -> None:
    async with running_with(service(), node("n1")) as w:
        assert w.balancers.calls == [("ensure", "web", "n1")]
        assert w.written == ["finalizers", "loadBalancer"]
        assert w.service().finalizers == [FINALIZER]
        assert w.service().ingress == [{"ip": "192.0.2.1"}]
        assert await w.reported() == [
            ("EnsuringLoadBalancer", "Ensuring load balancer"),
            ("EnsuredLoadBalancer", "Ensured load balancer"),
        ]
    async with running(await with_balancer(tweak)) as w:
        assert w.balancers.calls == [("delete", "web")] * 2
        assert w.balancers.records == {}
        # The status goes first: a crash in between leaves the finalizer, which leads back here.
        assert w.written == ["loadBalancer", "finalizers"]
        assert await w.reported() == [
            ("DeletingLoadBalancer", "Deleting load balancer"),
            ("DeletedLoadBalancer", "Deleted load balancer"),
        ]
        if tweak is being_deleted:
            assert ("Service", KEY) not in w.cluster.objects
        else:
            assert (w.service().finalizers, w.service().ingress) == ([], [])
        assert w.controller.status()["load_balancers"] == 0


async def test_what_a_provider_has_others_read_costs_no_write_and_no_call_more() -> None:
    """CT7: as the address behind a host name."""
    async with running_with(node("n1")) as w:
        w.balancers.annotations = {"cloud.example/address": "192.0.2.1"}
        await w.put(service())
        assert w.service().annotations == w.balancers.annotations
        assert w.service().ingress == [{"ip": "192.0.2.1"}]
        assert (len(w.cluster.patches), w.balancers.calls) == (2, [("ensure", "web", "n1")])
    async with running(w.restarted()) as w:
        assert w.written == []


@pytest.mark.parametrize(
    ("failure", "reason", "words"),
    [
        # Deliberate difference: a conflict is a race, and no news.
        pytest.param(KubernetesError(409, "Conflict", "it changed", None), "", "", id="SV5"),
        pytest.param(
            KubernetesError(403, "Forbidden", "the webhook says no", None),
            "WriteRefused",
            "the webhook says no",
            id="refused",
        ),
        pytest.param(
            KubernetesError(500, "InternalError", "etcd", None),
            "SyncLoadBalancerFailed",
            "failed to update load balancer status: the API server answered 500",
            id="failed",
        ),
        pytest.param(
            KubernetesError(404, "Not Found", "404 page not found", None),
            "SyncLoadBalancerFailed",
            "the API server answered 404",
            id="a proxy's",
        ),
        pytest.param(
            KubernetesError(404, "NotFound", 'endpoints "b" not found', None),
            "",
            "",
            id="about another object",
        ),
    ],
)
async def test_a_status_that_could_not_be_written_is_reported_and_written_later(
    failure: KubernetesError, reason: str, words: str
) -> None:
    w = World(service(finalized), node("n1"))
    w.cluster.failures = [failure]
    async with running(w):
        await w.rest()
        reported = await w.reported("Warning")
        assert [why for why, _ in reported] == ([reason] if reason else [])
        assert all(words in message for _, message in reported)
        await w.later()
        assert w.service().ingress
    assert len(w.balancers.named("ensure")) == 1


@pytest.mark.parametrize("former", [(), ("203.0.113.9",)])
async def test_an_answer_that_a_proxy_kept_is_no_word_that_a_status_was_written(
    former: tuple[str, ...],
) -> None:
    """Nodes would lead clients to an address that may be another's, until the next comparison."""
    w = World(service(finalized, with_status(*former)), node("n1"))
    w.cluster.kept = {1}
    async with running(w):
        await w.later()
        assert w.service().ingress == [{"ip": "192.0.2.1"}]


@pytest.mark.parametrize(
    "key", [pytest.param("invalid/key/string", id="SV6"), pytest.param("a/b", id="SV7")]
)
async def test_a_key_without_a_service_is_no_work(key: str) -> None:
    """SV6 is a deliberate difference: a key that cannot exist is not retried for ever."""
    w = World()
    result = await w.controller.reconcile(key)
    assert (result.message, result.is_done) == ("not found", True)
    assert w.balancers.calls == []


@row("SV8")
async def test_a_failed_deletion_is_remembered_and_tried_again() -> None:
    async with running_with(service(), node("n1")) as w:
        w.balancers.failures["delete"] = [CloudError("boom")]
        await w.remove("Service", KEY)
        assert w.balancers.named("delete") == [("delete", "web")]
        assert w.queue.failed == [KEY]
        assert w.controller.status()["load_balancers"] == 1
        failed = ("DeleteLoadBalancerFailed", "Error deleting load balancer: boom")
        assert await w.reported("Warning") == [failed]
        await w.later()
        assert w.balancers.records == {}
        assert w.controller.status()["load_balancers"] == 0


@pytest.mark.parametrize(
    ("failures", "failed", "delay"),
    [
        pytest.param([], 0, None, id="SV9"),
        pytest.param([CloudError("boom")], 1, 5.0, id="SV10"),
        pytest.param([RetryAfter("at work", 42.0)], 0, 42.0, id="SV11"),
        pytest.param([Throttled("slow down", 7.0)], 0, 7.0, id="throttled"),
        pytest.param([Throttled("slow down", None)], 0, 1.0, id="throttled-without-a-word"),
    ],
)
async def test_when_a_sync_is_tried_again(
    failures: list[Exception], failed: int, delay: float | None
) -> None:
    async with running_with(service(), node("n1"), ensure=failures) as w:
        assert len(w.queue.failed) == failed
        short = [seconds for _, seconds in w.queue.delays if seconds < 600]
        assert short == ([delay] if delay else [])
        warnings = await w.reported("Warning")
        message = "Error syncing load balancer: failed to ensure load balancer: boom"
        assert warnings == ([("SyncLoadBalancerFailed", message)] if failed else [])
        assert bool(w.service().ingress) is (delay is None)
        assert len(w.balancers.named("ensure")) == 1  # the echo of our own patch is no reason
        await w.later()
        assert w.service().ingress


async def test_back_off_is_upstreams_up_to_a_minute_and_retry_after_leaves_it_alone() -> None:
    w = World(service(), node("n1"))
    boom = CloudError("boom")
    plan = [boom, boom, RetryAfter("at work", 7.0), *[boom] * 6]
    w.balancers.failures["ensure"] = list(plan)
    async with running(w):
        for _ in plan:
            await w.later()
        short = [seconds for _, seconds in w.queue.delays if seconds < 600]
        assert short == [5, 10, 7.0, 20, 40, 60, 60, 60, 60]


@row("SV17")
async def test_what_has_a_balancer_is_remembered_until_it_is_gone() -> None:
    async with running_with(node("n1")) as w:
        await w.put(service())
        assert w.controller.status()["load_balancers"] == 1
        await w.put(service(name="other"))
        assert w.controller.status()["load_balancers"] == 2
        for key in (KEY, "default/other"):
            await w.put(w.changed(being_deleted, key=key))
        assert w.controller.status()["load_balancers"] == 0
        assert w.balancers.records == {}


async def test_a_change_is_ensured_once_and_a_repetition_not_at_all() -> None:
    async with running_with(service(), node("n1")) as w:
        for _ in range(3):
            await w.put(w.service())
        assert len(w.balancers.named("ensure")) == 1
        await w.change(spec(ports=[port(80), port(443)]))
        assert len(w.balancers.named("ensure")) == 2


async def test_a_type_that_changes_back_gets_a_new_balancer() -> None:
    async with running_with(service(), node("n1")) as w:
        for kind in ("NodePort", "LoadBalancer"):
            await w.change(typed(kind))
        assert [call[0] for call in w.balancers.calls] == ["ensure", "delete", "delete", "ensure"]
        assert w.service().has_finalizer
        assert len(w.balancers.records) == 1


async def test_a_finalizer_that_someone_removed_comes_back() -> None:
    async with running_with(service(), node("n1")) as w:
        await w.change(lambda raw: raw["metadata"].update(finalizers=[]))
        assert w.service().has_finalizer
        assert len(w.balancers.named("ensure")) == 1


@pytest.mark.parametrize("failure", [CloudError("boom"), Refused("no such subnet")])
async def test_a_load_balancer_that_is_right_again_is_reported_after_a_failure(
    failure: Exception,
) -> None:
    """A check that finds nothing wrong says nothing, else; but the last Event would be wrong."""
    w = await with_balancer()
    w.balancers.failures["ensure"] = [failure]
    async with running(w):
        await w.later()
        assert (await w.reasons())[0] == "SyncLoadBalancerFailed"
        await asyncio.sleep(TIMINGS.refusal_retry_period)
        await w.later()
        said = await w.reasons()
        assert said[-1] == "EnsuredLoadBalancer"
        await asyncio.sleep(TIMINGS.balancer_resync_period)
        await w.later()
        assert len(w.balancers.named("ensure")) == 3
        assert await w.reasons() == said


async def test_a_load_balancer_that_lacks_a_backend_is_published_and_gets_it_later() -> None:
    """The cloud takes all but one, as of a machine that is locked: clients come to the others."""
    w = World(service(), node("n1"), node("n2"))
    w.balancers.lacking = "n2 is locked"
    w.balancers.failures["update"] = [CloudError("n2 is locked")]
    async with running(w):
        assert w.service().ingress == [{"ip": "192.0.2.1"}]
        await w.later()
        assert (await w.reasons())[-1] == "UpdateLoadBalancerFailed"
        for _ in range(3):
            await w.later()
        assert [operation for operation, *_ in w.balancers.calls] == ["ensure", "update", "update"]


async def test_a_status_that_someone_cleared_is_written_again_without_asking_the_cloud() -> None:
    async with running_with(service(), node("n1")) as w:
        await w.change(with_status())
        assert w.service().ingress
        assert len(w.balancers.calls) == 1


@pytest.mark.parametrize("mode", list(IpMode))
async def test_the_ip_mode_of_the_provider_is_in_the_status(mode: IpMode) -> None:
    w = World(service())
    w.balancers.ip_mode = mode
    async with running(w):
        assert w.service().ingress == [{"ip": "192.0.2.1", "ipMode": str(mode)}]


async def test_a_balancer_that_another_controller_looks_after() -> None:
    async with running_with(service(), node("n1"), ensure=[ImplementedElsewhere("there")]) as w:
        assert w.service().has_finalizer
        assert not w.service().ingress
        assert await w.reasons() == ["EnsuringLoadBalancer"]
        w.balancers.failures["update"] = [ImplementedElsewhere("there")]
        await w.put(node("n2"))
        assert await w.reasons() == ["EnsuringLoadBalancer"]
        w.balancers.failures["delete"] = [ImplementedElsewhere("there")]
        await w.change(typed("ClusterIP"))
        assert not w.service().has_finalizer


async def test_cleanup_waits_exactly_as_long_as_the_cloud_says() -> None:
    w = await with_balancer(being_deleted)
    w.balancers.failures["delete"] = [RetryAfter("still deleting", 42.0)]
    async with running(w):
        assert w.queue.delays == [(KEY, 42.0)]
        assert w.queue.failed == []
        assert w.service().has_finalizer
        await w.later()
        assert ("Service", KEY) not in w.cluster.objects
        assert await w.reported("Warning") == []


@pytest.mark.parametrize("failure", [CloudError("boom"), Denied("no"), ValueError("a bug")])
async def test_a_failed_cleanup_is_an_event_and_keeps_the_finalizer(failure: Exception) -> None:
    w = await with_balancer(typed("ClusterIP"))
    w.balancers.failures["delete"] = [failure]
    async with running(w):
        assert w.service().has_finalizer
        assert w.queue.failed == [KEY]
        ((reason, message),) = await w.reported("Warning")
        assert reason == "SyncLoadBalancerFailed"
        assert "Error syncing load balancer: failed to delete load balancer: " in message


async def test_without_permission_neither_cluster_nor_cloud_is_changed() -> None:
    w = World(service(finalized))
    w.permission.renew(0.0)
    w.connect()
    with pytest.raises(Exception, match="may not act now"):
        await w.controller.reconcile(KEY)
    assert (w.balancers.calls, w.cluster.writes) == ([], 0)


async def test_what_was_half_made_when_the_service_disappeared_is_taken_away() -> None:
    w = World(service(), node("n1"))

    def fail_halfway() -> None:
        if w.balancers.records:
            raise CloudError("boom")

    w.balancers.before_write = fail_halfway
    async with running(w):
        assert len(w.balancers.records) == 1
        assert w.queue.failed == [KEY]
        w.balancers.before_write = lambda: None
        await w.remove("Service", KEY)
        assert w.balancers.records == {}


async def test_a_change_during_a_call_that_says_wait_is_taken_up_at_once() -> None:
    async with running_with(node("n1")) as w:
        hold = w.balancers.holds["web"] = asyncio.Event()
        w.balancers.failures["ensure"] = [RetryAfter("at work", 42.0)]
        w.cluster.put(service())
        await until(lambda: w.balancers.calls, "the call")
        w.cluster.put(w.changed(spec(ports=[port(443)])))
        hold.set()
        await w.rest()
        (record,) = w.balancers.records.values()
        assert record.asked
        assert record.asked["ports"] == [port(443)]


async def test_deletions_go_before_changes_and_changes_before_comparisons() -> None:
    w = await with_balancer()
    w.balancers.priorities.clear()
    async with running(w):
        await w.put(node("n2"))
        await w.change(spec(ports=[port(443)]))
        await w.change(being_deleted)
    assert w.balancers.priorities == [
        ("ensure", Priority.REFRESH),
        ("update", Priority.LB_ENSURE),
        ("ensure", Priority.LB_ENSURE),
        ("delete", Priority.LB_DELETE),
        ("delete", Priority.LB_DELETE),
    ]


@pytest.mark.parametrize("is_refused", [False, True])
async def test_an_address_is_reported_before_the_nodes_that_came_meanwhile_and_holds_none_up(
    is_refused: bool,
) -> None:
    """Nodes may go on coming faster than the budget allows updates."""
    async with running_with(node("n1"), service(name="other")) as w:
        made = w.balancers.holds["web"] = asyncio.Event()
        w.cluster.put(service())
        await until(lambda: ("ensure", "web", "n1") in w.balancers.calls, "it is made")
        w.cluster.put(node("n2"))
        await until(
            lambda: ("update", "other", "n1", "n2") in w.balancers.calls, "the node is taken in"
        )
        if is_refused:
            w.cluster.failures = [KubernetesError(500, "InternalError", "boom", None)]
        w.balancers.holds["web"] = asyncio.Event()
        made.set()
        if is_refused:
            await until(lambda: w.queue.failed, "the status is refused")
            w.queue.ripen()
        await until(
            lambda: ("update", "web", "n1", "n2") in w.balancers.calls,
            "its backends are to be updated",
        )
        assert bool(w.service().ingress) is not is_refused
        w.balancers.holds.pop("web").set()
        await w.rest()
        assert w.service().ingress


async def test_a_comparison_is_in_the_log_when_it_did_something(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_with(service(), node("n1")) as w:
        name, record = next(iter(w.balancers.records.items()))
    caplog.set_level("INFO")
    caplog.clear()  # whatever the level was before
    async with running(w.restarted()) as w:
        pass
    assert not [one for one in caplog.records if one.message.startswith("load balancer")]
    w.balancers.records[name] = replace(record, asked=None)  # as someone changed it by hand
    async with running(w.restarted()):
        pass
    (reported,) = [vars(one) for one in caplog.records if one.message.startswith("load balancer")]
    assert (reported["message"], reported["calls"]) == (
        "load balancer updated",
        ["UpdateLoadBalancer"],
    )


async def test_what_was_done_to_balancers_is_in_the_log_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with running_with(service(), node("n1")) as w:
        await w.put(node("n2"))
        await w.change(spec(ports=[port(81)]))
        await w.later()
        await w.change(being_deleted)
    reported = [vars(one) for one in caplog.records if one.message.startswith("load balancer")]
    assert [
        (one["message"].removeprefix("load balancer "), one.get("backends")) for one in reported
    ] == [
        ("created", 1),
        ("has new backends", 2),
        ("updated", 2),
        ("deleted", None),
    ]
    assert {one["service"] for one in reported} == {KEY}
    assert all(one["seconds"] >= 0 for one in reported)
    assert reported[0]["addresses"]


async def test_a_service_that_is_typed_back_during_its_deletion_gets_a_balancer_again() -> None:
    """A deletion of several steps has begun: what was applied before is not there any more."""
    async with running_with(service(), node("n1")) as w:
        w.balancers.failures["delete"] = [RetryAfter("it is being deleted", 1.0)]
        await w.change(typed("ClusterIP"))
        w.balancers.records.clear()  # the cloud is done
        await w.change(typed("LoadBalancer"))
        await w.later()
        assert w.balancers.of(w.service())


@pytest.mark.parametrize("is_at_work", [False, True])
async def test_who_publishes_an_address_that_another_gets_is_compared_at_once(
    is_at_work: bool,
) -> None:
    """It may be the other's alone by then, and nodes would lead its clients to either."""
    async with running_with(service(), node("n1")) as w:
        (ingress,), other, hold = w.service().ingress, service(name="other"), asyncio.Event()
        if is_at_work:
            w.balancers.holds["web"] = hold
            w.cluster.put(w.changed(spec(ports=[port(81)])))
            await until(lambda: len(w.balancers.named("ensure")) == 2, "its answer is under way")
        records, name_for = w.balancers.records, w.balancers.name_for
        records[name_for(other)] = Record(other.uid, ingress["ip"])
        records[name_for(w.service())] = Record(w.service().uid, "192.0.2.9")
        w.cluster.put(other)
        await until(lambda: w.service("default/other").ingress == [ingress], "it has the address")
        hold.set()
        await w.rest()
        assert w.service().ingress == [{"ip": "192.0.2.9"}]
        asked = [name for _, name, *_ in w.balancers.named("ensure")]
        assert asked == ["web", *(["web"] if is_at_work else []), "other", "web"]
