"""The whole product on a real API server and the lab, while requests go through its balancer."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.sandbox.kubelets import ready_condition, registration
from tests.kube.cluster import RealCluster
from tests.labs.incus.lab import Lab
from tests.proc.conftest import api, cluster
from tests.proc.environment import NODES, SERVICES
from tests.proc.running import Supervisor, Where, in_background, long, until
from tests.providers.incus.test_incus_balancers import ROOT

__all__ = ["api", "cluster"]

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(900)]

NAMES = ("node-1", "node-2", "node-3")
FLAGS = (
    "--cloud-provider=incus",
    "--controllers=*",
    "--node-monitor-period=500ms",
    "--node-deletion-confirmation-period=0",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
)
LIMIT = 120.0  # seconds, on a machine that does something else as well
INTERVAL = 0.03  # seconds from one request to the next
PATIENCE = 5.0  # seconds for one request
CALM = 2.0  # seconds that requests go on after an event
SERVICE: Json = {
    "metadata": {"name": "web"},
    "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
}
LEAVING = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}


@dataclass
class Load:
    """Requests to a balancer, each on a connection of its own, until it is cancelled."""

    lab: Lab
    host: str
    port: int
    sent: int = 0
    failed: list[str] = field(default_factory=list)
    answered_at: float = 0.0
    longest_gap: float = 0.0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._request())
                await asyncio.sleep(INTERVAL)

    async def _request(self) -> None:
        self.sent += 1
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                try:
                    writer.write(b"GET / HTTP/1.0\r\n\r\n")
                    answer = await reader.read()
                finally:
                    writer.close()
            assert b"node-" in answer, answer[:60]
        except (OSError, TimeoutError, AssertionError) as error:
            self.failed.append(f"{time.monotonic():.1f} {error!r}")
            return
        now = time.monotonic()
        self.longest_gap = max(self.longest_gap, now - (self.answered_at or now))
        self.answered_at = now

    @asynccontextmanager
    async def during(self, event: str) -> AsyncIterator[None]:
        """Print what comes of the requests in this block and for a moment after it.

        Where the lab's own switch has crashed meanwhile, lost ones are told and not counted.
        """
        sent, failed, self.longest_gap = self.sent, len(self.failed), 0.0
        crashes = self.lab.crashes()
        yield
        await asyncio.sleep(CALM)
        lost = len(self.failed) - failed
        print(f"{event}: {self.sent - sent} requests, {lost} failed, gap {self.longest_gap:.2f} s")
        if self.lab.crashes() > crashes:
            print(f"{event}: not counted, as Open vSwitch has crashed")
            del self.failed[failed:]


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

    async def address(self) -> str:
        """The Service's; empty while it has none."""
        found = await self.api.get(f"{SERVICES}/web")
        ingress = found["status"]["loadBalancer"].get("ingress") or [{}]
        return str(ingress[0].get("ip", ""))

    def backends(self) -> set[str]:
        """The instances behind the balancer."""
        (record,) = self.lab.get(ROOT, recursion=1)
        return {one["name"].rpartition("-")[0] for one in record["backends"]}

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
    """IN33, IN35, IN12, IN13, IN22, IN36: requests go on while all of this happens."""
    for name in NAMES:
        await site.api.post(NODES, registration(name))
    with site.supervisor("one") as one, site.supervisor("two") as two:
        began = time.monotonic()
        await until("nodes are initialized", site.are_initialized, LIMIT)
        print(f"{len(NAMES)} nodes initialized in {time.monotonic() - began:.1f} s")
        await site.api.post(SERVICES, SERVICE)
        await until("the Service has an address", site.address, LIMIT)
        url = urlsplit(site.lab.forward(await site.address(), 80))
        load = Load(site.lab, str(url.hostname), int(url.port or 0))
        await site.are_backends(*NAMES)
        async with in_background(load.run()):
            await check_events(site, load, one, two)
            assert not load.failed, load.failed[:5]
            await check_a_stopped_node(site, load)
        await site.api.request("DELETE", f"{SERVICES}/web")
        await until("nothing is left", lambda: not site.lab.get(ROOT), LIMIT)


async def check_events(site: Site, load: Load, one: Supervisor, two: Supervisor) -> None:
    """What must not cost a request."""
    async with load.during("nothing"):
        await asyncio.sleep(CALM)
    leader, standby = (one, two) if one.is_leading() else (two, one)
    async with load.during("service worker killed"):
        pid = leader.pids()["service"]
        os.kill(pid, signal.SIGKILL)
        await until("another", lambda: leader.is_replaced("service", pid), LIMIT)
    async with load.during("daemon held and resumed"):
        await asyncio.to_thread(site.lab.run, "api", "hold")
        await asyncio.sleep(5)
        await asyncio.to_thread(site.lab.run, "api", "resume")
    async with load.during("leader killed, fail-over"):
        leader.end(signal.SIGKILL)
        await until("the standby leads", standby.is_leading, LIMIT)
    for name in NAMES:
        async with load.during(f"{name} replaced"):
            await site.replace(name)


async def check_a_stopped_node(site: Site, load: Load) -> None:
    """Nobody warns of a stop by force: what was under way there is lost, and then no more."""
    async with load.during("node-2 stopped by force"):
        await asyncio.to_thread(site.lab.set_state, ["node-2"], "stop")
        status = {"status": {"conditions": [ready_condition(False)]}}
        await site.api.patch(f"{NODES}/node-2/status", MERGE_PATCH, status)
        await site.are_backends("node-1", "node-3")
        await asyncio.sleep(PATIENCE)
    async with load.during("node-2 is off"):
        before = len(load.failed)
        await asyncio.sleep(CALM)
        assert len(load.failed) == before
    async with load.during("node-2 started"):
        await asyncio.to_thread(site.lab.set_state, ["node-2"], "start")
        status = {"status": {"conditions": [ready_condition(True)]}}
        await site.api.patch(f"{NODES}/node-2/status", MERGE_PATCH, status)
        await site.are_backends(*NAMES)
