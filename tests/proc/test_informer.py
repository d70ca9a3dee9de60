"""Watches that break and a worker that sleeps: the end state is right, memory bounded.

The supervisor and its workers see the real API server through a proxy that spoils watches; the
bystander, who creates, changes and deletes nodes meanwhile, does not.
"""

import asyncio
import itertools
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import PROVIDED_NODE_IP, Node
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Address, Machine
from ccm.sandbox.kubelets import new_machines, register, registration
from ccm.sandbox.observer import missing_fields
from tests.kube.cluster import RealCluster
from tests.proc import fault_proxy
from tests.proc.cluster_nodes import Witness, connect
from tests.proc.fault_proxy import (
    REFUSED,
    Answer,
    Fault,
    FaultProxy,
    before_each,
    error_event,
    failure,
)
from tests.proc.running import Cloud, Json, Supervisor, Where, wait_for

pytestmark = pytest.mark.real

DOCUMENT = Path(__file__).parents[2] / "docs" / "informer.md"
NODES = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class Case:
    """A fault, and how many times the supervisor runs into it before it is mended."""

    fault: Fault
    times: int = 3


ODD = (
    b"this is not JSON",
    b'{"type":"MODIFIED","object":null}',
    b'{"type":"ADDED","object":[{"metadata":{"name":"x"}}]}',
    b'{"type":"DELETED","object":{"kind":"Node"}}',
    b'{"type":"RENAMED","object":{"metadata":{"name":"x"}}}',
)
"""Lines that a watch should not have."""

CASES = {
    "reset": Case(Fault(each_line=fault_proxy.reset_in_the_middle)),
    "410": Case(Fault(failure(410, "Expired"))),
    "410-event": Case(Fault(error_event(410, "Expired"))),
    "429": Case(Fault(failure(429, "TooManyRequests", retry_after="1")), times=2),
    "500": Case(Fault(failure(500, "InternalError")), times=2),
    "refused": Case(REFUSED, times=2),
    "early-end": Case(Fault(Answer(200)), times=2),
    "late": Case(Fault(each_line=fault_proxy.late)),
    "spoilt": Case(Fault(each_line=fault_proxy.spoilt)),
    "odd": Case(Fault(each_line=before_each(ODD)), times=len(ODD)),
}


@pytest.fixture(scope="module")
def proxy(cluster: RealCluster) -> Iterator[FaultProxy]:
    with FaultProxy(cluster.url, cluster.ca_file) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, cluster: RealCluster, proxy: FaultProxy
) -> Iterator[tuple[Where, Cloud]]:
    """What the supervisors of this module are pointed at."""
    directory = tmp_path_factory.mktemp("informer")
    with Cloud(directory) as cloud:
        yield Where(directory, proxy.kubeconfig(cluster.kubeconfig("ccm")), cloud.config), cloud


@pytest.fixture(scope="module")
def supervisor(place: tuple[Where, Cloud]) -> Iterator[Supervisor]:
    """One for all faults: it lives through them. Its lease outlasts a restart of the API server."""
    with Supervisor(
        place[0],
        "--node-workers=2",
        "--leader-elect-lease-duration=90s",
        "--leader-elect-renew-deadline=60s",
        name="faults",
    ) as supervisor:
        supervisor.wait_running()
        yield supervisor
        assert supervisor.end() == 0


@pytest.fixture
async def api(cluster: RealCluster) -> AsyncIterator[Kube]:
    """The bystander's client, straight to the API server; it leaves no nodes behind."""
    api = await connect(cluster.kubeconfig("admin"))
    yield api
    await api.request("DELETE", NODES)
    await api.close()


@dataclass
class World:
    """The nodes as they are, and what the supervisor and its workers make of them."""

    api: Kube
    cloud: Cloud
    supervisor: Supervisor
    numbers: Iterator[int]

    async def add(self, count: int) -> list[str]:
        """New machines, with a tainted Node each."""
        first = next(self.numbers)
        async with CloudAdmin(self.cloud.url) as admin:
            machines = await admin.add(new_machines(first * 100, count))
        names = [machine.name for machine in machines]
        await register(self.api, names)
        return names

    async def delete(self, *names: str) -> None:
        for name in names:
            await self.api.request("DELETE", f"{NODES}/{name}")

    async def taint(self, *names: str) -> None:
        """As if the kubelet had registered anew: there is work to do again."""
        taints = registration("any")["spec"]["taints"]
        for name in names:
            await self.api.patch(f"{NODES}/{name}", MERGE_PATCH, {"spec": {"taints": taints}})

    async def come_right(self, seconds: float = 40.0) -> float:
        """How long it took until all nodes are initialised, and known as they are."""
        began = time.monotonic()
        wrong = ""
        try:
            async with asyncio.timeout(seconds):
                while wrong := await self._wrong():  # noqa: ASYNC110 - servers are asked
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{wrong}; {self.supervisor.tail()}") from None
        return time.monotonic() - began

    async def _wrong(self) -> str:
        nodes = [Node(raw) for raw in (await self.api.get(NODES))["items"]]
        if lacking := {node.name: missing_fields(node) for node in nodes if missing_fields(node)}:
            return f"not initialised: {lacking}"
        status = await asyncio.to_thread(self.supervisor.status)
        if status["informer"]["kinds"]["Node"]["objects"] != len(nodes):
            return f"there are {len(nodes)} nodes, not {status['informer']}"
        if trouble := status["informer"]["kinds"]["Node"]["trouble"]:
            return f"the watch does not work: {trouble}"
        known = [w.get("objects", 0) for w in status["workers"] if w["name"].startswith("node-")]
        return f"{known} are not {len(nodes)}" if sum(known) != len(nodes) else ""


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def world(
    api: Kube, place: tuple[Where, Cloud], supervisor: Supervisor, numbers: Iterator[int]
) -> World:
    return World(api, place[1], supervisor, numbers)


async def meet(proxy: FaultProxy, times: int) -> None:
    await asyncio.to_thread(wait_for, "the fault was met", lambda: proxy.met[NODES] >= times)


async def change_much(world: World, there: list[str]) -> None:
    """Nodes come, go and change, in numbers that tell a missed one."""
    await world.delete(*there[:3])
    await world.taint(*there[3:7])
    await world.add(5)


# The first two tests have supervisors of their own; the rest share one, which starts after them.


async def test_a_half_open_connection_is_given_up(
    place: tuple[Where, Cloud], api: Kube, proxy: FaultProxy, numbers: Iterator[int]
) -> None:
    where, cloud = place
    with Supervisor(where, "--watch-idle-limit=2s", name="half-open") as supervisor:
        await asyncio.to_thread(supervisor.wait_running)
        world = World(api, cloud, supervisor, numbers)
        there = await world.add(10)
        await world.come_right()
        proxy.go_silent()
        assert proxy.met[NODES]
        began = time.monotonic()
        await change_much(world, there)
        await world.come_right()
        report("half-open", time.monotonic() - began)
        assert supervisor.end() == 0


CHANGES, ASLEEP = 50_000, 500


async def test_a_worker_that_sleeps_costs_bounded_memory_and_wakes_to_the_newest_state(
    place: tuple[Where, Cloud], api: Kube, proxy: FaultProxy
) -> None:
    """50,000 changes of what it wants to know pass while the node worker is stopped.

    They are the API server's own objects with other labels and node IPs, put by the proxy into the
    supervisor's real watch; only the first and the last state of each node are written to the API
    server. Each state but the last asks for another address than the last: what is written of a
    node is written once, so whoever acts on an older state leaves the wrong address.
    """
    where, cloud = place
    names = [f"sleeper-{number}" for number in range(ASLEEP)]
    old, new = node_ips(1), node_ips(2)
    async with CloudAdmin(cloud.url) as admin:
        await admin.add([machine(name, old[name], new[name]) for name in names])
    with Supervisor(where, "--worker-silence-limit=10m", name="sleep") as supervisor:
        workers = await asyncio.to_thread(supervisor.wait_running)
        os.kill(workers["node-0"]["pid"], signal.SIGSTOP)
        await asyncio.gather(*(create(api, name, old[name]) for name in names))
        await known(supervisor, ASLEEP)
        before = pss_bytes(supervisor.process.pid)
        peak = await storm(api, proxy, supervisor, lambda name, n: (old, new)[n % 2][name])
        await asyncio.gather(*(set_node_ip(api, name, new[name]) for name in names))
        await create(api, "marker", "")  # watches are in order: once it is known, all is
        await known(supervisor, ASLEEP + 1)
        after = pss_bytes(supervisor.process.pid)
        box = supervisor.status()["informer"]["delivery_queues"]["node-0.1"]
        assert (box["depth"], box["in_flight"]) == (ASLEEP + 1, 8)
        witness = Witness(api)
        watching = asyncio.create_task(witness.run())
        began = time.monotonic()
        os.kill(workers["node-0"]["pid"], signal.SIGCONT)
        await witness.until_initialised(ASLEEP, 60)
        seconds = time.monotonic() - began
        watching.cancel()
        assert supervisor.end() == 0
    for name in names:
        assert [entry["address"] for entry in witness.nodes[name].addresses][:1] == [new[name]]
    assert witness.rewritten() == []
    print(
        f"\n{CHANGES} changes: supervisor {before / 2**20:.1f} MiB before, {peak / 2**20:.1f} at "
        f"most, {after / 2**20:.1f} after; all right {seconds:.2f} s after waking"
    )
    assert peak - before < 24 << 20


@pytest.mark.parametrize("name", CASES)
async def test_a_broken_watch_loses_nothing(name: str, world: World, proxy: FaultProxy) -> None:
    case = CASES[name]
    there = await world.add(10)
    await world.come_right()
    proxy.inject(case.fault)
    await change_much(world, there)
    await meet(proxy, case.times)
    proxy.clear()
    seconds = await world.come_right()
    report(name, seconds)


async def test_an_api_server_that_dies_and_comes_back_loses_nothing(
    world: World, proxy: FaultProxy, cluster: RealCluster
) -> None:
    """Watches stay away until nodes were changed; then what they knew is too old for the server."""
    there = await world.add(10)
    await world.come_right()
    await asyncio.to_thread(cluster.kill_apiserver)
    await asyncio.to_thread(
        wait_for,
        "status tells it",
        lambda: world.supervisor.status()["informer"]["kinds"]["Node"]["trouble"],
    )
    proxy.inject(REFUSED)
    await asyncio.to_thread(cluster.start_apiserver)
    await change_much(world, there)
    proxy.clear()
    report("restart", await world.come_right())


def node_ips(net: int) -> dict[str, str]:
    return {f"sleeper-{n}": f"10.{net}.{n // 250}.{n % 250 + 1}" for n in range(ASLEEP)}


def machine(name: str, *ips: str) -> Machine:
    return Machine(name, addresses=tuple(Address("InternalIP", ip) for ip in ips))


async def create(api: Kube, name: str, ip: str) -> None:
    node = registration(name)
    if ip:
        node["metadata"]["annotations"] = {PROVIDED_NODE_IP: ip}
    await api.post(NODES, node)


async def set_node_ip(api: Kube, name: str, ip: str) -> None:
    body = {"metadata": {"annotations": {PROVIDED_NODE_IP: ip}, "labels": {"change": "last"}}}
    await api.patch(f"{NODES}/{name}", MERGE_PATCH, body)


async def known(supervisor: Supervisor, count: int) -> None:
    def look() -> bool:
        kinds: Json = supervisor.status().get("informer", {}).get("kinds", {})
        return bool(kinds.get("Node", {}).get("objects") == count)

    await asyncio.to_thread(wait_for, f"{count} nodes are known", look)


async def storm(
    api: Kube, proxy: FaultProxy, supervisor: Supervisor, ip: Callable[[str, int], str]
) -> int:
    """`CHANGES` changes through the supervisor's watch; the largest memory seen meanwhile."""
    nodes = (await api.get(NODES))["items"]
    peak = 0
    for number in range(CHANGES // len(nodes)):
        lines = [event(raw, number, ip(raw["metadata"]["name"], number)) for raw in nodes]
        assert await asyncio.to_thread(proxy.say, NODES, lines) > 0
        peak = max(peak, pss_bytes(supervisor.process.pid))
    return peak


def event(raw: dict[str, Any], number: int, ip: str) -> bytes:
    """A change of this node that nobody wrote."""
    meta = raw["metadata"]
    labels = {**meta["labels"], "change": str(number)}
    changed = {**meta, "labels": labels, "annotations": {PROVIDED_NODE_IP: ip}}
    return json.dumps({"type": "MODIFIED", "object": {**raw, "metadata": changed}}).encode() + b"\n"


def pss_bytes(pid: int) -> int:
    """Memory of a process, what it shares with others divided among them."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    assert found
    return int(found[1]) << 10


def report(name: str, seconds: float) -> None:
    print(f"\nrecovery after {name}: {seconds:.2f} s")


def test_the_documentation_tells_what_happens_on_each_fault() -> None:
    faults, _, _ = DOCUMENT.read_text().partition("## What `status` shows")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", faults, re.M)
    assert sorted(rows) == sorted(["half-open", "restart", *CASES])
