"""What a new start of the worker does, and what it does about what it did not see happen."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ccm.errors import CloudError, KubernetesError, Refused
from ccm.model.cloud import Balancer, IpMode
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from tests.support.cluster import Cluster
from tests.support.context import TIMINGS
from tests.support.nodes import Tweak, with_finalizer
from tests.support.waiting import until
from workers import store
from workers.queue import RETRY
from workers.runner import RACE, REFUSAL
from workers.service.controller import BACKOFF
from workers.service.state import ADDRESS_RETRY
from workers.timings import Timings

from .cloud import Balancers, Record
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
    with_uid,
)
from .world import World, running, running_with

pytestmark = pytest.mark.virtual_time

N1 = node("n1")
MINE = spec(loadBalancerClass="mine")


def in_namespace(name: str) -> Tweak:
    return lambda raw: raw["metadata"].update(namespace=name)


@pytest.mark.parametrize("mode", [None, *IpMode])
async def test_a_new_start_reads_each_balancer_once_and_writes_nothing(mode: IpMode | None) -> None:
    w = World(N1, *(service(name=f"s{number}") for number in range(5)))
    w.balancers.ip_mode = mode
    async with running(w):
        assert w.balancers.writes > 0
    async with running(w.restarted()) as w:
        for _ in range(2):
            await w.later()
        assert len(w.balancers.calls) == 5
        assert (w.balancers.writes, w.cluster.writes) == (0, 0)
        assert await w.reported() == []


async def test_a_new_service_does_not_wait_until_all_others_are_compared() -> None:
    several = [service(name=f"s{number}") for number in range(20)]
    async with running_with(*several, N1) as w:
        pass
    w = w.restarted(concurrent_service_syncs=4)
    for one in several:
        w.balancers.holds[one.name] = asyncio.Event()
    async with running(w, until_rest=False):
        await until(lambda: len(w.balancers.calls) == 2, "two are compared")
        w.cluster.put(service())
        await until(lambda: w.service().ingress, "the new one has its balancer")
        assert len(w.balancers.calls) == 3
        for hold in w.balancers.holds.values():
            hold.set()
        await w.rest()


async def test_services_that_wait_for_their_comparison_are_not_looked_at_meanwhile() -> None:
    several = [service(name=f"s{number}") for number in range(20)]
    async with running_with(*several, N1) as w:
        pass
    w = w.restarted(concurrent_service_syncs=4)
    w.balancers.most_at_once = 0
    for one in several:
        w.balancers.holds[one.name] = asyncio.Event()
    async with running(w, until_rest=False) as w:
        await until(lambda: len(w.balancers.calls) == 2, "two are compared")
        w.cluster.remove("Service", several[2].key)  # the next one needs no turn any more
        await asyncio.sleep(60.0)
        assert (len(w.balancers.calls), w.queue.waiting) == (2, 0)
        for hold in w.balancers.holds.values():
            hold.set()
        await w.rest()
        assert w.balancers.most_at_once == 2
        assert len(w.balancers.calls) == 19


# --- Services that disappear without waiting for us


async def test_a_service_that_disappears_without_its_finalizer_loses_its_balancer() -> None:
    async with running_with(service(), N1) as w:
        await w.remove("Service", KEY)
        assert w.balancers.records == {}
        assert (await w.reasons())[-2:] == ["DeletingLoadBalancer", "DeletedLoadBalancer"]


async def test_a_finalizer_removed_from_a_service_being_deleted_leaks_nothing() -> None:
    async with running_with(service(with_finalizer("theirs")), N1) as w:
        await w.change(being_deleted, lambda raw: raw["metadata"].update(finalizers=["theirs"]))
        assert w.balancers.records == {}
        assert w.service().finalizers == ["theirs"]


async def test_a_service_that_only_our_cache_lacks_keeps_its_balancer() -> None:
    async with running_with(service(), N1) as w:
        w.on_change("Service", KEY, None)
        await w.rest()
        await w.later()
        assert len(w.balancers.records) == 1
        w.on_change("Service", KEY, w.service().raw)
        await w.rest()
        assert len(w.balancers.named("ensure")) == 1


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_without_the_api_servers_word_a_balancer_stays(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: Cluster, path: str, params: object = None) -> None:
        raise KubernetesError(status, "Odd", "404 page not found", None)

    monkeypatch.setattr(Cluster, "get", refuse)
    async with running_with(service(), N1) as w:
        await w.remove("Service", KEY)
        assert len(w.balancers.records) == 1


async def test_a_service_that_vanishes_has_no_other_one_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be thousands, of 250 KB each, and a tenant may take finalizers away."""
    others = [service(name=f"web-{number}") for number in range(30)]
    read, reads = store._read, list[str]()

    def counted(known: store.Versioned) -> Json:
        found = read(known)
        reads.append(str(found["metadata"]["name"]))
        return found

    async with running_with(N1, service(), *others) as w:
        monkeypatch.setattr(store, "_read", counted)
        await w.remove("Service", KEY)
        assert len(w.balancers.records) == len(others)
    assert not [name for name in reads if name.startswith("web-")]


TEN = [
    service(finalized, spec(ports=[port(80 + number)]), name=f"s{number}") for number in range(10)
]


async def test_when_many_services_vanish_at_once_their_balancers_stay() -> None:
    async with running_with(*TEN, N1) as w:
        for one in TEN[:7]:
            w.cluster.remove("Service", one.key)
        await w.rest()
        assert len(w.balancers.records) == 10
        for one in TEN[:5]:
            w.cluster.put(one)
        await w.rest()
        await w.later()
        assert len(w.balancers.records) == 8


async def test_services_of_one_namespace_that_vanish_at_once_leave_no_load_balancer() -> None:
    """Its tenant may take finalizers away, and no quota would count what is left each time."""
    theirs = [service(finalized, in_namespace("theirs"), name=f"t{number}") for number in range(7)]
    async with running_with(*TEN[:3], *theirs, N1) as w:
        for one in theirs:
            w.cluster.remove("Service", one.key)
        await w.rest()
        assert w.balancers.records.keys() == {w.balancers.name_for(one) for one in TEN[:3]}


async def test_of_services_that_vanish_those_go_whose_node_port_another_has() -> None:
    """Its load balancer leads its clients there, past the other's source ranges."""
    async with running_with(*TEN, N1) as w:
        for one in TEN[:7]:
            w.cluster.remove("Service", one.key)
        await w.rest()
        assert len(w.balancers.records) == 10
        await w.put(service(typed("NodePort"), spec(ports=[port(80)]), name="other"))
        assert w.balancers.records.keys() == {w.balancers.name_for(one) for one in TEN[1:]}


async def test_services_that_go_as_they_get_their_finalizer_leave_no_load_balancer() -> None:
    """An API server that deletes one does not see a finalizer that is added at this moment."""
    several = [service(name=f"s{number}") for number in range(10)]
    async with running_with(*several, N1) as w:
        for one in several[:7]:
            w.cluster.remove("Service", one.key)
        await w.rest()
        assert len(w.balancers.records) == 3


# --- classes


async def test_a_class_that_is_not_ours_is_left_alone_whatever_it_carries() -> None:
    async with running_with(service(MINE, finalized, with_status("198.51.100.1")), N1) as w:
        assert (w.balancers.calls, w.cluster.writes) == ([], 0)
        await w.change(being_deleted)
        assert w.balancers.calls == [("get", "web")]
        assert w.cluster.writes == 0


async def test_a_class_that_is_no_longer_configured_keeps_its_balancer_until_the_service_goes() -> (
    None
):
    async with running_with(service(MINE), N1, load_balancer_classes=("mine",)) as w:
        pass
    async with running(w.restarted()) as w:
        assert (w.balancers.calls, w.cluster.writes) == ([], 0)
        await w.change(being_deleted)
        assert w.balancers.records == {}
        assert ("Service", KEY) not in w.cluster.objects


async def test_a_class_given_to_a_service_of_ours_takes_its_balancer_away() -> None:
    async with running_with(service(), N1) as w:
        changed = service(with_status("198.51.100.1"), spec(loadBalancerClass="theirs"), finalized)
        await w.put(changed)
        assert w.balancers.records == {}
        assert not w.service().has_finalizer
        assert w.service().ingress == [{"ip": "198.51.100.1"}]


# --- balancers that are not ours


@pytest.mark.parametrize("tweaks", [[], [finalized], [finalized, typed("ClusterIP")]])
async def test_a_balancer_without_our_mark_is_never_touched(tweaks: list[Tweak]) -> None:
    foreign = Record("someone", "198.51.100.9")
    w = World(service(*tweaks), N1)
    w.balancers.records[w.balancers.name_for(service())] = foreign
    async with running(w):
        await w.put(node("n2"))
        assert list(w.balancers.records.values()) == [foreign]
        assert w.balancers.writes == 0
        assert len(await w.reported("Warning")) == 1
        assert w.queue.failed == []


# --- audits and odd ends


async def test_a_drifted_balancer_is_repaired_by_the_slow_audit() -> None:
    async with running_with(service(), N1) as w:
        w.balancers.records.clear()
        await w.later()
        assert w.balancers.records == {}
    timings = replace(TIMINGS, balancer_resync_period=0.05)
    async with running_with(service(), N1, timings=timings) as w:
        w.balancers.records.clear()
        await until(lambda: w.balancers.records, "the audit")


async def test_what_the_cloud_refused_is_tried_again_after_a_while() -> None:
    async with running_with(service(), N1, ensure=[Refused("quota is full")]) as w:
        await w.later()
        assert w.balancers.records == {}
    timings = replace(TIMINGS, refusal_retry_period=0.05)
    refused = [Refused("quota is full")]
    async with running_with(service(), N1, ensure=refused, timings=timings) as w:
        await until(lambda: w.service().ingress, "another try")
        assert len(w.balancers.records) == 1


async def test_a_balancer_that_loses_its_address_for_a_while_leaves_the_status_as_it_is() -> None:
    """CT4: the cloud changes it, and calls it active meanwhile."""
    async with running_with(service(), N1) as w:
        kept, w.balancers.has_addresses = w.service().ingress, False
        await w.change(spec(ports=[port(81)]))
        assert w.service().ingress == kept
        assert w.queue.delays[-1] == (KEY, ADDRESS_RETRY)
        w.balancers.has_addresses = True
        await w.later()
        assert w.service().ingress == kept


def test_what_the_cloud_can_change_is_tried_again_within_a_minute() -> None:
    """CT5: with the jitter of a refusal."""
    delays = [RETRY, BACKOFF, RACE, REFUSAL]
    assert max(backoff.delay(100, 0.0) for backoff in delays) <= 60.0
    assert 1.2 * Timings().refusal_retry_period <= 60.0


async def test_someone_who_undoes_every_status_is_not_fought_without_end() -> None:
    w = World(service(), N1)

    store = w.cluster._store

    def put_undone(raw: Json) -> None:
        with_status(f"198.51.100.{w.cluster.writes}")(raw)
        store(raw)

    w.cluster._store = put_undone  # type: ignore[method-assign]
    async with running(w):
        assert w.cluster.writes <= 3


async def test_a_replaced_service_whose_old_balancer_cannot_go_waits_for_it() -> None:
    async with running_with(service(), N1) as w:
        w.balancers.failures["delete"] = [CloudError("boom")]
        await w.put(service(with_uid("another")))
        assert list(w.balancers.records) == ["auid-of-web"]
        await w.later()
        assert list(w.balancers.records) == ["aanother"]
        assert w.service().has_finalizer


async def delete_while_lists_lack_the_balancer(w: World) -> None:
    """The Service keeps its finalizer until a list has the load balancer, which is then deleted."""
    [(name, record)] = w.balancers.records.items()
    del w.balancers.records[name]
    await w.change(being_deleted)
    assert w.service().has_finalizer
    w.balancers.records[name] = record
    await w.later()
    assert w.balancers.records == {}
    assert not any(kind == "Service" for kind, _ in w.cluster.objects)


async def test_a_deletion_by_a_list_from_before_the_creation_leaves_no_balancer() -> None:
    """The cloud's lists lag behind its writes: the Service keeps its finalizer meanwhile."""
    async with running_with(N1, service()) as w:
        await delete_while_lists_lack_the_balancer(w)


async def test_a_deletion_by_one_list_that_lacks_what_is_published_leaves_no_balancer() -> None:
    """It would lead to a node port that another Service gets, for everyone."""
    async with running_with(N1, service()) as w:
        pass
    async with running(w.restarted()) as w:
        await delete_while_lists_lack_the_balancer(w)


async def test_what_has_gone_by_itself_is_looked_for_twice() -> None:
    async with running_with(N1, service()) as w:
        pass
    async with running(w.restarted()) as w:
        w.balancers.records.clear()
        await w.change(being_deleted)
        await w.later()
        assert len(w.balancers.named("delete")) == 2
        assert not any(kind == "Service" for kind, _ in w.cluster.objects)


class WithRules(Balancers):
    """Each load balancer has a rule; the first deletion is made by an answer without rules."""

    def __init__(self) -> None:
        super().__init__()
        self.rules, self._lacks = set[str](), True

    async def ensure(self, service: Service, backends: Sequence[Node]) -> Balancer:
        self.rules.add(service.uid)
        return await super().ensure(service, backends)

    async def delete(self, service: Service) -> None:
        await super().delete(service)
        if not self._lacks and service.uid in self.rules:
            self._write()
            self.rules.remove(service.uid)
        self._lacks = False


async def test_what_one_answer_lacks_of_a_load_balancer_goes_with_it() -> None:
    """A rule that is left opens the node port of whichever Service gets it."""
    balancers = WithRules()
    async with running(World(N1, service(), balancers=balancers)) as w:
        assert balancers.rules
        await w.change(being_deleted)
        assert not balancers.rules
        assert not any(kind == "Service" for kind, _ in w.cluster.objects)


async def test_comparisons_that_wait_for_their_namespace_hold_up_no_other() -> None:
    """It may have as many load balancers under way as it likes, of minutes each."""
    many = [service(in_namespace("many"), name=f"s{number}") for number in range(20)]
    async with running_with(*many[8:], service(), N1) as w:
        published = [w.service(one.key) for one in many[8:]]
        few = w.service()
    for one in (*published, few):
        w.cluster.remove("Service", one.key)
    w = w.restarted(concurrent_service_syncs=10)
    w.cluster.put(*many[:8])
    w.balancers.holds = {one.name: asyncio.Event() for one in many}
    async with running(w, until_rest=False):
        await until(lambda: len(w.balancers.calls) == 8, "all places of the namespace are taken")
        w.cluster.put(*published)
        await until(lambda: len(w.queue) == 0, "the others wait")
        w.cluster.put(few)
        await until(lambda: w.balancers.calls[8:] == [("ensure", "web", "n1")], "a comparison")
        for hold in w.balancers.holds.values():
            hold.set()
        await w.rest()
        assert len(w.balancers.named("ensure")) == 21


async def test_namespaces_take_turns_at_being_compared() -> None:
    """One with hundreds of Services does not stand before the one that another has changed."""
    many = [service(in_namespace("many"), name=f"s{number}") for number in range(20)]
    async with running_with(*many, service(name="few"), N1) as w:
        few = w.service("default/few")
    w.cluster.remove("Service", "default/few")
    w = w.restarted(concurrent_service_syncs=4)
    w.balancers.holds = {one.name: asyncio.Event() for one in many}
    async with running(w, until_rest=False):
        await until(lambda: len(w.balancers.calls) == 2, "two are compared")
        w.cluster.put(few)
        await until(lambda: len(w.queue) == 0, "all others wait")
        for hold in w.balancers.holds.values():
            hold.set()
        await w.rest()
        compared = [name for _, name, *_ in w.balancers.named("ensure")]
        assert compared.index("few") <= 4


async def test_one_answer_that_lacks_what_is_published_makes_no_second_load_balancer() -> None:
    """Its address would be published, and the first one removed as soon as it is shown."""
    async with running_with(N1, service()) as w:
        published = w.service().ingress
    w = w.restarted()
    [(name, record)] = w.balancers.records.items()
    del w.balancers.records[name]
    async with running(w):
        assert (w.balancers.writes, w.balancers.records) == (0, {})
        w.balancers.records[name] = record
        await w.later()
        assert (w.balancers.writes, w.balancers.records) == (0, {name: record})
        assert w.service().ingress == published
        del w.balancers.records[name]
        await w.change(spec(ports=[port(81)]))
        assert not w.balancers.records
        await w.later()
        assert w.balancers.records, "what has really gone is made again"
        assert len(w.balancers.calls) == 4
