"""The whole product on a real API server and the lab, while requests go through its balancer."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import pytest

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.providers.incus.lb.request import family_of
from ccm.sandbox.kubelets import ready_condition, registration
from tests.e2e.conftest import api, cluster
from tests.labs.incus.lab import Lab
from tests.providers.incus.test_incus_balancers import ROOT
from tests.support.deadlines import dilation, within
from tests.support.environment import NODES, SERVICES
from tests.support.kube.cluster import RealCluster
from tests.support.running import Supervisor, Where, in_background, long, until

__all__ = ["api", "cluster"]

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(900)]

NAMES = ("node-1", "node-2", "node-3")
FLAGS = (
    "--cloud-provider=incus",
    "--controllers=*",
    "--node-monitor-period=500ms",
    "--node-deletion-confirmation-period=0",
    f"--leader-elect-lease-duration={4 * dilation()}s",
    f"--leader-elect-renew-deadline={3 * dilation()}s",
    "--leader-elect-retry-period=500ms",
)
LIMIT = 120.0  # seconds, on a machine that does something else as well
INTERVAL = 0.06  # seconds from one request to the next, of each IP family
PATIENCE = 5.0  # seconds for one request
CALM = 2.0  # seconds that requests go on after an event
SERVICE: Json = {
    "metadata": {"name": "web"},
    "spec": {
        "type": "LoadBalancer",
        "ipFamilyPolicy": "RequireDualStack",
        "ports": [{"port": 80, "nodePort": 30080}],
    },
}
LEAVING = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Lost:
    """A request that failed: when it began, and what was seen then."""

    began: float
    error: str


@dataclass
class Load:
    """Requests to one address, each on a connection of its own, until it is cancelled."""

    url: SplitResult
    interval: float = INTERVAL
    sent: int = 0
    failed: list[Lost] = field(default_factory=list)
    nodes: Counter[str] = field(default_factory=Counter)
    answered_at: float = 0.0
    longest_gap: float = 0.0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self.request())
                await asyncio.sleep(self.interval)

    async def request(self) -> None:
        """Send one, and count what comes of it."""
        self.sent += 1
        began = time.monotonic()
        try:
            async with within(PATIENCE):
                reader, writer = await asyncio.open_connection(self.url.hostname, self.url.port)
                try:
                    writer.write(b"GET / HTTP/1.0\r\n\r\n")
                    answer = await reader.read()
                finally:
                    writer.close()
            assert b"node-" in answer, answer[:60]
        except (OSError, TimeoutError, AssertionError) as error:
            self.failed.append(Lost(began, repr(error)))
            return
        now = time.monotonic()
        self.longest_gap = max(self.longest_gap, now - (self.answered_at or now))
        self.answered_at = now
        self.nodes[answer.split()[-1].decode()] += 1


@dataclass
class Traffic:
    """Requests to the addresses of both IP families of a balancer."""

    lab: Lab
    loads: dict[str, Load]

    @property
    def failed(self) -> list[str]:
        return [f"{family} {one}" for family, load in self.loads.items() for one in load.failed]

    async def run(self) -> None:
        await asyncio.gather(*(load.run() for load in self.loads.values()))

    @asynccontextmanager
    async def during(self, event: str) -> AsyncIterator[None]:
        """Print what comes of the requests in this block and for a moment after it.

        Where the lab's own switch has crashed meanwhile, lost ones are told and not counted.
        """
        before = {family: (load.sent, len(load.failed)) for family, load in self.loads.items()}
        for load in self.loads.values():
            load.longest_gap = 0.0
            load.nodes.clear()
        crashes = self.lab.crashes()
        yield
        await asyncio.sleep(CALM)  # of requests
        for family, load in self.loads.items():
            sent, failed = before[family]
            lost, nodes = (
                len(load.failed) - failed,
                ", ".join(f"{name} {count}" for name, count in sorted(load.nodes.items())),
            )
            print(
                f"{event}: {family} {load.sent - sent} requests, {lost} failed, "
                f"gap {load.longest_gap:.2f} s ({nodes})"
            )
            if self.lab.crashes() > crashes:
                print(f"{event}: not counted, as Open vSwitch has crashed")
                del load.failed[failed:]


@dataclass(frozen=True)
class Site:
    """A cluster with the lab's nodes, and how to change both."""

    api: Kube
    lab: Lab
    where: Where

    def supervisor(self, name: str, *flags: str) -> Supervisor:
        return Supervisor(self.where, *FLAGS, *flags, name=name)

    async def nodes(self) -> dict[str, Json]:
        return {one["metadata"]["name"]: one for one in (await self.api.get(NODES))["items"]}

    async def are_initialized(self) -> bool:
        return all(
            node["spec"].get("providerID") and not has_taint(node, "uninitialized")
            for node in (await self.nodes()).values()
        )

    async def addresses(self) -> dict[str, str]:
        """The Service's by IP family; none while it lacks one."""
        found = await self.api.get(f"{SERVICES}/web")
        ingress = found["status"]["loadBalancer"].get("ingress") or []
        return {family_of(one["ip"]): one["ip"] for one in ingress}

    def backends(self) -> set[str]:
        """The instances behind both balancers; none while they differ."""
        four, six = (
            {one["name"].rpartition("-")[0] for one in record["backends"]}
            for record in self.lab.get(ROOT, recursion=1)
        )
        return four if four == six else set()

    async def are_backends(self, *names: str) -> None:
        await until(f"{names} are behind it", lambda: self.backends() == {*names}, LIMIT)

    async def replace(self, name: str) -> None:
        """As an autoscaler does: traffic first, then the machine; a new one of the same name."""
        taints = (await self.nodes())[name]["spec"].get("taints") or []
        body: Json = {"spec": {"taints": [*taints, LEAVING]}}
        await self.api.patch(f"{NODES}/{name}", MERGE_PATCH, body)
        await self.are_backends(*{*NAMES} - {name})
        await asyncio.sleep(0.5)  # requests that are under way there
        await asyncio.to_thread(self.lab.remove, name)
        status = {"status": {"conditions": [ready_condition(False)]}}
        await self.api.patch(f"{NODES}/{name}/status", MERGE_PATCH, status)

        async def is_gone() -> bool:
            return name not in await self.nodes()

        await until(f"node {name} is gone", is_gone, LIMIT)
        await asyncio.to_thread(self.lab.create, name)
        await self.api.post(NODES, registration(name))
        await until(f"{name} is initialized", self.are_initialized, LIMIT)
        await self.are_backends(*NAMES)


def is_standing_by(supervisor: Supervisor) -> bool:
    """Whether all workers that it has are warm."""
    return {one["state"] for one in supervisor.workers().values()} == {"standby", "skipped"}


def has_taint(node: Json, word: str) -> bool:
    return any(word in taint["key"] for taint in node["spec"].get("taints") or ())


@pytest.fixture
async def site(tmp_path: Path, cluster: RealCluster, api: Kube, lab: Lab) -> AsyncIterator[Site]:
    config = tmp_path / "incus.conf"
    config.write_text(lab.config())
    yield Site(api, lab, Where(tmp_path, cluster.kubeconfig("ccm"), config))
    for one in lab.get(ROOT, recursion=1):
        lab.delete(f"{ROOT}/{one['listen_address']}")
    there = {one["name"] for one in lab.get("/instances", recursion=1)}
    lab.create(*sorted({*NAMES} - there))
    lab.set_state(NAMES, "start")


async def test_no_request_is_lost_by_us(site: Site) -> None:
    """IN33, IN35, IN40, IN12, IN13, IN22, IN36: requests go on while all of this happens."""
    for name in NAMES:
        await site.api.post(NODES, registration(name))
    with ExitStack() as running:
        pair = [running.enter_context(site.supervisor(name)) for name in ("one", "two")]
        began = time.monotonic()
        await until("nodes are initialized", site.are_initialized, LIMIT)
        print(f"{len(NAMES)} nodes initialized in {time.monotonic() - began:.1f} s")
        await site.api.post(SERVICES, SERVICE)
        found = await until("the Service has its addresses", site.addresses, LIMIT)
        loads = {
            family: Load(urlsplit(site.lab.forward(address, 80)))
            for family, address in found.items()
        }
        assert loads.keys() == {"IPv4", "IPv6"}
        traffic = Traffic(site.lab, loads)
        await site.are_backends(*NAMES)
        async with in_background(traffic.run()):
            await check_balance(traffic)
            await check_events(site, traffic, *pair)
            await check_starts(site, traffic, running)
            for name in NAMES:
                async with traffic.during(f"{name} replaced"):
                    await site.replace(name)
            assert not traffic.failed, traffic.failed[:5]
            await check_a_stopped_node(site, traffic)
        await site.api.request("DELETE", f"{SERVICES}/web")
        await until("nothing is left", lambda: not site.lab.get(ROOT), LIMIT)


async def check_balance(traffic: Traffic) -> None:
    async with traffic.during("nothing"):
        await asyncio.sleep(3 * CALM)
    for load in traffic.loads.values():
        assert load.nodes.keys() == {*NAMES}
        assert max(load.nodes.values()) < 2 * min(load.nodes.values()), "each gets its share"


async def check_events(site: Site, traffic: Traffic, one: Supervisor, two: Supervisor) -> None:
    """What must not cost a request, while there are two replicas; the second goes on."""
    leader, standby = (one, two) if one.is_leading() else (two, one)
    async with traffic.during("service worker killed"):
        pid = leader.pids()["service"]
        os.kill(pid, signal.SIGKILL)
        await until("another", lambda: leader.is_replaced("service", pid), LIMIT)
    async with traffic.during("daemon held and resumed"):
        await asyncio.to_thread(site.lab.run, "api", "hold")
        await asyncio.sleep(5)  # the fault, not a wait
        await asyncio.to_thread(site.lab.run, "api", "resume")
    async with traffic.during("leader killed, fail-over"):
        leader.end(signal.SIGKILL)
        await until("the standby leads", standby.is_leading, LIMIT)
    async with traffic.during("the only supervisor killed"):
        standby.end(signal.SIGKILL)
        await asyncio.sleep(5)  # the fault, not a wait


async def check_starts(site: Site, traffic: Traffic, running: ExitStack) -> None:
    """A supervisor starts where one was killed, and hands over in order to another."""
    async with traffic.during("supervisor started again"):
        third = running.enter_context(site.supervisor("three"))
        await until("it leads", third.is_leading, LIMIT)
    async with traffic.during("fail-over in order"):
        fourth = running.enter_context(site.supervisor("four"))
        await until("it stands by", lambda: is_standing_by(fourth), LIMIT)
        third.end()
        await until("the other leads", fourth.is_leading, LIMIT)


async def check_a_stopped_node(site: Site, traffic: Traffic) -> None:
    """Nobody warns of a stop by force: what was under way there is lost, and then no more."""
    async with traffic.during("node-2 stopped by force"):
        await asyncio.to_thread(site.lab.set_state, ["node-2"], "stop")
        status = {"status": {"conditions": [ready_condition(False)]}}
        await site.api.patch(f"{NODES}/node-2/status", MERGE_PATCH, status)
        await site.are_backends("node-1", "node-3")
        await asyncio.sleep(PATIENCE)
    async with traffic.during("node-2 is off"):
        before = len(traffic.failed)
        await asyncio.sleep(CALM)
        assert len(traffic.failed) == before
    async with traffic.during("node-2 started"):
        await asyncio.to_thread(site.lab.set_state, ["node-2"], "start")
        status = {"status": {"conditions": [ready_condition(True)]}}
        await site.api.patch(f"{NODES}/node-2/status", MERGE_PATCH, status)
        await site.are_backends(*NAMES)
