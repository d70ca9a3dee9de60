"""Who leads, on real processes and a real API server: hand-over, sudden death, foreign holders."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.kubelets import new_machines, register
from tests.kube.cluster import RealCluster
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes, kill
from tests.proc.replicas import (
    DEFAULT,
    LEASES,
    SHORT,
    Durations,
    Replica,
    Stage,
    all_gone,
    until,
)
from tests.proc.running import Cloud, Supervisor, Where, long

pytestmark = pytest.mark.real

MICROTIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def stage(
    cluster: RealCluster, cloud: Cloud, directory: Path, durations: Durations, lease: str
) -> Stage:
    return Stage(cluster, directory, cloud.config, durations, lease)


async def test_leadership_moves_on_and_settled_nodes_are_left_alone(
    cluster: RealCluster, cloud: Cloud, tmp_path: Path, api: Kube, witness: Witness
) -> None:
    here = stage(cluster, cloud, tmp_path, SHORT, "ccm-moves")
    settled = await add_machines_and_nodes(api, cloud.url, 20)
    with Replica("a", here) as a:
        await witness.until_initialised(20, 30)
        with Replica("b", here) as b, Replica("c", here) as c:
            await until("b and c stand by", lambda: b.is_in("standby") and c.is_in("standby"))
            assert a.end() == 0  # in order: the lease is given back
            first = await until("another leads", lambda: leading(b, c))
            last = c if first is b else b
            workers = first.worker_pids()
            kill(first.process.pid)
            gone_after = await all_gone(workers, 1.0)
            await until("the last leads", last.may_act)
            await until("its workers run", lambda: last.is_in("running"))
            await _register_more(api, cloud, 5)
            await witness.until_initialised(25, 30)
        assert last.process.returncode == 0
    history = here.history()
    assert list(history.strays()) == []
    one, two, three = history.terms()
    assert [one.user, two.user, three.user] == [a.user, first.user, last.user]
    handed_over, silent = two.taken - one.last_written, three.taken - two.last_written
    print(f"orderly hand-over {handed_over:.3f} s, after SIGKILL {silent:.2f} s, ", end="")
    print(f"workers of the killed gone after {gone_after:.3f} s")
    assert handed_over < 1.0
    assert SHORT.lease <= silent <= SHORT.lease + SHORT.retry
    touched = {done.entry.name for done in history.work if done.user != a.user}
    assert not touched & set(settled)
    assert touched >= {f"vm-{number}" for number in range(21, 26)}
    assert witness.rewritten() == []
    async with CloudAdmin(cloud.url) as admin:
        assert (await admin.counters())["writes"] == 0
    await _check_events(api, here, a)


def leading(*replicas: Replica) -> Replica | None:
    return next((replica for replica in replicas if replica.may_act()), None)


async def _register_more(api: Kube, cloud: Cloud, count: int) -> None:
    async with CloudAdmin(cloud.url) as admin:
        machines = await admin.add(new_machines(21, count))
    await register(api, [machine.name for machine in machines])


async def _check_events(api: Kube, here: Stage, first: Replica) -> None:
    found = (await api.get("/api/v1/namespaces/kube-system/events"))["items"]
    announced = [one for one in found if one["involvedObject"]["name"] == here.lease]
    lease = await api.get(f"{LEASES}/{here.lease}")
    for one in announced:
        assert one["involvedObject"]["kind"] == "Lease"
        assert one["involvedObject"]["uid"] == lease["metadata"]["uid"]
        assert (one["type"], one["reason"]) == ("Normal", "LeaderElection")
        assert one["source"]["component"] == "cloud-controller-manager"
    told = [one["message"].partition(" ") for one in announced]
    assert len({who for who, _, _ in told}) == 3
    assert sorted(what for _, _, what in told) == 3 * ["became leader"] + 2 * ["stopped leading"]


class Peer:
    """Another implementation that holds the lease and writes it as client-go does."""

    def __init__(self, api: Kube, here: Stage) -> None:
        self._api, self._here = api, here
        self.renewed = 0.0

    async def take(self) -> None:
        now = _now()
        spec = {
            "holderIdentity": "control-plane-7_0b7e2c9a-7d0c-4a4e-b1a9-6a1f0c8a1d11",
            "leaseDurationSeconds": round(self._here.durations.lease),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 41,
        }
        body: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        body["metadata"] = {"name": self._here.lease, "namespace": "kube-system"}
        await self._api.post(LEASES, body)

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        async def renew() -> None:
            while True:
                body = {"spec": {"renewTime": _now()}}
                await self._api.patch(f"{LEASES}/{self._here.lease}", MERGE_PATCH, body)
                self.renewed = time.monotonic()
                await asyncio.sleep(self._here.durations.retry)

        running = asyncio.create_task(renew())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def test_a_foreign_holder_keeps_us_out_until_it_stops_renewing(
    cluster: RealCluster, cloud: Cloud, tmp_path: Path, api: Kube, witness: Witness
) -> None:
    here = stage(cluster, cloud, tmp_path, Durations(3.0, 2.0, 0.4), "ccm-foreign")
    await add_machines_and_nodes(api, cloud.url, 5)
    peer = Peer(api, here)
    await peer.take()
    with Replica("ours", here) as ours:
        async with peer.renewing():
            await until("ours stands by", lambda: ours.is_in("standby"))
            began = time.monotonic()
            while time.monotonic() - began < here.durations.lease + 0.5:
                assert not ours.may_act()
                await asyncio.sleep(0.1)
            assert witness.initialised() == 0
            assert here.history().work == []
        await until("ours leads", ours.may_act)
        silent = time.monotonic() - peer.renewed
        print(f"after the foreign holder fell silent {silent:.2f} s")
        assert here.durations.lease <= silent <= here.durations.lease + here.durations.retry + 0.2
        await witness.until_initialised(5, 10)
        spec = here.lease_spec()
        assert spec["leaseTransitions"] == 42
        assert spec["leaseDurationSeconds"] == 3
        assert re.fullmatch(r".+_[0-9a-f-]{36}", spec["holderIdentity"])
        assert MICROTIME.fullmatch(spec["renewTime"])
        assert MICROTIME.fullmatch(spec["acquireTime"])
    spec = here.lease_spec()
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("", 42)


@pytest.mark.alone
async def test_an_orderly_stop_leaves_less_than_a_second_without_a_leader(
    cluster: RealCluster, cloud: Cloud, tmp_path: Path, api: Kube
) -> None:
    here = stage(cluster, cloud, tmp_path, DEFAULT, "ccm-orderly")
    with Replica("a", here) as a, Replica("b", here) as b:
        first = await until("one leads", lambda: leading(a, b))
        second = b if first is a else a
        await until("the other stands by", lambda: second.is_in("standby"))
        first.end()
        await until("the other leads", second.may_act)
        await until("its workers run", lambda: second.is_in("running"), 1.0)
    one, two = here.history().terms()
    print(f"default durations, orderly hand-over {two.taken - one.last_written:.3f} s")
    assert two.taken - one.last_written < 1.0


async def test_without_leader_election_there_is_no_lease(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    await add_machines_and_nodes(api, cloud.url, 5)
    flags = ("--leader-elect=false", "--leader-elect-resource-name=ccm-none")
    with Supervisor(where, *flags) as supervisor:
        await witness.until_initialised(5, 30)
        assert supervisor.status()["leader"]["is_leader"]
        assert supervisor.end() == 0
    leases = (await api.get(LEASES))["items"]
    assert "ccm-none" not in {lease["metadata"]["name"] for lease in leases}


@long
async def test_a_killed_leader_is_replaced_with_the_default_durations(
    cluster: RealCluster, cloud: Cloud, tmp_path: Path, api: Kube
) -> None:
    here = stage(cluster, cloud, tmp_path, DEFAULT, "ccm-default")
    with Replica("a", here) as a:
        await until("a leads", a.may_act)
        with Replica("b", here) as b:
            await until("b stands by", lambda: b.is_in("standby"))
            kill(a.process.pid)
            await until("b leads", b.may_act)
    one, two = here.history().terms()
    silent = two.taken - one.last_written
    print(f"default durations, after SIGKILL {silent:.2f} s")
    assert DEFAULT.lease <= silent <= DEFAULT.lease + DEFAULT.retry
