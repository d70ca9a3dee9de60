"""A leader that cannot run a controller makes way for a replica that can, on real processes."""

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.cluster_nodes import kill
from tests.support.deadlines import timeout
from tests.support.environment import LEASES, Environment
from tests.support.replicas import Election, Replica, churn
from tests.support.running import Json, in_background, until

pytestmark = pytest.mark.real

COUNT = 40
GAP = 0.1  # seconds between two nodes that need work


@pytest.fixture
def limit() -> float:
    """Seconds for which workers may be down."""
    return timeout(2.5)


@pytest.fixture
def flags(limit: float) -> Sequence[str]:
    return f"--leader-elect-offer-after={limit:g}s", "--worker-steady-time=1s", "--node-workers=2"


def own_configuration(env: Environment, name: str) -> Path:
    """A copy of the cloud configuration, as each host has one."""
    return Path(shutil.copy(env.cloud.config, env.directory / f"{name}.conf"))


def lose_a_worker(replica: Replica, configuration: Path) -> None:
    """From now on its first node worker cannot start, while the second one goes on."""
    configuration.write_text("[Global]\nulr = nonsense\n")
    kill(replica.pids()["node-0"])


async def warnings(election: Election) -> list[Json]:
    """The Warning Events on its Lease."""
    return [event for event in await election.events() if event["type"] == "Warning"]


async def test_a_leader_that_cannot_run_a_controller_makes_way_for_a_replica_that_can(
    env: Environment, flags: Sequence[str], limit: float
) -> None:
    election = Election(env, "ccm-offer")
    names = await env.add_nodes(COUNT)
    broken = own_configuration(env, "a")
    with Replica("a", election, *flags, f"--cloud-config={broken}") as a:
        await env.nodes.until_initialized(COUNT)
        with Replica("b", election, *flags) as b:
            await until("b stands by", lambda: b.is_in("standby"))
            async with churn(env.api, names, GAP):
                began = time.monotonic()
                lose_a_worker(a, broken)
                await until("b leads", b.is_leading)
                without = time.monotonic() - began
                assert await asyncio.to_thread(a.exit_code) == 1
            await env.add_nodes(5, first=COUNT + 1)
            await env.nodes.until_initialized(COUNT + 5)
            assert b.is_in("running")
    history = election.history()
    assert list(history.strays()) == []
    assert [term.user for term in history.terms()] == [a.user, b.user]
    [warning] = await warnings(election)
    assert warning["reason"] == "LeaseOffered"
    assert "not up: node-0: " in warning["message"]
    last = max(write.answered for write in history.of(a))
    gap = history.terms()[1].taken - last
    print(f"the other led {without:.1f} s after the fault, {gap:.2f} s after the last write")
    assert without > limit
    assert gap >= election.durations.grace


def decision(replica: Replica) -> str:
    return str(replica.status().get("leader", {}).get("decision"))


async def note_free_times(env: Environment, lease: str, times: list[float]) -> None:
    """Note when nobody held this Lease."""
    while True:
        before = time.time()
        spec = (await env.api.get(f"{LEASES}/{lease}"))["spec"]
        if not spec["holderIdentity"]:
            times += [before, time.time()]
        await asyncio.sleep(0.02)


async def test_a_leader_whose_lease_no_one_wants_takes_it_back_and_goes_on(
    env: Environment, flags: Sequence[str]
) -> None:
    election, free = Election(env, "ccm-offer-alone"), list[float]()
    names = await env.add_nodes(COUNT)
    broken = own_configuration(env, "a")
    good = broken.read_text()
    with Replica("a", election, *flags, f"--cloud-config={broken}") as a:
        await env.nodes.until_initialized(COUNT)
        other = a.pids()["node-1"]

        async def leads_again() -> bool:
            """It has heard of its offer a moment after we may see it: the Lease is asked first."""
            holder = free and (await env.lease_spec(election.lease))["holderIdentity"]
            return bool(holder) and a.is_leading()

        async with (
            in_background(note_free_times(env, election.lease, free)),
            churn(env.api, names, GAP),
        ):
            lose_a_worker(a, broken)
            await until("it says why", lambda: "not up: node-0: " in decision(a))
            await until("it leads again", leads_again)
            await until("it works", lambda: election.history().work[-1].received > free[-1])
        assert a.workers()["node-1"]["state"] == "running"
        assert a.pids()["node-1"] == other
        broken.write_text(good)
        await until("all run again", lambda: a.is_in("running"))
        await env.nodes.until_initialized(COUNT)
        assert a.end() == 0
    history = election.history()
    assert await warnings(election)
    received, grace = [write.received for write in history.work], election.durations.grace
    fenced = [at for at in received if free[1] - grace + timeout(0.05) < at < free[-2]]
    assert fenced == []
    since = max(at for at in received if at < free[0])
    again = min(at for at in received if at > free[0])
    print(
        f"nothing acted for {again - since:.2f} s, the lease was free for {free[-2] - free[1]:.2f}"
    )
