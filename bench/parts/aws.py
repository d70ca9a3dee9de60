"""AWS beside upstream's controller, in one emulated account with the request limits of a real one.

Each side starts on tainted Nodes and then follows the same acts, with an API server and an account
of its own. One proxy counts both, and throttles as AWS documents it for an account in one region;
the emulator answers at once, so that no side waits for a slow cloud.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import Row
from bench.nodes import create, each, kubelets_node
from bench.plan import Measured, Plan
from bench.site import until_so
from bench.spectator import Spectator
from ccm.kube import config
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.sandbox.kubelets import ready_condition
from ccm.sandbox.workload import SERVICE
from tests.peers import upstream
from tests.providers.aws.emulator import CREDENTIALS, Emulator
from tests.providers.aws.proxy import AccountLimits, Proxy
from tests.providers.aws.world import ZONES, Account, config_text
from tests.support.kube.build import PEERS, REMEDY, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.running import RULES, Running, Supervisor, Where

SERVICES = "/api/v1/namespaces/default/services"
TYPE = "service.beta.kubernetes.io/aws-load-balancer-type"
KINDS = ("classic", "nlb")
SERVICES_A_KIND = 15
AT_ONCE = 100  # instances in one call
POLL_INTERVAL = 0.25  # seconds
QUIET = 5.0  # seconds without a call after which an act is over
ACT_TIMEOUT = 900.0  # seconds


async def measure(plan: Plan) -> Measured:
    rows: list[Row] = []
    os.environ.update(CREDENTIALS, AWS_EC2_METADATA_DISABLED="true")
    with TemporaryDirectory(prefix="ccm-bench-") as top, Emulator(Path(top)) as emulator:
        for number in plan.sizes:
            for name, start in SIDES.items():
                directory = Path(top, f"{number}-{name}")
                async with _place(directory, emulator) as place:
                    place.proxy.latency = plan.latency
                    rows += [
                        {"nodes": number, "side": name, **row}
                        async for row in _rows(place, start, number)
                    ]
    broken = [
        f"{row['left']} balancers or target groups of ours are left, {row['nodes']} nodes"
        for row in rows
        if row["side"] == "ours" and row.get("left")
    ]
    return Measured(rows, broken)


async def _rows(
    place: "Place", start: Callable[["Place"], Running], number: int
) -> AsyncIterator[Row]:
    await place.add_nodes(number)
    place.begin()
    with start(place) as controller:
        try:
            await place.spectator.until_ready(number, ACT_TIMEOUT)
            yield await place.row("initialized, from the start")
            for what, act in (
                (f"{len(KINDS) * SERVICES_A_KIND} Services made", place.add_services),
                ("a node joins", place.join),
                ("its Node is deleted", place.leave),
                ("a machine is terminated", place.terminate),
                ("all Services deleted", place.delete_services),
            ):
                place.begin()
                await act()
                yield await place.row(what)
            yield {"what": "left behind", "left": place.left()}
        except BaseException:
            print(controller.tail())
            raise


@asynccontextmanager
async def _place(directory: Path, emulator: Emulator) -> AsyncIterator["Place"]:
    binaries = find_binaries()
    if binaries is None:
        raise SystemExit(f"kube-apiserver and etcd are not built: {REMEDY}")
    emulator.reset()
    with (
        RealCluster.start(binaries, directory / "kube") as cluster,
        Proxy(emulator.url) as proxy,
    ):
        cluster.grant("ccm", RULES)
        kube = Kube(await config.load(str(cluster.kubeconfig("admin"))), "bench")
        place = Place(directory, cluster, Account.make(emulator), proxy, kube, Spectator(kube))
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(place.spectator.run())
                await place.spectator.opened()
                yield place
                watching.cancel()
        finally:
            await kube.close()


@dataclass
class Place:
    """An API server and an account, in which one side is measured."""

    directory: Path
    cluster: RealCluster
    account: Account
    proxy: Proxy
    kube: Kube
    spectator: Spectator
    limits: AccountLimits = field(default_factory=AccountLimits)
    began: float = 0.0

    @property
    def where(self) -> Where:
        path = self.directory / "aws.conf"
        # With these upstream's starts outside of AWS.
        extra = f"Zone = {ZONES[0]}\nSubnetID = {self.account.public[ZONES[0]]}"
        path.write_text(config_text(self.account, self.proxy.url, extra))
        return Where(self.directory, self.cluster.kubeconfig("ccm"), path)

    def begin(self) -> None:
        """Count again, with full buckets."""
        self.limits = AccountLimits()
        self.proxy.reset()
        self.proxy.rule = self.limits
        self.began = time.monotonic()

    async def row(self, what: str) -> Row:
        """What it took since `begin`: seconds until now, and calls until there are no more."""
        seconds = time.monotonic() - self.began

        async def is_quiet() -> bool:
            return time.monotonic() - max(self.began, *(r.at for r in self.proxy.requests)) > QUIET

        await until_so("the cloud is left alone", is_quiet, ACT_TIMEOUT, POLL_INTERVAL)
        return {
            "what": what,
            "s": seconds,
            "cloud calls": len(self.proxy.requests),
            "cloud writes": len(self.proxy.writes()),
            "throttled": self.limits.throttled,
        }

    async def add_nodes(self, number: int) -> None:
        """Instances in the account, and a tainted Node for each of them."""
        made: list[Json] = []
        for first in range(0, number, AT_ONCE):
            count = min(AT_ONCE, number - first)
            made += await asyncio.to_thread(self.account.launch, count)
        await create(self.kube, (kubelets_node(one["PrivateDnsName"]) for one in made))

    async def add_services(self) -> None:
        """Services of both kinds, until each has a balancer with all nodes behind it."""
        bodies = [_service(kind, index) for kind in KINDS for index in range(SERVICES_A_KIND)]
        await each(bodies, lambda body: self.kube.post(SERVICES, body))
        await self._until("every Service has an address", self._have_addresses)
        await self._until_hosts()

    async def join(self) -> None:
        """One node more, until it is behind every balancer."""
        await self.add_nodes(1)
        await self._until("the node is initialized", self._are_initialized)
        await self._until_hosts()

    async def leave(self) -> None:
        """A Node is deleted, until its machine is behind no balancer."""
        await self.kube.request("DELETE", f"/api/v1/nodes/{next(iter(await self._nodes()))}")
        await self._until_hosts()

    async def terminate(self) -> None:
        """A machine is terminated, until its Node is gone and it is behind no balancer."""
        name, instance = next(iter((await self._nodes()).items()))
        self.account.ec2.terminate_instances(InstanceIds=[instance])
        body = {"status": {"conditions": [ready_condition(False)]}}
        await self.kube.patch(f"/api/v1/nodes/{name}/status", MERGE_PATCH, body)

        async def is_gone() -> bool:
            return name not in await self._nodes()

        await self._until("the Node is gone", is_gone)
        await self._until_hosts()

    async def delete_services(self) -> None:
        """Until neither Services nor balancers are left."""
        names = [one["metadata"] for one in await self._services()]
        await each(names, lambda one: self.kube.request("DELETE", f"{SERVICES}/{one['name']}"))

        async def are_gone() -> bool:
            return not await self._services()

        await self._until("no Service is left", are_gone)

    def left(self) -> int:
        """How many balancers and target groups the account still has."""
        return len([*self.account.classic_elbs(), *self.account.target_groups()])

    async def _until_hosts(self) -> None:
        wanted = set((await self._nodes()).values())

        async def have_hosts() -> bool:
            return await asyncio.to_thread(self._have_hosts, wanted)

        await self._until("every balancer has its nodes", have_hosts)

    def _have_hosts(self, wanted: set[str]) -> bool:
        classic = (
            {instance["InstanceId"] for instance in one["Instances"]}
            for one in self.account.classic_elbs()
        )
        groups = (set(self.account.targets(group)) for group in self.account.target_groups())
        return all(hosts == wanted for side in (classic, groups) for hosts in side)

    async def _are_initialized(self) -> bool:
        return all((await self._nodes()).values())

    async def _nodes(self) -> dict[str, str]:
        """Of every Node the ID of its machine, empty without one."""
        items: list[Json] = (await self.kube.get("/api/v1/nodes"))["items"]
        return {
            one["metadata"]["name"]: one["spec"].get("providerID", "").rpartition("/")[2]
            for one in items
        }

    async def _services(self) -> list[Json]:
        items: list[Json] = (await self.kube.get(SERVICES))["items"]
        return [one for one in items if one["spec"]["type"] == "LoadBalancer"]

    async def _have_addresses(self) -> bool:
        return all("ingress" in one["status"]["loadBalancer"] for one in await self._services())

    async def _until(self, what: str, look: Callable[[], Awaitable[object]]) -> None:
        await until_so(what, look, ACT_TIMEOUT, POLL_INTERVAL)


def _service(kind: str, number: int) -> Json:
    meta = {"name": f"{kind}-{number}", "namespace": "default", "annotations": {TYPE: kind}}
    return {**SERVICE, "metadata": meta}


def _ours(place: Place) -> Running:
    return Supervisor(place.where, *FLAGS)


def _upstream(place: Place, flags: Sequence[str]) -> Running:
    binaries = find_binaries(PEERS)
    if binaries is None:
        raise SystemExit("upstream's controller is not built: run `make peers`")
    kubeconfig, cloud_config = place.cluster.kubeconfig("admin"), place.where.cloud_config
    return upstream.aws(
        place.directory, binaries, kubeconfig, cloud_config, place.proxy.url, *flags
    )


FLAGS = ("--cloud-provider=aws", "--controllers=*", "--configure-cloud-routes=false")
DEFAULT = ("--configure-cloud-routes=false", *upstream.DEFAULTS)
TUNED = (
    *DEFAULT,
    "--concurrent-node-syncs=50",
    "--concurrent-service-syncs=30",
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
)
SIDES: dict[str, Callable[[Place], Running]] = {
    "ours": _ours,
    "upstream, tuned": partial(_upstream, flags=TUNED),
    "upstream": partial(_upstream, flags=DEFAULT),
}
