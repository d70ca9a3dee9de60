"""OpenStack: the life of a cluster beside upstream's controller on the lab, in seconds and calls.

The lab's control plane runs on the same machine. Rows of `Octavia alone` are the same requests made
by hand, as many at once, and looked at five times a second: no controller can be faster. Looks are
calls that ask for load balancers or their states.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import Row
from bench.nodes import create, each
from bench.plan import Measured, Plan
from bench.site import until_so
from ccm.kube import config
from ccm.kube.client import Kube
from ccm.model.objects import UNINITIALIZED_TAINT, Json
from ccm.sandbox.kubelets import registration
from ccm.sandbox.workload import SERVICE
from tests.labs.openstack.lab import running_lab
from tests.labs.openstack.tenant import Calls, Tenant, is_write
from tests.peers import upstream
from tests.peers.world import LEASE
from tests.providers.openstack.balancers import BalancerLab, alone
from tests.support.kube.build import LAB_PEERS, REMEDY, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.running import RULES, Running, Supervisor, Where

SIZES = (10, 30)
NODES = 10
AT_ONCE = 5  # Services, in the largest act
SERVICES = "/api/v1/namespaces/default/services"
FLAGS = ("--cloud-provider=openstack", "--cluster-cidr=10.244.0.0/16")
MANAGED = ("manage-security-groups = true", "create-monitor = true")
LOOK = re.compile(r"/loadbalancers(/[0-9a-f-]{36}(/status)?)?$")
POLL_INTERVAL = 0.1  # seconds
QUIET = 3.0  # seconds without a call after which an act is over
IDLE = 60.0  # seconds
RESTART = 10.0  # seconds of a start on what is settled
LIMIT = 600.0  # seconds that an act may take

Rows = AsyncIterator[Row]


async def measure(plan: Plan) -> Measured:
    rows: list[Row] = []
    with running_lab(), alone():
        octavia, many = BalancerLab(), _many(max(SIZES))
        octavia.clear()
        octavia.clear_routes()
        rows += [row for count in (1, AT_ONCE) for row in _octavia_alone(octavia, count)]
        async with AsyncExitStack() as stack:
            places = {
                side: await stack.enter_async_context(_place(octavia, many, start))
                for side, start in SIDES.items()
                if side in (plan.sides or SIDES)
            }
            for act in ACTS:
                for side, place in places.items():
                    rows += [{"side": side, **row} async for row in act(place)]
    return Measured(rows, [])


async def _nodes(place: "Place") -> Rows:
    names = sorted(one["name"] for one in place.many.get("nova", "/servers"))
    for count in SIZES:
        await create(place.kube, map(registration, names[:count]))
        with place.running(place.many.conf()):
            yield await place.row(f"{count} Nodes, from the start", place.are_initialized)
        with place.running(place.many.conf()):
            yield await place.restart()
        await place.delete_nodes()


async def _plain_services(place: "Place") -> Rows:
    async for row in _services(place):
        yield row


async def _managed_services(place: "Place") -> Rows:
    async for row in _services(place, *MANAGED):
        yield {**row, "what": f"{row['what']}, monitors and groups"}


async def _services(place: "Place", *lines: str) -> Rows:
    await create(place.kube, map(place.registration, range(NODES - 1)))
    with place.running(place.octavia.config_with(*lines)):
        await place.row("", place.are_initialized)
        await place.add_service("one", 1)
        yield await place.row("a Service with 1 port", place.have_addresses)
        await place.add_service("two", 2)
        await place.row("", place.have_addresses)
        await create(place.kube, [place.registration(NODES - 1)])
        yield await place.row("a Node joins, 2 Services", place.have_members)
        await place.delete_services()
        await place.row("", place.have_no_services)
    await place.delete_nodes()


async def _routes(place: "Place") -> Rows:
    await create(place.kube, map(place.with_network, range(NODES)))
    with place.running(place.octavia.config_with(*place.router)):
        yield await place.row(f"{NODES} Nodes with routes, from the start", place.have_networks)
    await place.delete_nodes()
    await asyncio.to_thread(place.octavia.clear_routes)


async def _everything(place: "Place") -> Rows:
    lines = (*MANAGED, *place.router)
    await create(place.kube, map(place.with_network, range(NODES)))
    for index in range(AT_ONCE):
        await place.add_service(f"web-{index}", 2)
    with place.running(place.octavia.config_with(*lines)):
        what = f"{NODES} Nodes with routes, {AT_ONCE} Services with monitors and groups"
        yield await place.row(f"{what}, from the start", place.have_all)
        await asyncio.sleep(IDLE)
        yield place.taken(f"idle, {IDLE:g} s")
    with place.running(place.octavia.config_with(*lines)):
        yield await place.restart()
        await place.delete_services()
        yield await place.row(f"{AT_ONCE} Services deleted", place.have_no_services)
    await place.delete_nodes()
    await asyncio.to_thread(place.octavia.clear_routes)


def _octavia_alone(octavia: BalancerLab, count: int) -> Iterator[Row]:
    """Load balancers of two ports as we make them, until all work; and until all are gone."""
    what = f"{count} load balancers with 2 ports and monitors"
    began = time.monotonic()
    for index in range(count):
        octavia.create_balancer(f"alone-{index}", [80, 443], has_monitors=True)
    octavia.settle(LIMIT)
    yield {"side": "Octavia alone", "what": what, "s": time.monotonic() - began}
    began = time.monotonic()
    for one in octavia.balancers():
        octavia.call("octavia", "DELETE", f"/lbaas/loadbalancers/{one['id']}?cascade=true")
    octavia.settle(LIMIT)
    yield {"side": "Octavia alone", "what": "their deletion", "s": time.monotonic() - began}


def _many(count: int) -> Tenant:
    """A project with so many servers."""
    tenant = Tenant()
    network = tenant.make("neutron", "network", {"name": "many"})["id"]
    tenant.make_subnet("many", network, {"ip_version": 4, "cidr": "10.70.0.0/16"})
    tenant.world["networks"]["many"] = network
    tenant.create_servers([f"many-{number:02}" for number in range(count)], "many")
    return tenant


@asynccontextmanager
async def _place(octavia: BalancerLab, many: Tenant, start: "Start") -> AsyncIterator["Place"]:
    binaries = find_binaries()
    if binaries is None:
        raise SystemExit(f"kube-apiserver and etcd are not built: {REMEDY}")
    with (
        TemporaryDirectory(prefix="ccm-bench-") as top,
        RealCluster.start(binaries, Path(top, "kube")) as cluster,
    ):
        cluster.grant("ccm", RULES)
        kube = Kube(await config.load(str(cluster.kubeconfig("admin"))), "bench")
        try:
            yield Place(Path(top), cluster, octavia, many, kube, start)
        finally:
            await kube.close()


@dataclass
class Place:
    """A cluster on the lab, in which one side is measured, and what was called in an act."""

    directory: Path
    cluster: RealCluster
    octavia: BalancerLab
    many: Tenant
    kube: Kube
    start: "Start"
    calls: Calls = field(default_factory=Calls)
    began: float = 0.0

    @property
    def router(self) -> tuple[str, ...]:
        return "[Route]", f"router-id = {self.octavia.router}"

    @contextmanager
    def running(self, text: str) -> Iterator[None]:
        """The controller works with this cloud.conf inside; an act begins with its start."""
        path = self.directory / "cloud.conf"
        path.write_text(text)
        self.begin()
        with self.start(self, path) as controller:
            try:
                yield
            except BaseException:
                print(controller.tail())
                raise
        # Upstream's does not give it back; see docs/moving.md.
        body = {"spec": {"holderIdentity": ""}}
        self.cluster.request("PATCH", LEASE, body).expect()

    def begin(self) -> None:
        self.calls.forget()
        self.began = time.monotonic()

    async def row(self, what: str, look: Callable[[], Awaitable[bool]]) -> Row:
        """What it took until `look` is true; the next act begins when no calls are made."""
        await until_so(what or "the next act may begin", look, LIMIT, POLL_INTERVAL)
        seconds = time.monotonic() - self.began
        await until_so("no calls are made", self._is_quiet, LIMIT, POLL_INTERVAL)
        return {**self.taken(what), "s": seconds, "false Warnings": await self._warnings()}

    async def restart(self) -> Row:
        """What a controller calls that finds nothing to do."""
        await asyncio.sleep(RESTART)
        return self.taken(f"a restart on that, {RESTART:g} s")

    async def _is_quiet(self) -> bool:
        last: float = max((call["t"] for call in self.calls.read()), default=0.0)
        return time.time() - last > QUIET and not self.calls.unanswered()

    def taken(self, what: str) -> Row:
        """The calls since the act began; the next act begins."""
        calls = self.calls.read()
        looks = sum(call["method"] == "GET" and bool(LOOK.search(call["path"])) for call in calls)
        self.begin()
        counts = {"calls": len(calls), "of them looks": looks, "writes": sum(map(is_write, calls))}
        return {"what": what, "s": "", **counts}

    async def _warnings(self) -> int:
        """Warnings since the last time; nothing goes wrong here."""
        path = "/api/v1/events"
        events: list[Json] = (await self.kube.get(path))["items"]
        await self.kube.request("DELETE", "/api/v1/namespaces/default/events")
        return sum(one["type"] == "Warning" for one in events)

    def registration(self, index: int) -> Json:
        """The Node of a server."""
        return registration(self.octavia.nodes[index].name)

    def with_network(self, index: int) -> Json:
        """The same with the pod network that it is to have."""
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

    async def delete_nodes(self) -> None:
        await self.kube.request("DELETE", "/api/v1/nodes")

    async def _services(self) -> list[Json]:
        items: list[Json] = (await self.kube.get(SERVICES))["items"]
        return [one for one in items if one["spec"]["type"] == "LoadBalancer"]

    async def _list_nodes(self) -> list[Json]:
        items: list[Json] = (await self.kube.get("/api/v1/nodes"))["items"]
        return items

    async def have_addresses(self) -> bool:
        return all("ingress" in one["status"]["loadBalancer"] for one in await self._services())

    async def have_no_services(self) -> bool:
        return not await self._services()

    async def are_initialized(self) -> bool:
        return not any(
            taint["key"] == UNINITIALIZED_TAINT
            for one in await self._list_nodes()
            for taint in one["spec"].get("taints", ())
        )

    async def have_networks(self) -> bool:
        nodes = await self._list_nodes()
        reported = (
            condition["status"] == "False"
            for node in nodes
            for condition in node["status"]["conditions"]
            if condition["type"] == "NetworkUnavailable"
        )
        return len(nodes) == sum(1 for is_there in reported if is_there)

    async def have_all(self) -> bool:
        return (
            await self.have_networks()
            and await self.are_initialized()
            and await self.have_addresses()
        )

    async def have_members(self) -> bool:
        """Whether all Nodes are behind each port, and Octavia is at work on nothing."""
        return await asyncio.to_thread(self.octavia.has_members, NODES)


Start = Callable[[Place, Path], Running]


def _ours(place: Place, path: Path) -> Running:
    where = Where(place.directory, place.cluster.kubeconfig("ccm"), path)
    return Supervisor(where, *FLAGS, "--controllers=*")


def _upstream(place: Place, path: Path) -> Running:
    binaries = find_binaries(LAB_PEERS)
    if binaries is None:
        raise SystemExit("not built: python3 -m tests.support.kube.build openstack")
    kubeconfig = place.cluster.kubeconfig("admin")
    flags = (*FLAGS[1:], "--allocate-node-cidrs=true", "--configure-cloud-routes=true")
    return upstream.openstack(
        place.directory, binaries, kubeconfig, path, *flags, *upstream.DEFAULTS
    )


ACTS = (_nodes, _plain_services, _managed_services, _routes, _everything)
SIDES: dict[str, Start] = {"ours": _ours, "upstream": _upstream}
