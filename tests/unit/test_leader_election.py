"""The election against an API server that fails in every way, in virtual time."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from ccm.model.objects import Json
from ccm.supervisor.leader_election import LeaderElectionConfig
from tests.support.virtual_time import EPOCH

from .lease_world import CONFIG, ApiServer, Fate, Replica, Request

pytestmark = pytest.mark.virtual_time


async def leads_at(replica: Replica, within: float = 60.0) -> float:
    """When it was told that it may act; fails when that takes too long."""
    await until(replica.leader.is_leading, within)
    return replica.permits[-1][0]


async def ends(replica: Replica, within: float = 60.0) -> None:
    await until(lambda: replica.has_ended, within)


async def until(condition: Callable[[], bool], within: float) -> None:
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - it costs nothing in virtual time
            await asyncio.sleep(0.01)


async def started(
    *identities: str, timing: LeaderElectionConfig = CONFIG
) -> tuple[ApiServer, list[Replica]]:
    """Replicas that run, all rivals of one another, of which the first leads."""
    server = ApiServer()
    replicas = [Replica(server, identity, timing=timing) for identity in identities]
    for replica in replicas:
        replica.rivals = [other for other in replicas if other is not replica]
        replica.start()
        await leads_at(replicas[0])
    await asyncio.sleep(1.0)
    return server, replicas


def last_write(server: ApiServer, holder: str) -> float:
    return max(when for when, method, who in server.log if method != "GET" and who == holder)


def events(server: ApiServer) -> list[str]:
    return [event["message"] for event in server.events]


# Acquiring, renewing and releasing.


async def test_a_replica_alone_leads_and_renews_every_retry_period() -> None:
    server, [one] = await started("one")
    assert server.holder() == "one"
    assert one.leader.last_decision == "created the lease and leads"
    await asyncio.sleep(20)
    writes = [when for when, method, _ in server.log if method != "GET"]
    gaps = {round(after - before, 1) for before, after in pairwise(writes)}
    assert gaps == {CONFIG.retry_period}
    assert one.leader.last_decision == "holds the lease"
    assert not any(method == "GET" for _, method, _ in server.log)


async def test_a_permit_counts_from_the_sending_of_the_renewal() -> None:
    one = Replica(ApiServer(), "one", [Request(), Request(there=3.0, back=1.0)], offset=500.0)
    one.start()
    await leads_at(one)
    [(reported, end)] = one.permits
    assert reported - EPOCH == pytest.approx(4.01, abs=1e-3)
    assert end - EPOCH == pytest.approx(0.01 + CONFIG.renew_deadline, abs=1e-3)


async def test_a_released_lease_is_taken_at_the_next_look() -> None:
    server, [one, two] = await started("one", "two")
    await asyncio.sleep(9.3)
    await one.release()
    released = server.log[-1][0]
    assert server.spec["leaseDurationSeconds"] == 1
    assert await leads_at(two) - released < CONFIG.retry_period / 4 + 0.1
    assert "it was released" in two.leader.last_decision
    assert server.spec["leaseTransitions"] == 1
    await ends(one, CONFIG.retry_period)
    assert one.leader.last_decision == "released the lease"
    assert events(server) == ["one became leader", "one stopped leading", "two became leader"]


def foreign_lease(holder: str) -> Json:
    """A Lease as client-go writes it."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "ccm", "namespace": "ns", "uid": "uid-1"},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:01.000000Z",
            "leaseTransitions": 4,
        },
    }


# Failures.


async def test_a_renewal_that_went_through_unheard_does_not_cost_the_leadership() -> None:
    server, [one] = await started("one")
    one.wire.script = iter([Request(Fate.UNHEARD)])
    await asyncio.sleep(30)
    assert not one.has_ended
    assert server.spec["leaseTransitions"] == 0
    longest = max(b - a for (a, _), (b, _) in pairwise(one.permits))
    assert longest < CONFIG.renew_deadline  # it was never without a permission


async def test_a_lease_taken_by_a_write_that_went_unheard_is_ours_at_the_next_look() -> None:
    one = Replica(server := ApiServer(), "one", [Request(), Request(Fate.UNHEARD)])
    one.start()
    assert await leads_at(one) - EPOCH < CONFIG.request_timeout + CONFIG.retry_period
    assert server.spec["leaseTransitions"] == 0


async def test_a_change_by_someone_else_costs_no_time() -> None:
    server, [one] = await started("one")
    for _ in range(10):
        server.annotate()
        await asyncio.sleep(2.0)
        assert one.leader.last_decision == "holds the lease"
    assert not one.has_ended


FAILURES = [Fate.REFUSED, Fate.FAILED, Fate.FORBIDDEN, Fate.LOST]


@pytest.mark.parametrize("fate", [*FAILURES, Fate.UNHEARD])
async def test_a_holder_that_cannot_renew_stops_with_its_permission_and_ends_after_another_led(
    fate: Fate,
) -> None:
    server, [one, two] = await started("one", "two")
    one.wire.normally = Request(fate)
    end = one.permits[-1][1]
    await until(lambda: one.permits[-1][1] == 0.0, 60.0)
    assert asyncio.get_running_loop().time() == pytest.approx(end, abs=0.05)
    await leads_at(two)
    assert "could not reach the lease" in one.leader.last_decision
    await two.release()
    one.wire.normally = Request()
    await ends(one)
    assert (server.holder(), one.leader.is_leading(), two.overlaps) == ("", False, [])


@pytest.mark.parametrize("fate", FAILURES)
async def test_a_holder_leads_again_once_it_can_renew_unless_another_did(fate: Fate) -> None:
    server, [one] = await started("one")
    one.wire.normally = Request(fate)
    await asyncio.sleep(40)
    assert not one.leader.is_leading()
    assert bool(one.leader.refusal) is (fate is Fate.FORBIDDEN)
    assert not one.leader.is_overdue()
    one.wire.normally = Request()
    await leads_at(one, CONFIG.renew_deadline + CONFIG.retry_period)
    assert (one.leader.refusal, server.spec["leaseTransitions"]) == ("", 0)


async def test_who_is_refused_for_long_asks_every_retry_period() -> None:
    _, [one] = await started("one")
    one.wire.normally = Request(Fate.FORBIDDEN)
    await asyncio.sleep(20)
    asked = len(one.wire.timeouts)
    await asyncio.sleep(30)
    assert len(one.wire.timeouts) - asked <= 30 / CONFIG.retry_period


@pytest.mark.parametrize("is_slow_from_the_start", [True, False])
async def test_a_lease_that_is_answered_after_six_seconds_is_held(
    is_slow_from_the_start: bool,
) -> None:
    server, slow = ApiServer(), Request(there=3.0, back=3.0)
    one, two = Replica(server, "one"), Replica(server, "two")
    one.rivals, two.rivals = [two], [one]
    if is_slow_from_the_start:
        one.wire.normally = slow
    one.start()
    await leads_at(one)
    one.wire.normally = slow
    two.start()
    await asyncio.sleep(30)
    leading = 0
    for _ in range(1000):
        await asyncio.sleep(0.1)
        leading += one.leader.is_leading()
    assert leading > 600
    assert (one.has_ended, two.permits) == (False, [])


async def test_a_short_outage_costs_nothing() -> None:
    _, [one] = await started("one")
    one.wire.script = iter([Request(Fate.LOST), Request(Fate.FAILED), Request(Fate.REFUSED)])
    await asyncio.sleep(30)
    assert not one.has_ended
    assert one.leader.is_leading()
    assert one.leader.last_decision == "holds the lease"


async def test_a_holder_that_was_stopped_ends_and_takes_nothing_back() -> None:
    server, [one, two] = await started("one", "two")
    one.wire.script = iter([Request(Fate.FROZEN, there=60.0)])
    await ends(one, 90.0)
    assert two.leader.is_leading()
    assert server.holder() == "two"
    assert one.leader.last_decision == "another replica took the lease meanwhile"
    await one.release()
    assert server.holder() == "two"
    assert "one stopped leading" in events(server)


async def test_a_stopped_holder_whose_lease_no_one_took_goes_on() -> None:
    server, [one] = await started("one")
    one.wire.script = iter([Request(Fate.FROZEN, there=60.0)])
    await asyncio.sleep(60.0 + CONFIG.retry_period)
    assert one.leader.is_leading()
    assert server.spec["leaseTransitions"] == 0


async def test_a_lease_taken_away_by_force_is_noticed_at_the_next_renewal() -> None:
    server, [one] = await started("one")
    server.put(foreign_lease("thief"))
    await ends(one, CONFIG.retry_period + 0.1)
    assert one.permits[-1][1] == 0.0
    assert server.holder() == "thief"


async def test_a_deleted_lease_goes_back_to_its_holder() -> None:
    server, [one, two] = await started("one", "two")
    server.lease = None
    await asyncio.sleep(30)
    assert server.holder() == "one"
    assert not one.has_ended
    assert two.permits == []


async def test_a_deleted_lease_of_a_dead_holder_is_made_again_when_it_would_have_run_out() -> None:
    server, [one, two] = await started("one", "two")
    await one.kill()
    server.lease = None
    silent = await leads_at(two) - last_write(server, "one")
    assert CONFIG.lease_duration <= silent <= CONFIG.lease_duration + CONFIG.retry_period


async def test_an_event_that_hangs_delays_neither_renewals_nor_the_stop() -> None:
    server = ApiServer()
    one = Replica(server, "one")
    one.wire.events = Request(Fate.LOST)
    one.start()
    await leads_at(one)
    await asyncio.sleep(20)
    assert one.leader.is_leading()
    began = asyncio.get_running_loop().time()
    await one.release()
    assert asyncio.get_running_loop().time() - began < 2.0


# Replicas whose workers are not up.


def not_ready(server: ApiServer, identity: str) -> Replica:
    replica = Replica(server, identity)
    replica.is_ready = False
    replica.start()
    return replica


async def test_a_replica_that_becomes_ready_takes_a_free_lease_at_once() -> None:
    one = not_ready(ApiServer(), "one")
    await asyncio.sleep(0.7)
    one.is_ready = True
    assert await leads_at(one) - EPOCH < 0.75


async def test_a_replica_alone_leads_after_one_lease_duration_although_it_is_not_ready() -> None:
    server = ApiServer()
    one = not_ready(server, "one")
    assert 0 <= await leads_at(one) - EPOCH - CONFIG.lease_duration < CONFIG.retry_period
    one.is_ready = True
    before = len(server.log)
    await asyncio.sleep(20.5)
    assert len(server.log) - before == 20 / CONFIG.retry_period


async def test_a_replica_that_becomes_ready_while_the_server_fails_does_not_spin() -> None:
    one = not_ready(ApiServer(), "one")
    await asyncio.sleep(1.0)
    one.is_ready = True
    one.wire.script = iter([Request(Fate.FAILED)] * 5000)
    await asyncio.sleep(20.0)
    assert 5000 - len([*one.wire.script]) <= 4 * 20.0 / CONFIG.retry_period + 1


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("is_orderly", [True, False])
async def test_a_standby_that_is_not_ready_takes_over_last(is_orderly: bool, others: bool) -> None:
    server, [one] = await started("one")
    two = not_ready(server, "two")
    await asyncio.sleep(40)  # it leaves nothing to others while another leads
    three = Replica(server, "three")
    if others:
        three.start()
        await asyncio.sleep(1.0)
    await (one.release() if is_orderly else one.kill())
    last = last_write(server, "" if is_orderly else "one")
    without = await leads_at(three if others else two) - last
    expected = (not is_orderly) + (not others)
    assert 0 <= without - expected * CONFIG.lease_duration < 2 * CONFIG.retry_period
    await asyncio.sleep(60)
    assert others == (two.permits == [])


async def test_a_leader_that_is_not_ready_keeps_its_lease() -> None:
    server, [one, two] = await started("one", "two")
    one.is_ready = False
    await asyncio.sleep(60)
    server.lease = None
    await asyncio.sleep(60)
    assert (server.holder(), two.permits) == ("one", [])


# Releasing at a bad moment.


@pytest.mark.parametrize("there", [0.0, 0.005, 0.5])
@pytest.mark.parametrize("fate", [Fate.ANSWERED, Fate.UNHEARD])
async def test_a_release_while_a_write_is_under_way_leaves_nothing_held(
    fate: Fate, there: float
) -> None:
    server = ApiServer()
    one = Replica(server, "one", [Request(), Request(fate, there=there)])
    one.start()
    await asyncio.sleep(0.012)  # its first write is under way
    await one.release()
    await asyncio.sleep(1.0)
    assert server.holder() == ""
    assert one.permits == [] or one.permits[-1][1] == 0.0


async def test_a_release_that_fails_still_ends_the_permission() -> None:
    server, [one] = await started("one")
    one.wire.normally = Request(Fate.REFUSED)
    await one.release()
    assert one.permits[-1][1] == 0.0
    await ends(one)
    assert server.holder() == "one"


async def test_a_standby_that_stops_gives_nothing_back() -> None:
    server, [_, two] = await started("one", "two")
    await two.release()
    await ends(two)
    assert server.holder() == "one"
    assert events(server) == ["one became leader"]
