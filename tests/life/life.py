"""A cluster, its cloud and the supervisors in between: who acts, and how it is judged."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ccm.kube.client import Kube
from ccm.sandbox.cloud.client import CloudAdmin
from tests.life import oracle
from tests.life.kubelets import NODES, Nodes
from tests.life.processes import WORKERS, Processes
from tests.life.script import Step
from tests.life.users import SERVICES, VOLUMES, Users
from tests.life.weather import Weather
from tests.proc.running import Cloud, Json, Where

LOOK = 0.2  # seconds between two looks at everything


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
        self._actors: dict[str, Any] = {
            "nodes": self.nodes,
            "users": self.users,
            "cloud": Weather(self.admin),
            "processes": self.processes,
        }
        self._began = time.monotonic()

    async def take(self, step: Step) -> None:
        self.processes.keep()
        self.steps.append(f"{time.monotonic() - self._began:6.2f} s {step}")
        await getattr(self._actors[step.who], step.what)(*step.args)
        await asyncio.sleep(step.pause)

    async def take_together(self, steps: Iterable[Step]) -> None:
        """Steps that have nothing to do with each other."""
        await asyncio.gather(*map(self.take, steps))

    async def settle(self, seconds: float, besides: Mapping[str, int] | None = None) -> None:
        """Until all is right, and workers that may act have looked at all and have nothing to do.

        `besides` are the processes of workers that do not count any more.
        """

        async def look() -> list[str]:
            self.processes.keep()
            return await self.wrong() or self._unsettled(besides or {})

        await until_nothing("wrong", look, seconds)

    async def wrong(self) -> list[str]:
        """What is not right in cluster and cloud."""
        listed = [(await self.api.get(path))["items"] for path in (NODES, SERVICES, VOLUMES)]
        nodes, services, volumes = listed
        asked = [service for service in services if service["metadata"]["name"] != "kubernetes"]
        cloud = await self.admin.state()
        expected = self.nodes.expected
        return oracle.differences(
            oracle.Sight(nodes, asked, volumes, cloud, expected, self.strangers)
        )

    def _unsettled(self, besides: Mapping[str, int]) -> list[str]:
        """What workers still have to do."""
        workers = self.processes.workers()
        absent = [name for name in WORKERS if name not in workers]
        return [f"nobody works as {name}" for name in absent] + [
            f"{name} has {worker.get('pending')} unsettled: {worker.get('reasons')}"
            for name, worker in workers.items()
            if worker["pid"] == besides.get(name) or not _has_looked(worker)
        ]


def _has_looked(worker: Json) -> bool:
    """Whether it brought every object it knows to an end, and has none in its queue."""
    if worker["state"] != "running" or "queue" not in worker:
        return False
    is_busy = worker["queue"]["ready"] or worker["queue"]["oldest_seconds"]
    return worker["done"] >= worker["objects"] and not (worker["pending"] or is_busy)


async def until_nothing(
    what: str, look: Callable[[], Awaitable[Collection[object]]], seconds: float
) -> None:
    """Until `look` finds nothing any more; what it found last is told when it does not."""
    found: Collection[object] = ()
    try:
        async with asyncio.timeout(seconds):
            while found := await look():  # noqa: ASYNC110 - servers are asked
                await asyncio.sleep(LOOK)
    except TimeoutError:
        raise AssertionError("\n".join([f"still {what}:", *map(str, found)])) from None


@asynccontextmanager
async def living(where: Where, cloud: Cloud, api: Kube, replicas: int = 1) -> AsyncIterator[Life]:
    """A life until the end of the block; when it fails, its steps are told."""
    async with CloudAdmin(cloud.url) as admin:
        strangers = await admin.state()
        with Processes(where, replicas) as processes:
            life = Life(api, admin, processes, strangers)
            try:
                yield life
            except BaseException:
                print(*life.steps, *processes.logs(), sep="\n")
                raise
