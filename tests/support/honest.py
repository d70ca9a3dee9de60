"""Honest clients, who want something again and again: a process that times what they wait for.

    python -m tests.support.honest KUBECONFIG CLOUD_URL PORT TOKEN FILE

Each line of the file is one wait. With port 0 nobody probes or scrapes.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import orjson

from ccm.kube.client import Kube
from ccm.model.objects import Json, Node
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.kubelets import NODES, new_machines, registration
from ccm.sandbox.workload import SERVICE
from tests.support.cluster_nodes import connect
from tests.support.deadlines import slowness, timeout
from tests.support.pki import trusting_anybody

SERVICES = "/api/v1/namespaces/default/services"
FIRST_MACHINE = 1000  # its number; those below are the test's
HOST, OTHER_KUBELET, SCRAPER = "127.0.0.1", "127.0.2.1", "127.0.3.1"
"""Where probes and scrapes come from: the supervisor's own address, and those of others."""
GIVEN_UP = 30.0  # seconds after which no probe or scrape waits any more


@dataclass(frozen=True, slots=True)
class Wait:
    """What for, since when by the wall clock, how long, and how slow the machine was at its end."""

    what: str
    began: float
    seconds: float
    slowness: float


def read_waits(path: Path) -> list[Wait]:
    """What such a process has written so far."""
    return [Wait(*orjson.loads(line)) for line in path.read_bytes().splitlines()]


@dataclass(frozen=True)
class Honest:
    """Makes and deletes Services and Nodes, probes and scrapes, without an end."""

    kube: Kube
    cloud: CloudAdmin
    port: int
    token: str
    path: Path

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_repeat(self._service, 0.2))
            group.create_task(_repeat(self._node, 0.7))
            if self.port:
                group.create_task(_repeat(self._probe, 0.15))
                group.create_task(_repeat(self._scrape, 2.0))

    async def _service(self, number: int) -> None:
        name = f"honest-{number}"
        made = await self.kube.post(SERVICES, SERVICE | {"metadata": {"name": name}})
        with self._timed("service"):
            await self._until(SERVICES, made, lambda it: bool(it["status"]["loadBalancer"]))
        deleted = await self.kube.request("DELETE", f"{SERVICES}/{name}")
        with self._timed("service's end"):
            await self._until(SERVICES, deleted, lambda it: False)

    async def _node(self, number: int) -> None:
        [machine] = await self.cloud.add(new_machines(FIRST_MACHINE + number, 1))
        made = await self.kube.post(NODES, registration(machine.name))
        with self._timed("node"):
            await self._until(NODES, made, lambda it: not Node(it).is_uninitialized)
        await self.kube.request("DELETE", f"{NODES}/{machine.name}")
        await self.cloud.vanish(machine.id)

    async def _until(self, path: str, made: Json, is_done: Callable[[Json], bool]) -> None:
        """Until a watch shows the object in such a state, or gone."""
        if made["kind"] == "Status":  # of a deletion that nothing held up
            return
        params = {
            "watch": "true",
            "fieldSelector": f"metadata.name={made['metadata']['name']}",
            "resourceVersion": made["metadata"]["resourceVersion"],
            "timeoutSeconds": "7200",
        }
        async with self.kube.stream(path, params, timeout()) as content:
            rest = b""
            while chunk := await content.read():
                *lines, rest = (rest + chunk).split(b"\n")
                for event in map(orjson.loads, filter(None, lines)):
                    if event["type"] == "DELETED" or is_done(event["object"]):
                        return
        raise AssertionError(f"the watch of {made['metadata']['name']} ended")

    async def _probe(self, number: int) -> None:
        await self._get("probe", "/healthz", (HOST, OTHER_KUBELET)[number % 2])

    async def _scrape(self, _: int) -> None:
        await self._get("scrape", "/metrics", SCRAPER)

    async def _get(self, what: str, path: str, source: str) -> None:
        """On a connection of its own, once: one that is refused or closed was not answered."""
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n"
        with suppress(OSError), self._timed(what, GIVEN_UP):
            async with asyncio.timeout(GIVEN_UP):
                reader, writer = await asyncio.open_connection(
                    HOST, self.port, ssl=trusting_anybody(), local_addr=(source, 0)
                )
                try:
                    writer.write(f"{request}Connection: close\r\n\r\n".encode())
                    answer = await reader.read()
                finally:
                    writer.transport.abort()
            if b" 200 " not in answer.partition(b"\r\n")[0]:
                raise ConnectionError(answer[:200])

    @contextmanager
    def _timed(self, what: str, failed: float = 0.0) -> Iterator[None]:
        """Writes down how long the block takes; `failed` seconds if it raises sooner."""
        wall, began = time.time(), time.monotonic()
        try:
            yield
            failed = 0.0
        except asyncio.CancelledError:
            failed = 0.0  # by the end of all
            raise
        finally:
            seconds = max(time.monotonic() - began, failed)
            with self.path.open("ab") as file:
                file.write(orjson.dumps([what, wall, seconds, slowness()]) + b"\n")


async def _repeat(work: Callable[[int], Awaitable[None]], pause: float) -> None:
    for number in count(1):
        await work(number)
        await asyncio.sleep(pause)


async def main(kubeconfig: str, cloud_url: str, port: str, token: str, path: str) -> None:
    """Until SIGTERM."""
    async with CloudAdmin(cloud_url, timeout()) as cloud:
        kube = await connect(Path(kubeconfig))
        work = asyncio.create_task(Honest(kube, cloud, int(port), token, Path(path)).run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
        with suppress(asyncio.CancelledError):
            await work
        await kube.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
