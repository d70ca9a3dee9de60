"""Services that cannot have what they ask for: one clear Event, and no storm of retries."""

import logging
from dataclasses import replace

import pytest

from ccm.errors import (
    NoRoom,
    Refused,
)
from ccm.model.objects import Json
from ccm.model.service import PROXY_NAME, SOURCE_RANGES, UNPROXIED, Feature, Service
from ccm.settings import Settings
from tests.support.nodes import Tweak, labelled
from workers.performer import REVERTS
from workers.service.plan import Capabilities

from .objects import (
    KEY,
    annotated,
    being_deleted,
    finalized,
    node,
    of_namespace,
    port,
    service,
    spec,
)
from .world import World, running, running_with

pytestmark = pytest.mark.virtual_time

N1 = node("n1")
ALL, NONE = frozenset(Feature), frozenset[Feature]()
HOSTILE = "default/hostile"
RANGES = spec(loadBalancerSourceRanges=["10.0.0.0/8"])
INVALID_RANGES = spec(loadBalancerSourceRanges=["10.0.0.0/33"])


@pytest.mark.parametrize(
    ("tweak", "features", "words"),
    [
        (
            INVALID_RANGES,
            ALL,
            ["spec.loadBalancerSourceRanges", "10.0.0.0/33", "for example 10.0.0.0/24"],
        ),
        (annotated({SOURCE_RANGES: "everybody"}), ALL, [SOURCE_RANGES, "everybody"]),
        (RANGES, NONE, ["cannot do source ranges", "remove spec.loadBalancerSourceRanges"]),
        (
            spec(ports=[port(53), port(53, "UDP")]),
            frozenset({Feature.UDP}),
            ["cannot do TCP and UDP on one load balancer", "a Service of its own"],
        ),
        (spec(ports=[port(53, "UDP")]), NONE, ["cannot do UDP", "use TCP"]),
        (spec(sessionAffinity="ClientIP"), NONE, ["set spec.sessionAffinity"]),
        (spec(loadBalancerIP="192.0.2.1"), NONE, ["remove spec.loadBalancerIP"]),
        (
            spec(ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="RequireDualStack"),
            NONE,
            ["set spec.ipFamilyPolicy"],
        ),
    ],
)
async def test_what_is_not_supported_is_refused_before_anything_is_made(
    tweak: Tweak, features: frozenset[Feature], words: list[str]
) -> None:
    w = World(service(tweak), N1)
    w.controller._capabilities = Capabilities((), features)
    async with running(w):
        for _ in range(3):
            await w.later()
            await w.put(w.service(), node("n2"))
        ((reason, message),) = await w.reported()
        assert reason == "SyncLoadBalancerFailed"
        assert message.startswith("Error syncing load balancer: ")
        assert all(word in message for word in words)
        assert (w.balancers.calls, w.cluster.writes) == ([], 0)
        assert w.queue.failed == []
        await w.put(service())
        assert w.service().ingress


async def test_what_the_cloud_refuses_is_one_event_and_not_tried_until_something_changes() -> None:
    async with running_with(service(), N1, ensure=[Refused("port 80 is taken")] * 2) as w:
        for _ in range(3):
            await w.later()
            await w.put(w.service())
        assert len(w.balancers.named("ensure")) == 1
        ((reason, message),) = await w.reported("Warning")
        assert reason == "SyncLoadBalancerFailed"
        assert "failed to ensure load balancer: port 80 is taken" in message
        assert w.queue.failed == []
        await w.put(node("n2"))
        assert len(w.balancers.named("ensure")) == 2
        await w.change(spec(ports=[port(81)]))
        assert w.service().ingress


@pytest.mark.parametrize("by_cloud", [True, False])
async def test_a_rejected_load_balancer_reports_no_backends(by_cloud: bool) -> None:
    why = "no quota is left" if by_cloud else "cannot do source ranges"
    refused = service() if by_cloud else service(RANGES)
    w = World(refused, N1, ensure=[Refused(why)] * 9 if by_cloud else [])
    w.controller._capabilities = Capabilities((), ALL if by_cloud else NONE)
    async with running(w):
        await w.put(node("n2"))
        await w.later()
        reported = w.controller.details(KEY)
        assert why in reported["refused"]
        assert not {"current backends", "desired backends"} & reported.keys()
        shown = w.controller.status()["services"]
        assert [(one["state"], one["backends"]) for one in shown] == [("refused", 0)]
        w.balancers.failures["ensure"] = []
        await w.change(spec(ports=[port(81)], loadBalancerSourceRanges=None))
        assert w.controller.details(KEY)["current backends"] == "n1, n2"
        assert "refused" not in w.controller.details(KEY)


async def test_the_log_tells_why_a_balancer_is_not_made_and_not_that_it_has_no_backends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        async with running_with(service(), N1, ensure=[Refused("no quota is left")] * 9) as w:
            await w.put(node("n2"))
            await w.later()
    assert len(w.balancers.named("ensure")) == 2
    assert len(w.balancers.calls) > 2
    assert "new backends refused" not in caplog.messages


async def test_a_refused_service_that_wants_no_balancer_any_more_is_not_refused() -> None:
    w = World(service(RANGES), N1)
    w.controller._capabilities = Capabilities((), NONE)
    async with running(w):
        assert "refused" in w.controller.details(KEY)
        await w.change(spec(type="ClusterIP"))
        assert "refused" not in w.controller.details(KEY)


async def test_what_has_no_effect_is_one_event_until_it_is_something_else() -> None:
    w = World(N1)
    w.balancers.warnings = ("annotation a is ignored: it is empty", "annotation b is ignored: why")
    async with running(w):
        await w.put(service())
        for number in (81, 82):
            await w.change(spec(ports=[port(number)]))
            await w.later()
        reported = ("LoadBalancerWarning", "; ".join(w.balancers.warnings))
        assert w.controller.details(KEY)["warnings"] == reported[1]
        assert await w.reported("Warning") == [reported]
        assert w.service().ingress
        w.balancers.warnings = w.balancers.warnings[:1]
        await w.change(spec(ports=[port(83)]))
        assert await w.reported("Warning") == [reported, (reported[0], w.balancers.warnings[0])]
        w.balancers.warnings = ()
        await w.change(spec(ports=[port(84)]))
        assert len(await w.reported("Warning")) == 2
        assert "warnings" not in w.controller.details(KEY)


async def test_the_place_of_a_balancer_that_went_is_for_the_service_that_had_no_room_first() -> (
    None
):
    w = World(ensure=[Refused("port 80 is taken")])
    w.balancers.most = 1
    async with running(w):
        for name in ("hopeless", "web", "second", "third"):
            await w.put(service(name=name))
        await w.change(being_deleted)
        assert w.service("default/second").ingress
        assert not w.service("default/third").ingress
        asked = [name for _, name, *_ in w.balancers.named("ensure")]
        assert asked == ["hopeless", "web", "second", "third", "second", "third"]
        assert w.queue.failed == []


async def test_who_never_has_room_keeps_no_other_namespace_from_the_place_of_a_balancer() -> None:
    w = World()
    w.balancers.most = 1
    async with running(w):
        await w.put(service())
        for name in ("first", "second", "third"):
            await w.put(service(of_namespace("hostile"), name=name))
        await w.put(service(name="honest"))
        w.balancers.failures["ensure"] = [NoRoom("more rules than there is room for")]
        await w.change(being_deleted)
        assert w.service("default/honest").ingress


async def test_the_deletion_of_what_never_was_there_has_no_one_tried_again() -> None:
    """A tenant may add our finalizer to any Service, again and again."""
    w = World()
    w.balancers.most = 0
    async with running(w):
        await w.put(service())
        tries = len(w.balancers.named("ensure"))
        await w.put(service(spec(type="ClusterIP"), finalized, name="hostile"))
        assert w.balancers.named("delete")
        assert len(w.balancers.named("ensure")) == tries


async def test_who_finds_that_there_is_room_again_gives_the_next_its_turn() -> None:
    w = World()
    w.balancers.most = 0
    async with running(w):
        for name in ("web", "second", "third"):
            await w.put(service(name=name))
        w.balancers.most = 3
        await w.put(service(annotated({"try": "again"})))
        assert all(w.service(f"default/{name}").ingress for name in ("web", "second", "third"))


@pytest.mark.parametrize("by_cloud", [True, False])
async def test_a_refused_change_leaves_what_there_is_and_its_backends_stay_right(
    by_cloud: bool,
) -> None:
    async with running_with(service(), N1) as w:
        if by_cloud:
            w.balancers.failures["ensure"] = [Refused("no")] * 5
        else:
            w.controller._capabilities = Capabilities((), NONE)
        await w.change(RANGES)
        await w.put(node("n2"))
        (record,) = w.balancers.records.values()
        assert {name for name, _ in record.backends} == {"n1", "n2"}
        assert record.asked
        assert not record.asked["loadBalancerSourceRanges"]
        assert w.service().ingress
        assert [reason for reason, _ in await w.reported("Warning")] == ["SyncLoadBalancerFailed"]


@pytest.mark.parametrize("by_cloud", [True, False])
async def test_ports_that_a_refused_service_gave_up_are_closed_once_where_that_is_possible(
    by_cloud: bool,
) -> None:
    async with running_with(service(spec(ports=[port(22), port(80)])), N1) as w:
        if by_cloud:
            w.balancers.failures["ensure"] = [Refused("no")] * 5
        else:
            w.controller._capabilities = Capabilities((), NONE)
        w.balancers.calls.clear()
        await w.change(spec(ports=[port(80)], loadBalancerSourceRanges=["10.0.0.0/8"]))
        await w.change(annotated({"a": "b"}))
        assert len(w.balancers.named("update")) == 1


@pytest.mark.parametrize("takes_nodes", [True, False])
async def test_ports_that_a_service_gives_up_that_was_refused_since_a_restart_are_closed(
    takes_nodes: bool,
) -> None:
    async with running_with(service(spec(ports=[port(22), port(80)])), N1) as before:
        pass
    w = before.restarted()
    w.balancers.failures["ensure"] = [Refused("no")] * 9
    w.balancers.failures["update"] = [] if takes_nodes else [Refused("no room")] * 9
    async with running(w):
        await w.change(annotated({"a": "b"}))
        w.balancers.calls.clear()
        await w.change(spec(ports=[port(80)]))
        await w.change(annotated({"a": "c"}))
        assert len(w.balancers.named("update")) == 1


async def test_ports_that_a_change_may_have_opened_before_it_failed_are_closed() -> None:
    async with running_with(service(), N1) as w:
        w.balancers.failures["ensure"] = [Refused("no room for a health check")] * 9
        await w.change(spec(ports=[port(22), port(80)]))
        w.balancers.calls.clear()
        await w.change(spec(ports=[port(80)]))
        assert len(w.balancers.named("update")) == 1


@pytest.mark.parametrize("is_refused", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
async def test_who_takes_the_finalizer_away_has_ports_closed_that_it_gave_up(
    is_refused: bool, restarts: bool
) -> None:
    """Again and again: it is written minutes later then."""
    w = World(service(spec(ports=[port(22), port(80)])), N1)
    if restarts:
        async with running(w):
            w = w.restarted()
    async with running(w):
        w.balancers.failures["ensure"] = [Refused("no")] * 9 if is_refused else []
        for _ in range(REVERTS + 1):
            await w.change(without_finalizer)
        w.balancers.calls.clear()
        await w.change(spec(ports=[port(80)]))
        assert w.balancers.named("update")
        assert not w.service().has_finalizer


@pytest.mark.parametrize("label", UNPROXIED)
async def test_a_service_that_kube_proxy_leaves_out_by_now_is_changed_as_far_as_it_needs(
    label: str,
) -> None:
    """Where machines have its address, its ports are theirs."""
    async with running_with(service(), N1) as w:
        w.balancers.failures["ensure"] = [Refused("remove the label")] * 9
        w.balancers.calls.clear()
        await w.change(lambda raw: raw["metadata"].update(labels={label: "none", "a": "b"}))
        await w.change(lambda raw: raw["metadata"].update(labels={label: "none"}))
        assert len(w.balancers.named("update")) == 1


@pytest.mark.parametrize("label", UNPROXIED)
async def test_a_service_of_a_proxy_that_all_nodes_run_is_served_as_any_other(
    monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    """Whatever else leaves it out closes what it had."""

    def check_proxied(asked: Service) -> None:
        if not asked.proxied:
            raise Refused("remove the label")

    w = World(service(labelled({PROXY_NAME: "cilium"})), N1, service_proxy_names=("cilium",))
    monkeypatch.setattr(w.balancers, "check_service", check_proxied)
    async with running(w):
        assert w.balancers.of(w.service())
        assert w.service().ingress
        await w.change(labelled({PROXY_NAME: "cilium", label: "other"}))
        assert [call[0] for call in w.balancers.calls[-2:]] == ["ensure", "update"]
        assert len(await w.reported("Warning")) == 1


@pytest.mark.parametrize("is_restricted", [True, False])
async def test_annotations_that_reach_what_is_not_the_services_own_can_be_restricted(
    is_restricted: bool,
) -> None:
    given = Settings(restrict_service_annotations=is_restricted)
    w = World(service(annotated({"example.com/certificate": "theirs"})), N1)
    w.controller._capabilities = Capabilities.of(given, (), w.balancers.privileged_annotations)
    async with running(w):
        reported = await w.reported("Warning")
        assert bool(w.balancers.calls) is not is_restricted
        assert len(reported) == is_restricted
        assert all("example.com/certificate reaches what is not" in text for _, text in reported)


async def test_a_refused_service_that_is_deleted_goes_away() -> None:
    async with running_with(service(), ensure=[Refused("no")]) as w:
        await w.change(being_deleted)
        assert ("Service", KEY) not in w.cluster.objects


@pytest.mark.parametrize(
    ("is_known_beforehand", "written", "reasons"),
    [
        pytest.param(
            False,
            ["finalizers", "finalizers"],
            [
                "EnsuringLoadBalancer",
                "SyncLoadBalancerFailed",
                "DeletingLoadBalancer",
                "DeletedLoadBalancer",
            ],
            id="by the cloud",
        ),
        pytest.param(True, [], ["SyncLoadBalancerFailed"], id="by what it asks for"),
    ],
)
async def test_what_a_service_costs_that_is_refused_and_then_deleted(
    is_known_beforehand: bool, written: list[str], reasons: list[str]
) -> None:
    """The finalizer is for what may be left in the cloud, which was not asked for anything."""
    w = World(service(), N1)
    if is_known_beforehand:
        w.balancers.refused = "port 80 is taken"
    else:
        w.balancers.failures["ensure"] = [Refused("port 80 is taken")] * 9
    async with running(w):
        for _ in range(3):
            await w.later()
        assert "port 80 is taken" in w.controller.details(KEY)["refused"]
        assert [one["state"] for one in w.controller.status()["services"]] == ["refused"]
        if w.service().has_finalizer:
            await w.change(being_deleted)
        else:
            await w.remove("Service", KEY)
    assert w.written == written
    assert [reason for reason, _ in await w.reported()] == reasons
    assert w.controller.status()["services"] == []


async def test_what_may_have_been_begun_keeps_its_finalizer_when_it_is_refused() -> None:
    """A Service whose load balancer is there is not new when a client removed its finalizer."""
    async with running_with(service(), N1) as w:
        w.balancers.refused = "port 81 is taken"
        await w.put(w.changed(spec(ports=[port(81)]), without_finalizer))
        assert w.service().has_finalizer
        await w.change(being_deleted)
        assert w.balancers.records == {}


async def test_a_check_that_fails_is_no_refusal() -> None:
    w = World(service(), N1)
    w.controller._capabilities = replace(w.controller._capabilities, check_service=fail)
    async with running(w):
        assert w.service().ingress


def fail(_: Service) -> None:
    raise ValueError("a bug")


def without_finalizer(raw: Json) -> None:
    raw["metadata"]["finalizers"] = []


async def test_a_provider_that_fails_holds_up_only_its_service() -> None:
    both = service(name="bad"), service()
    async with running_with(*both, N1, ensure=[ValueError("a bug")]) as w:
        assert sum(bool(w.service(key).ingress) for key in (KEY, "default/bad")) == 1
        ((_, message),) = await w.reported("Warning")
        assert "the provider failed: ValueError('a bug')" in message
        assert len(w.queue.failed) == 1


async def test_of_warnings_without_number_few_are_kept() -> None:
    async with running_with(service(), N1) as w:
        w.balancers.warnings = tuple(f"item {number} is odd" for number in range(100_000))
        await w.change(spec(ports=[port(81)]))
        assert len(w.controller.details(KEY)["warnings"]) < 10_000
