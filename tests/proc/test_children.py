"""The life of workers as real processes: killed, hanging, replaced, multiplied, poisoned."""

import asyncio
import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.kubelets import new_machines, register
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes, kill
from tests.proc.running import IS_LONG, Cloud, Supervisor, Where, is_alive, tell, until

pytestmark = pytest.mark.real

ALL_CONTROLLERS = ("--controllers=*", "--cluster-cidr=10.240.0.0/12")

SLOWLY = ("--kube-api-qps=60", "--kube-api-burst=1")  # of each worker: work is in hand for long
COUNT = 200

Written = Callable[[], Counter[tuple[str, str]]]


def objects_of_node_workers(supervisor: Supervisor) -> int:
    workers = supervisor.workers().items()
    return sum(w.get("objects", 0) for name, w in workers if name.startswith("node-"))


def runs_anew(supervisor: Supervisor, name: str, old_pid: int) -> bool:
    worker = supervisor.workers().get(name, {})
    return worker.get("state") == "running" and worker["pid"] != old_pid


def pids(supervisor: Supervisor) -> dict[str, int]:
    return {name: worker["pid"] for name, worker in supervisor.workers().items()}


async def add_one(api: Kube, cloud: Cloud, number: int) -> None:
    async with CloudAdmin(cloud.url) as admin:
        [machine] = await admin.add(new_machines(number, 1))
    await register(api, [machine.name])


@pytest.mark.alone
async def test_killed_workers_are_back_within_a_second(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    """Recovery counts from the kill to the successor's running with its whole snapshot.

    Each kind of worker is killed twice; four times with `CCM_LONG=1`.
    """
    chance, first, kills = random.Random(20), 200, 20 if IS_LONG else 10
    seconds = []
    flags = (*ALL_CONTROLLERS, "--node-workers=2", "--worker-steady-time=10ms")
    with Supervisor(where, *flags) as supervisor:
        supervisor.wait_running()
        await add_machines_and_nodes(api, cloud.url, first)
        for number in range(first + 1, first + kills + 1):
            before = pids(supervisor)
            name = sorted(before)[number % len(before)]  # each kind of worker in its turn
            await add_one(api, cloud, number)
            await asyncio.sleep(chance.uniform(0.0, 0.02))
            killed_at = time.monotonic()
            kill(before[name])
            await until("it runs anew", lambda: runs_anew(supervisor, name, before[name]))  # noqa: B023
            seconds.append(time.monotonic() - killed_at)
            after = pids(supervisor)
            assert {n for n in after if after[n] != before[n]} == {name}
        await witness.until_initialised(first + kills, 60)
        workers = supervisor.workers()
        assert sum(worker["restarts"] for worker in workers.values()) == kills
        await until(
            "they have all state",
            lambda: objects_of_node_workers(supervisor) == first + kills,
        )
        assert supervisor.status()["leader"]["is_leader"]
        assert supervisor.end() == 0
    median = statistics.median(seconds)
    print(f"recovery from SIGKILL: median {median:.2f} s, worst {max(seconds):.2f} s")
    assert median < 1.0
    assert witness.rewritten() == []


async def test_a_hanging_worker_is_replaced_and_leaves_its_stacks(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    with Supervisor(where, "--worker-silence-limit=2s") as supervisor:
        old = supervisor.wait_running()["node-0"]["pid"]
        os.kill(old, signal.SIGSTOP)
        await add_machines_and_nodes(api, cloud.url, 20)
        await witness.until_initialised(20, 30)
        assert pids(supervisor)["node-0"] != old
        assert supervisor.end() == 0
        assert "worker is silent and will be killed" in supervisor.tail(100)
        assert "Fatal Python error: Aborted" in supervisor.tail(200)
        assert not is_alive(old)


async def test_a_hand_over_in_the_middle_of_work_leaves_nothing_out_and_does_nothing_twice(
    where: Where, cloud: Cloud, api: Kube, witness: Witness, written: Written
) -> None:
    await add_machines_and_nodes(api, cloud.url, COUNT)
    with Supervisor(where, *SLOWLY) as supervisor:
        await witness.until_initialised(10, 60)
        old = pids(supervisor)["node-0"]
        assert "hands over" in await tell(supervisor, command="restart", worker="node-0")
        assert witness.initialised() < COUNT
        await until("the successor works", lambda: runs_anew(supervisor, "node-0", old))
        await witness.until_initialised(COUNT, 60)
        assert not is_alive(old)
        assert supervisor.end() == 0
    assert set(written().values()) == {1}
    assert len(written()) == 2 * COUNT


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
async def test_scaling_in_the_middle_of_work_leaves_nothing_out_and_does_nothing_twice(
    before: int,
    after: int,
    where: Where,
    cloud: Cloud,
    api: Kube,
    witness: Witness,
    written: Written,
) -> None:
    await add_machines_and_nodes(api, cloud.url, COUNT)
    with Supervisor(where, *SLOWLY, f"--node-workers={before}") as supervisor:
        await witness.until_initialised(10, 60)
        await tell(supervisor, command="scale", count=after)
        assert witness.initialised() < COUNT
        assert len(await asyncio.to_thread(supervisor.wait_running)) == after
        await witness.until_initialised(COUNT, 60)
        workers = supervisor.wait_running()
        await until(
            "they know their share",
            lambda: sum(w.get("objects", 0) for w in supervisor.workers().values()) == COUNT,
        )
        assert supervisor.end() == 0
    assert not any(is_alive(worker["pid"]) for worker in workers.values())
    assert set(written().values()) == {1}
    assert len(written()) == 2 * COUNT


async def test_new_cloud_credentials_that_do_not_work_leave_the_old_ones_in_use(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    with Supervisor(where) as supervisor:
        old = supervisor.wait_running()["node-0"]["pid"]
        good = cloud.config.read_text()
        cloud.config.write_text("[Global]\nulr = nonsense\n")
        supervisor.process.send_signal(signal.SIGHUP)
        await until("it says why", lambda: supervisor.workers()["node-0"]["faults"])
        assert "ulr" in str(supervisor.workers()["node-0"]["faults"])
        assert pids(supervisor)["node-0"] == old
        await add_machines_and_nodes(api, cloud.url, 10)
        await witness.until_initialised(10, 30)
        cloud.config.write_text(good)
        supervisor.process.send_signal(signal.SIGHUP)
        await until("the new one works", lambda: runs_anew(supervisor, "node-0", old))
        assert supervisor.workers()["node-0"]["faults"] == []
        assert supervisor.end() == 0


POISON = '''
"""A provider that ends its process when it is asked about a certain node."""
import os
from ccm.providers.simulated.provider import SimulatedCloud

class Poison(SimulatedCloud):
    async def initialize(self, context):
        await super().initialize(context)
        describe = self.instances.describe
        async def deadly(nodes):
            if any(node.name == "vm-7" for node in nodes):
                os.kill(os.getpid(), 9)
            return await describe(nodes)
        self.instances.describe = deadly
'''


async def test_a_node_that_kills_its_worker_is_quarantined_and_all_others_are_served(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: Where,
    cloud: Cloud,
    api: Kube,
    witness: Witness,
) -> None:
    plugins = tmp_path / "plugins"
    info = plugins / "poison-1.0.dist-info"
    info.mkdir(parents=True)
    (plugins / "poison.py").write_text(POISON)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: poison\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ccm.cloud_providers]\npoison = poison:Poison\n")
    monkeypatch.setenv("PYTHONPATH", str(plugins))
    await add_machines_and_nodes(api, cloud.url, 30)
    with Supervisor(where, "--cloud-provider=poison") as supervisor:
        await witness.until_initialised(29, 60)
        await until("it is quarantined", lambda: supervisor.status()["quarantined"])
        assert list(supervisor.status()["quarantined"]["node"]) == ["vm-7"]
        await until("status says so", lambda: supervisor.workers()["node-0"].get("reasons"))
        assert "quarantined" in supervisor.workers()["node-0"]["reasons"]["vm-7"]
        assert supervisor.workers()["node-0"]["restarts"] == 2
        assert supervisor.end() == 0
    events = (await api.get("/api/v1/namespaces/default/events"))["items"]
    told = {(e["involvedObject"]["name"], e["reason"]) for e in events if e["type"] == "Warning"}
    assert told == {("vm-7", "Quarantined")}


async def test_a_worker_that_grew_too_large_hands_over(where: Where) -> None:
    with Supervisor(where, "--worker-memory-limit=1Mi") as supervisor:
        old = supervisor.wait_running()["node-0"]["pid"]
        await until("it was replaced", lambda: runs_anew(supervisor, "node-0", old))
        assert "worker grew too large" in supervisor.tail(100)


async def test_workers_of_a_killed_supervisor_end_with_it(where: Where) -> None:
    with Supervisor(where, "--node-workers=3") as supervisor:
        workers = [worker["pid"] for worker in supervisor.wait_running().values()]
        kill(supervisor.process.pid)
        await until("all are gone", lambda: not any(map(is_alive, workers)), 2.0)
