"""A cluster, its cloud and the supervisors in between: who acts, and how it is judged."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ccm.kube.client import Kube
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from tests.e2e.chaos import oracle
from tests.e2e.chaos.kubelets import Nodes
from tests.e2e.chaos.processes import WORKERS, Processes
from tests.e2e.chaos.script import Step
from tests.e2e.chaos.users import Users
from tests.support.environment import NODES, SERVICES, VOLUMES
from tests.support.running import Cloud, Json, Supervisor, until_none


@dataclass
class Life:
    """What happens is told in `steps`. `strangers` is what the cloud held at the beginning."""

    api: Kube
    admin: CloudAdmin
    processes: Processes
    strangers: Json
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes = Nodes(self.api, self.admin)
        self.users = Users(self.api, self.admin)
        self.actors: dict[str, Any] = {
            "nodes": self.nodes,
            "users": self.users,
            "cloud": CloudFaults(self.admin),
            "processes": self.processes,
        }
        self._began = time.monotonic()

    async def take(self, step: Step) -> None:
        self.processes.keep()
        self.steps.append(f"{time.monotonic() - self._began:6.2f} s {step}")
        await getattr(self.actors[step.who], step.what)(*step.args)
        await asyncio.sleep(step.pause)

    async def take_together(self, steps: Iterable[Step]) -> None:
        """Steps that have nothing to do with each other."""
        await asyncio.gather(*map(self.take, steps))

    async def until_done(self, timeout: float, besides: Mapping[str, int] | None = None) -> None:
        """Until nothing is wrong, and leading workers have reconciled all and nothing is pending.

        `besides` are the processes of workers that do not count any more.
        """

        async def find() -> list[str]:
            self.processes.keep()
            return await self.wrong() or self._pending(besides or {})

        await until_none("wrong", find, timeout)

    async def wrong(self) -> list[str]:
        """What is not right in cluster and cloud."""
        listed = [(await self.api.get(path))["items"] for path in (NODES, SERVICES, VOLUMES)]
        nodes, services, volumes = listed
        asked = [service for service in services if service["metadata"]["name"] != "kubernetes"]
        cloud = await self.admin.state()
        expected = self.nodes.expected
        return oracle.differences(
            oracle.Observed(nodes, asked, volumes, cloud, expected, self.strangers)
        )

    def _pending(self, besides: Mapping[str, int]) -> list[str]:
        """What workers still have to do."""
        workers = self.processes.workers()
        absent = [name for name in WORKERS if name not in workers]
        return [f"nobody works as {name}" for name in absent] + [
            f"{name} has {worker.get('pending')} pending: {worker.get('reasons')}"
            for name, worker in workers.items()
            if worker["pid"] == besides.get(name) or not _has_reconciled_all(worker)
        ]


def _has_reconciled_all(worker: Json) -> bool:
    """Whether it brought every object it knows to an end, and has none in its queue."""
    if worker["state"] != "running" or "queue" not in worker:
        return False
    is_busy = worker["queue"]["ready"] or worker["queue"]["oldest_seconds"]
    return worker["done"] >= worker["objects"] and not (worker["pending"] or is_busy)


class CloudFaults:
    """What is wrong with the cloud; every change lasts until `calm`."""

    def __init__(self, cloud: CloudAdmin) -> None:
        self._cloud = cloud

    async def fail(self, kind: str, operation: str, is_performed: bool) -> None:
        """Calls fail; performed: they do their work all the same, and only the answer is lost."""
        fault = CloudFault(CloudFaultKind(kind), operation, performed=is_performed)
        await self._cloud.set_fault(replace(fault, delay=0.2, retry_after=0.3))

    async def slow(self, seconds: float) -> None:
        """Every call takes longer, and so does building and deleting a balancer."""
        await self._cloud.set_limits(latency=seconds, provisioning=seconds, deletion=seconds)

    async def calm(self) -> None:
        await self._cloud.clear_faults()
        await self.slow(0.0)


@asynccontextmanager
async def living(
    start: Callable[[str], Supervisor], cloud: Cloud, api: Kube, replicas: int = 1
) -> AsyncIterator[Life]:
    """A life until the end of the block, which prints its steps for pytest to show on a failure."""
    async with cloud.admin() as admin:
        strangers = await admin.state()
        with Processes(start, replicas) as processes:
            life = Life(api, admin, processes, strangers)
            try:
                yield life
            finally:
                print(*life.steps, *processes.logs(), sep="\n")
