"""Services that cannot have what they ask for: one clear Event, and no storm of retries."""

import pytest

from ccm.errors import Refused
from ccm.model.service import SOURCE_RANGES, Feature

from .objects import KEY, Tweak, annotated, being_deleted, node, port, service, spec
from .world import World, running, running_with

N1 = node("n1")
NOTHING: frozenset[Feature] = frozenset()


@pytest.mark.parametrize(
    ("tweak", "supported_features", "words"),
    [
        pytest.param(
            spec(loadBalancerSourceRanges=["10.0.0.0/33"]),
            frozenset(Feature),
            ["spec.loadBalancerSourceRanges", "10.0.0.0/33", "for example 10.0.0.0/24"],
            id="invalid-ranges",
        ),
        pytest.param(
            annotated({SOURCE_RANGES: "everybody"}),
            frozenset(Feature),
            [SOURCE_RANGES, "everybody"],
            id="invalid-ranges-annotated",
        ),
        pytest.param(
            spec(loadBalancerSourceRanges=["10.0.0.0/8"]),
            NOTHING,
            ["cannot do source ranges", "remove spec.loadBalancerSourceRanges"],
            id="ranges",
        ),
        pytest.param(
            spec(ports=[port(53), port(53, "UDP")]),
            frozenset({Feature.UDP}),
            ["cannot do TCP and UDP on one balancer", "a Service of its own"],
            id="mixed-protocols",
        ),
        pytest.param(
            spec(ports=[port(53, "UDP")]), NOTHING, ["cannot do UDP", "use TCP"], id="udp"
        ),
        pytest.param(
            spec(sessionAffinity="ClientIP"), NOTHING, ["set spec.sessionAffinity"], id="affinity"
        ),
        pytest.param(
            spec(loadBalancerIP="192.0.2.1"), NOTHING, ["remove spec.loadBalancerIP"], id="ip"
        ),
        pytest.param(
            spec(ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="RequireDualStack"),
            NOTHING,
            ["set spec.ipFamilyPolicy"],
            id="dual-stack",
        ),
    ],
)
async def test_what_cannot_be_honoured_is_refused_before_anything_is_made(
    tweak: Tweak, supported_features: frozenset[Feature], words: list[str]
) -> None:
    w = World()
    w.balancers.supported_features = supported_features
    w.controller._rules = type(w.controller._rules)((), supported_features)
    w.cluster.put(service(tweak))
    w.cluster.put(N1)
    async with running(w):
        for _ in range(3):
            await w.later()
            await w.put(w.service(), node("n2"))
        ((reason, message),) = await w.events()
        assert reason == "SyncLoadBalancerFailed"
        assert message.startswith("Error syncing load balancer: ")
        assert all(word in message for word in words)
        assert (w.balancers.calls, w.cluster.writes) == ([], 0)
        assert w.queue.failed == []
        await w.put(service())
        assert w.service().ingress


async def test_what_the_cloud_refuses_is_told_once_and_not_tried_until_something_changes() -> None:
    w = World()
    w.cluster.put(service())
    w.cluster.put(N1)
    w.balancers.failures["ensure"] = [Refused("port 80 is taken")] * 2
    async with running(w):
        for _ in range(3):
            await w.later()
            await w.put(w.service())
        assert len(w.balancers.named("ensure")) == 1
        ((reason, message),) = await w.events("Warning")
        assert reason == "SyncLoadBalancerFailed"
        assert "failed to ensure load balancer: port 80 is taken" in message
        assert w.queue.failed == []
        await w.put(node("n2"))
        assert len(w.balancers.named("ensure")) == 2
        changed = w.service()
        spec(ports=[port(81)])(changed.raw)
        await w.put(changed)
        assert w.service().ingress


async def test_the_place_of_a_balancer_that_went_is_for_the_service_that_had_no_room_first() -> (
    None
):
    w = World()
    w.balancers.most = 1
    w.balancers.failures["ensure"] = [Refused("port 80 is taken")]
    async with running(w):
        for name in ("hopeless", "web", "second", "third"):
            await w.put(service(name=name))
        gone = w.service()
        being_deleted(gone.raw)
        await w.put(gone)
        assert w.service("default/second").ingress
        assert not w.service("default/third").ingress
        asked = [name for _, name, *_ in w.balancers.named("ensure")]
        assert asked == ["hopeless", "web", "second", "third", "second", "third"]
        assert w.queue.failed == []


async def test_who_finds_that_there_is_room_again_tells_the_next() -> None:
    w = World()
    w.balancers.most = 0
    async with running(w):
        for name in ("web", "second", "third"):
            await w.put(service(name=name))
        w.balancers.most = 3
        await w.put(service(annotated({"try": "again"})))
        assert all(w.service(f"default/{name}").ingress for name in ("web", "second", "third"))


@pytest.mark.parametrize("by_cloud", [True, False])
async def test_a_refused_change_leaves_what_there_is_and_its_hosts_stay_right(
    by_cloud: bool,
) -> None:
    async with running_with(service(), N1) as w:
        if by_cloud:
            w.balancers.failures["ensure"] = [Refused("no")] * 5
        else:
            w.controller._rules = type(w.controller._rules)((), NOTHING)
        changed = w.service()
        spec(loadBalancerSourceRanges=["10.0.0.0/8"])(changed.raw)
        await w.put(changed)
        await w.put(node("n2"))
        (record,) = w.balancers.records.values()
        assert {name for name, _ in record.hosts} == {"n1", "n2"}
        assert record.asked
        assert not record.asked["loadBalancerSourceRanges"]
        assert w.service().ingress
        assert [reason for reason, _ in await w.events("Warning")] == ["SyncLoadBalancerFailed"]


async def test_a_refused_service_that_is_deleted_goes_away() -> None:
    w = World()
    w.cluster.put(service())
    w.balancers.failures["ensure"] = [Refused("no")]
    async with running(w):
        changed = w.service()
        changed.raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        await w.put(changed)
        assert ("Service", KEY) not in w.cluster.objects


async def test_without_nodes_a_balancer_is_made_empty_and_that_is_told() -> None:
    async with running_with(service()) as w:
        assert w.service().ingress
        told = ("UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")
        assert await w.events("Warning") == [told]


async def test_both_protocols_on_one_port_are_two_listeners_where_the_cloud_can() -> None:
    both = spec(ports=[port(53, name="tcp"), port(53, "UDP", name="udp")])
    async with running_with(service(both), N1) as w:
        assert w.service().ingress


async def test_a_provider_that_fails_holds_up_only_its_service() -> None:
    w = World()
    for thing in (service(name="bad"), service(), N1):
        w.cluster.put(thing)
    w.balancers.failures["ensure"] = [ValueError("a bug")]
    async with running(w):
        assert sum(bool(w.service(key).ingress) for key in (KEY, "default/bad")) == 1
        ((_, message),) = await w.events("Warning")
        assert "the provider failed: ValueError('a bug')" in message
        assert len(w.queue.failed) == 1
