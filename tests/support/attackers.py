"""What a tenant, a kubelet and a neighbour on the network do to others: blocks of attack."""

import asyncio
import resource
import socket
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.providers.simulated.load_balancers import SCHEME_ANNOTATION
from ccm.sandbox.workload import SERVICE
from tests.support.deadlines import PATIENCE, timeout
from tests.support.environment import NODES
from tests.support.kube.cluster import NAMESPACES
from tests.support.pki import trusting_anybody
from tests.support.running import IS_LONG, Json, Supervisor, in_background, until, until_none

TENANT = "hostile"  # a namespace
KUBELET = "vm-1"
SERVICES = f"{NAMESPACES}/{TENANT}/services"
CONFIG_MAPS = f"{NAMESPACES}/{TENANT}/configmaps"
NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
MEGABYTE = 1_000_000
SILENT, NEW = 1000, 200  # connections at a time, and a second
LARGE = 100 if IS_LONG else 10  # Services; each of their writes keeps the API server for 0.3 s
CLIENT_HELLO = b"\x16\x03\x01\x02\x00"  # as TLS begins


@dataclass
class Site:
    """What is attacked: an API server and a leader, maybe with a replica that stands by."""

    api: Kube
    port: int
    leader: Supervisor
    standby: Supervisor | None = None
    start: Callable[[], Supervisor] | None = None

    async def change_leader(self) -> None:
        """End the leader in good order; return when another leads."""
        assert self.standby
        assert self.start
        no_worker_died(self.leader)
        self.leader.end()
        self.leader = self.standby
        await until("another replica leads", self.leader.is_leading)
        self.standby = self.start()


def no_worker_died(supervisor: Supervisor) -> None:
    """Fails when one was started again."""
    restarts = {name: worker["restarts"] for name, worker in supervisor.workers().items()}
    assert set(restarts.values()) == {0}, f"{restarts}: {supervisor.tail()}"


Attack = Callable[[Site], AbstractAsyncContextManager[None]]
OTHER_CLASS = "example.com/other"  # Services of it cost the API server alone


@asynccontextmanager
async def calm(_: Site) -> AsyncIterator[None]:
    """Nobody attacks."""
    yield


@asynccontextmanager
async def refused_texts(site: Site, **spec: Any) -> AsyncIterator[None]:
    """40 Services with 60 KB in a refused annotation, 24 with 240 KB of quotes, all changing."""
    texts = [*["eyJ-" * 15_000] * 40, *["\\" + '"' * 240_000] * 24]
    annotations = ({SCHEME_ANNOTATION: text} for text in texts)
    made = [service(number, annotations=one, **spec) for number, one in enumerate(annotations)]

    async def change() -> None:
        for turn in count():
            body = {"metadata": {"labels": {"turn": str(turn)}}}
            path = f"{SERVICES}/hostile-{turn % len(made)}"
            await asyncio.gather(site.api.patch(path, MERGE_PATCH, body), asyncio.sleep(0.1))

    async with created(site.api, made), in_background(change()) as changing:
        yield
        assert not changing.done(), changing


@asynccontextmanager
async def new_leader(site: Site) -> AsyncIterator[None]:
    """Another replica leads, and nothing else."""
    await site.change_leader()
    yield


@asynccontextmanager
async def large_services(site: Site, **spec: Any) -> AsyncIterator[None]:
    """100 Services of 1.25 MB, of labels and of source ranges in turn, when a new leader comes."""
    large = {
        "labels": {f"{number:063}": "x" * 63 for number in range(6_100)}
    }  # in managedFields, too
    ranges = [f"100.{number >> 8}.{number & 255}.0/24" for number in range(1 << 16)]
    kinds: list[dict[str, Any]] = [large, {"loadBalancerSourceRanges": ranges}]
    made = [
        service(number, **one, **spec) for number, one in enumerate(kinds * (LARGE // len(kinds)))
    ]
    async with created(site.api, made), new_leader(site):
        yield


@asynccontextmanager
async def silent_connections(site: Site) -> AsyncIterator[None]:
    """1,000 connections at once and 200 more a second, each from an address of its own.

    Every third begins a handshake, and none says more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * SILENT)), hard))
    held = deque[socket.socket]()

    def connect(number: int) -> None:
        made = socket.socket()
        held.append(made)
        made.setblocking(False)
        made.bind((f"127.{1 + number // 250 % 250}.1.{1 + number % 250}", 0))
        made.connect_ex(("127.0.0.1", site.port))
        if number % 3 == 0:
            with suppress(OSError):
                made.send(CLIENT_HELLO)

    async def go_on() -> None:
        for number in count(SILENT):
            connect(number)
            held.popleft().close()
            await asyncio.sleep(0.9 / NEW)

    try:
        for number in range(SILENT):
            connect(number)
        async with in_background(go_on()) as going:
            yield
            assert not going.done(), going
    finally:
        for one in held:
            one.close()


@asynccontextmanager
async def large_config_map(site: Site) -> AsyncIterator[None]:
    """What the kubelet's updates cost the API server: as many of what nobody reads."""
    await site.api.post(CONFIG_MAPS, {"metadata": {"name": "large"}})
    path = f"{CONFIG_MAPS}/large"
    async with updated(site.api, path, lambda text: {"data": {"text": text}}):
        yield
    await site.api.request("DELETE", path)


@asynccontextmanager
async def large_node(site: Site) -> AsyncIterator[None]:
    """A kubelet writes a megabyte to its own Node ten times a second."""

    def images(text: str) -> Json:
        return {"status": {"images": [{"names": [text], "sizeBytes": 1}]}}

    async with updated(site.api, f"{NODES}/{KUBELET}/status", images):
        yield


@asynccontextmanager
async def changing_address(site: Site) -> AsyncIterator[None]:
    """A kubelet gives its own Node another address ten times a second."""

    async def change() -> None:
        for turn in count():
            address = {"type": "InternalIP", "address": f"10.9.{turn // 250 % 250}.{turn % 250}"}
            body = {"status": {"addresses": [address]}}
            path = f"{NODES}/{KUBELET}/status"
            await asyncio.gather(site.api.patch(path, MERGE_PATCH, body), asyncio.sleep(0.1))

    async with in_background(change()) as changing:
        yield
        assert not changing.done(), changing


@asynccontextmanager
async def packed_bodies(site: Site) -> AsyncIterator[None]:
    """Ten clients without credentials send a megabyte each that unpacks to a gigabyte."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = b"".join(packer.compress(bytes(MEGABYTE)) for _ in range(1000)) + packer.flush()
    head = (
        b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    )

    async def send() -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", site.port, ssl=trusting_anybody()
                )
                writer.write(head % len(body) + body)
                await reader.read(1)
                writer.close()
            await asyncio.sleep(0.5)

    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(send()) for _ in range(10)]
        yield
        for client in clients:
            client.cancel()


@asynccontextmanager
async def updated(api: Kube, path: str, patch: Callable[[str], Json]) -> AsyncIterator[None]:
    """Patched with another megabyte ten times a second."""

    async def update() -> None:
        for turn in count():
            body = patch(f"{turn:08}" * (MEGABYTE // 8))
            await asyncio.gather(api.patch(path, MERGE_PATCH, body), asyncio.sleep(0.1))

    async with in_background(update()) as updating:
        yield
        assert not updating.done(), updating


@asynccontextmanager
async def created(api: Kube, services: Iterable[Json]) -> AsyncIterator[None]:
    """These Services are there during the block, and gone after it."""
    try:
        for one in services:
            await api.post(SERVICES, one, timeout())
        yield
    finally:
        for name in await names_left(api):
            await api.request("DELETE", f"{SERVICES}/{name}", timeout=timeout())
        await until_none("Services of the tenant", lambda: names_left(api), 8 * PATIENCE)


async def names_left(api: Kube) -> list[str]:
    """The Services of the tenant, without reading what is in them."""
    found = await api.request("GET", SERVICES, accept=NAMES_ONLY, timeout=timeout())
    return [item["metadata"]["name"] for item in found["items"] or ()]


def service(
    number: int, labels: Json | None = None, annotations: Json | None = None, **spec: Any
) -> Json:
    """Service hostile-<number>."""
    metadata = {"labels": labels or {}, "annotations": annotations or {}}
    return {
        **SERVICE,
        "metadata": metadata | {"name": f"hostile-{number}"},
        "spec": SERVICE["spec"] | spec,
    }
