"""Watches that break and a worker that sleeps: the end state is right, memory bounded.

The supervisor and its workers see the real API server through a proxy that spoils watches; the
test, which creates, changes and deletes nodes meanwhile, does not.
"""

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bench.processes import pss_mib
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import PROVIDED_NODE_IP, Node
from ccm.sandbox.cloud.records import Address, Machine
from ccm.sandbox.kubelets import registration
from ccm.sandbox.observer import missing_fields
from tests.support.deadlines import timeout
from tests.support.environment import NODES, Environment
from tests.support.fault_proxy import (
    REFUSED,
    Fault,
    FaultProxy,
    before_each,
    error_event,
    failure,
    late,
    reset_in_the_middle,
    spoilt,
)
from tests.support.running import Json, Supervisor, Where, until, until_none

pytestmark = pytest.mark.real

DOCUMENT = Path(__file__).parents[2] / "docs" / "informer.md"

ODD = (
    b"this is not JSON",
    b'{"type":"MODIFIED","object":null}',
    b'{"type":"ADDED","object":[{"metadata":{"name":"x"}}]}',
    b'{"type":"DELETED","object":{"kind":"Node"}}',
    b'{"type":"RENAMED","object":{"metadata":{"name":"x"}}}',
)
"""Lines that a watch should not have."""

NAMELESS = (
    b'{"type":"ADDED","object":{"kind":"Node","metadata":{}}}',
    b'{"type":"MODIFIED","object":{"kind":"Node"}}',
)

CASES = {
    "reset": (Fault(each_line=reset_in_the_middle), 3),
    "410": (Fault(failure(410, "Expired")), 3),
    "410-event": (Fault(error_event(410, "Expired")), 3),
    "429": (Fault(failure(429, "TooManyRequests", **{"Retry-After": "1"})), 2),
    "500": (Fault(failure(500, "InternalError")), 4),
    "refused": (REFUSED, 2),
    "early-end": (Fault(web.Response), 2),
    "late": (Fault(each_line=late), 3),
    "spoilt": (Fault(each_line=spoilt), 3),
    "odd": (Fault(each_line=before_each(ODD)), len(ODD)),
    "nameless": (Fault(each_line=before_each(NAMELESS)), len(NAMELESS)),
}
"""Faults, and how many times the supervisor runs into each before it is fixed."""
RELISTED = {"410", "410-event", "odd", "nameless"}
CONTINUED = {"reset", "429", "500", "refused", "early-end", "late"}
PAUSES = {"429": 0.95, "500": 0.8, "early-end": 0.95}
"""Seconds from the first to the last request, at least."""


@pytest.fixture
def where(where: Where, proxy: FaultProxy) -> Where:
    """Supervisors see the API server through the proxy."""
    return replace(where, kubeconfig=proxy.kubeconfig(where.kubeconfig))


@dataclass
class ClusterNodes:
    """The nodes as they are, and what the supervisor and its workers know of them."""

    env: Environment
    supervisor: Supervisor
    added: int = 0

    async def add(self, count: int) -> list[str]:
        """New machines, with a tainted Node each."""
        self.added += count
        return await self.env.add_nodes(count, first=self.added - count + 1)

    async def add_initialized(self, count: int) -> list[str]:
        names = await self.add(count)
        await self.until_in_sync()
        return names

    async def change(self, names: list[str]) -> None:
        """Nodes come, go and register again, in numbers that tell a missed one."""
        for name in names[:3]:
            await self.env.api.request("DELETE", f"{NODES}/{name}")
        taints = registration("any")["spec"]["taints"]
        for name in names[3:7]:
            body = {"spec": {"taints": taints}}
            await self.env.api.patch(f"{NODES}/{name}", MERGE_PATCH, body)
        await self.add(5)

    async def until_in_sync(self) -> float:
        """How long it took until all nodes are initialized, and known as they are."""
        began = time.monotonic()
        await until_none("out of sync", self._faults)
        return time.monotonic() - began

    def reflector(self) -> Json:
        """What the supervisor says of its watch."""
        found: Json = self.supervisor.status()["informer"]["kinds"]["Node"]
        return found

    async def _faults(self) -> list[str]:
        nodes = [Node(raw) for raw in (await self.env.api.get(NODES))["items"]]
        faults = [
            f"{node.name} lacks {missing_fields(node)}" for node in nodes if missing_fields(node)
        ]
        status = await asyncio.to_thread(self.supervisor.status)
        reflector = status["informer"]["kinds"]["Node"]
        if reflector["objects"] != len(nodes) or reflector["last_error"]:
            faults.append(f"there are {len(nodes)} nodes, not {reflector}")
        known = [w.get("objects", 0) for w in status["workers"] if w["name"].startswith("node-")]
        return [*faults, f"{known} are known"] if sum(known) != len(nodes) else faults


@asynccontextmanager
async def known_nodes(env: Environment, *flags: str) -> AsyncIterator[ClusterNodes]:
    """Under a supervisor with these flags, which lives to the end of the block."""
    with env.supervisor("--node-workers=2", *flags) as supervisor:
        supervisor.wait_running()
        yield ClusterNodes(env, supervisor)
        assert supervisor.end() == 0


async def test_a_half_open_connection_is_given_up(env: Environment, proxy: FaultProxy) -> None:
    async with known_nodes(env, f"--watch-idle-limit={timeout(1.0):g}s") as nodes:
        names = await nodes.add_initialized(10)
        proxy.go_silent()
        assert proxy.met[NODES]
        began = time.monotonic()
        await nodes.change(names)
        await nodes.until_in_sync()
        print(f"\nrecovery after half-open: {time.monotonic() - began:.2f} s")


CHANGES, ASLEEP = 20_000, 200


async def test_a_worker_that_sleeps_costs_bounded_memory_and_wakes_to_the_newest_state(
    env: Environment, proxy: FaultProxy
) -> None:
    """20,000 changes of what it wants to know pass while the node worker is stopped.

    They are the API server's own objects with other labels and node IPs, put by the proxy into the
    supervisor's real watch; only the first and the last state of each node are written to the API
    server. Each state but the last asks for another address than the last: what is written of a
    node is written once, so whoever acts on an older state leaves the wrong address.
    """
    names = [f"sleeper-{number}" for number in range(ASLEEP)]
    old, new = node_ips(1), node_ips(2)
    addresses = {n: tuple(Address("InternalIP", ip[n]) for ip in (old, new)) for n in names}
    await env.admin.add([Machine(name, addresses=addresses[name]) for name in names])
    api = env.api
    with env.supervisor("--worker-silence-limit=10m") as supervisor:
        workers = supervisor.wait_running()
        os.kill(workers["node-0"]["pid"], signal.SIGSTOP)
        await asyncio.gather(*(create(api, name, old[name]) for name in names))
        await until_known(supervisor, ASLEEP)
        before = pss_mib(supervisor.process.pid)
        peak = await storm(api, proxy, supervisor, lambda name, n: (old, new)[n % 2][name])
        await asyncio.gather(*(set_node_ip(api, name, new[name]) for name in names))
        await create(api, "marker", "")  # watches are in order: once it is known, all is
        await until_known(supervisor, ASLEEP + 1)
        after = pss_mib(supervisor.process.pid)
        queues = supervisor.status()["informer"]["delivery_queues"]
        [queue] = [queue for name, queue in queues.items() if name.startswith("node-0.")]
        # A node worker is told its Nodes, and of all Nodes which machine each says it is.
        assert ASLEEP < queue["depth"] <= 2 * (ASLEEP + 1)
        assert queue["in_flight"] == 8
        began = time.monotonic()
        os.kill(workers["node-0"]["pid"], signal.SIGCONT)
        await env.nodes.until_initialized(ASLEEP)
        seconds = time.monotonic() - began
        assert supervisor.end() == 0
    for name in names:
        assert [entry["address"] for entry in env.nodes.nodes[name].addresses][:1] == [new[name]]
    assert env.nodes.rewritten() == []
    print(
        f"\n{CHANGES} changes: supervisor {before:.1f} MiB before, {peak:.1f} at "
        f"most, {after:.1f} after; all right {seconds:.2f} s after waking"
    )
    assert peak - before < 24.0


async def test_a_broken_watch_loses_nothing(env: Environment, proxy: FaultProxy) -> None:
    """One supervisor lives through all the faults."""
    async with known_nodes(env) as nodes:
        for name, (fault, times) in CASES.items():
            print(f"\nrecovery after {name}:", end=" ")
            names = await nodes.add_initialized(10)
            lists = nodes.reflector()["lists"]
            proxy.inject(fault)
            await nodes.change(names)
            await until("the fault was met", lambda: proxy.met[NODES] >= times)  # noqa: B023
            if name in RELISTED:  # one watch may meet it several times before it is closed
                await until(f"{name}: it lists again", lambda: nodes.reflector()["lists"] > lists)  # noqa: B023
            asked = proxy.asked[NODES]
            proxy.clear()
            print(f"{await nodes.until_in_sync():.2f} s")
            relisted = nodes.reflector()["lists"] - lists
            assert not (name in CONTINUED and relisted), f"{name}: it has listed again"
            if pause := PAUSES.get(name):
                assert asked[-1] - asked[0] >= pause, f"{name}: it asks again at once"


async def test_an_api_server_that_dies_and_comes_back_loses_nothing(
    env: Environment, proxy: FaultProxy
) -> None:
    """Watches stay away until nodes were changed; then what they knew is too old for the server.

    The lease outlasts the restart.
    """
    lease, renew = timeout(45), timeout(30)
    elected = (
        f"--leader-elect-lease-duration={lease:g}s",
        f"--leader-elect-renew-deadline={renew:g}s",
    )
    async with known_nodes(env, *elected) as nodes:
        names = await nodes.add_initialized(10)
        await asyncio.to_thread(env.cluster.kill_apiserver)
        await until(
            "status tells it",
            lambda: nodes.supervisor.status()["informer"]["kinds"]["Node"]["last_error"],
        )
        proxy.inject(REFUSED)
        await asyncio.to_thread(env.cluster.start_apiserver)
        await nodes.change(names)
        proxy.clear()
        print(f"\nrecovery after restart: {await nodes.until_in_sync():.2f} s")


def node_ips(net: int) -> dict[str, str]:
    return {f"sleeper-{n}": f"10.{net}.{n // 250}.{n % 250 + 1}" for n in range(ASLEEP)}


async def create(api: Kube, name: str, ip: str) -> None:
    await api.post(NODES, registration(name, node_ip=ip))


async def set_node_ip(api: Kube, name: str, ip: str) -> None:
    body = {"metadata": {"annotations": {PROVIDED_NODE_IP: ip}, "labels": {"change": "last"}}}
    await api.patch(f"{NODES}/{name}", MERGE_PATCH, body)


async def until_known(supervisor: Supervisor, count: int) -> None:
    def is_known() -> bool:
        kinds: Json = supervisor.status().get("informer", {}).get("kinds", {})
        return bool(kinds.get("Node", {}).get("objects") == count)

    await until(f"{count} nodes are known", is_known)


async def storm(
    api: Kube, proxy: FaultProxy, supervisor: Supervisor, ip: Callable[[str, int], str]
) -> float:
    """`CHANGES` changes through the supervisor's watch; the largest memory (MiB) meanwhile."""
    page, peak = await api.get(NODES), 0.0
    nodes, version = page["items"], page["metadata"]["resourceVersion"]
    for number in range(CHANGES // len(nodes)):
        lines = [event(raw, number, ip(raw["metadata"]["name"], number), version) for raw in nodes]
        assert await asyncio.to_thread(proxy.send, NODES, lines) > 0
        peak = max(peak, pss_mib(supervisor.process.pid))
    return peak


def event(raw: dict[str, Any], number: int, ip: str, version: str) -> bytes:
    """An event of this Node that the API server did not send; no older than those before it."""
    meta = raw["metadata"]
    labels = {**meta["labels"], "change": str(number)}
    annotations = {PROVIDED_NODE_IP: ip}
    changed = {**meta, "labels": labels, "annotations": annotations, "resourceVersion": version}
    return json.dumps({"type": "MODIFIED", "object": {**raw, "metadata": changed}}).encode() + b"\n"


def test_the_documentation_tells_what_happens_on_each_fault() -> None:
    faults, _, _ = DOCUMENT.read_text().partition("## What `status` shows")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", faults, re.M)
    assert sorted(rows) == sorted(["half-open", "restart", *CASES])
