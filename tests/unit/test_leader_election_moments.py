"""The election to the moment: when it asks, how long it waits for an answer, what it says of it."""

import asyncio
import logging
from dataclasses import replace

import pytest

from tests.support.virtual_time import EPOCH

from .lease_world import CONFIG, ApiServer, Fate, Replica, Request
from .test_leader_election import ends, foreign_lease, leads_at, started, until

pytestmark = pytest.mark.virtual_time

OFFERING = replace(CONFIG, offer_after=60.0)
RETRY = CONFIG.retry_period


def now() -> float:
    return asyncio.get_running_loop().time()


def last(server: ApiServer) -> float:
    """When the last request was handled."""
    return server.log[-1][0]


def reasons(caplog: pytest.LogCaptureFixture, message: str, key: str) -> list[str]:
    """This field of all log lines with this message."""
    return [vars(record)[key] for record in caplog.records if record.message == message]


# When it asks.


async def test_a_replica_without_a_lease_asks_four_times_a_retry_period() -> None:
    _, [one, two] = await started("one", "two")
    began = len(two.wire.timeouts)
    await asyncio.sleep(20.0)
    assert len(two.wire.timeouts) - began in (39, 40)  # the answer takes a moment
    assert not one.leader._events, "what has been sent is forgotten"


async def test_a_replica_that_is_not_ready_asks_no_more_often() -> None:
    one = Replica(ApiServer(), "one")
    one.is_ready = False
    one.start()
    await asyncio.sleep(10.0)
    assert len(one.wire.timeouts) in (19, 20, 21)


async def test_a_holder_that_fails_tries_again_sooner() -> None:
    server, [one] = await started("one")
    one.wire.normally = Request(Fate.FAILED)
    end, before = one.permits[-1][1], len(one.wire.timeouts)
    await asyncio.sleep(end - now())
    assert len(one.wire.timeouts) - before == 1 + (end - last(server) - RETRY) // (RETRY / 4 + 0.01)


async def test_the_first_attempt_of_one_that_never_led_does_not_end_with_a_permission() -> None:
    one = Replica(ApiServer(), "one", [Request(Fate.FAILED)] * 40, offset=500.0)
    assert (one.leader.last_decision, one.leader.refusal) == ("the lease was not read yet", "")
    one.start()
    assert await leads_at(one) - EPOCH == pytest.approx(40 * (RETRY / 4 + 0.01), abs=0.05)
    assert one.permits[-1][1] == pytest.approx(now() - 0.01 + CONFIG.renew_deadline, abs=0.02)


@pytest.mark.parametrize("offset", [0.0, 500.0])
async def test_when_it_last_looked_is_known(offset: float) -> None:
    one = Replica(ApiServer(), "one", [Request(there=1.0, back=2.0)], offset=offset)
    assert one.leader.checked_at == one.clock()
    one.start()
    await asyncio.sleep(3.2)
    assert one.leader.checked_at - offset - EPOCH == pytest.approx(3.0, abs=0.02)


# How long it waits for an answer.


@pytest.mark.parametrize("is_leader", [True, False])
async def test_an_answer_is_given_half_of_the_renew_deadline_and_after_that_all_of_it(
    is_leader: bool,
) -> None:
    one = Replica(ApiServer(), "one", [Request(Fate.LOST)] * 3 * (not is_leader), offset=500.0)
    one.start()
    if is_leader:
        await leads_at(one)
        one.wire.script = iter([Request(Fate.LOST)] * 3)
    half = CONFIG.renew_deadline / 2
    await asyncio.sleep(45.0)
    lost = 2 * is_leader
    assert one.wire.timeouts[lost : lost + 4] == [half] + [CONFIG.renew_deadline] * 3
    assert one.wire.timeouts[-1] == half
    await one.release()
    assert one.wire.timeouts[-2:] == [half] * 2


async def test_a_renewal_that_is_answered_late_counts_for_what_is_left_of_it() -> None:
    _, [one] = await started("one")
    one.wire.script = iter([Request(Fate.LOST), Request(), Request(back=9.5)])
    await until(lambda: not one.leader.is_leading(), 20.0)
    began = await leads_at(one)
    await until(lambda: one.permits[-1][1] == 0.0, 5.0)
    assert one.permits[-1][0] - began == pytest.approx(0.5, abs=0.02)


async def test_each_time_that_a_replica_is_not_ready_it_leaves_the_lease_for_as_long() -> None:
    one = Replica(ApiServer(), "one")
    one.is_ready = False
    one.start()
    await asyncio.sleep(10.0)
    one.is_ready, one.wire.script = True, iter([Request(), Request(Fate.FAILED)])
    await until(lambda: one.leader.last_decision.startswith("could not"), 2.0)
    one.is_ready, began = False, now()
    assert await leads_at(one) - began >= CONFIG.lease_duration


# What it counts and says.


async def test_each_write_of_someone_else_is_counted_once() -> None:
    server, [one] = await started("one")
    for count in range(3):
        assert one.leader.slow_paths == count
        server.annotate()
        await asyncio.sleep(RETRY)


async def test_the_end_of_a_leadership_is_logged_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, [one] = await started("one")
    one.wire.normally = Request(Fate.REFUSED)
    await asyncio.sleep(CONFIG.renew_deadline)
    late = "not renewed for 10 s; last: could not reach the lease: refused"
    assert reasons(caplog, "leadership suspended", "why") == [late]
    one.wire.normally = Request()
    await leads_at(one)
    server.put(foreign_lease("thief"))
    await ends(one)
    assert one.leader.last_decision == "stands by; thief leads"
    assert not one.leader.is_leading()
    assert reasons(caplog, "leadership lost", "why") == ["stands by; thief leads"]
    assert reasons(caplog, "leadership lost", "lease") == [one.leader.lease_name]


async def test_a_decision_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    _, [one] = await started("one")
    one.wire.script = iter([Request(Fate.FORBIDDEN)] * 2)
    await until(lambda: bool(one.leader.refusal), 5.0)
    assert one.leader.refusal == "the API server answered 403 Forbidden: no"
    await asyncio.sleep(20.0)
    assert {*reasons(caplog, "leader election", "lease")} == {one.leader.lease_name}
    assert reasons(caplog, "leader election", "decision") == [
        "created the lease and leads",
        "could not reach the lease: the API server answered 403 Forbidden: no",
        "holds the lease",
    ]
    assert reasons(caplog, "became leader", "identity") == ["one"]


async def test_a_release_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    server, [one] = await started("one")
    one.wire.normally = Request(Fate.REFUSED)
    await one.release()
    assert one.leader.last_decision != "released the lease"
    one.wire.normally = Request()
    server.put(foreign_lease("thief"))
    await one.leader.release()
    assert one.leader.last_decision != "released the lease"
    assert server.holder() == "thief"
    assert reasons(caplog, "lease not released", "error") == ["refused"]


async def test_the_end_of_a_leadership_is_reported_once() -> None:
    server, [one] = await started("one")
    server.put(foreign_lease("thief"))
    await ends(one)
    await one.release()
    await asyncio.sleep(1.0)
    assert [event["message"] for event in server.events] == [
        "one became leader",
        "one stopped leading",
    ]
    assert [until for _, until in one.permits][-2:] == [pytest.approx(now(), abs=15.0), 0.0]


# An offer.


async def test_a_replica_whose_workers_never_ran_offers_the_lease_that_it_holds() -> None:
    one = Replica(ApiServer(), "one", timing=OFFERING)
    one.hurt()
    one.start()
    await leads_at(one)
    await until(lambda: not one.leader.is_leading(), OFFERING.offer_after + RETRY)


async def test_an_offer_says_which_workers_are_down_and_why() -> None:
    server, [one] = await started("one", timing=OFFERING)
    one.hurt()
    one.down = {"node-0": "no credentials", "route": "no such network"}
    await until(lambda: not one.leader.is_leading(), 62.0)
    why = "node-0: no credentials; route: no such network"
    said = f"offers the lease to others, as its workers are not up: {why}"
    assert one.leader.last_decision == said
    await asyncio.sleep(1.0)
    [event] = [event for event in server.events if event["type"] == "Warning"]
    assert (event["reason"], event["message"]) == ("LeaseOffered", f"one {said}")
    await until(lambda: not server.holder(), CONFIG.write_grace)
    await asyncio.sleep(0.6)
    assert one.leader.last_decision == f"does not acquire the lease: workers are not ready: {why}"


@pytest.mark.parametrize(("fencing", "is_offered"), [(4.9, True), (5.1, False)])
async def test_half_of_the_permission_is_for_workers_to_stop(
    fencing: float, is_offered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server, [one] = await started("one", timing=OFFERING)
    one.hurt(fencing)
    await until(lambda: not one.leader.is_leading(), 62.0)
    await asyncio.sleep(fencing + CONFIG.write_grace + 0.2)
    assert (server.holder() == "") == is_offered
    reported = reasons(caplog, "this leader cannot run all controllers", "why")
    assert reported == ["node-0: no credentials"]


async def test_a_lease_that_is_deleted_while_a_worker_does_not_stop_is_recreated() -> None:
    server, [one] = await started("one", timing=OFFERING)
    one.hurt(None)
    await until(lambda: not one.leader.is_leading(), 62.0)
    server.lease = None
    await leads_at(one, 6.0)
    assert server.holder() == "one"


async def test_another_replica_takes_an_offered_lease_and_the_one_before_ends() -> None:
    _, [one, two] = await started("one", "two", timing=OFFERING)
    one.hurt()
    await leads_at(two, 80.0)
    await ends(one, RETRY)
    assert one.leader.last_decision == "another replica took the lease meanwhile"
    assert (one.permits[-1][1], two.overlaps) == (0.0, [])


# Its health.


async def test_a_leader_is_overdue_twenty_seconds_after_its_lease_ended() -> None:
    """Its process works, and a request of its election never ends, whatever its deadline."""
    stuck = Request(Fate.FROZEN, back=1000.0)
    replica = Replica(ApiServer(), "us", [Request(), Request(), stuck])
    assert not replica.leader.is_overdue()
    replica.start()
    await asyncio.sleep(1.0)
    assert replica.leader.is_leading()
    overdue = {}
    for seconds in (33, 36):
        await asyncio.sleep(EPOCH + seconds - replica.clock())
        overdue[seconds] = replica.leader.is_overdue()
    assert overdue == {33: False, 36: True}
    await replica.kill()
