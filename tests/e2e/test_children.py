"""The life of workers as real processes: killed, hanging, replaced, multiplied, poisoned."""

import asyncio
import math
import os
import random
import resource
import shutil
import signal
import statistics
import time

import pytest

from ccm.errors import ExitCode
from tests.e2e.conftest import Written
from tests.support.cluster_nodes import kill
from tests.support.deadlines import Deadline, dilation
from tests.support.environment import Environment
from tests.support.installed import install
from tests.support.running import (
    ALL_CONTROLLERS,
    IS_LONG,
    Json,
    Supervisor,
    Where,
    command,
    in_background,
    is_alive,
    until,
)

pytestmark = pytest.mark.real

SLOWLY = ("--kube-api-qps=30", "--kube-api-burst=1")  # of each worker: work is in hand for long
COUNT = 100
LATE = 25  # of them join while workers come and go
JOINING = 300


def node_count(supervisor: Supervisor) -> int:
    """How many nodes the node workers know."""
    workers = supervisor.workers().items()
    return sum(w.get("objects", 0) for name, w in workers if name.startswith("node-"))


@pytest.mark.alone
async def test_killed_workers_are_back_within_a_second(env: Environment) -> None:
    """Recovery is measured from the kill to the successor's running with its whole snapshot.

    Each kind of worker is killed twice; four times with `CCM_LONG=1`.
    """
    chance, first, kills = random.Random(20), 200, 20 if IS_LONG else 10
    seconds = []
    flags = (*ALL_CONTROLLERS, "--node-workers=2", "--worker-steady-time=10ms")
    with env.supervisor(*flags) as supervisor:
        supervisor.wait_running()
        await env.add_nodes(first)
        for number in range(first + 1, first + kills + 1):
            before = supervisor.pids()
            name = sorted(before)[number % len(before)]  # each kind of worker in its turn
            await env.add_nodes(1, first=number)
            await asyncio.sleep(chance.uniform(0.0, 0.02))  # the fault, not a wait
            since_kill = Deadline()
            kill(before[name])
            await until("it runs again", lambda: supervisor.is_replaced(name, before[name]))  # noqa: B023
            seconds.append(since_kill.gone())
            after = supervisor.pids()
            assert {n for n in after if after[n] != before[n]} == {name}
        await env.nodes.until_initialized(first + kills)
        restarts = {name: worker["restarts"] for name, worker in supervisor.workers().items()}
        assert sum(restarts.values()) == kills, restarts
        await until("they know all nodes", lambda: node_count(supervisor) == first + kills)
        assert supervisor.is_leading()
        assert supervisor.end() == 0
    median = statistics.median(seconds)
    print(f"recovery from SIGKILL: median {median:.2f} s, worst {max(seconds):.2f} s")
    assert median < 1.0
    assert env.nodes.rewritten() == []


async def test_a_hanging_worker_is_replaced_and_leaves_its_stacks(env: Environment) -> None:
    """It is silent for too long before its permission ends, which would end it as well."""
    with env.supervisor(f"--worker-silence-limit={2 * dilation()}s") as supervisor:
        old = supervisor.wait_running()["node-0"]["pid"]
        os.kill(old, signal.SIGSTOP)
        await env.add_nodes(20)
        await env.nodes.until_initialized(20)
        assert supervisor.pids()["node-0"] != old
        assert supervisor.end() == 0
        assert "worker is silent and will be killed" in supervisor.tail(100)
        assert "Fatal Python error: Aborted" in supervisor.tail(200)
        assert not is_alive(old)


@pytest.mark.parametrize(
    ("before", "asked", "arguments", "after"),
    [
        (1, "restart", {"worker": "node-0"}, 1),
        (1, "scale", {"count": 3}, 3),
        (3, "scale", {"count": 1}, 1),
    ],
    ids=["hand-over", "more", "fewer"],
)
async def test_new_workers_in_the_middle_of_work_leave_nothing_out_and_do_nothing_twice(
    before: int, asked: str, arguments: Json, after: int, env: Environment, written: Written
) -> None:
    await env.add_nodes(COUNT - LATE)
    with env.supervisor(*SLOWLY, f"--node-workers={before}") as supervisor:
        await env.nodes.until_initialized(10)
        old = supervisor.pids()
        assert env.nodes.initialized() < COUNT - LATE
        await asyncio.gather(
            command(supervisor, asked, **arguments), env.add_nodes(LATE, COUNT - LATE + 1)
        )
        assert len(supervisor.wait_running()) == after
        await env.nodes.until_initialized(COUNT)
        if asked == "restart":
            await until("the successor works", lambda: supervisor.pids()["node-0"] != old["node-0"])
            assert not is_alive(old["node-0"])
        await until("they know their share", lambda: node_count(supervisor) == COUNT)
        new = supervisor.pids()
        assert "worker died" not in supervisor.log.read_text(), "it was not drained"
        assert supervisor.end() == 0
    assert not any(map(is_alive, new.values()))
    assert set(written().values()) == {1}
    assert len(written()) == 2 * COUNT


@pytest.mark.alone
async def test_a_kill_while_nodes_join_at_most_doubles_time_and_reads(env: Environment) -> None:
    """Measured are the joins without a kill and with one."""
    await env.admin.set_limits(latency=0.3)
    with env.supervisor() as supervisor:
        node_worker, lease = supervisor.wait_running()["node-0"]["pid"], await env.lease_spec()
        plain_seconds, plain_reads = await join(env, 1)
        async with in_background(kill_at_the_first_read(env, supervisor)) as killing:
            seconds, reads = await join(env, JOINING + 1)
            await killing
        assert supervisor.is_replaced("node-0", node_worker)
        for field in ("holderIdentity", "leaseTransitions"):
            assert (await env.lease_spec())[field] == lease[field]
    assert env.nodes.rewritten() == []
    print(f"{JOINING} nodes: {plain_seconds:.1f} s, {plain_reads} reads;", end=" ")
    print(f"with a kill {seconds:.1f} s, {reads} reads")
    assert reads <= 2 * plain_reads
    assert seconds <= 2 * plain_seconds


async def join(env: Environment, first: int) -> tuple[float, int]:
    """Seconds and reads from before the next nodes register until they are initialized."""
    await env.admin.reset_counters()
    since = time.monotonic()
    await env.add_nodes(JOINING, first)
    await env.nodes.until_initialized(first + JOINING - 1)
    seconds = time.monotonic() - since
    return seconds, sum(call["budget"] == "read" for call in await env.admin.requests())


async def kill_at_the_first_read(env: Environment, supervisor: Supervisor) -> None:
    """As the successor begins, nothing is held against the nodes that were asked about."""
    while not await env.admin.requests():  # noqa: ASYNC110 - the cloud tells nobody
        await asyncio.sleep(0.02)
    killed = supervisor.pids()["node-0"]
    kill(killed)
    await until("another one works", lambda: supervisor.is_replaced("node-0", killed))
    assert not supervisor.status()["quarantined"]


POISON = '''
"""A provider that ends its process when it is asked about a certain node."""
import os
from ccm.providers.simulated.provider import SimulatedCloud

class Poison(SimulatedCloud):
    async def initialize(self, context):
        await super().initialize(context)
        for name in ("describe", "look_up"):
            setattr(self.instances, name, self.deadly(getattr(self.instances, name)))

    def deadly(self, read):
        async def dies(nodes):
            if any(node.name == "vm-7" for node in nodes):
                os.kill(os.getpid(), 9)
            return await read(nodes)
        return dies
'''


def reason(supervisor: Supervisor, name: str) -> str:
    reasons: dict[str, str] = supervisor.workers()["node-0"].get("reasons", {})
    return reasons.get(name, "")


async def test_a_node_that_kills_its_worker_is_quarantined_and_all_others_are_served(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = env.directory / "site"
    install(site, monkeypatch, provider="poison = poison:Poison", poison=POISON)
    await env.add_nodes(30)
    with env.supervisor("--cloud-provider=poison") as supervisor:
        await env.nodes.until_initialized(29)
        await until("it is quarantined", lambda: supervisor.status()["quarantined"])
        assert list(supervisor.status()["quarantined"]["node"]) == ["vm-7"]
        await until("status says so", lambda: "quarantined" in reason(supervisor, "vm-7"))
        assert supervisor.workers()["node-0"]["restarts"] <= 2 * math.log2(30)
        assert supervisor.end() == 0
    assert await env.warnings() == {("vm-7", "Quarantined")}


ODD = '''
"""A provider whose methods end at first as no method should, or do not end."""
import asyncio, concurrent.futures, sys, threading
import ccm.cloud.gate
from ccm.providers.simulated.provider import SimulatedCloud

ccm.cloud.gate.METHOD_TIMEOUT = 3.0

def deep(): return deep()
def stop(): raise StopIteration("odd")
def leave(): sys.exit(0)
def leave_as_needless(): sys.exit(77)
def cancel(): raise asyncio.CancelledError("odd")
def cancel_thread(): raise concurrent.futures.CancelledError("odd")

ENDS = (stop, leave, leave_as_needless, cancel, cancel_thread, deep)

class Odd(SimulatedCloud):
    async def initialize(self, context):
        await super().initialize(context)
        ensure, describe = self.load_balancers.ensure, self.instances.describe
        loop, tried = asyncio.get_running_loop(), set()
        reads = iter((threading.Event().wait, *ENDS))
        def describe_in_thread(nodes):
            if end := next(reads, None):
                end()
            return asyncio.run_coroutine_threadsafe(describe(nodes), loop).result()
        async def ensure_at_the_second_try(service, hosts):
            if service.name not in tried:
                tried.add(service.name)
                number = int(service.name.partition("-")[2])
                if number == 0:
                    await asyncio.Event().wait()
                ENDS[number - 1]()
            return await ensure(service, hosts)
        self.instances.describe = self.instances.look_up = describe_in_thread
        self.load_balancers.ensure = ensure_at_the_second_try
'''


async def test_however_a_method_of_a_provider_ends_it_is_the_failure_of_one_call(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of seven reads of Nodes, which run in threads, and of one balancer each of seven Services."""
    install(env.directory / "site", monkeypatch, provider="odd = odd:Odd", odd=ODD)
    await env.add_nodes(3)
    await env.add_services(*range(7))
    flags = ("--cloud-provider=odd", "--controllers=cloud-node,cloud-node-lifecycle,service")
    with env.supervisor(*flags) as supervisor:
        supervisor.wait_running()
        before = supervisor.pids()
        await env.until_served(*range(7))
        await env.nodes.until_initialized(3)
        assert supervisor.pids() == before
        assert supervisor.end() == 0
        log = supervisor.log.read_text()
    assert log.count("provider failed") >= 2 * 6
    assert "of the provider did not return in 3s" in log


async def test_a_worker_that_grew_too_large_hands_over(env: Environment) -> None:
    with env.supervisor("--worker-memory-limit=1Mi") as supervisor:
        old = supervisor.wait_running()["node-0"]["pid"]
        await until("it was replaced", lambda: supervisor.is_replaced("node-0", old))
        assert "worker grew too large" in supervisor.tail(100)
        assert "worker died" not in supervisor.log.read_text(), "it was not drained"


LEAKS = '''
"""A provider that keeps memory, threads or files at each read."""
import os, sys, threading
from ccm.providers.simulated.provider import SimulatedCloud

def memory(): return bytearray(os.urandom(1 << 20) * 64)
def threads(): return [threading.Thread(target=threading.Event().wait, daemon=True).start()
                       for _ in range(200)]
def files(): return [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]

class Leaks(SimulatedCloud):
    async def initialize(self, context):
        await super().initialize(context)
        describe, kept, leak = self.instances.describe, [], globals()[os.environ["LEAK"]]
        async def describe_and_keep(nodes):
            kept.append(leak())
            return await describe(nodes)
        self.instances.describe = self.instances.look_up = describe_and_keep
'''


@pytest.mark.parametrize(
    ("what", "why"),
    [("memory", "MiB of memory"), ("threads", " threads, more than"), ("files", " open files of")],
)
async def test_a_provider_that_leaks_is_noticed_and_its_worker_renewed_before_it_hurts(
    env: Environment, monkeypatch: pytest.MonkeyPatch, what: str, why: str
) -> None:
    install(env.directory / "site", monkeypatch, provider="leaks = leaks:Leaks", leaks=LEAKS)
    monkeypatch.setenv("LEAK", what)
    names = await env.add_nodes(3)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    try:
        started = env.supervisor("--cloud-provider=leaks", "--node-status-update-frequency=1s")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with started as supervisor:
        old = supervisor.wait_running()["node-0"]["pid"]
        await until("it has grown", lambda: why in supervisor.workers()["node-0"]["grew"])
        await until("it is renewed", lambda: supervisor.is_replaced("node-0", old))
        await env.nodes.until_initialized(3)
        await env.add_nodes(1, first=4)
        await env.nodes.until_initialized(4)
        status = supervisor.status()
        assert any("its provider may leak" in one["sentence"] for one in status["problems"])
        assert "worker died" not in supervisor.log.read_text()
        assert supervisor.end() == 0
    assert {name for name, _ in await env.warnings()}.isdisjoint(names)


def test_status_says_why_a_worker_is_skipped(where: Where) -> None:
    with Supervisor(where, *ALL_CONTROLLERS, "--configure-cloud-routes=false") as supervisor:
        route = supervisor.wait_running()["route"]
    assert route["state"] == "skipped"
    assert route["faults"] == ["--configure-cloud-routes is false"]


async def test_whose_runtime_directory_is_deleted_ends_in_order(
    env: Environment,
) -> None:
    """It was started by someone who ignores the end of children, which changes nothing."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        started = env.supervisor()
    finally:
        signal.signal(signal.SIGCHLD, before)
    with started as supervisor:
        worker = supervisor.wait_running()["node-0"]["pid"]
        kill(worker)
        await until("it is replaced", lambda: supervisor.is_replaced("node-0", worker))
        shutil.rmtree(supervisor.runtime)
        assert await asyncio.to_thread(supervisor.exit_code) == ExitCode.FAILED
        assert "runtime directory deleted" in supervisor.log.read_text()
        assert (await env.lease_spec())["holderIdentity"] == ""
