"""Services that cannot have what they ask for: one clear Event, and no storm of retries."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ccm.errors import (
    CloudError,
    Denied,
    ImplementedElsewhere,
    NoRoom,
    Refused,
    RetryAfter,
    TakenByAnother,
    Unanswered,
)
from ccm.model.cloud import Balancer, Ingress
from ccm.model.objects import Json, Node
from ccm.model.service import SOURCE_RANGES, Feature, Service
from ccm.settings import Settings
from tests.support.cluster import MOST_ANNOTATED
from tests.support.context import TIMINGS
from tests.support.nodes import Tweak
from workers.performer import REVERTED, REVERTS, WRITE_PAUSE, WRITES
from workers.service.plan import Capabilities

from .cloud import Balancers, Record
from .objects import KEY, annotated, being_deleted, finalized, node, port, service, spec
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


def without_annotations(raw: Json) -> None:
    raw["metadata"].pop("annotations")


@pytest.mark.parametrize("by_cloud", [True, False])
async def test_a_refused_service_leads_to_no_node_port_that_is_anothers_now(by_cloud: bool) -> None:
    """Its former listeners stay, and the other Service may have other source ranges."""
    async with running_with(service(), N1, restrict_service_annotations=True) as w:
        w.balancers.refused = "no such flavor" if by_cloud else ""
        refused = {} if by_cloud else {"example.com/certificate": "theirs"}
        await w.change(spec(ports=[port(80, nodePort=31000)]), annotated(refused))
        await w.put(service(spec(type="NodePort", ports=[port(81)]), name="beside"))
        assert w.balancers.of(w.service()), "it serves as it is"
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert w.balancers.of(w.service()) is None
        assert not w.service().ingress
        w.balancers.refused = ""
        await w.change(spec(ports=[port(80, nodePort=31001)]), without_annotations)
        assert w.service().ingress
        assert w.balancers.of(w.service())


async def test_a_refused_service_leads_to_no_node_port_where_nodes_check_another_now() -> None:
    """What answers there names the other, and its port would be open to all."""
    async with running_with(service(), N1) as w:
        w.balancers.refused = "no such flavor"
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        assert w.balancers.of(w.service()), "it serves as it is"
        local = spec(externalTrafficPolicy="Local", healthCheckNodePort=30080, ports=[port(81)])
        await w.put(service(local, name="other"))
        assert w.balancers.of(w.service()) is None
        assert not w.service().ingress


async def test_a_node_port_that_a_service_does_not_have_takes_no_balancer_from_another() -> None:
    """An ExternalName may name any number, which no one gave it."""
    async with running_with(service(), N1) as w:
        w.balancers.refused = "no such flavor"
        hostile = service(spec(type="ExternalName", ports=[port(80)]), name="hostile")
        await w.put(hostile)
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        assert w.service().ingress
        assert w.balancers.of(w.service()), "it serves as it is"
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert w.balancers.of(w.service()) is None


async def test_a_service_that_is_refused_the_port_of_another_keeps_no_address() -> None:
    """Each node would lead clients of the address to the port of either; it is given up once."""
    async with running_with(service(), N1) as w:
        assert w.service().ingress
        w.balancers.failures["ensure"] = [TakenByAnother("port 443 is another's")] * 3
        await w.change(spec(ports=[port(443)]))
        await w.later()
        assert not w.service().ingress
        assert w.balancers.of(w.service()) is None
        assert "port 443 is another's" in w.controller.details(KEY)["refused"]
        deletions = len(w.balancers.named("delete"))
        await asyncio.sleep(TIMINGS.refusal_retry_period)
        await w.later()
        assert not w.balancers.failures["ensure"], "it is asked for again"
        assert len(w.balancers.named("delete")) == deletions
        await w.change(spec(ports=[port(444)]))
        assert w.service().ingress


@pytest.mark.parametrize(
    "error", [Refused("no such method"), CloudError("it is in ERROR"), RetryAfter("busy", 600.0)]
)
async def test_who_cannot_have_the_port_of_another_keeps_no_address_that_they_share(
    error: Exception,
) -> None:
    """Whatever it fails by, so long as it is before the cloud is asked about the port."""
    async with running_with(service(), N1) as w:
        hostile, records = service(spec(ports=[port(81)]), name="hostile"), w.balancers.records
        (ingress,) = w.service().ingress
        records[w.balancers.name_for(hostile)] = Record(hostile.uid, ingress["ip"])
        await w.put(hostile)
        w.balancers.failures["ensure"] = [error] * 3
        await w.put(w.changed(spec(ports=[port(80), port(82)]), key=HOSTILE))
        assert not w.service(HOSTILE).ingress
        assert w.service().ingress == [ingress]
        w.balancers.failures["ensure"] = []
        await w.put(w.changed(spec(ports=[port(82)]), key=HOSTILE))
        assert w.service(HOSTILE).ingress == [ingress], "it is its own port"


@pytest.mark.parametrize(
    "error", [Refused("no such method"), CloudError("it is in ERROR"), TakenByAnother("port 6443")]
)
@pytest.mark.parametrize("is_new_port", [True, False])
async def test_who_shares_a_load_balancer_keeps_no_address_without_its_ports(
    error: Exception, is_new_port: bool
) -> None:
    """What no Service has may serve them there, as the API server does."""
    async with running_with(N1) as w:
        w.balancers.is_shared = True
        await w.put(service())
        before = w.service().ingress
        w.balancers.failures["ensure"] = [error] * 3
        await w.change(spec(ports=[port(6443 if is_new_port else 80)]), annotated({"x": "y"}))
        await w.later()
        is_taken = isinstance(error, TakenByAnother)
        assert w.service().ingress == ([] if is_new_port or is_taken else before)


async def test_who_asks_for_more_and_less_for_ever_keeps_no_address_meanwhile() -> None:
    """Writes of what changes again and again wait, but not those that take addresses away."""
    async with running_with(N1) as w:
        w.balancers.is_shared = True
        await w.put(service())
        for _ in range(WRITES):
            w.balancers.refused = "port 6443 is another's"
            await w.change(spec(ports=[port(6443)]))
            assert not w.service().ingress
            w.balancers.refused = ""
            await w.change(spec(ports=[port(80)]))
            await w.later()
            await asyncio.sleep(0 if w.service().ingress else WRITE_PAUSE)
            await w.later()


async def test_who_shares_a_load_balancer_and_may_not_ask_for_more_keeps_no_address() -> None:
    async with running_with(N1, restrict_service_annotations=True) as w:
        w.balancers.is_shared = True
        await w.put(service())
        theirs = annotated({"example.com/certificate": "theirs"})
        await w.change(spec(ports=[port(6443)]), theirs)
        assert not w.service().ingress


async def test_who_waits_for_a_port_keeps_no_address_where_another_gets_it_first() -> None:
    async with running_with(service(), N1, restrict_service_annotations=True) as w:
        hostile, records = service(spec(ports=[port(81)]), name="hostile"), w.balancers.records
        (ingress,) = w.service().ingress
        records[w.balancers.name_for(hostile)] = Record(hostile.uid, ingress["ip"])
        await w.put(hostile)
        theirs = annotated({"example.com/certificate": "theirs"})
        await w.put(w.changed(spec(ports=[port(443)]), theirs, key=HOSTILE))
        assert w.service(HOSTILE).ingress == [ingress], "what it had before it was refused stays"
        await w.change(spec(ports=[port(80), port(443, nodePort=31000)]))
        assert not w.service(HOSTILE).ingress
        assert w.service().ingress == [ingress]


async def test_one_answer_that_gives_a_port_to_another_takes_no_address_away() -> None:
    """It would not be had again: what is made later has another one."""
    async with running_with(service(), N1) as w:
        before = w.service().ingress
        w.balancers.failures["ensure"] = [TakenByAnother("port 443 is another's")]
        await w.change(spec(ports=[port(443)]))
        await w.later()
        assert asked_ports(w) == [port(443)]
        assert w.service().ingress == before
        assert not w.balancers.named("delete")


async def test_a_service_that_is_handed_over_leads_to_no_node_port_that_is_anothers_now() -> None:
    """As by an annotation for another controller: until then it serves as it is."""
    async with running_with(service(), N1) as w:
        w.balancers.failures["ensure"] = [ImplementedElsewhere("there") for _ in range(3)]
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        await w.put(service(spec(type="NodePort", ports=[port(81)]), name="beside"))
        assert w.balancers.of(w.service()), "it serves as it is"
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert w.balancers.of(w.service()) is None


async def test_who_takes_the_finalizer_away_leads_to_no_node_port_that_is_anothers_now() -> None:
    """All the time: it is written again minutes later, and the load balancer is changed first."""
    async with running_with(service(), N1) as w:
        for _ in range(REVERTS + 1):
            await w.change(without_finalizers)
        assert not w.service().has_finalizer, "its write waits"
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        assert asked_ports(w) == [port(80)]
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert asked_ports(w) == [port(80, nodePort=31000)]
        assert not w.service().has_finalizer
        await asyncio.sleep(REVERTED.most)
        await w.later()
        assert w.service().has_finalizer


async def test_what_cannot_be_changed_leads_to_no_node_port_that_is_anothers_now() -> None:
    """As with a security group that AWS does not know, which may yet come."""
    async with running_with(service(), N1) as w:
        w.balancers.failures["ensure"] = [CloudError("no such group") for _ in range(3)]
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        assert backends(w), "it serves as it is"
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert not backends(w)
        w.balancers.failures["ensure"] = []
        await w.later()
        assert backends(w)


class Pooled(Balancers):
    """All load balancers have the same backends."""

    def __init__(self) -> None:
        super().__init__()
        self.withdrawn = list[str]()

    async def withdraw(self, service: Service) -> None:
        self.withdrawn.append(service.name)


async def test_what_cannot_be_changed_takes_no_backends_from_who_has_the_same() -> None:
    """On Azure, one Service emptied the pool of all for as long as its own change failed."""
    balancers = Pooled()
    async with running_with(service(), N1, balancers=balancers) as w:
        w.balancers.failures["ensure"] = [CloudError("denied") for _ in range(3)]
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert balancers.withdrawn
        assert not w.balancers.named("update")


async def test_what_cannot_be_deleted_leads_to_no_node_port_that_is_anothers_now() -> None:
    """As with deletion protection, which a tenant may turn on."""
    async with running_with(service(), N1) as w:
        w.balancers.failures["delete"] = [CloudError("it is protected") for _ in range(3)]
        await w.change(spec(type="ClusterIP", ports=[]))
        assert backends(w)
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert not backends(w)


def without_finalizers(raw: Json) -> None:
    raw["metadata"].pop("finalizers", None)


def asked_ports(w: World) -> object:
    record = w.balancers.of(w.service())
    return record and record.asked and record.asked["ports"]


def backends(w: World) -> frozenset[tuple[str, str]]:
    (record,) = w.balancers.records.values()
    return record.backends


class Stuck(Balancers):
    """Deletes the load balancer itself, and then fails: a part that is left is in use."""

    is_stuck = True

    async def delete(self, service: Service) -> None:
        await super().delete(service)
        if self.is_stuck:
            raise CloudError("a part is in use")


class Replacing(Balancers):
    """Deletes what has to be another load balancer, before it finds that this cannot be had."""

    error: CloudError | None = None
    hostname = ""

    async def get(self, service: Service) -> Balancer | None:
        found = await super().get(service)
        if found and self.hostname:
            return replace(found, ingress=(Ingress(hostname=self.hostname),))
        return found

    async def ensure(self, service: Service, backends: Sequence[Node]) -> Balancer:
        if self.error and self.of(service):
            self._write()
            if not self.hostname:
                del self.records[self.name_for(service)]
        if self.error:
            raise self.error
        return await super().ensure(service, backends)


async def test_who_is_refused_while_a_change_goes_on_keeps_no_address_that_this_gave_up() -> None:
    balancers = Replacing()
    async with running_with(service(), N1, balancers=balancers) as w:
        balancers.error = RetryAfter("the former one goes", 60.0)
        await w.change(spec(ports=[port(81)]))
        assert w.service().ingress, "the change goes on"
        balancers.failures["get"] = [CloudError("503")]
        await w.change(INVALID_RANGES)
        await w.later()
        assert not w.service().ingress


async def test_who_fails_after_a_change_that_waits_keeps_no_address_that_this_gave_up() -> None:
    """As with a security group that AWS does not know, which may yet come."""
    balancers = Replacing()
    async with running_with(service(), N1, balancers=balancers) as w:
        balancers.error = RetryAfter("the former one goes", 60.0)
        await w.change(spec(ports=[port(81)]))
        assert w.service().ingress, "the change goes on"
        balancers.error = CloudError("no such group")
        await w.change(spec(ports=[port(82)]))
        assert not w.service().ingress


async def test_a_change_without_an_answer_keeps_no_address_that_this_gave_up() -> None:
    """It may have been performed, and no call of it is known to have been."""
    async with running_with(service(), N1) as w:
        name = w.balancers.name_for(w.service())
        w.balancers.records[name] = replace(w.balancers.records[name], ip="192.0.2.9")
        w.balancers.failures["ensure"] = [Unanswered("no answer within 30s")] * 3
        await w.change(spec(ports=[port(81)]))
        assert not w.service().ingress


async def test_who_is_handed_over_during_a_change_keeps_no_address_that_this_gave_up() -> None:
    """What another controller has written by then stays."""
    balancers = Replacing()
    async with running_with(service(), N1, balancers=balancers) as w:
        balancers.error = RetryAfter("the former one goes", 60.0)
        await w.change(spec(ports=[port(81)]))
        assert w.service().ingress, "the change goes on"
        balancers.error = ImplementedElsewhere("there")
        await w.change(annotated({"example.com/type": "theirs"}))
        assert not w.service().ingress
        theirs = [{"ip": "203.0.113.7", "ipMode": "VIP"}]
        await w.change(lambda raw: raw["status"].update(loadBalancer={"ingress": theirs}))
        await w.change(spec(ports=[port(82)]))
        assert w.service().ingress == theirs


@pytest.mark.parametrize("why", ["plan", "cloud", "error"])
async def test_who_is_refused_after_a_restart_keeps_no_address_that_was_given_up(why: str) -> None:
    """The worker ended before it wrote the status, and what it knew went with it."""
    async with running_with(service(), N1) as before:
        assert before.service().ingress
        (name, record), *_ = before.balancers.records.items()
        before.balancers.records[name] = replace(record, ip="192.0.2.9")
    w = before.restarted()
    w.cluster.put(w.changed(INVALID_RANGES if why == "plan" else RANGES))
    error = Refused("no such flavor") if why == "cloud" else CloudError("no such group")
    w.balancers.failures["ensure"] = [error] * 9
    async with running(w):
        assert not w.service().ingress
        reads = len(w.balancers.named("get"))
        await w.later()
        assert len(w.balancers.named("get")) == reads, "it is looked for once"
        w.balancers.failures["ensure"] = []
        await w.change(spec(loadBalancerSourceRanges=[]))
        assert w.service().ingress == [{"ip": "192.0.2.9"}]


def of_namespace(name: str) -> Tweak:
    return lambda raw: raw["metadata"].update(namespace=name)


class Moving(Balancers):
    """Gives a load balancer another address with a change."""

    once_moved: Callable[[], None] | None = None

    async def ensure(self, service: Service, backends: Sequence[Node]) -> Balancer:
        made = await super().ensure(service, backends)
        if (record := self.of(service)) and self.once_moved:
            record = self._set(service, replace(record, ip="192.0.2.9"))
            made = self._shown(service, record)
            self.once_moved()
            self.once_moved = None
        return made


@pytest.mark.parametrize("error", [Refused("no such subnet"), Denied("no right to the subnet")])
async def test_a_change_that_deletes_and_then_fails_leaves_no_address_in_the_status(
    error: CloudError,
) -> None:
    """The next Service with the address would lose clients in the cluster to this one."""
    balancers = Replacing()
    async with running_with(service(), N1, balancers=balancers) as w:
        assert w.service().ingress
        balancers.error = error
        await w.change(spec(ports=[port(81)]))
        assert not w.service().ingress
        await w.change(spec(ports=[port(80)]))
        assert not w.service().ingress, "nothing is there, as before"
        balancers.error = None
        await asyncio.sleep(TIMINGS.refusal_retry_period)
        await w.later()
        assert w.service().ingress


async def test_a_deletion_that_fails_midway_leaves_no_address_in_the_status() -> None:
    """Its tenant may keep the Service by a finalizer, and others get the address."""
    balancers = Stuck()
    async with running_with(service(), N1, balancers=balancers) as w:
        published = w.service()
        await w.change(being_deleted)
        assert balancers.of(published) is None
        assert w.service().has_finalizer
        assert not w.service().ingress
        balancers.is_stuck = False
        await w.later()
        assert ("Service", KEY) not in w.cluster.objects


async def test_a_host_name_keeps_no_address_that_was_given_up_in_the_status() -> None:
    """The load balancer is there, at another address, which the host name hides."""
    balancers = Replacing()
    async with running_with(service(), N1, balancers=balancers) as w:
        balancers.hostname, balancers.error = "web.example", Denied("no right to open it")
        await w.change(spec(ports=[port(81)]))
        assert not w.service().ingress


async def test_a_status_that_is_refused_keeps_no_address_that_was_given_up() -> None:
    """Annotations have a limit, so a tenant leaves no room for those that go with the address."""
    async with running_with(service(), N1) as w:
        (former,) = w.service().ingress
        w.balancers.annotations = {"cloud.example/address": "192.0.2.9"}
        (name, record), *_ = w.balancers.records.items()
        w.balancers.records[name] = replace(record, ip="192.0.2.9")
        await w.change(annotated({"example.com/filler": "x" * (MOST_ANNOTATED - 30)}))
        await w.later()
        assert former not in w.service().ingress
        await w.change(annotated({"example.com/filler": ""}))
        assert w.service().ingress == [{"ip": "192.0.2.9"}]


@pytest.mark.parametrize("why", ["plan", "cloud"])
async def test_who_is_refused_once_an_address_was_given_up_keeps_none_in_the_status(
    why: str,
) -> None:
    """The next change comes before the new address is written, and is refused before anything is
    asked, or read.
    """
    balancers = Moving()
    async with running_with(service(), N1, balancers=balancers) as w:
        assert w.service().ingress

        def change() -> None:
            if why == "cloud":
                balancers.refused = "no such flavor"
                balancers.failures["get"] = [Refused(balancers.refused)] * 9
            w.cluster.put(w.changed(RANGES if why == "cloud" else INVALID_RANGES))

        balancers.once_moved = change
        await w.change(spec(ports=[port(81)]))
        assert asked_ports(w) == [port(81)]
        assert not w.service().ingress
        balancers.refused = ""
        await w.change(spec(loadBalancerSourceRanges=[]))
        assert w.service().ingress == [{"ip": "192.0.2.9"}]


async def test_who_is_refused_while_its_balancer_shows_no_address_keeps_its_own() -> None:
    async with running_with(service(), N1) as before:
        kept = before.service().ingress
    w = before.restarted()
    w.balancers.has_addresses = False
    w.cluster.put(w.changed(INVALID_RANGES))
    async with running(w):
        await w.later()
        assert w.service().ingress == kept
        w.balancers.has_addresses = True
        await w.later()
        assert w.service().ingress == kept
        assert [reason for reason, _ in await w.reported()] == ["SyncLoadBalancerFailed"]


async def test_a_status_that_is_refused_keeps_the_address_that_it_has() -> None:
    async with running_with(service(), N1) as w:
        kept = w.service().ingress
        w.balancers.annotations = {"cloud.example/address": "192.0.2.1"}
        await w.change(annotated({"example.com/filler": "x" * (MOST_ANNOTATED - 30)}))
        assert w.service().ingress == kept


async def test_who_changes_while_its_balancer_is_given_up_keeps_no_address() -> None:
    """Refused before and after: then the status would never be written again."""
    async with running_with(service(), N1) as w:
        w.balancers.refused = "no such flavor"
        await w.change(spec(ports=[port(80, nodePort=31000)]))

        def change() -> None:
            w.balancers.before_write = lambda: None
            w.cluster.put(w.changed(annotated({"example.com/colour": "red"})))

        w.balancers.before_write = change
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert w.service().annotations
        assert w.balancers.of(w.service()) is None
        assert not w.service().ingress


async def test_who_is_handed_over_and_loses_its_balancer_keeps_no_address() -> None:
    async with running_with(service(), N1) as w:
        w.balancers.failures["ensure"] = [ImplementedElsewhere("there") for _ in range(5)]
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert w.balancers.of(w.service()) is None
        assert not w.service().ingress


async def test_no_address_is_written_to_a_service_that_is_of_another_class_by_now() -> None:
    """It would stay when the load balancer goes: the status is that class's controller's."""
    w = World(service(), N1)

    def hand_over() -> None:
        if w.balancers.records and not w.service().load_balancer_class:
            w.cluster.put(w.changed(spec(loadBalancerClass="theirs")))

    w.cluster.before_write = hand_over
    async with running(w):
        assert w.service().load_balancer_class
        assert not w.balancers.records
        assert not w.service().ingress


async def test_of_warnings_without_number_few_are_kept() -> None:
    async with running_with(service(), N1) as w:
        w.balancers.warnings = tuple(f"item {number} is odd" for number in range(100_000))
        await w.change(spec(ports=[port(81)]))
        assert len(w.controller.details(KEY)["warnings"]) < 10_000
