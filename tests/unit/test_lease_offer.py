"""A leader that cannot run a controller offers its Lease; if nobody wants it, it goes on."""

import asyncio
from dataclasses import replace

import pytest

from ccm.errors import KubernetesError

from .lease_world import CONFIG, ApiServer, Fate, Replica, Request
from .test_leader_election import ends, foreign_lease, leads_at, started, until

pytestmark = pytest.mark.virtual_time

LIMIT = 60.0
OFFERING = replace(CONFIG, offer_after=LIMIT)
GRACE = CONFIG.write_grace
OFFERED = 2 * CONFIG.retry_period


def now() -> float:
    return asyncio.get_running_loop().time()


async def hurt(*identities: str) -> tuple[ApiServer, list[Replica]]:
    """Replicas that run, all rivals of one another, of which the first leads and is hurt."""
    server, replicas = await started(*identities, timing=OFFERING)
    await asyncio.sleep(9.0)
    replicas[0].hurt()
    return server, replicas


def warnings(server: ApiServer) -> list[str]:
    return [event["message"] for event in server.events if event["type"] == "Warning"]


async def test_nothing_acts_between_the_offer_and_the_end_of_it() -> None:
    server, [one] = await hurt("one")
    await until(lambda: not one.leader.is_leading(), LIMIT + CONFIG.retry_period)
    stopped = now()
    assert "offers the lease" in one.leader.last_decision
    await until(lambda: not server.holder(), GRACE + 0.2)
    assert now() - stopped >= GRACE
    released = now()
    await asyncio.sleep(1.0)
    assert one.leader.last_decision == (
        "does not acquire the lease: workers are not ready: node-0: no credentials"
    )
    back = await leads_at(one, OFFERED + 1.0)
    assert OFFERED <= back - released < OFFERED + 0.6
    assert "it was released" in one.leader.last_decision
    assert back - stopped < CONFIG.renew_deadline  # before its workers end by themselves


async def test_a_standby_whose_workers_are_not_up_does_not_take_it() -> None:
    server, [one, two] = await hurt("one", "two")
    two.hurt()
    await asyncio.sleep(8 * LIMIT)
    assert one.leader.is_leading()
    assert len(warnings(server)) == 3  # ever more seldom
    assert two.permits == []


async def test_a_leader_with_a_worker_that_does_not_stop_goes_on() -> None:
    """It is frozen, say, right before a write."""
    server, [one, two] = await hurt("one", "two")
    one.fencing = None
    await asyncio.sleep(LIMIT + 20.0)
    assert len(warnings(server)) == 1
    assert one.leader.is_leading()
    assert (two.permits, two.overlaps) == ([], [])
    assert server.spec["leaseTransitions"] == 0


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.FAILED, Fate.LOST, Fate.UNHEARD])
@pytest.mark.parametrize("others", [0, 1])
async def test_an_offer_that_the_api_server_does_not_answer_leaves_one_leader(
    fate: Fate, others: int
) -> None:
    server, [one, *rest] = await hurt(*("one", "two")[: 1 + others])
    await until(lambda: not one.leader.is_leading(), LIMIT + CONFIG.retry_period)
    one.wire.script = iter([Request(), Request(fate)])  # it reads, and releases
    await asyncio.sleep(CONFIG.lease_duration + OFFERED)
    [leader] = [replica for replica in (one, *rest) if replica.leader.is_leading()]
    assert server.holder() == leader.identity
    assert [replica.overlaps for replica in (one, *rest)] == [[]] * (1 + others)


async def test_a_replica_that_led_does_not_lead_after_another_that_came_and_went() -> None:
    server, [one] = await hurt("one")
    await until(lambda: one.leader.last_decision.startswith("does not acquire"), 2 * LIMIT)
    lease = foreign_lease("guest")
    lease["spec"]["leaseTransitions"] = server.spec["leaseTransitions"] + 1
    lease["spec"]["holderIdentity"] = ""
    server.put(lease)
    await ends(one, OFFERED)
    assert one.permits[-1][1] == 0.0


async def test_a_lease_that_is_taken_back_by_a_write_that_went_unheard_is_ours() -> None:
    server, [one] = await hurt("one")
    await until(lambda: one.leader.last_decision.startswith("does not acquire"), 2 * LIMIT)
    await asyncio.sleep(OFFERED - CONFIG.retry_period / 4)
    one.wire.script = iter([Request(), Request(Fate.UNHEARD)])
    await asyncio.sleep(CONFIG.lease_duration)
    assert one.leader.is_leading()
    assert server.spec["leaseTransitions"] == 1


@pytest.mark.parametrize("moment", [1.0, GRACE + 1.0])
async def test_a_stop_during_an_offer_leaves_nothing_held(moment: float) -> None:
    server, [one] = await hurt("one")
    await until(lambda: not one.leader.is_leading(), LIMIT + CONFIG.retry_period)
    await asyncio.sleep(moment)
    await one.release()
    await ends(one, OFFERED)
    await asyncio.sleep(30.0)
    assert server.holder() == ""
    assert one.permits[-1][1] == 0.0


async def test_a_deleted_lease_during_an_offer_is_recreated() -> None:
    server, [one] = await hurt("one")
    await until(lambda: one.leader.last_decision.startswith("does not acquire"), 2 * LIMIT)
    server.lease = None
    await leads_at(one, OFFERED + 1.0)
    with pytest.raises(KubernetesError):
        server.handle("POST", "leases", {})
