"""Addresses that a Service gave up, or shares: its status keeps none where nodes would lead
clients of another to it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ccm.cloud.shared_write import PendingChange, SharedWrite, end_all
from ccm.errors import (
    CloudError,
    Denied,
    ImplementedElsewhere,
    Refused,
    RetryAfter,
    TakenByAnother,
    Unanswered,
)
from ccm.model.cloud import Balancer, Ingress
from ccm.model.objects import Json, Node
from ccm.model.service import Feature, Service
from tests.support.cluster import MOST_ANNOTATED
from tests.support.context import SETTINGS, TIMINGS
from tests.support.nodes import Tweak
from tests.support.waiting import until
from workers.performer import REVERTS, WRITE_PAUSE, WRITES

from .cloud import Balancers, Record
from .objects import KEY, annotated, being_deleted, node, port, service, spec, typed
from .world import World, asked_ports, running, running_with

pytestmark = pytest.mark.virtual_time

N1 = node("n1")
ALL, NONE = frozenset(Feature), frozenset[Feature]()
HOSTILE = "default/hostile"
RANGES = spec(loadBalancerSourceRanges=["10.0.0.0/8"])
INVALID_RANGES = spec(loadBalancerSourceRanges=["10.0.0.0/33"])


async def with_its_address(w: World, *, is_shared: bool = False) -> Json:
    """Make `hostile` at the address of the Service that is there, which is returned."""
    hostile = service(spec(ports=[port(81)]), name="hostile")
    (ingress,) = w.service().ingress
    w.balancers.records[w.balancers.name_for(hostile)] = Record(hostile.uid, ingress["ip"])
    w.balancers.is_shared = is_shared
    await w.put(hostile)
    return ingress


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
        ingress = await with_its_address(w)
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


@pytest.mark.parametrize(
    "error",
    [None, Refused("no such method"), CloudError("it is in ERROR"), RetryAfter("busy", 2.0)],
    ids=str,
)
async def test_who_shares_a_load_balancer_keeps_no_address_with_a_port_of_another_after_a_restart(
    error: Exception | None,
) -> None:
    """Nothing has succeeded since; what the load balancer serves of the Service is read."""
    restricts = error is None
    theirs = annotated({"example.com/certificate": "theirs"} if restricts else {"x": "y"})
    async with running_with(service(), N1) as before:
        (ingress,) = before.service().ingress
        before.balancers.is_shared = True
    w = before.restarted(restrict_service_annotations=restricts)
    w.cluster.put(w.changed(theirs))
    w.balancers.failures["ensure"] = [error] * 99 if error else []
    async with running(w):
        await w.later()
        assert w.service().ingress == [ingress], "its ports are no other's there"
        w.balancers.is_contested = True
        await w.change(spec(ports=[port(6443)]))
        assert not w.service().ingress
    w = w.restarted(restrict_service_annotations=restricts)
    status = {"loadBalancer": {"ingress": [ingress]}}
    w.cluster.put(w.changed(lambda raw: raw["status"].update(status)))
    async with running(w):
        await w.later()
        assert not w.service().ingress


@pytest.mark.parametrize("is_contested", [True, False])
async def test_who_shares_a_load_balancer_and_waits_keeps_no_address_with_a_port_of_another(
    is_contested: bool,
) -> None:
    """As for another load balancer, which is at work for long."""
    async with running_with(N1) as w:
        w.balancers.is_shared, w.balancers.is_contested = True, is_contested
        await w.put(service())
        before = w.service().ingress
        w.balancers.failures["ensure"] = [RetryAfter("it is PENDING_UPDATE", 2.0)] * 99
        await w.change(spec(ports=[port(6443)]))
        assert w.service().ingress == ([] if is_contested else before)


class Slow(Balancers):
    """Takes many changes, one after another."""

    is_slow = False

    async def ensure(self, service: Service, backends: Sequence[Node]) -> Balancer:
        if self.is_slow:
            self._write()
            raise RetryAfter("it is at work", 2.0)
        return await super().ensure(service, backends)


def without_annotations(raw: Json) -> None:
    raw["metadata"].pop("annotations", None)


@asynccontextmanager
async def sharing() -> AsyncIterator[World]:
    """A Service on a load balancer that is not its own, where the other ports are taken."""
    async with running_with(N1, balancers=Slow()) as w:
        w.balancers.is_shared = True
        await w.put(service())
        assert w.service().ingress
        w.balancers.is_contested = True
        yield w


async def test_who_changes_for_long_keeps_no_address_with_a_port_of_another() -> None:
    """As by a move to another load balancer, which has the port free."""
    async with sharing() as w:
        w.balancers.is_slow = True  # type: ignore[attr-defined]
        await w.change(spec(ports=[port(6443)]))
        assert not w.service().ingress


async def test_who_is_refused_the_port_of_another_once_keeps_no_address_until_the_next_try() -> (
    None
):
    """They may ask for less before that, and for more after it."""
    async with sharing() as w:
        w.balancers.failures["ensure"] = [TakenByAnother("port 6443 is another's")]
        await w.change(spec(ports=[port(6443)]))
        assert not w.service().ingress


async def test_who_is_refused_the_port_of_another_once_since_a_restart_keeps_no_address() -> None:
    """The first change since then wrote, and has not told whose the load balancer is."""
    async with sharing() as before:
        pass
    w = before.restarted()
    w.cluster.put(w.changed(spec(ports=[port(81)])))
    w.balancers.is_slow = True  # type: ignore[attr-defined]
    async with running(w):
        assert w.service().ingress, "the change goes on"
        w.balancers.is_slow = False  # type: ignore[attr-defined]
        w.balancers.failures["ensure"] = [TakenByAnother("port 6443 is another's")] * 2
        await w.change(spec(ports=[port(6443)]))
        assert not w.service().ingress


async def test_who_takes_the_finalizer_away_keeps_no_address_with_a_port_of_another() -> None:
    """All the time: it is written again minutes later, and nothing is asked of the cloud before."""
    async with sharing() as w:
        for _ in range(REVERTS + 1):
            await w.change(lambda raw: raw["metadata"].pop("finalizers", None))
        assert not w.service().has_finalizer, "its write waits"
        assert w.service().ingress
        await w.change(spec(ports=[port(6443)]))
        assert not w.service().ingress


async def test_who_is_deleted_for_long_keeps_no_address_with_a_port_of_another() -> None:
    """A Service may be changed until its finalizers are gone."""
    async with sharing() as w:
        w.balancers.failures["delete"] = [RetryAfter("it is at work", 2.0)] * 99
        await w.change(being_deleted)
        assert w.service().ingress
        await w.change(spec(ports=[port(6443)]))
        assert not w.service().ingress


async def test_who_waits_for_its_namespace_keeps_no_address_with_a_port_of_another() -> None:
    """Their calls may take minutes, and it is one of them who asks what the ports are."""
    async with sharing() as w:
        busy = [
            service(name=f"busy-{number}") for number in range(SETTINGS.concurrent_service_syncs)
        ]
        w.balancers.holds |= {item.name: asyncio.Event() for item in busy}
        w.cluster.put(*busy)
        await until(lambda: len(w.balancers.named("ensure")) > len(busy) / 2, "they are called")
        w.cluster.put(w.changed(spec(ports=[port(6443)])))
        await until(lambda: not w.service().ingress, "it keeps no address")


async def at_work(w: World, key: str, *tweaks: Tweak) -> asyncio.Event:
    """Change a Service, and have its call go on until this is set."""
    held = w.balancers.holds[w.service(key).name] = asyncio.Event()
    calls = len(w.balancers.calls)
    w.cluster.put(w.changed(*tweaks, key=key))
    await until(lambda: len(w.balancers.calls) > calls, "it is called")
    return held


async def test_who_is_at_work_keeps_no_address_with_a_port_of_another() -> None:
    """A call may take minutes, and the Service may be changed meanwhile."""
    async with sharing() as w:
        held = await at_work(w, KEY, annotated({"x": "y"}))
        w.cluster.put(w.changed(spec(ports=[port(6443)])))
        await until(lambda: not w.service().ingress, "it keeps no address")
        held.set()
        await w.rest()
        await w.change(spec(ports=[port(80)]))
        assert w.service().ingress


@pytest.mark.parametrize("asks_first", [True, False])
async def test_who_is_at_work_keeps_no_address_with_a_port_of_another_service(
    asks_first: bool,
) -> None:
    """Whichever of the two asks for it first: it is whose load balancer serves it."""
    async with running_with(service(), N1) as w:
        ingress = await with_its_address(w)
        asks = spec(ports=[port(81), port(443)])
        if asks_first:
            held = await at_work(w, HOSTILE, asks)
            await asyncio.sleep(1.0)
            assert w.service(HOSTILE).ingress == [ingress]
        w.cluster.put(w.changed(spec(ports=[port(80), port(443, nodePort=31000)])))
        if not asks_first:
            await w.rest()
            held = await at_work(w, HOSTILE, annotated({"x": "y"}))
            w.cluster.put(w.changed(asks, key=HOSTILE))
        await until(lambda: not w.service(HOSTILE).ingress, "it keeps no address")
        w.balancers.failures["ensure"] = [TakenByAnother("port 443 is another's")] * 2
        held.set()
        await w.rest()
        await w.later()
        assert not w.service(HOSTILE).ingress
        assert w.service().ingress == [ingress]


async def test_a_port_that_was_free_after_a_restart_is_not_taken_from_who_gets_it() -> None:
    """Refused since, the other keeps no address with it, and who gets it keeps theirs."""
    async with running_with(service(), N1) as before:
        ingress = await with_its_address(before, is_shared=True)
    w = before.restarted()
    asked = spec(ports=[port(81), port(443)])
    w.cluster.put(w.changed(asked, INVALID_RANGES, key=HOSTILE))
    async with running(w):
        await w.later()
        assert w.service(HOSTILE).ingress == [ingress], "its ports are no other's there"
        w.balancers.is_shared = False
        w.cluster.patches.clear()
        await w.change(spec(ports=[port(80), port(443, nodePort=31000)]))
        assert not w.service(HOSTILE).ingress
        assert w.service().ingress == [ingress]
        assert len(w.cluster.patches) == 1


@pytest.mark.parametrize("annotations", [{}, {"example.com/address": "192.0.2.1"}])
async def test_who_asks_for_more_and_less_for_ever_keeps_no_address_meanwhile(
    annotations: dict[str, str],
) -> None:
    """Writes of what changes again and again wait, but not those that take addresses away.

    What the tenant takes away, and is written with the status, makes it no other write.
    """
    async with running_with(N1) as w:
        w.balancers.is_shared, w.balancers.annotations = True, annotations
        await w.put(service())
        for _ in range(WRITES):
            w.balancers.refused = "port 6443 is another's"
            await w.change(spec(ports=[port(6443)]))
            assert not w.service().ingress
            w.balancers.refused = ""
            await w.change(spec(ports=[port(80)]), without_annotations)
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
        ingress = await with_its_address(w)
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


@asynccontextmanager
async def changing() -> AsyncIterator[tuple[World, Replacing]]:
    """A Service whose change has given up its address, and waits."""
    balancers = Replacing()
    async with running_with(service(), N1, balancers=balancers) as w:
        balancers.error = RetryAfter("the former one goes", 60.0)
        await w.change(spec(ports=[port(81)]))
        assert w.service().ingress, "the change goes on"
        yield w, balancers


async def test_who_is_refused_while_a_change_goes_on_keeps_no_address_that_this_gave_up() -> None:
    async with changing() as (w, balancers):
        balancers.failures["get"] = [CloudError("503")]
        await w.change(INVALID_RANGES)
        await w.later()
        assert not w.service().ingress


async def test_who_fails_after_a_change_that_waits_keeps_no_address_that_this_gave_up() -> None:
    """As with a security group that AWS does not know, which may yet come."""
    async with changing() as (w, balancers):
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
    async with changing() as (w, balancers):
        balancers.error = ImplementedElsewhere("there")
        await w.change(annotated({"example.com/type": "theirs"}))
        assert not w.service().ingress
        theirs = [{"ip": "203.0.113.7", "ipMode": "VIP"}]
        await w.change(lambda raw: raw["status"].update(loadBalancer={"ingress": theirs}))
        await w.change(spec(ports=[port(82)]))
        assert w.service().ingress == theirs


async def test_who_comes_back_and_waits_keeps_the_address_that_another_controller_gave_it() -> None:
    async with running_with(service(), N1) as before:
        pass
    w, theirs = before.restarted(), [{"ip": "203.0.113.7", "ipMode": "VIP"}]
    w.cluster.put(w.changed(lambda raw: raw["status"].update(loadBalancer={"ingress": theirs})))
    w.balancers.failures["ensure"] = [ImplementedElsewhere("there")]
    async with running(w):
        w.balancers.failures["ensure"] = [RetryAfter("busy", 2.0)] * 9
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


class Together(Balancers):
    """Writes once for all Services that wait, as Azure does with its one load balancer."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.is_refused = SharedWrite(self._write_all, gather=1.0), False

    async def _write_all(self, pending: Sequence[PendingChange[Service]]) -> None:
        self._write()
        for item in pending:
            name = self.name_for(item.change)
            self.records[name] = replace(self.records[name], ip="192.0.2.9")
        end_all(pending)

    async def ensure(self, service: Service, backends: Sequence[Node]) -> Balancer:
        if self.is_refused:
            await self.shared.do(service)
            raise Refused("the security group has no room")
        return await super().ensure(service, backends)


async def test_what_another_wrote_for_a_service_keeps_no_address_that_this_gave_up() -> None:
    balancers, other = Together(), service()
    other.raw["metadata"] |= {"name": "hostile", "uid": "hostile"}
    async with running_with(service(), other, N1, balancers=balancers) as w:
        balancers.is_refused = True
        for key in (HOSTILE, KEY):
            w.cluster.put(w.changed(spec(ports=[port(81)]), key=key))
        await w.later()
        assert [w.service(key).ingress for key in (HOSTILE, KEY)] == [[], []]


class Failing(Balancers):
    """Makes and changes nothing for one Service."""

    error: CloudError | None = None

    async def ensure(self, service: Service, backends: Sequence[Node]) -> Balancer:
        if self.error and service.key == KEY:
            raise self.error
        return await super().ensure(service, backends)

    async def delete(self, service: Service) -> None:
        raise RetryAfter("busy", 1.0)


@pytest.mark.parametrize(
    ("asks", "error"),
    [
        (INVALID_RANGES, None),
        (RANGES, Refused("no such flavor")),
        (RANGES, CloudError("503")),
        (RANGES, RetryAfter("busy", 1.0)),
        (typed("ClusterIP"), None),
    ],
    ids=["plan", "cloud", "error", "wait", "deletion"],
)
async def test_who_gets_no_change_keeps_no_address_that_another_gets(
    asks: Tweak, error: CloudError | None
) -> None:
    """As of a load balancer on OpenStack that is shared, whose owner gave its floating IP up."""
    balancers, other = Failing(), service(name="other")
    async with running_with(service(), N1, balancers=balancers) as w:
        (ingress,), balancers.error = w.service().ingress, error
        await w.change(asks)
        name, records = balancers.name_for(w.service()), balancers.records
        records[name] = replace(records[name], ip="192.0.2.9")
        records[balancers.name_for(other)] = Record(other.uid, ingress["ip"])
        w.cluster.put(other)
        await until(lambda: w.service(other.key).ingress == [ingress], "it has the address")
        await w.rest()
        assert not w.service().ingress


async def test_who_waits_since_a_restart_keeps_no_address_that_another_gets() -> None:
    """Nothing of it has succeeded in this process."""
    balancers, other = Failing(), service(name="other")
    async with running_with(service(), N1, balancers=balancers) as w:
        (ingress,) = w.service().ingress
    balancers.error = RetryAfter("busy", 1.0)
    async with running(w.restarted()) as w:
        name, records = balancers.name_for(w.service()), balancers.records
        records[name] = replace(records[name], ip="192.0.2.9")
        records[balancers.name_for(other)] = Record(other.uid, ingress["ip"])
        w.cluster.put(other)
        await until(lambda: w.service(other.key).ingress == [ingress], "it has the address")
        await w.rest()
        assert not w.service().ingress


@pytest.mark.parametrize("error", [None, Refused("no such flavor")], ids=["plan", "cloud"])
async def test_who_is_refused_keeps_no_address_that_went_without_a_change_of_it(
    error: CloudError | None,
) -> None:
    """As of a load balancer on OpenStack that is shared: no other Service publishes it."""
    balancers = Failing()
    async with running_with(service(), N1, balancers=balancers) as w:
        before, balancers.error = w.service().ingress, error
        await w.change(RANGES if error else INVALID_RANGES)
        await asyncio.sleep(2 * TIMINGS.balancer_resync_period)
        assert w.service().ingress == before
        name, records = balancers.name_for(w.service()), balancers.records
        records[name] = replace(records[name], ip="192.0.2.9")
        reads = len(balancers.named("get"))
        await asyncio.sleep(2 * TIMINGS.balancer_resync_period)
        assert not w.service().ingress
        assert len(balancers.named("get")) - reads <= 4
