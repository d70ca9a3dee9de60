"""Where a part is measured: an API server, a simulated cloud, and what is run on them."""

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from bench.nodes import create, kubelets_node
from bench.plan import Plan
from bench.spectator import Spectator
from bench.standin import StandIn
from ccm.bus.control import ask
from ccm.kube import config
from ccm.kube.client import Kube
from ccm.model.objects import Json
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.service import TOKEN
from ccm.sandbox.kubelets import new_machines
from tests.peers import upstream
from tests.peers.upstream import LIBRARY
from tests.support.kube.audit import AuditEntry
from tests.support.kube.build import PEERS, REMEDY, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.running import RULES, Cloud, Controlled, wait_for

CONTROLLERS = ("ccm-supervisor/", LIBRARY)  # how the user agents of those that are measured begin
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
NEWS = 2.5  # seconds after which every worker has said at least once how it is
MACHINES_AT_ONCE = 5000  # in one request to the simulated cloud
NODE_PORTS = "--service-node-port-range=10000-32767"  # room for 10,000 Services
QUIET = 3.0  # seconds after the last Event, in which signs of life report the rest
EVENTS = "/api/v1/namespaces/default/events"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Controller(Controlled):
    """A supervisor with default flags but for those that say where it is."""

    def __init__(self, site: "Site", *flags: str) -> None:
        name = f"supervisor-{next(site.numbers)}"
        self.runtime = site.directory / name
        self.where = (
            "--cloud-provider=simulated",
            f"--cloud-config={site.cloud_config}",
            f"--kubeconfig={site.cluster.kubeconfig('ccm')}",
        )
        runs = (f"--runtime-dir={self.runtime}", "--secure-port=0")
        super().__init__(
            name, site.directory, ["ccm.cli.main", "start", *self.where, *runs, *flags]
        )
        self._sampler = self._sample(site.plan.profiles) if site.plan.profiles else None

    def command(self, arguments: list[str]) -> list[str]:
        """An interpreter of its own, not a fork of one that has loaded the code: that counts."""
        return [sys.executable, "-P", "-m", *arguments]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        code = super().end(number)
        if self._sampler:
            self._sampler.wait()
        return code

    def _sample(self, folder: str) -> "subprocess.Popen[bytes]":
        """Have all its processes sampled until they end; their very first imports are not seen."""
        wait_for("the supervisor runs", self.runtime.exists)
        Path(folder).mkdir(exist_ok=True)
        graph = f"{folder}/{time.time():.0f}-{self.runtime.name}.svg"
        sampler = str(Path(sys.executable).with_name("py-spy"))
        command = [sampler, "record", "--subprocesses", "--rate=200", "--output", graph]
        return subprocess.Popen([*command, "--pid", str(self.pid)])

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, command: str, **more: object) -> Json:
        """What it answers to another command than `status`."""
        return ask(self.control, {"command": command, **more}, 60.0)

    def is_in(self, state: str) -> bool:
        """Whether all workers are in this state, those aside that are not needed."""
        states = {worker["state"] for worker in self.workers().values()} - {"skipped"}
        return states == {state}

    async def until_leading(self) -> None:
        """Until it works on everything."""
        await until("all workers run", lambda: self.is_in("running"))

    async def until_reported(self) -> None:
        """Until no Event waits to be sent, by a word of each worker that is newer than the work."""
        await asyncio.sleep(NEWS)
        await until("all Events are sent", self._has_reported_all, 600.0)

    def _has_reported_all(self) -> bool:
        return not any(worker.get("events_waiting") for worker in self.workers().values())


class Peer:
    """The controllers of upstream's library, with a cloud in memory that answers at no cost."""

    def __init__(self, site: "Site", *flags: str) -> None:
        binaries = find_binaries(PEERS)
        if binaries is None:
            raise SystemExit("upstream's controllers are not built: run `make peers`")
        kubeconfig = site.cluster.kubeconfig("admin")
        self._site = site
        self._running = upstream.memory(site.directory, binaries, kubeconfig, *flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.end()

    @property
    def pid(self) -> int:
        return self._running.process.pid

    async def until_leading(self) -> None:
        """Until it works on everything, which it does not report: a while after it leads."""

        async def leads() -> bool:
            leases = (await self._site.kube.get(LEASES))["items"]
            return any(lease["spec"].get("holderIdentity") for lease in leases)

        await until_so("upstream's leads", leads)
        await asyncio.sleep(QUIET)

    async def until_reported(self) -> None:
        """Until no request has come from it for a while, but those about its lease."""
        counted = -1

        async def is_quiet() -> bool:
            nonlocal counted
            before, counted = counted, sum(self._site.writes().values())
            return before == counted

        await until_so("no more requests come", is_quiet, pause=QUIET)


@dataclass
class Site:
    """One API server and one cloud; nodes come and go, and what was counted is reset."""

    plan: Plan
    directory: Path
    cluster: RealCluster | StandIn
    cloud: Cloud
    admin: CloudAdmin
    kube: Kube
    spectator: Spectator
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def cloud_config(self) -> Path:
        path = self.directory / "cloud.conf"
        path.write_text(
            f"[Global]\nurl = {self.cloud.url}\ntoken = {TOKEN}\npage-size = {self.plan.page}\n"
            f"read-rate = {self.plan.quota:g}\nwrite-rate = {self.plan.writes:g}\n"
        )
        return path

    async def add_machines(self, number: int, first: int = 1) -> list[str]:
        """Machines vm-<first> and following, which the cloud knows from now on."""
        await add_machines(self.admin, number, first)
        return [f"vm-{index}" for index in range(first, first + number)]

    async def add_nodes(self, number: int, first: int = 1, has_pod_network: bool = False) -> None:
        """Machines, and a tainted Node for each."""
        names = await self.add_machines(number, first)
        await create(self.kube, (kubelets_node(name, has_pod_network) for name in names))

    async def clear(self) -> None:
        """No node, no machine, no Event, no lease; what is counted begins again."""
        for path in ("/api/v1/nodes", EVENTS):  # all of 15,000 nodes is more than a client takes
            await self.kube.request("DELETE", path, timeout=300.0, accept=METADATA_LIST)
        await self.kube.request("DELETE", LEASES)
        await self.admin.replace_state({})
        await self.spectator.until_gone()
        await self.count_again()

    async def count_again(self) -> None:
        await self.admin.reset_counters()
        self.cluster.forget_audit()

    def requests(self) -> list[AuditEntry]:
        """What the controllers asked of the API server since the last `count_again`."""
        entries = self.cluster.audit()
        return [entry for entry in entries if entry.user_agent.startswith(CONTROLLERS)]

    def writes(self) -> Counter[str]:
        """Writes that the API server took, by resource."""
        taken = (entry for entry in self.requests() if entry.is_write and entry.code < 300)
        return Counter(
            f"{entry.resource}/{entry.subresource}".rstrip("/")
            for entry in taken
            if entry.resource != "leases"
        )

    def refused(self) -> int:
        """Writes that the API server did not take."""
        return sum(entry.is_write and entry.code >= 300 for entry in self.requests())

    async def cloud_calls(self) -> Counter[str]:
        """Calls that the cloud got, by operation."""
        calls: Counter[str] = Counter()
        for row in (await self.admin.counters())["rows"]:
            calls[row["operation"]] += row["count"]
        return calls

    async def cloud_writes(self) -> int:
        return int((await self.admin.counters())["writes"])


@asynccontextmanager
async def site(plan: Plan, *cloud_flags: str) -> AsyncIterator[Site]:
    """A fresh API server and cloud, until the end of the block."""
    binaries = find_binaries()
    if binaries is None:
        raise SystemExit(f"kube-apiserver and etcd are not built: {REMEDY}")
    flags = ("--page", str(plan.page), "--latency", str(plan.latency), *cloud_flags)
    with TemporaryDirectory(prefix="ccm-bench-") as place:
        directory = Path(place)
        with (
            RealCluster.start(binaries, directory / "kube", [NODE_PORTS]) as cluster,
            Cloud(directory, *flags) as cloud,
        ):
            cluster.grant("ccm", RULES)
            async with _clients(cluster, cloud) as (kube, admin, spectator):
                yield Site(plan, directory, cluster, cloud, admin, kube, spectator)


@asynccontextmanager
async def stand_in(plan: Plan) -> AsyncIterator[Site]:
    """An API server in one process, with an initialised Node for each of the machines."""
    with TemporaryDirectory(prefix="ccm-bench-") as place:
        directory = Path(place)
        with Cloud(directory, "--page", str(plan.page)) as cloud:
            async with CloudAdmin(cloud.url, timeout=60.0) as admin:
                await add_machines(admin, plan.most)
            with StandIn(directory / "kube", cloud.url) as cluster:
                async with _clients(cluster, cloud) as (kube, admin, spectator):
                    names = (f"vm-{number}" for number in range(1, plan.most + 1))
                    spectator.ready.update(dict.fromkeys(names, time.monotonic()))
                    yield Site(plan, directory, cluster, cloud, admin, kube, spectator)


async def add_machines(admin: CloudAdmin, number: int, first: int = 1) -> None:
    for begin in range(first, first + number, MACHINES_AT_ONCE):
        count = min(MACHINES_AT_ONCE, first + number - begin)
        await admin.add(new_machines(begin, count))


@asynccontextmanager
async def _clients(
    cluster: RealCluster | StandIn, cloud: Cloud
) -> AsyncIterator[tuple[Kube, CloudAdmin, Spectator]]:
    kube = Kube(await config.load(str(cluster.kubeconfig("admin"))), "bench")
    spectator = Spectator(kube)
    async with CloudAdmin(cloud.url, timeout=60.0) as admin:
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(spectator.run())
                await spectator.opened()
                yield kube, admin, spectator
                watching.cancel()
        finally:
            await kube.close()


@asynccontextmanager
async def crowd(
    place: Site, number: int, *flags: str, has_pod_networks: bool = False
) -> AsyncIterator[Controller]:
    """A leading controller with `number` initialised nodes and nothing left to do."""
    with Controller(place, *flags) as controller:
        await controller.until_leading()
        await place.add_nodes(number, has_pod_network=has_pod_networks)
        await place.spectator.until_ready(number)
        await controller.until_reported()
        await asyncio.sleep(QUIET)
        await place.count_again()
        yield controller


async def until(
    what: str, look: Callable[[], object], seconds: float = 120.0, pause: float = 0.01
) -> None:
    """Until `look` is true; it may ask a process, so it runs in a thread."""
    await until_so(what, partial(asyncio.to_thread, look), seconds, pause)


async def until_so(
    what: str, look: Callable[[], Awaitable[object]], seconds: float = 600.0, pause: float = 0.05
) -> None:
    """Until the awaited `look` is true; a server is asked, every `pause` seconds."""
    deadline = time.monotonic() + seconds
    while not await look():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(pause)
