"""OpenStack: the life of a cluster of ten Nodes on the lab, in seconds and calls.

The lab's control plane runs on the same machine. Rows of `Octavia alone` are the same requests made
by hand, as many at once: no controller can be faster. Upstream's figures on the same lab are in
docs/providers/openstack.md.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import Row
from bench.nodes import create, each
from bench.plan import Measured, Plan
from bench.site import until_so
from ccm.kube import config
from ccm.kube.client import Kube
from ccm.model.objects import Json
from ccm.sandbox.kubelets import registration
from ccm.sandbox.workload import SERVICE
from tests.kube.build import REMEDY, find_binaries
from tests.kube.cluster import RealCluster
from tests.labs.openstack.lab import running_lab
from tests.labs.openstack.tenant import is_write
from tests.proc.running import RULES, Supervisor, Where
from tests.providers.openstack.balancers import BalancerLab, alone

NODES = 10
AT_ONCE = 5  # Services, in the largest act
SERVICES = "/api/v1/namespaces/default/services"
FLAGS = ("--cloud-provider=openstack", "--controllers=*", "--cluster-cidr=10.244.0.0/16")
SIDES = {
    "default": (),
    "monitors, groups": ("manage-security-groups = true", "create-monitor = true"),
}
LOOK = re.compile(r"/loadbalancers(/[0-9a-f-]{36}(/status)?)?$")
POLL_INTERVAL = 0.2  # seconds
QUIET = 3.0  # seconds without a call after which an act is over
IDLE = 60.0  # seconds
LIMIT = 600.0  # seconds that an act may take


async def measure(plan: Plan) -> Measured:
    rows: list[Row] = []
    with running_lab(), alone():
        octavia = BalancerLab()
        octavia.agent = r"^ccm-supervisor/\S+ (node-\d+|route|service|volume-label)$"
        octavia.clear()
        rows += [_octavia_alone(octavia, count) for count in (1, AT_ONCE)]
        for side, lines in SIDES.items():
            async with _place(octavia, lines) as place:
                rows += [{"side": side, **row} async for row in _life(place)]
    return Measured(rows, [])


async def _life(place: "Place") -> AsyncIterator[Row]:
    with place.started("first"):
        place.begin()
        await create(place.kube, map(place.registration, range(NODES - 1)))
        yield await place.row(f"{NODES - 1} Nodes and routes", place.have_networks)
        await place.add_service("one", 1)
        yield await place.row("a Service with 1 port", place.have_addresses)
        await place.add_service("two", 2)
        await place.row("", place.have_addresses)
        await create(place.kube, [place.registration(NODES - 1)])
        yield await place.row("a Node joins, 2 Services", place.have_members)
        await place.delete_services()
        await place.row("", place.have_no_services)
        for index in range(AT_ONCE):
            await place.add_service(f"web-{index}", 2)
        yield await place.row(f"{AT_ONCE} Services with 2 ports", place.have_addresses)
        await asyncio.sleep(IDLE)
        yield place.taken(f"idle, {IDLE:g} s")
    place.begin()
    with place.started("again") as again:
        again.wait_running()
        yield await place.row("a restart on that", place.have_members)
        await place.delete_services()
        yield await place.row(f"{AT_ONCE} Services deleted", place.have_no_services)
        await place.kube.request("DELETE", "/api/v1/nodes")
    place.octavia.clear_routes()


def _octavia_alone(octavia: BalancerLab, count: int) -> Row:
    """Load balancers of two ports as we make them, until all work."""
    began = time.monotonic()
    for index in range(count):
        octavia.create_balancer(f"alone-{index}", [80, 443])
    octavia.settle(LIMIT)
    seconds = time.monotonic() - began
    octavia.clear()
    return {"side": "Octavia alone", "what": f"{count} load balancers with 2 ports", "s": seconds}


@asynccontextmanager
async def _place(octavia: BalancerLab, lines: Sequence[str]) -> AsyncIterator["Place"]:
    binaries = find_binaries()
    if binaries is None:
        raise SystemExit(f"kube-apiserver and etcd are not built: {REMEDY}")
    with (
        TemporaryDirectory(prefix="ccm-bench-") as top,
        RealCluster.start(binaries, Path(top, "kube")) as cluster,
    ):
        cluster.grant("ccm", RULES)
        path = Path(top, "cloud.conf")
        path.write_text(octavia.config_with(*lines, "[Route]", f"router-id = {octavia.router}"))
        kube = Kube(await config.load(str(cluster.kubeconfig("admin"))), "bench")
        try:
            yield Place(octavia, kube, Where(Path(top), cluster.kubeconfig("ccm"), path))
        finally:
            await kube.close()


@dataclass
class Place:
    """A cluster on the lab, and what was called since the act began."""

    octavia: BalancerLab
    kube: Kube
    where: Where
    seen: int = 0
    began: float = 0.0

    def started(self, name: str) -> Supervisor:
        return Supervisor(self.where, *FLAGS, name=name)

    def begin(self) -> None:
        self.seen, self.began = len(self.octavia.calls()), time.monotonic()

    async def row(self, what: str, look: Callable[[], Awaitable[bool]]) -> Row:
        """What it took until `look` is true; the next act begins then."""
        await until_so(what or "the next act may begin", look, LIMIT, POLL_INTERVAL)
        seconds = time.monotonic() - self.began
        await until_so("no calls are made", self._is_quiet, LIMIT, QUIET)
        return {**self.taken(what), "s": seconds}

    async def _is_quiet(self) -> bool:
        last: float = max(call["t"] for call in self.octavia.calls())
        return time.time() - last > QUIET

    def taken(self, what: str) -> Row:
        """The calls since the act began; the next act begins."""
        calls = sorted(self.octavia.calls(), key=lambda call: call["t"])[self.seen :]
        reads = [call for call in calls if call["method"] == "GET"]
        looks = sum(bool(LOOK.search(call["path"])) for call in reads)
        row: Row = {"what": what, "s": "", "calls": len(calls), "of them looks": looks}
        self.begin()
        return {**row, "writes": sum(map(is_write, calls))}

    def registration(self, index: int) -> Json:
        """The Node of a server, with the pod network that it is to have."""
        return registration(self.octavia.nodes[index].name, f"10.244.{index}.0/24")

    async def add_service(self, name: str, ports: int) -> None:
        numbered = [{"name": f"p{port}", "port": port} for port in (80, 443)[:ports]]
        spec = {**SERVICE["spec"], "ports": numbered}
        meta = {"name": name, "namespace": "default"}
        await self.kube.post(SERVICES, {**SERVICE, "metadata": meta, "spec": spec})

    async def delete_services(self) -> None:
        self.begin()
        names = [one["metadata"] for one in await self._services()]
        await each(names, lambda one: self.kube.request("DELETE", f"{SERVICES}/{one['name']}"))

    async def _services(self) -> list[Json]:
        items: list[Json] = (await self.kube.get(SERVICES))["items"]
        return [one for one in items if one["spec"]["type"] == "LoadBalancer"]

    async def have_addresses(self) -> bool:
        return all("ingress" in one["status"]["loadBalancer"] for one in await self._services())

    async def have_no_services(self) -> bool:
        return not await self._services()

    async def have_networks(self) -> bool:
        nodes = (await self.kube.get("/api/v1/nodes"))["items"]
        told = (
            condition["status"] == "False"
            for node in nodes
            for condition in node["status"]["conditions"]
            if condition["type"] == "NetworkUnavailable"
        )
        return len(nodes) == sum(1 for is_there in told if is_there)

    async def have_members(self) -> bool:
        """Whether all Nodes are behind each port, and Octavia is at work on nothing."""
        return await asyncio.to_thread(self.octavia.has_members, NODES)
