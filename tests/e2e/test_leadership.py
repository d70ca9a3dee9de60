"""Who leads, on real processes and a real API server: hand-over, sudden death, foreign holders."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from ccm.errors import ExitCode
from ccm.kube.client import MERGE_PATCH
from ccm.model.objects import Json
from tests.support.cluster_nodes import kill
from tests.support.deadlines import timeout
from tests.support.environment import LEASES, Environment
from tests.support.replicas import DEFAULT, Durations, Election, Replica, all_gone
from tests.support.running import in_background, long, until

pytestmark = pytest.mark.real

MICROTIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(Durations.short, id="short"),
        pytest.param(lambda: DEFAULT, id="default", marks=long),
    ],
)
async def test_leadership_moves_on_and_initialized_nodes_are_left_alone(
    env: Environment, chosen: Callable[[], Durations]
) -> None:
    durations = chosen()
    election = Election(env, f"ccm-moves-{durations.lease:g}", durations)
    initialized = await env.add_nodes(20)
    with Replica("a", election) as a:
        await env.nodes.until_initialized(20)
        with Replica("b", election) as b, Replica("c", election) as c:
            await until("b and c stand by", lambda: b.is_in("standby") and c.is_in("standby"))
            standing_by = {replica: replica.pids() for replica in (b, c)}
            assert a.end() == 0  # in order: the lease is released
            first = await until("another leads", lambda: leading(b, c))
            await until("its workers run", lambda: first.is_in("running"))
            assert first.pids() == standing_by[first]
            last = c if first is b else b
            workers = first.pids().values()
            kill(first.process.pid)
            gone_after = await all_gone(workers)
            await until("the last leads", last.is_leading)
            await until("its workers run", lambda: last.is_in("running"))
            await env.add_nodes(5, first=21)
            await env.nodes.until_initialized(25)
        assert last.process.returncode == 0
    history = election.history()
    assert list(history.strays()) == []
    one, two, three = history.terms()
    assert [one.user, two.user, three.user] == [a.user, first.user, last.user]
    handed_over, silent = two.taken - one.last_written, three.taken - two.last_written
    print(f"orderly hand-over {handed_over:.3f} s, after SIGKILL {silent:.2f} s, ", end="")
    print(f"workers of the killed gone after {gone_after:.3f} s")
    assert handed_over < timeout(0.5)
    assert durations.lease <= silent <= durations.lease + durations.retry + timeout(0.1)
    touched = {write.entry.name for write in history.work if write.user != a.user}
    assert not touched & set(initialized)
    assert touched >= {f"vm-{number}" for number in range(21, 26)}
    assert env.nodes.rewritten() == []
    assert (await env.admin.counters())["writes"] == 0
    await check_events(election)


def leading(*replicas: Replica) -> Replica | None:
    return next((replica for replica in replicas if replica.is_leading()), None)


async def check_events(election: Election) -> None:
    events = await election.events()
    uid = (await election.env.api.get(f"{LEASES}/{election.lease}"))["metadata"]["uid"]
    for event in events:
        assert event["involvedObject"]["kind"] == "Lease"
        assert event["involvedObject"]["uid"] == uid
        assert (event["type"], event["reason"]) == ("Normal", "LeaderElection")
        assert event["source"]["component"] == "cloud-controller-manager"
    messages = [event["message"].partition(" ") for event in events]
    assert len({who for who, _, _ in messages}) == 3
    actions = sorted(what for _, _, what in messages)
    assert actions == 3 * ["became leader"] + 2 * ["stopped leading"]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def hold_lease(election: Election, renewals: list[str]) -> None:
    """Another implementation takes the lease and renews it as client-go does."""
    spec = {
        "holderIdentity": "control-plane-7_0b7e2c9a-7d0c-4a4e-b1a9-6a1f0c8a1d11",
        "leaseDurationSeconds": round(election.durations.lease),
        "acquireTime": _now(),
        "renewTime": _now(),
        "leaseTransitions": 41,
    }
    body: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
    meta = {"name": election.lease, "namespace": "kube-system"}
    await election.env.api.post(LEASES, {**body, "metadata": meta})
    while True:
        await asyncio.sleep(election.durations.retry)  # it keeps to its own times
        now = _now()
        body = {"spec": {"renewTime": now}}
        await election.env.api.patch(f"{LEASES}/{election.lease}", MERGE_PATCH, body)
        renewals.append(now)


async def test_a_foreign_holder_keeps_us_out_until_it_stops_renewing(env: Environment) -> None:
    election, renewals = Election(env, "ccm-foreign"), list[str]()
    durations = election.durations
    await env.add_nodes(5)
    async with in_background(hold_lease(election, renewals)) as foreign:
        await until("it is held", lambda: renewals)
        with Replica("ours", election) as ours:
            await until("ours stands by", lambda: ours.is_in("standby"))
            longer = len(renewals) + durations.lease / durations.retry + 1
            await until("it is held for longer than it lasts", lambda: len(renewals) > longer)
            assert not ours.is_leading()
            assert election.history().lease_writes == []
            assert env.nodes.initialized() == 0
            assert election.history().work == []
            foreign.cancel()
            await until("ours leads", ours.is_leading)
            [ours_since] = (term.taken for term in election.history().terms())
            silent = ours_since - datetime.fromisoformat(renewals[-1]).timestamp()
            print(f"after the foreign holder fell silent {silent:.2f} s")
            # One renewal more may have been under way when it ended.
            assert durations.lease <= silent <= durations.lease + 2 * durations.retry + timeout(0.1)
            await env.nodes.until_initialized(5)
            spec = await env.lease_spec(election.lease)
            assert spec["leaseTransitions"] == 42
            assert spec["leaseDurationSeconds"] == durations.lease
            assert re.fullmatch(r".+_[0-9a-f-]{36}", spec["holderIdentity"])
            assert MICROTIME.fullmatch(spec["renewTime"])
            assert MICROTIME.fullmatch(spec["acquireTime"])
    spec = await env.lease_spec(election.lease)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("", 42)


async def test_a_misconfigured_replica_does_not_win_a_free_lease(env: Environment) -> None:
    election = Election(env, "ccm-misconfigured", DEFAULT)
    with Replica("wrong", election, f"--cloud-config={env.directory}/none") as wrong:
        assert await asyncio.to_thread(wrong.exit_code) == ExitCode.CONFIGURATION
        assert "--cloud-config" in wrong.tail(1)
    assert election.history().lease_writes == []
    with Replica("right", election) as right:
        await until("it leads", right.is_leading)
    assert {write.user for write in election.history().lease_writes} == {right.user}
